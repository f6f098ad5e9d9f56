//! The transport over reqwest.

use bytes::{Bytes, BytesMut};
use http::Request;
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Error, Response};

use super::{Failure, Reply, Transport};
use crate::BoxFuture;

/// Sends by a reqwest client of its own. It needs a Tokio runtime.
#[derive(Clone, Debug)]
pub struct ReqwestTransport {
    client: Client,
}

impl ReqwestTransport {
    /// A client with reqwest's defaults, without redirects.
    pub fn new() -> Result<Self, Error> {
        Self::from_builder(Client::builder())
    }

    /// A client with settings of the application's own. Redirects and repetitions are switched off whatever they say;
    /// a finished client cannot be taken, since it does not tell whether it follows redirects.
    pub fn from_builder(builder: ClientBuilder) -> Result<Self, Error> {
        let builder = builder.redirect(Policy::none()).retry(reqwest::retry::never());
        Ok(Self { client: builder.build()? })
    }
}

impl Transport for ReqwestTransport {
    fn send(
        &self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>> {
        Box::pin(async move {
            let request =
                request.try_into().map_err(|error: Error| Failure::NotSent(error.into()))?;
            let response = self.client.execute(request).await.map_err(of_sending)?;
            read(response, answer_bytes_max).await.map_err(|error| Failure::Lost(error.into()))
        })
    }
}

/// Only a connection that was never made is sure to have carried nothing.
fn of_sending(error: Error) -> Failure {
    if error.is_connect() || error.is_builder() {
        Failure::NotSent(error.into())
    } else {
        Failure::Lost(error.into())
    }
}

async fn read(mut response: Response, bytes_max: usize) -> Result<Reply, Error> {
    let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
    let mut body = BytesMut::new();
    let mut is_cut = false;
    while let Some(chunk) = response.chunk().await? {
        let room = bytes_max - body.len();
        is_cut = chunk.len() > room;
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if is_cut {
            break;
        }
    }
    Ok(Reply { status, headers, body: body.freeze(), is_cut, is_hidden: false })
}
