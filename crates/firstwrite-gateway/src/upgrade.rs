//! Connections that leave HTTP: once an upstream agrees, bytes pass both ways, unread.

use bytes::Bytes;
use firstwrite::ResponseBody;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use crate::body::RequestBody;
use crate::forward;
use crate::stack::{self, Calls};

pub(crate) async fn pass(mut request: Request<Incoming>, calls: &Calls) -> Response<ResponseBody> {
    let wanted = request.headers().get(UPGRADE).cloned();
    let client = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let Calls { upstreams, forwarding, tenants, .. } = calls;
    forward::request(&mut parts, forwarding, tenants);
    if let Some(wanted) = wanted {
        parts.headers.insert(UPGRADE, wanted);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    let body = RequestBody::streamed(body, upstreams.calling().idle_for_max);
    let called = upstreams.call(Box::new(Request::from_parts(parts, body)), None).await;
    let mut response = match called {
        Ok(response) => response,
        Err(error) => return stack::failed(&error, Version::HTTP_11),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        forward::response(response.headers_mut());
        return response.map(ResponseBody::passed);
    }
    let agreed = response.headers().get(UPGRADE).cloned();
    let server = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let (client, server) = match tokio::try_join!(client, server) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "an upgrade did not come about");
                return;
            }
        };
        let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
        if let Err(error) = copy_bidirectional(&mut client, &mut server).await {
            tracing::debug!(%error, "an upgraded connection ended");
        }
    });
    let (mut parts, body) = response.into_parts();
    body.release();
    forward::response(&mut parts.headers);
    if let Some(agreed) = agreed {
        parts.headers.insert(UPGRADE, agreed);
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    Response::from_parts(parts, ResponseBody::from(Bytes::new()))
}
