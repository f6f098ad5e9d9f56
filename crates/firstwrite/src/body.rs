//! Bodies: a request's is read whole under a cap, an answer's is gathered under a cap or passed on.

mod request;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firstwrite_core::BoxError;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::{Instant, timeout_at};

pub use request::RequestBody;

/// The body of every answer: whole where it was kept or made here, streamed where it was passed on.
pub struct ResponseBody(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Passed(Passed),
    /// Bytes read before the cap was met, then the rest.
    Prefixed(Option<Bytes>, Passed),
}

type Passed = UnsyncBoxBody<Bytes, BoxError>;

/// Room for answers that are gathered to be kept: how much of them a process holds at the same time.
///
/// A handler puts it into the extensions of its answer. There it stays until the answer is passed on, and what
/// it has taken is given back with its last clone. An answer that has not ended when there is no room for more of
/// it is passed on as one that is too large to be kept; one that has is kept in any case.
#[derive(Clone)]
pub struct Room(Arc<dyn Fn(usize) -> bool + Send + Sync>);

impl Room {
    /// `take` counts so many bytes more, and says whether there is room for them.
    pub fn new(take: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}

/// Result of reading a body under a cap.
#[derive(Debug)]
pub(crate) enum Gathered<B> {
    /// All of it.
    Whole(Bytes),
    /// It is longer than the cap, takes longer than the time, or has no room.
    Over { prefix: Bytes, rest: B },
}

/// Reason why a request's body could not be read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is, or says that it is, longer than the cap.
    TooLarge,
    /// It did not arrive in time.
    TooSlow,
    /// There is no room for it at the moment.
    NoRoom,
    /// The connection or the framing broke.
    Broken(BoxError),
}

/// Tells whether the next request can be read from the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    Yes,
    No,
}

/// Time limit for reading a request. A key is reserved after the body is complete, so a slow client blocks no
/// other but holds memory: one minute is generous for a megabyte.
pub(crate) const REQUEST_READ_FOR: Duration = Duration::from_mins(1);
/// Reading a small body costs less than a new connection; a large one is not worth it.
const DRAIN_BYTES_MAX: usize = 64 * 1024;
/// Time limit for draining: bytes in transit arrive within a moment, and a stalled client is not waited for.
const DRAIN_FOR: Duration = Duration::from_millis(500);

/// Reads a request's body, or says why not. Refuses by the declared length before reading a byte.
pub(crate) async fn read<B>(body: B, bytes_max: usize) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if exceeds(body.size_hint().lower(), bytes_max) {
        return Err(Unread::TooLarge);
    }
    let reading = gather(Box::pin(body), bytes_max, None, None);
    match tokio::time::timeout(REQUEST_READ_FOR, reading).await {
        Ok(Ok(Gathered::Whole(bytes))) => Ok(bytes),
        Ok(Ok(Gathered::Over { .. })) => Err(Unread::TooLarge),
        Ok(Err(error)) => Err(unread(error.into())),
        Err(_elapsed) => Err(Unread::TooSlow),
    }
}

/// A body that keeps the time, or a bound for many, itself says so by the kind of its error.
fn unread(error: BoxError) -> Unread {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::TimedOut) => Unread::TooSlow,
        Some(io::ErrorKind::QuotaExceeded) => Unread::NoRoom,
        Some(_) | None => Unread::Broken(error),
    }
}

/// Reads away what a refused request still has to say, within a bound.
pub(crate) async fn drain<B>(body: B) -> Drained
where
    B: Body<Data = Bytes>,
{
    if body.is_end_stream() {
        return Drained::Yes;
    }
    if exceeds(body.size_hint().lower(), DRAIN_BYTES_MAX) {
        return Drained::No;
    }
    let reading = gather(Box::pin(body), DRAIN_BYTES_MAX, None, None);
    match tokio::time::timeout(DRAIN_FOR, reading).await {
        Ok(Ok(Gathered::Whole(_))) => Drained::Yes,
        Ok(Ok(Gathered::Over { .. }) | Err(_)) | Err(_) => Drained::No,
    }
}

/// Reads a body as far as the cap and the room, and for no longer than `until`. Trailers are dropped.
///
/// Pieces are copied into one buffer, which doubles, and let go: a piece of one byte that is kept as it came
/// holds a share of its connection's buffer. So what is held is at most twice what came.
pub(crate) async fn gather<B>(
    mut body: B,
    bytes_max: usize,
    until: Option<Instant>,
    room: Option<&Room>,
) -> Result<Gathered<B>, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut whole = BytesMut::new();
    loop {
        let frame = match until {
            None => body.frame().await,
            Some(until) => match timeout_at(until, body.frame()).await {
                Ok(frame) => frame,
                Err(_elapsed) => return Ok(Gathered::Over { prefix: whole.freeze(), rest: body }),
            },
        };
        let Some(frame) = frame else { return Ok(Gathered::Whole(whole.freeze())) };
        let Ok(piece) = frame?.into_data() else { continue };
        let length = whole.len().saturating_add(piece.len());
        let has_room = room.is_none_or(|room| (room.0)(piece.len()));
        let has_ended = body.is_end_stream();
        // Most bodies come in one piece, which then is not copied.
        if whole.is_empty() && length <= bytes_max && has_ended {
            return Ok(Gathered::Whole(piece));
        }
        if length > whole.capacity() {
            whole.reserve(length.next_power_of_two() - whole.len());
        }
        whole.extend_from_slice(&piece);
        if length > bytes_max || !(has_room || has_ended) {
            return Ok(Gathered::Over { prefix: whole.freeze(), rest: body });
        }
    }
}

fn exceeds(length: u64, bytes_max: usize) -> bool {
    usize::try_from(length).map_or(true, |length| length > bytes_max)
}

impl ResponseBody {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes)))
    }

    /// A body that is passed on as it comes.
    pub fn passed<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Passed(body.map_err(Into::into).boxed_unsync()))
    }

    pub(crate) fn prefixed(prefix: Bytes, rest: Self) -> Self {
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        match rest.0 {
            Kind::Passed(rest) => Self(Kind::Prefixed(prefix, rest)),
            rest @ (Kind::Whole(_) | Kind::Prefixed(..)) => {
                Self(Kind::Prefixed(prefix, Self(rest).boxed_unsync()))
            }
        }
    }

    /// Returns all of it, if it was gathered or made here.
    pub(crate) fn gathered(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Whole(bytes) => Some(bytes.clone().unwrap_or_default()),
            Kind::Passed(_) | Kind::Prefixed(..) => None,
        }
    }

    /// Returns true if the body is certainly longer than the cap, before a byte was read.
    pub(crate) fn is_declared_over(&self, bytes_max: usize) -> bool {
        exceeds(self.size_hint().lower(), bytes_max)
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Passed(body) => Pin::new(body).poll_frame(context),
            Kind::Prefixed(prefix, rest) => match prefix.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Ready(ready!(Pin::new(rest).poll_frame(context))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Passed(body) => body.is_end_stream(),
            Kind::Prefixed(prefix, rest) => prefix.is_none() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, length)),
            Kind::Passed(body) => body.size_hint(),
            Kind::Prefixed(prefix, rest) => {
                let before = prefix.as_ref().map_or(0, length);
                let after = rest.size_hint();
                let mut hint = SizeHint::new();
                // The upper bound first: a lower bound above it is refused by its type.
                if let Some(upper) = after.upper() {
                    hint.set_upper(before.saturating_add(upper));
                }
                hint.set_lower(before.saturating_add(after.lower()));
                hint
            }
        }
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::whole(bytes)
    }
}

impl fmt::Debug for ResponseBody {
    /// Bodies are other people's data and never go to a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResponseBody({:?} bytes)", self.size_hint().exact())
    }
}

#[cfg(test)]
mod tests;
