//! A way to an upstream that is no network: a simulation decides what happens on it.

use std::fmt;

use bytes::Bytes;
use firstwrite::Attempt;
use firstwrite_core::BoxFuture;
use http::{Request, Response};
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
    ) -> BoxFuture<'static, Result<Response<Bytes>, LineFailure>>;
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
        Ok(Ok(response)) => Ok(response.map(AnswerBody::whole)),
        Ok(Err(LineFailure::NotSent)) => not_sent("the line is down"),
        Ok(Err(LineFailure::Lost)) => Err(CallError::Lost("the line broke".into())),
        Err(elapsed) => Err(CallError::Lost(elapsed.into())),
    }
}
