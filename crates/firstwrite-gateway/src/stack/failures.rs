//! Answers in the place of an upstream's: nothing was sent, the answer was lost, or the client's own body broke off.

use std::error::Error as _;
use std::io;

use bytes::Bytes;
use firstwrite::{Effect, ResponseBody};
use firstwrite_core::{BoxError, Rejection, RejectionKind};
use http::{Method, Response, Version};

use super::{Calls, closing};
use crate::upstream::CallError;

/// Reason why a client's own body broke off while it passed through.
pub(super) enum BrokenUpload {
    Late,
    Malformed,
}

impl Calls {
    /// No upstream could be reached: the request had no effect, and may be sent again.
    pub(super) fn not_sent(&self) -> Response<Bytes> {
        let mut response = self.refusal(&Rejection::new(RejectionKind::UpstreamUnreachable));
        // Its status alone would say that an answer was lost.
        response.extensions_mut().insert(Effect::None);
        response
    }

    /// There are too many calls under way: nothing was sent, and the request may be sent again.
    pub(super) fn no_room(&self) -> Response<Bytes> {
        if let Some(left_out) = self.lines.no_room.now() {
            tracing::warn!(
                left_out,
                "there are too many calls to upstreams; a request was refused"
            );
        }
        self.overloaded("There are too many calls to the API under way. Nothing was sent.")
    }

    /// The attempt waited for room or a connection until its lease ended: nothing was sent, and the request may be
    /// sent again.
    pub(super) fn too_late(&self) -> Response<Bytes> {
        if let Some(left_out) = self.lines.too_late.now() {
            tracing::warn!(
                left_out,
                "an attempt's lease ended before its call to an upstream could begin; nothing was sent"
            );
        }
        self.overloaded(
            "The call to the API could not begin before the key's lease ended. Nothing was sent.",
        )
    }

    fn overloaded(&self, detail: &'static str) -> Response<Bytes> {
        let refusal = Rejection::new(RejectionKind::Overloaded).detail(detail);
        let mut response = self.refusal(&refusal);
        // Nothing happened, and saying so frees the key.
        response.extensions_mut().insert(Effect::None);
        response
    }

    /// Answers a failed call that has no record.
    pub(crate) fn failed(
        &self,
        error: &CallError,
        method: &Method,
        version: Version,
    ) -> Response<ResponseBody> {
        if let Some(broken) = broken_upload(error) {
            let refused = match broken {
                BrokenUpload::Late => Rejection::late_midway(is_repeatable(method)),
                BrokenUpload::Malformed => Rejection::broken_midway(is_repeatable(method)),
            };
            return closing(self.refusal(&refused), version);
        }
        let response = match error {
            CallError::NoRoom => return closing(self.no_room(), version),
            CallError::LeaseEnded => return closing(self.too_late(), version),
            CallError::NotSent(_) => self.not_sent(),
            CallError::Lost(cause) => {
                let lost = Rejection::answer_lost(is_timeout(cause), is_repeatable(method));
                self.refusal(&lost)
            }
        };
        if let Some(left_out) = self.lines.failed.now() {
            tracing::warn!(%error, left_out, "a call to an upstream failed");
        }
        response.map(ResponseBody::from)
    }
}

/// Returns true if repeating a request of this method does no harm, by the method's definition (RFC 9110,
/// section 9.2.2).
fn is_repeatable(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// Returns how a call's client broke its own body off, if it did; the upstream did not fail then. It was sent the
/// head and what came of the body, and may have acted on them.
pub(super) fn broken_upload(error: &CallError) -> Option<BrokenUpload> {
    let CallError::Lost(cause) = error else { return None };
    let cause = cause.downcast_ref::<hyper::Error>().filter(|cause| cause.is_user())?;
    let silent = cause.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_late = silent.is_some_and(|silent| silent.kind() == io::ErrorKind::TimedOut);
    Some(if is_late { BrokenUpload::Late } else { BrokenUpload::Malformed })
}

fn is_timeout(cause: &BoxError) -> bool {
    cause.is::<tokio::time::error::Elapsed>()
}
