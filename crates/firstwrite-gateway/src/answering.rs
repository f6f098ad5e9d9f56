//! Knows whether bytes that are written to a client are of an answer, or of hyper's own: it refuses what it
//! cannot parse by a head without a body, which is replaced by a problem document.
//!
//! The two must not be confused: a body may hold any text, and a tunnel too.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use firstwrite::ResponseBody;
use firstwrite_core::BoxError;
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

/// Response state of an HTTP/1.1 connection, which has one answer at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answering(Arc<AtomicU8>);

/// Every answer has been written whole.
const NOTHING: u8 = 0;
/// A request is being answered.
const ANSWER: u8 = 1;
/// hyper has all of the answer, and may not have written it yet.
const REST: u8 = 2;
/// The connection has left HTTP.
const TUNNEL: u8 = 3;

impl Answering {
    /// A request begins.
    pub(crate) fn begins(&self) {
        self.0.store(ANSWER, Ordering::Relaxed);
    }

    /// Watches over the rest of an answer.
    pub(crate) fn watch(&self, response: Response<ResponseBody>) -> Response<Watched> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.0.store(TUNNEL, Ordering::Relaxed);
        }
        response.map(|body| Watched { body, answering: self.clone() })
    }

    /// Everything that hyper had to write was written: it flushes only then.
    pub(crate) fn flushed(&self) {
        // One that has begun meanwhile is not at its end.
        let (Ok(_) | Err(_)) =
            self.0.compare_exchange(REST, NOTHING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns true if no answer is being written, so that the next bytes can only be hyper's own.
    pub(crate) fn is_nothing(&self) -> bool {
        self.0.load(Ordering::Relaxed) == NOTHING
    }
}

/// The body of an answer, whose end is noticed.
pub(crate) struct Watched {
    body: ResponseBody,
    answering: Answering,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Answering(state) = &self.answering;
        let (Ok(_) | Err(_)) =
            state.compare_exchange(ANSWER, REST, Ordering::Relaxed, Ordering::Relaxed);
    }
}
