//! Bodies: a request's is read whole under a cap, an answer's is gathered under a cap or passed on.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firstwrite_core::BoxError;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// The body of every answer: whole where it was kept or made here, streamed where it was passed on.
pub struct ResponseBody(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Passed(Passed),
    /// What was read before the cap was met, then the rest.
    Prefixed(VecDeque<Bytes>, Passed),
}

type Passed = UnsyncBoxBody<Bytes, BoxError>;

/// What was read of a body under a cap.
#[derive(Debug)]
pub(crate) enum Gathered<B> {
    /// All of it.
    Whole(Bytes),
    /// It is longer than the cap.
    Over { prefix: VecDeque<Bytes>, rest: B },
}

/// Why a request's body could not be had.
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

/// Whether the next request can be read from the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    Yes,
    No,
}

/// A key is reserved after the body is complete, so a slow client blocks nobody but holds memory:
/// one minute is generous for a megabyte.
pub(crate) const REQUEST_READ_FOR: Duration = Duration::from_mins(1);
/// Reading a small body costs less than a new connection; a large one is not worth it.
const DRAIN_BYTES_MAX: usize = 64 * 1024;
/// What is on its way arrives within a moment; nobody waits for a client that stalls.
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
    let reading = gather(Box::pin(body), bytes_max);
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
    let reading = gather(Box::pin(body), DRAIN_BYTES_MAX);
    match tokio::time::timeout(DRAIN_FOR, reading).await {
        Ok(Ok(Gathered::Whole(_))) => Drained::Yes,
        Ok(Ok(Gathered::Over { .. }) | Err(_)) | Err(_) => Drained::No,
    }
}

/// Reads a body as far as the cap. Trailers are dropped.
pub(crate) async fn gather<B>(mut body: B, bytes_max: usize) -> Result<Gathered<B>, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut chunks = VecDeque::new();
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame?.into_data() else { continue };
        length = length.saturating_add(chunk.len());
        chunks.push_back(chunk);
        if length > bytes_max {
            return Ok(Gathered::Over { prefix: chunks, rest: body });
        }
    }
    Ok(Gathered::Whole(joined(chunks, length)))
}

/// Most bodies come in one piece, which then is not copied.
fn joined(mut chunks: VecDeque<Bytes>, length: usize) -> Bytes {
    if chunks.len() <= 1 {
        return chunks.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(length);
    for chunk in chunks {
        whole.extend_from_slice(&chunk);
    }
    whole.freeze()
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

    pub(crate) fn prefixed(prefix: VecDeque<Bytes>, rest: Self) -> Self {
        match rest.0 {
            Kind::Passed(rest) => Self(Kind::Prefixed(prefix, rest)),
            rest @ (Kind::Whole(_) | Kind::Prefixed(..)) => {
                Self(Kind::Prefixed(prefix, Self(rest).boxed_unsync()))
            }
        }
    }

    /// Whether it is certainly longer than the cap, before a byte was read.
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
            Kind::Prefixed(prefix, rest) => match prefix.pop_front() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Poll::Ready(ready!(Pin::new(rest).poll_frame(context))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Kind::Passed(body) => body.is_end_stream(),
            Kind::Prefixed(prefix, rest) => prefix.is_empty() && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = |bytes: &Bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, length)),
            Kind::Passed(body) => body.size_hint(),
            Kind::Prefixed(prefix, rest) => {
                let before: u64 = prefix.iter().map(length).sum();
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
