//! Bodies on their way through: streamed within a bound of silence, or whole.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::BoxError;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::body_budget::SharedPermit;
use crate::forward::{self, Names};
use crate::head;

/// The body of a request to an upstream.
pub struct RequestBody(Kind);

enum Kind {
    /// As it comes in.
    Streamed(Patient, With),
    /// Read before, for its fingerprint.
    Whole(Option<Bytes>),
}

/// Further handling of a streamed body.
enum With {
    /// Its trailers are passed on, but for those that the gateway has a word in.
    Trailers(Arc<Names>),
    /// It needs room: it will be held. Trailers are not part of what is compared, and are dropped.
    Room(SharedPermit),
    /// Trailers are dropped.
    Nothing,
}

/// A body that may be silent for so long, and no longer.
pub(crate) struct Patient {
    body: Incoming,
    idle_for_max: Duration,
    /// Made when the body is silent for the first time: most never are.
    silence: Option<Pin<Box<Sleep>>>,
    is_silent: bool,
}

impl RequestBody {
    pub(crate) fn streamed(body: Incoming, idle_for_max: Duration) -> Self {
        Self(Kind::Streamed(Patient::new(body, idle_for_max), With::Nothing))
    }

    /// The same, with its trailers.
    pub(crate) fn with_trailers(body: Incoming, idle_for_max: Duration, names: Arc<Names>) -> Self {
        Self(Kind::Streamed(Patient::new(body, idle_for_max), With::Trailers(names)))
    }

    /// The same, for a body that will be held: it needs room.
    pub(crate) fn held(body: Incoming, idle_for_max: Duration, share: SharedPermit) -> Self {
        Self(Kind::Streamed(Patient::new(body, idle_for_max), With::Room(share)))
    }

    pub(crate) fn empty() -> Self {
        Self(Kind::Whole(None))
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Streamed(body, with) => match Pin::new(body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => {
                    Poll::Ready(trailers(frame, with).transpose())
                }
                Poll::Ready(Some(Ok(frame))) if !has_room(with, &frame) => {
                    Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::QuotaExceeded).into())))
                }
                polled @ (Poll::Ready(_) | Poll::Pending) => polled,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Streamed(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
            Kind::Streamed(body, _) => body.size_hint(),
        }
    }
}

impl Patient {
    pub(crate) fn new(body: Incoming, idle_for_max: Duration) -> Self {
        Self { body, idle_for_max, silence: None, is_silent: false }
    }
}

impl Body for Patient {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.is_silent = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let idle_for_max = this.idle_for_max;
        let silence =
            this.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle_for_max)));
        if !this.is_silent {
            this.is_silent = true;
            silence.as_mut().reset(Instant::now() + idle_for_max);
        }
        match silence.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(too_silent().into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for RequestBody {
    /// Bodies are other people's data and never go to a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestBody({:?} bytes)", self.size_hint().exact())
    }
}

fn has_room(with: &With, frame: &Frame<Bytes>) -> bool {
    match (with, frame.data_ref()) {
        (With::Room(share), Some(data)) => share.grow(data.len()),
        (_, _) => true,
    }
}

/// Returns the trailers to pass on, if any, or an error if they are malformed.
fn trailers(frame: Frame<Bytes>, with: &With) -> Result<Option<Frame<Bytes>>, BoxError> {
    let Ok(mut trailers) = frame.into_trailers() else { return Ok(None) };
    if head::has_padded_values(&trailers) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a trailer is malformed").into());
    }
    let With::Trailers(names) = with else { return Ok(None) };
    forward::trailers(&mut trailers, names);
    Ok((!trailers.is_empty()).then(|| Frame::trailers(trailers)))
}

/// Error kind by which the layer and other readers of bodies recognise a slow client.
fn too_silent() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other side was silent for too long")
}
