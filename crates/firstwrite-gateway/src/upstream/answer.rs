//! The body of an answer: when all of it has come, its connection is free for the next call. One that is cut
//! off ends with an error, however the upstream cut it off.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::BoxError;
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::pool::Sender;
use super::{CallPermit, LineBody, Server};
use crate::body::Patient;
use crate::forward::{answer_trailers, has_two_framings};

/// The body of an upstream's answer, as it comes.
pub(crate) struct AnswerBody {
    body: Source,
    /// Given back at the end. Dropped before, it closes the connection: what is left of the answer must
    /// not be taken for the next one.
    connection: Option<(Sender, Arc<Server>)>,
    /// The connection ends with this answer: where it ends could be disputed.
    is_last: bool,
    permit: Option<CallPermit>,
    ending: Ending,
    /// Error that the body ends with, held back once.
    broken: Option<BoxError>,
}

/// Sign by which the end of a body is known to be its whole end.
enum Ending {
    /// Bodies of HTTP/1 and those that are whole already: they end with an error where they are cut off.
    Told,
    /// A stream of HTTP/2 that is reset without an error, or cancelled, ends like a whole one. A whole one has said
    /// so, or has all the bytes that its length declares: a reset in the same moment hides the former.
    Stream { has_ended: bool, missing: Option<u64> },
}

/// Part of a body, or the error that it ends with.
type Part = Result<Frame<Bytes>, BoxError>;

/// Source of the bytes.
enum Source {
    Connection(Patient),
    /// They came over a [`Line`](super::Line).
    Line(LineBody),
}

impl AnswerBody {
    pub(super) fn of_line(body: LineBody) -> Self {
        Self {
            body: Source::Line(body),
            connection: None,
            is_last: true,
            permit: None,
            ending: Ending::Told,
            broken: None,
        }
    }

    pub(super) fn wrap(
        mut response: Response<Incoming>,
        sender: Sender,
        server: &Arc<Server>,
        idle_for_max: Duration,
    ) -> Response<Self> {
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let is_last = has_two_framings(response.headers());
        let ending = Ending::of(&response);
        // An old one is about the connection to the upstream; how the client is answered is its own matter.
        *response.version_mut() = Version::HTTP_11;
        response.map(|body| {
            let connection = Some((sender, Arc::clone(server)));
            let body = Source::Connection(Patient::new(body, idle_for_max));
            let mut body = Self { body, connection, is_last, permit: None, ending, broken: None };
            // One that changes its protocol has no end, and no next call.
            if body.is_end_stream() && !is_upgrade {
                body.give_back();
            }
            body
        })
    }

    /// The same, counted as a call that is under way until it is dropped.
    pub(super) fn holding(self, permit: CallPermit) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// Lets the connection run on a task of its own, for another protocol. The call is under way for as long as
    /// that is spoken.
    pub(crate) fn release(mut self) -> Option<CallPermit> {
        if let Some((sender, _)) = self.connection.take() {
            sender.release();
        }
        self.permit.take()
    }

    /// What comes next, with an error in the place of an end that is not the whole one.
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Part>> {
        let polled = match &mut self.body {
            Source::Connection(body) => Pin::new(body).poll_frame(context),
            Source::Line(body) => Pin::new(body).poll_frame(context),
        };
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let is_end = self.is_source_at_end() || frame.is_trailers();
                self.ending.came(frame.data_ref().map_or(0, Bytes::len), is_end);
            }
            Poll::Ready(None) if !self.is_source_at_end() && !self.ending.is_whole() => {
                return Poll::Ready(Some(Err("the stream was reset before its end".into())));
            }
            Poll::Ready(None | Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_source_at_end(&self) -> bool {
        match &self.body {
            Source::Connection(body) => body.is_end_stream(),
            Source::Line(body) => body.is_end_stream(),
        }
    }

    fn give_back(&mut self) {
        if let Some((sender, server)) = self.connection.take()
            && !self.is_last
        {
            server.pool.put(sender);
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some((sender, _)) = &mut self.connection {
            sender.advance(context);
        }
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match self.poll_part(context) {
            Poll::Ready(None) => self.give_back(),
            Poll::Ready(Some(Ok(part))) => {
                if self.is_end_stream() {
                    self.give_back();
                }
                return Poll::Ready(passed(part).map(Ok));
            }
            // A server that meets the error together with the head, or with a part, gives up what it has not sent
            // yet. A client that gets the beginning knows that something came.
            Poll::Ready(Some(Err(error))) => {
                self.connection = None;
                self.broken = Some(error);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.is_source_at_end()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Connection(body) => body.size_hint(),
            Source::Line(body) => body.size_hint(),
        }
    }
}

impl Ending {
    fn of(response: &Response<Incoming>) -> Self {
        if response.version() != Version::HTTP_2 {
            return Self::Told;
        }
        let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let missing = length.and_then(|length| length.parse().ok());
        Self::Stream { has_ended: response.body().is_end_stream(), missing }
    }

    fn came(&mut self, length: usize, is_end: bool) {
        if let Self::Stream { has_ended, missing } = self {
            *has_ended |= is_end;
            let length = u64::try_from(length).unwrap_or(u64::MAX);
            *missing = missing.map(|missing| missing.saturating_sub(length));
        }
    }

    fn is_whole(&self) -> bool {
        match self {
            Self::Told => true,
            Self::Stream { has_ended, missing } => *has_ended || *missing == Some(0),
        }
    }
}

/// Returns what passes of a part of an answer: of trailers those that would pass as headers. They are the last
/// part, so that without any the body is at its end.
fn passed(frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            answer_trailers(&mut trailers);
            (!trailers.is_empty()).then(|| Frame::trailers(trailers))
        }
        Err(data) => Some(data),
    }
}

impl fmt::Debug for AnswerBody {
    /// Bodies are other people's data and never go to a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerBody({:?} bytes)", self.size_hint().exact())
    }
}
