//! The transport over hyper's own client.

use std::error::Error as _;
use std::fmt;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;

use super::{Failure, Reply, Transport};
use crate::{BoxError, BoxFuture};

/// Sends by a client of `hyper-util`, which never follows redirects. It needs a Tokio runtime.
#[derive(Clone)]
pub struct HyperTransport<C> {
    client: Client<C, Full<Bytes>>,
}

impl HyperTransport<HttpConnector> {
    /// A client for plain HTTP: on loopback, or behind something that speaks TLS.
    pub fn plain() -> Self {
        Self::new(Client::builder(TokioExecutor::new()).build(HttpConnector::new()))
    }
}

impl<C> HyperTransport<C> {
    /// A client whose connector brings TLS. It may repeat by itself only what it never began to send, which is
    /// `hyper-util`'s default.
    pub fn new(client: Client<C, Full<Bytes>>) -> Self {
        Self { client }
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Transport for HyperTransport<C> {
    fn send(
        &self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move {
            let response = self.client.request(request.map(Full::new)).await.map_err(of_sending)?;
            let (head, body) = response.into_parts();
            let (body, is_cut) = read(body, answer_bytes_max).await.map_err(Failure::Lost)?;
            Ok(Reply { status: head.status, headers: head.headers, body, is_cut, is_hidden: false })
        })
    }
}

/// Only a connection that was never made is sure to have carried nothing. The cause is kept: hyper's own message
/// does not name it.
fn of_sending(error: Error) -> Failure {
    let is_connect = error.is_connect();
    let source = match error.source() {
        Some(source) => format!("{error}: {source}").into(),
        None => error.into(),
    };
    if is_connect { Failure::NotSent(source) } else { Failure::Lost(source) }
}

async fn read(mut incoming: Incoming, bytes_max: usize) -> Result<(Bytes, bool), BoxError> {
    let mut body = BytesMut::new();
    while let Some(frame) = incoming.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue };
        let room = bytes_max - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok((body.freeze(), true));
        }
    }
    Ok((body.freeze(), false))
}

impl<C> fmt::Debug for HyperTransport<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HyperTransport").finish_non_exhaustive()
    }
}
