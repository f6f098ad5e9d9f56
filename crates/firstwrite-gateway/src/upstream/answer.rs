//! The body of an answer: when all of it has come, its connection is free for the next call.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::BoxError;
use http::{Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::pool::Sender;
use super::{CallPermit, Server};
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
}

/// Source of the bytes.
enum Source {
    Connection(Patient),
    /// They came over a [`Line`](super::Line).
    Line(Full<Bytes>),
}

impl AnswerBody {
    pub(super) fn whole(body: Bytes) -> Self {
        Self { body: Source::Line(Full::from(body)), connection: None, is_last: true, permit: None }
    }

    pub(super) fn wrap(
        mut response: Response<Incoming>,
        sender: Sender,
        server: &Arc<Server>,
        idle_for_max: Duration,
    ) -> Response<Self> {
        let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let is_last = has_two_framings(response.headers());
        // An old one is about the connection to the upstream; how the client is answered is its own matter.
        *response.version_mut() = Version::HTTP_11;
        response.map(|body| {
            let connection = Some((sender, Arc::clone(server)));
            let body = Source::Connection(Patient::new(body, idle_for_max));
            let mut body = Self { body, connection, is_last, permit: None };
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
        let polled = match &mut self.body {
            Source::Connection(body) => Pin::new(body).poll_frame(context),
            Source::Line(body) => {
                Pin::new(body).poll_frame(context).map_err(|never| match never {})
            }
        };
        match &polled {
            Poll::Ready(None) => self.give_back(),
            Poll::Ready(Some(Ok(_))) if self.is_end_stream() => self.give_back(),
            Poll::Ready(Some(Err(_))) => self.connection = None,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        match polled {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(passed(frame).map(Ok)),
            polled @ (Poll::Ready(_) | Poll::Pending) => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Source::Connection(body) => body.is_end_stream(),
            Source::Line(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Connection(body) => body.size_hint(),
            Source::Line(body) => body.size_hint(),
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
