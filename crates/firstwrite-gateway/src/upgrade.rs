//! Connections that leave HTTP: once an upstream agrees, bytes pass both ways, unread.
//!
//! Bytes in a tunnel are checked by no rule of the gateway, so only listed protocols pass, and only if the
//! offer is unambiguous: one `Upgrade` line with one token.

use bytes::Bytes;
use firstwrite::ResponseBody;
use firstwrite_core::Rejection;
use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use crate::body::RequestBody;
use crate::forward;
use crate::head::tokens;
use crate::stack::{self, Calls};
use crate::tunnel::{self, Leaving};
use crate::upstream::Caller;

/// The protocols that connections may change to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrades(Vec<HeaderValue>);

impl Upgrades {
    /// Takes names of protocols, as they stand in `Upgrade`. HTTP itself is refused: a tunnel of HTTP/2 would
    /// pass requests unchecked.
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let upgrade = |token: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+/".contains(&byte);
            let name = token.split('/').next().unwrap_or_default();
            if token.is_empty() || !token.bytes().all(is_part) {
                return Err(format!("{token:?} is no name of a protocol such as websocket"));
            }
            // Drafts have names such as h2c-14, and within TLS anything could be spoken.
            let name = name.to_ascii_lowercase();
            if ["h2", "h3", "http", "tls"].iter().any(|http| name.starts_with(http)) {
                return Err(format!(
                    "{token} carries HTTP: its requests would pass without keys, tenants and limits"
                ));
            }
            HeaderValue::from_str(&token.to_ascii_lowercase()).map_err(|error| error.to_string())
        };
        tokens.into_iter().map(upgrade).collect::<Result<_, _>>().map(Self)
    }

    /// The protocol that a request asks for, if it asks for exactly one and that is on the list. Any other
    /// offer is ignored, and the request is served as it is (RFC 9110, section 7.8).
    pub(crate) fn wanted(&self, request: &Parts) -> Option<&HeaderValue> {
        let headers = &request.headers;
        let says_upgrade =
            || tokens(headers, &CONNECTION).any(|it| it.eq_ignore_ascii_case("upgrade"));
        if request.version != Version::HTTP_11 || !headers.contains_key(UPGRADE) || !says_upgrade()
        {
            return None;
        }
        self.0.iter().find(|allowed| names_only(headers, allowed))
    }
}

impl Default for Upgrades {
    fn default() -> Self {
        Self(vec![HeaderValue::from_static("websocket")])
    }
}

/// Returns true if there is one `Upgrade` line with nothing but this token in it.
fn names_only(headers: &HeaderMap, token: &HeaderValue) -> bool {
    let mut lines = headers.get_all(UPGRADE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    line.as_bytes().trim_ascii().eq_ignore_ascii_case(token.as_bytes())
}

/// Passes a request on that wants to change to `token`, and what follows if the upstream agrees.
pub(crate) async fn pass(
    mut request: Request<Incoming>,
    token: &HeaderValue,
    calls: &Calls,
) -> Response<ResponseBody> {
    let client = hyper::upgrade::on(&mut request);
    let leaving = request.extensions_mut().remove::<Leaving>();
    let (mut parts, body) = request.into_parts();
    let method = parts.method.clone();
    let is_framed = forward::request(&mut parts, calls);
    say(&mut parts.headers, token);
    let calling = calls.upstreams.calling();
    let body = RequestBody::streamed(body, calling.idle_for_max);
    forward::frame(&mut parts, is_framed, &body, calling);
    let request = Box::new(Request::from_parts(parts, body));
    let called = calls.upstreams.call(request, Caller::Passing).await;
    let mut response = match called {
        Ok(response) => response,
        Err(error) => return calls.failed(&error, &method, Version::HTTP_11),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        forward::response(response.headers_mut());
        return response.map(ResponseBody::passed);
    }
    if !names_only(response.headers(), token) {
        // With the response the connection is dropped, and with it whatever speaks there.
        if let Some(left_out) = calls.lines.other_protocol.now() {
            tracing::warn!(
                left_out,
                "an upstream changed to another protocol than it was asked for"
            );
        }
        let lost = Rejection::answer_lost(false, false)
            .detail("The upstream changed to another protocol than the request asked for.");
        return stack::closing(calls.refusal(&lost), Version::HTTP_11);
    }
    let server = hyper::upgrade::on(&mut response);
    let idle_for_max = calling.tunnel_idle_for_max;
    let (mut parts, body) = response.into_parts();
    let permit = body.release();
    tokio::spawn(async move {
        let _permit = permit;
        let (client, server) = match tokio::try_join!(client, server) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(%error, "an upgrade did not come about");
                return;
            }
        };
        let (client, server) = (TokioIo::new(client), TokioIo::new(server));
        let ended = tunnel::run(client, server, idle_for_max, leaving).await;
        tracing::debug!(?ended, "an upgraded connection ended");
    });
    forward::response(&mut parts.headers);
    say(&mut parts.headers, token);
    Response::from_parts(parts, ResponseBody::from(Bytes::new()))
}

fn say(headers: &mut HeaderMap, token: &HeaderValue) {
    headers.insert(UPGRADE, token.clone());
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::get("/").body(()).unwrap();
        for (name, value) in lines {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        request.into_parts().0
    }

    #[test]
    fn one_token_of_the_list_in_one_line_is_wanted_and_nothing_else() {
        let connection = ("connection", "keep-alive, Upgrade");
        for (lines, is_wanted) in [
            (&[connection, ("upgrade", "websocket")][..], true),
            (&[connection, ("upgrade", "WebSocket")], true),
            (&[("upgrade", "websocket")], false),
            (&[connection], false),
            (&[connection, ("upgrade", "h2c")], false),
            (&[connection, ("upgrade", "h2c"), ("upgrade", "websocket")], false),
            (&[connection, ("upgrade", "websocket, h2c")], false),
            (&[connection, ("upgrade", "websocket"), ("upgrade", "")], false),
        ] {
            let wanted = Upgrades::default().wanted(&head(lines)).is_some();
            assert_eq!(wanted, is_wanted, "{lines:?}");
        }
        let mut old = head(&[connection, ("upgrade", "websocket")]);
        old.version = Version::HTTP_10;
        assert_eq!(Upgrades::default().wanted(&old), None);
    }

    #[test]
    fn http_is_no_protocol_to_change_to() {
        for wrong in [
            "h2c",
            "H2C",
            "h2c-14",
            "h2",
            "HTTP/2.0",
            "h3",
            "TLS/1.0",
            "tls",
            "",
            "a b",
            "a,b",
            "websocket\r\n",
        ] {
            assert!(Upgrades::new([wrong]).is_err(), "{wrong:?}");
        }
        let upgrades = Upgrades::new(["WebSocket", "shout/1"]).unwrap();
        let wish = [("connection", "upgrade"), ("upgrade", "SHOUT/1")];
        assert_eq!(upgrades.wanted(&head(&wish)).unwrap(), "shout/1");
    }
}
