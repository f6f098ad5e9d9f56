//! Trouble on request: `X-Demo-Fault` makes a POST slow, fail or crash, to see what a retry does.

use std::str::FromStr;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use bytes::Bytes;

use crate::problem::Problem;

/// Says if requests may ask for trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// The header is ignored.
    Ignored,
    /// The header does what it says.
    Honoured,
}

/// Fault that a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Wait before the work begins.
    Delay(Duration),
    /// Answer with this 5xx after the rows were written.
    Status(StatusCode),
    /// Panic after the rows were written.
    Panic,
    /// End the process after the rows were written.
    CrashBeforeCommit,
    /// End the process after the commit, before the answer.
    CrashAfterCommit,
}

const HEADER: &str = "x-demo-fault";

/// Longer than any client waits, short enough not to hold a connection for ever.
const DELAY_MAX: Duration = Duration::from_mins(1);

const EXPECTED: &str = "X-Demo-Fault is delay=500ms (up to 60s), status=500 (any 5xx), panic, \
                        crash-before-commit or crash-after-commit.";

/// Reads the header, where it is honoured, and puts what it asks for beside the request.
pub(crate) async fn read(
    State(faults): State<Faults>,
    mut request: Request,
    next: Next,
) -> axum::response::Response {
    let asked = match (faults, request.headers().get(HEADER)) {
        (Faults::Ignored, _) | (Faults::Honoured, None) => Ok(Fault::None),
        (Faults::Honoured, Some(value)) => {
            value.to_str().map_or(Err(EXPECTED), |text| text.trim().parse())
        }
    };
    match asked {
        Ok(fault) => {
            request.extensions_mut().insert(fault);
            next.run(request).await
        }
        Err(expected) => Problem::request("fault-unknown", expected).into_response(),
    }
}

impl Fault {
    /// Before the work: on the caller's own time, never while the store's writer is held.
    pub(crate) async fn before_work(self) {
        if let Self::Delay(delay) = self {
            tokio::time::sleep(delay).await;
        }
    }

    /// Inside the transaction, after the rows were written. An answer here replaces the handler's.
    pub(crate) fn before_commit(self) -> Option<Response<Bytes>> {
        match self {
            Self::None | Self::Delay(_) | Self::CrashAfterCommit => None,
            Self::Status(status) => {
                let detail = "X-Demo-Fault asked for this; everything was rolled back.";
                Some(Problem::internal(status, detail).to_response())
            }
            Self::Panic => panic!("X-Demo-Fault asked for a panic"),
            Self::CrashBeforeCommit => std::process::abort(),
        }
    }

    /// After the commit, before the answer is sent.
    pub(crate) fn after_commit(self) {
        if self == Self::CrashAfterCommit {
            std::process::abort();
        }
    }
}

impl FromStr for Fault {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let fault = match (name, value) {
            ("panic", "") => Some(Self::Panic),
            ("crash-before-commit", "") => Some(Self::CrashBeforeCommit),
            ("crash-after-commit", "") => Some(Self::CrashAfterCommit),
            ("delay", value) => humantime::parse_duration(value)
                .ok()
                .filter(|delay| *delay <= DELAY_MAX)
                .map(Self::Delay),
            ("status", value) => {
                value.parse().ok().filter(StatusCode::is_server_error).map(Self::Status)
            }
            _ => None,
        };
        fault.ok_or(EXPECTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_or_refused() {
        assert_eq!("delay=500ms".parse(), Ok(Fault::Delay(Duration::from_millis(500))));
        assert_eq!("status=503".parse(), Ok(Fault::Status(StatusCode::SERVICE_UNAVAILABLE)));
        assert_eq!("panic".parse(), Ok(Fault::Panic));
        assert_eq!("crash-before-commit".parse(), Ok(Fault::CrashBeforeCommit));
        assert_eq!("crash-after-commit".parse(), Ok(Fault::CrashAfterCommit));
        for wrong in
            ["", "delay", "delay=500", "delay=61s", "status=200", "status=x", "explode", "panic=1"]
        {
            assert!(wrong.parse::<Fault>().is_err(), "{wrong}");
        }
    }
}
