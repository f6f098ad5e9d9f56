//! A way to an upstream that is no network: a simulation decides what happens on it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use firstwrite::Attempt;
use firstwrite_core::{BoxError, BoxFuture};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::{AnswerBody, CallError, Calling, may_begin};
use crate::body::RequestBody;

/// Carries calls in a network's place.
pub trait Line: fmt::Debug + Send + Sync + 'static {
    /// Connects. Nothing is sent before.
    fn connect(&self) -> BoxFuture<'static, Result<(), LineFailure>>;

    /// Makes a call, once. Dropping the future hangs up; what was sent stays sent.
    fn call(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<LineBody>, LineFailure>>;
}

/// The body of an answer that came over a line: all of it, or the part before it broke off.
#[derive(Clone, Debug)]
pub struct LineBody {
    bytes: Option<Bytes>,
    is_cut: bool,
}

impl LineBody {
    /// A body that came whole.
    pub fn whole(bytes: Bytes) -> Self {
        Self { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), is_cut: false }
    }

    /// A body that ends with an error after `bytes`.
    pub fn cut(bytes: Bytes) -> Self {
        Self { is_cut: true, ..Self::whole(bytes) }
    }

    /// Returns true if it ends with an error.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl Body for LineBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match self.bytes.take() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if self.is_cut => Some(Err("the line broke in the middle of the answer".into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && !self.is_cut
    }

    fn size_hint(&self) -> SizeHint {
        match &self.bytes {
            _ if self.is_cut => SizeHint::default(),
            bytes => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

/// Reason why a line brings no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFailure {
    /// Not a byte was sent.
    NotSent,
    /// It was sent, and the answer was lost.
    Lost,
}

/// Makes a call over `line`, within the same time limit as over a network.
pub(super) async fn call(
    line: &dyn Line,
    request: Request<RequestBody>,
    calling: &Calling,
    attempt: Option<&Attempt>,
) -> Result<Response<AnswerBody>, CallError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(CallError::Lost)?.to_bytes();
    let not_sent = |why: &str| Err(CallError::NotSent(why.into()));
    if !matches!(timeout(calling.connect_within, line.connect()).await, Ok(Ok(()))) {
        return not_sent("the line is down");
    }
    if !may_begin(attempt) {
        return Err(CallError::LeaseEnded);
    }
    match timeout(calling.answer_within, line.call(Request::from_parts(parts, body))).await {
        Ok(Ok(response)) => Ok(response.map(AnswerBody::of_line)),
        Ok(Err(LineFailure::NotSent)) => not_sent("the line is down"),
        Ok(Err(LineFailure::Lost)) => Err(CallError::Lost("the line broke".into())),
        Err(elapsed) => Err(CallError::Lost(elapsed.into())),
    }
}
