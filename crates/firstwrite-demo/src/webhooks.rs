//! Endpoint for the provider's webhooks: `POST /webhooks/provider`. They are signed, and may be repeated and
//! come in any order.

use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use firstwrite::carrier::http::{SigningSecret, verify};
use firstwrite_store::{Consumed, Inbox};
use serde::Deserialize;

use crate::ledger::{Books, Settled};
use crate::problem::{Failure, Problem};

/// Path of the endpoint.
pub(crate) const PATH: &str = "/webhooks/provider";

/// Largest accepted difference between the clocks of two machines; older notices are refused as replays.
const TOLERANCE: Duration = Duration::from_mins(5);

/// Secret that verifies notices, and the inbox that recognises repetitions.
#[derive(Clone, Debug)]
pub(crate) struct Hooks {
    secret: SigningSecret,
    inbox: Inbox,
}

/// A notice.
#[derive(Debug, Deserialize)]
struct Notice {
    #[serde(rename = "type")]
    kind: String,
    data: Made,
}

/// The payment as the provider has it.
#[derive(Debug, Deserialize)]
struct Made {
    id: String,
    /// Our reference for it.
    reference: Option<String>,
}

impl Hooks {
    pub(crate) fn new(secret: SigningSecret) -> Self {
        let inbox = Inbox::new("provider").expect("it is a plain word");
        Self { secret, inbox }
    }
}

/// Takes a notice. Whatever is understood is answered with 204, so that it does not come again.
pub(crate) async fn receive(
    State(books): State<Books>,
    Extension(hooks): Extension<Hooks>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let now = books.store().now().await?;
    let verified = match verify(&headers, &body, &[hooks.secret], TOLERANCE, now) {
        Ok(verified) => verified,
        Err(error) => return Ok(Problem::not_signed(format!("{error}.")).into_response()),
    };
    let Ok(notice) = serde_json::from_slice::<Notice>(&body) else {
        return Ok(
            Problem::request("notice-invalid", "The notice is not understood.").into_response()
        );
    };
    let Made { id: provider_id, reference } = notice.data;
    if let ("payment.settled", Some(payment)) = (notice.kind.as_str(), reference) {
        let settled = Settled { event: verified.id, payment, provider_id };
        match books.settle(&hooks.inbox, settled).await? {
            Consumed::First => tracing::info!("a payment is settled"),
            Consumed::Again { .. } => tracing::debug!("a notice came again; nothing is done"),
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
