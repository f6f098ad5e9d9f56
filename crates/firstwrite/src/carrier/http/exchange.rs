//! One request and its answer, or how far it came.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{Delivery, Ending};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use tokio::time::{Instant, timeout_at};

use super::connect::HttpClient;

/// A story for people, told by others (a certificate's names, for instance).
const DETAIL_CHARS_MAX: usize = 300;

/// Response of the destination.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Result<Bytes, Unread>,
}

/// Reason why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    TooLong,
    BrokenOff,
    Late,
}

/// There is no answer.
#[derive(Debug)]
pub(super) struct Failed {
    /// False only if it is certain that nothing of the request left this process.
    pub(super) may_be_sent: bool,
    pub(super) detail: String,
}

/// Sends `request` and reads the answer, all within `timeout`; of the body at most `bytes_max`.
pub(super) async fn exchange(
    client: &HttpClient,
    mut request: Request<Full<Bytes>>,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Answer, Failed> {
    let until = Instant::now() + timeout;
    // Set just before a request is given to its connection: while it is not, nothing was sent.
    let connection = capture_connection(&mut request);
    let response = match timeout_at(until, client.request(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let has_connection = connection.connection_metadata().is_some();
            return Err(Failed {
                may_be_sent: has_connection && !is_unsent(&error),
                detail: story(&error),
            });
        }
        Err(_elapsed) => {
            let may_be_sent = connection.connection_metadata().is_some();
            let lacking = if may_be_sent { "answer" } else { "connection" };
            let within = humantime::format_duration(timeout);
            return Err(Failed { may_be_sent, detail: format!("no {lacking} within {within}") });
        }
    };
    let (parts, body) = response.into_parts();
    let body = match timeout_at(until, read(body, bytes_max)).await {
        Ok(body) => body,
        Err(_elapsed) => Err(Unread::Late),
    };
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}

/// Reads the body to its end even if it is not used: only then can the connection be used again.
async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, Unread> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Unread::TooLong),
        Err(_broken) => Err(Unread::BrokenOff),
    }
}

/// Returns true if the client reports that the request was not put on the wire: there was no connection, or it
/// had ended before it took the request up (hyper then gives the request back, as cancelled).
fn is_unsent(error: &legacy::Error) -> bool {
    let is_canceled = |source: &(dyn Error + 'static)| {
        source.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled)
    };
    error.is_connect() || error.source().is_some_and(is_canceled)
}

/// The error and its causes in one line.
fn story(error: &legacy::Error) -> String {
    let mut story = if error.is_connect() { "cannot connect" } else { "no answer" }.to_owned();
    let mut cause = error.source();
    let mut last = String::new();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors repeat what they wrap.
        if !last.contains(&text) {
            write!(story, ": {text}").expect("writing to a string");
            last = text;
        }
        cause = error.source();
    }
    story.chars().filter(|character| !character.is_control()).take(DETAIL_CHARS_MAX).collect()
}

impl From<Failed> for Delivery {
    fn from(failed: Failed) -> Self {
        let ending = if failed.may_be_sent { Ending::Unknown } else { Ending::Retry };
        Self::new(ending, failed.detail)
    }
}
