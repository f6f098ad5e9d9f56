//! Follows the answers on a connection, in two respects.
//!
//! HTTP/1.1: whether bytes that are written to a client are of an answer, or of hyper's own: it refuses what it
//! cannot parse by a head without a body, which is replaced by a problem document. The two must not be
//! confused: a body may hold any text, and a tunnel too.
//!
//! HTTP/2: whether the client takes what it asked for. Its windows hold an answer up without a write that is
//! pending, so each piece of one says when it makes progress, and the connection looks for pieces that do not.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use firstwrite::ResponseBody;
use firstwrite_core::BoxError;
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};

/// State of the answers on a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answering(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// That of an HTTP/1.1 connection, which has one answer at a time.
    answer: AtomicU8,
    /// Requests of an HTTP/2 connection until hyper has all of their answers.
    under_way: AtomicU32,
    tick: AtomicU32,
    /// Number of pieces that last made progress in a tick, by its remainder.
    untaken: [AtomicU32; TICKS],
}

/// Every answer has been written whole.
const NOTHING: u8 = 0;
/// A request is being answered.
const ANSWER: u8 = 1;
/// hyper has all of the answer, and may not have written it yet.
const REST: u8 = 2;
/// The connection has left HTTP.
const TUNNEL: u8 = 3;

/// Ticks in the time for which a client may leave a piece untaken.
pub(crate) const TICKS_MAX: u32 = 4;
/// The ticks that pieces may be of: the current one, as many whole ones as they may wait, the one in which they
/// began to, and one whose pieces end the connection.
const TICKS: usize = 8;
/// Bytes of a piece: a client that takes so many makes progress. As large as the frames that most clients take.
const PIECE_BYTES_MAX: usize = 16 * 1024;

impl Answering {
    /// A request of this version begins.
    pub(crate) fn begins(&self, version: Version) -> Exchange {
        self.0.answer.store(ANSWER, Ordering::Relaxed);
        let is_in_pieces = version == Version::HTTP_2;
        self.0.under_way.fetch_add(u32::from(is_in_pieces), Ordering::Relaxed);
        Exchange { state: Arc::clone(&self.0), is_in_pieces }
    }

    /// Everything that hyper had to write was written: it flushes only then.
    pub(crate) fn flushed(&self) {
        // One that has begun meanwhile is not at its end.
        let (Ok(_) | Err(_)) =
            self.0.answer.compare_exchange(REST, NOTHING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns true if no answer is being written, so that the next bytes can only be hyper's own.
    pub(crate) fn is_nothing(&self) -> bool {
        self.0.answer.load(Ordering::Relaxed) == NOTHING
    }

    /// Returns true if no request is under way (HTTP/2), and the client has taken every piece.
    pub(crate) fn is_idle(&self) -> bool {
        let State { under_way, untaken, .. } = &*self.0;
        [under_way].into_iter().chain(untaken).all(|count| count.load(Ordering::Relaxed) == 0)
    }

    /// A tick has passed. Returns false if a piece has made no progress for [`TICKS_MAX`] whole ones.
    pub(crate) fn tick(&self) -> bool {
        let now = self.0.tick.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.0.untaken(now.wrapping_sub(TICKS_MAX + 1)).load(Ordering::Relaxed) == 0
    }
}

impl State {
    fn untaken(&self, tick: u32) -> &AtomicU32 {
        &self.untaken[tick as usize % TICKS]
    }
}

/// A request and its answer.
pub(crate) struct Exchange {
    state: Arc<State>,
    /// Over HTTP/2.
    is_in_pieces: bool,
}

/// The body of an answer, whose end is noticed.
pub(crate) struct Watched {
    body: ResponseBody,
    /// What came of the body behind the piece that was handed out last.
    rest: Bytes,
    exchange: Exchange,
}

/// A piece of an answer.
pub(crate) struct Piece {
    bytes: Bytes,
    mark: Option<Mark>,
}

/// Counts as a piece that last made progress in a tick.
struct Mark {
    state: Arc<State>,
    tick: u32,
}

impl Exchange {
    /// Watches over the rest of the answer.
    pub(crate) fn watch(self, response: Response<ResponseBody>) -> Response<Watched> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.state.answer.store(TUNNEL, Ordering::Relaxed);
        }
        response.map(|body| Watched { body, rest: Bytes::new(), exchange: self })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.state.under_way.fetch_sub(u32::from(self.is_in_pieces), Ordering::Relaxed);
    }
}

impl Watched {
    fn piece(&mut self, mut bytes: Bytes) -> Piece {
        if !self.exchange.is_in_pieces {
            return Piece { bytes, mark: None };
        }
        if bytes.len() > PIECE_BYTES_MAX {
            self.rest = bytes.split_off(PIECE_BYTES_MAX);
        }
        Piece { bytes, mark: Some(Mark::new(&self.exchange.state)) }
    }
}

impl Body for Watched {
    type Data = Piece;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BoxError>>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            let rest = std::mem::take(&mut this.rest);
            return Poll::Ready(Some(Ok(Frame::data(this.piece(rest)))));
        }
        let polled = Pin::new(&mut this.body).poll_frame(context);
        polled.map(|came| came.map(|came| came.map(|frame| frame.map_data(|it| this.piece(it)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(body.lower().saturating_add(rest));
        hint
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let state = &self.exchange.state.answer;
        let (Ok(_) | Err(_)) =
            state.compare_exchange(ANSWER, REST, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        if let Some(mark) = &mut self.mark {
            mark.renew();
        }
        self.bytes.advance(count);
    }
}

impl Mark {
    fn new(state: &Arc<State>) -> Self {
        let tick = state.tick.load(Ordering::Relaxed);
        state.untaken(tick).fetch_add(1, Ordering::Relaxed);
        Self { state: Arc::clone(state), tick }
    }

    fn renew(&mut self) {
        let now = self.state.tick.load(Ordering::Relaxed);
        if now != self.tick {
            self.state.untaken(now).fetch_add(1, Ordering::Relaxed);
            self.state.untaken(self.tick).fetch_sub(1, Ordering::Relaxed);
            self.tick = now;
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.state.untaken(self.tick).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_that_makes_no_progress_is_noticed_after_whole_ticks() {
        let answering = Answering::default();
        assert!(answering.is_idle());
        let piece =
            || Piece { bytes: Bytes::from_static(b"made"), mark: Some(Mark::new(&answering.0)) };
        let mut slow = piece();
        for _ in 0..TICKS * 3 {
            drop(piece());
            assert!(!answering.is_idle());
            assert!(answering.tick());
            if slow.remaining() > 1 {
                slow.advance(1);
            } else {
                slow = piece();
            }
        }
        for _ in 0..TICKS_MAX {
            assert!(answering.tick());
        }
        assert!(!answering.tick());
        drop(slow);
        assert!(answering.is_idle());
        assert!(answering.tick());
    }
}
