//! One attempt. It runs on its caller's task for as long as the caller waits, which saves a
//! hand-over between threads, and goes on in a task of its own when the caller hangs up or has its
//! answer.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::wire_key_of;
use firstwrite_core::{
    AnswerMeaning, BoxFuture, Effect, Fence, Key, Message, MessageError, Mode, Outcome, Policy,
    RecordId, Rejection, Request, Tenant,
};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, Response, StatusCode, response};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::body::{Gathered, ResponseBody, Room, gather};
use crate::coalesce::{Ended, Lead};
use crate::exchange::{AnswerWhen, Call, Exchange};
use crate::layer::Shared;
use crate::lease::LeaseWatch;
use crate::lines::{Lines, say};
use crate::respond::IDEMPOTENCY_OUTCOME;
use crate::{atomic, reserved, respond};

/// The attempt a handler runs in: whose it is, under which key and fence.
///
/// The layer puts it into the request's extensions; with axum it is also an extractor.
#[derive(Clone, Debug)]
pub struct Attempt {
    request: Arc<Request>,
    reserved: Option<(Fence, LeaseWatch)>,
}

/// Result of leading an attempt.
#[derive(Debug)]
pub(crate) enum Led {
    /// The caller's answer.
    Answered(Response<ResponseBody>),
    /// Nothing was run; everything needed to run is handed back.
    Refused(Box<(Ended, Call)>),
}

/// Channel to the caller, while it waits.
#[derive(Debug)]
pub(crate) struct Reply(Option<oneshot::Sender<Led>>);

/// An attempt that its caller waits for. Dropped before its end, it goes on by itself.
struct Attached {
    /// Rest of the attempt; none once it has ended.
    attempt: Option<BoxFuture<'static, ()>>,
    answer: oneshot::Receiver<Led>,
    runtime: Handle,
}

/// Result of the handler.
#[derive(Debug)]
pub(crate) enum Ran {
    /// With an answer that ends the key.
    Kept(response::Parts, Bytes),
    /// With an answer that ends the key and is too large, or too long in coming, to be kept, or has no room.
    TooLarge(Response<ResponseBody>),
    /// With an answer that does not end the key: a server error, or one that says "not now" or that nothing ran.
    NotKept(Response<ResponseBody>),
    /// Without a whole answer, and why: what it did is not known here.
    Lost(String),
}

/// Starts an attempt and waits for its answer.
pub(crate) async fn start(
    shared: &Arc<Shared>,
    lead: Lead,
    exchange: &Arc<Exchange>,
    call: Call,
) -> Led {
    let (sender, answer) = oneshot::channel();
    let reply = Reply(Some(sender));
    let (shared, exchange) = (Arc::clone(shared), Arc::clone(exchange));
    let attempt = async move {
        if let Some(ended) = refused_as_new(&shared, &exchange).await {
            lead.end(ended.clone());
            return reply.refused(ended, call);
        }
        match exchange.policy.mode {
            Mode::Reserved => reserved::attempt(&shared, lead, &exchange, call, reply).await,
            Mode::Atomic => atomic::attempt(&shared, lead, &exchange, call, reply).await,
        }
    };
    let attempt: BoxFuture<'static, ()> = Box::pin(attempt.in_current_span());
    Attached { attempt: Some(attempt), answer, runtime: Handle::current() }.await
}

/// Returns the reason why the request may not run, if its key has no record and may not be made.
///
/// An existing record is looked up again by the attempt that follows, since it may change meanwhile.
async fn refused_as_new(shared: &Shared, exchange: &Exchange) -> Option<Ended> {
    let request = &exchange.request;
    let refusal = shared.observer.may_make_key(&request.tenant).err()?;
    match shared.store.get(request.id).await {
        Ok(Some(_stands)) => None,
        Ok(None) => Some(Ended::Refused(Box::new(refusal))),
        Err(error) => {
            shared.lines.not_looked_up(&error, Some(request.id));
            Some(Ended::StoreFailed(error.kind()))
        }
    }
}

impl Future for Attached {
    type Output = Led;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Led> {
        if let Some(attempt) = &mut self.attempt
            && attempt.as_mut().poll(context).is_ready()
        {
            self.attempt = None;
        }
        match self.answer.try_recv() {
            Ok(led) => Poll::Ready(led),
            // Only the attempt answers, so whatever wakes it is what we wait for.
            Err(TryRecvError::Empty) if self.attempt.is_some() => Poll::Pending,
            Err(TryRecvError::Empty | TryRecvError::Closed) => {
                let unknown = Rejection::outcome_unknown_now();
                Poll::Ready(Led::Answered(respond::rejection(&unknown)))
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            self.runtime.spawn(attempt);
        }
    }
}

/// Runs the handler and gathers its answer as far as it can be kept. Never panics, whatever the
/// handler does.
pub(crate) async fn run(call: Call, exchange: &Exchange, lines: &Lines) -> Ran {
    let record_id = exchange.request.id;
    let Call { run, parts, body, .. } = call;
    let method = parts.method.clone();
    let work = async {
        match run(parts, body).await {
            Ok(response) => gathered(&method, response, exchange, lines).await,
            Err(error) => {
                say!(lines.no_answer, error, %error, %record_id, "the handler failed without an answer");
                Ran::Lost(format!("no answer: {error}"))
            }
        }
    };
    let mut work = Box::pin(work);
    poll_fn(move |context| {
        // Nothing of ours is left half-done by a panic: the work is dropped and never polled again.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(_panic) => {
                say!(lines.panicked, error, %record_id, "the handler panicked");
                Poll::Ready(Ran::Lost("the handler panicked".to_owned()))
            }
        }
    })
    .await
}

/// Gathers an answer as far as it can be kept, or passed on whole. One that does not arrive whole is lost, unless
/// its head says that nothing ran.
async fn gathered(
    method: &Method,
    response: Response<ResponseBody>,
    exchange: &Exchange,
    lines: &Lines,
) -> Ran {
    let (policy, record_id) = (&exchange.policy, exchange.request.id);
    let (mut parts, body) = response.into_parts();
    // Only the layer says this, and clients act on it.
    parts.headers.remove(IDEMPOTENCY_OUTCOME);
    let is_kept = policy.kept_statuses.keeps(parts.status);
    let passed_on = |answer| if is_kept { Ran::TooLarge(answer) } else { Ran::NotKept(answer) };
    if is_endless(&parts.headers) || body.is_declared_over(policy.response_bytes_max) {
        return passed_on(Response::from_parts(parts, body));
    }
    let until = Instant::now() + policy.response_within;
    let room = parts.extensions.get::<Room>();
    let why = match gather(body, policy.response_bytes_max, Some(until), room).await {
        // A body that knows of no end of its own ends wherever its source does.
        Ok(Gathered::Whole(bytes)) if is_cut(method, &parts, bytes.len()) => {
            say!(lines.short, error, %record_id, "the handler's answer is shorter than it said");
            "the answer is shorter than it said".to_owned()
        }
        Ok(Gathered::Whole(bytes)) => {
            // The bytes know their length; a second opinion could differ.
            parts.headers.remove(CONTENT_LENGTH);
            return if is_kept {
                Ran::Kept(parts, bytes)
            } else {
                Ran::NotKept(Response::from_parts(parts, ResponseBody::whole(bytes)))
            };
        }
        Ok(Gathered::Over { prefix, rest }) => {
            let body = ResponseBody::prefixed(prefix, rest);
            return passed_on(Response::from_parts(parts, body));
        }
        Err(error) => {
            say!(lines.broken_off, error, %error, %record_id, "the handler's answer broke off");
            format!("the answer broke off: {error}")
        }
    };
    let said = parts.extensions.get::<Effect>().copied();
    match policy.meaning_of_cut(parts.status, said) {
        AnswerMeaning::Released => Ran::NotKept(respond::cut(&parts, policy)),
        AnswerMeaning::Lost | AnswerMeaning::Kept => Ran::Lost(why),
    }
}

/// Returns true if fewer bytes came than the answer's `Content-Length` said. That of a 304, and of the answer to a
/// HEAD, speaks of another answer's body; a 204 and a 205 have none, whatever their length says.
fn is_cut(method: &Method, parts: &response::Parts, length: usize) -> bool {
    let declared = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let declared = declared.and_then(|value| value.parse::<usize>().ok());
    let has_body = method != Method::HEAD
        && !matches!(
            parts.status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
    has_body && declared.is_some_and(|declared| length < declared)
}

/// Returns true if an answer is of a kind that goes on until one side hangs up.
fn is_endless(headers: &HeaderMap) -> bool {
    const ENDLESS: [&str; 2] = ["text/event-stream", "multipart/x-mixed-replace"];
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or("").trim();
    ENDLESS.iter().any(|endless| essence.eq_ignore_ascii_case(endless))
}

/// Returns the outcome to keep of an answer with a whole body.
pub(crate) fn outcome(
    status: StatusCode,
    headers: &HeaderMap,
    body: Bytes,
    policy: &Policy,
) -> Outcome {
    Outcome::new(status, policy.kept_headers.keep(headers), body)
}

/// Returns the outcome to keep of an answer that is passed on.
pub(crate) fn tombstone(status: StatusCode, headers: &HeaderMap, policy: &Policy) -> Outcome {
    Outcome::tombstone(status, policy.kept_headers.keep(headers))
}

impl Reply {
    /// Answers early, if that is what the caller prefers.
    pub(crate) fn accepted(&mut self, exchange: &Exchange) {
        match exchange.answer_when {
            AnswerWhen::Ended => {}
            AnswerWhen::Accepted => {
                let early = respond::accepted(&exchange.request.key, &exchange.policy);
                self.send(Led::Answered(early));
            }
        }
    }

    pub(crate) fn answered(mut self, response: Response<ResponseBody>) {
        self.answer(response);
    }

    /// Answers while the attempt goes on; a later answer is dropped.
    pub(crate) fn answer(&mut self, response: Response<ResponseBody>) {
        firstwrite_core::crash_point!("answer-leaves");
        self.send(Led::Answered(response));
    }

    pub(crate) fn refused(mut self, ended: Ended, call: Call) {
        self.send(Led::Refused(Box::new((ended, call))));
    }

    fn send(&mut self, led: Led) {
        // Answered already, or the caller is gone: the record answers the next request.
        let Some(sender) = self.0.take() else { return };
        if sender.send(led).is_err() {
            tracing::debug!("the caller hung up before the answer");
        }
    }
}

impl Attempt {
    /// An attempt in [`Mode::Atomic`].
    pub(crate) fn atomic(request: &Arc<Request>) -> Self {
        Self { request: Arc::clone(request), reserved: None }
    }

    /// An attempt in [`Mode::Reserved`].
    pub(crate) fn reserved(request: &Arc<Request>, fence: Fence, lease: LeaseWatch) -> Self {
        Self { request: Arc::clone(request), reserved: Some((fence, lease)) }
    }

    /// Returns the tenant of the request.
    pub fn tenant(&self) -> &Tenant {
        &self.request.tenant
    }

    /// Returns the client's key.
    pub fn key(&self) -> &Key {
        &self.request.key
    }

    /// Returns the id of the record, as it stands in logs.
    pub fn record_id(&self) -> RecordId {
        self.request.id
    }

    /// Returns the key for one step of the work, to send to the service that does it: constant over all
    /// attempts, so that the service recognises a repetition.
    pub fn derived_key(&self, step: &str) -> String {
        format!("{}:{step}", self.request.key.as_str())
    }

    /// The same with a mark of whose key it is, as messages of the outbox are sent with it: for handlers
    /// that call a provider themselves, where two tenants may share an account, and what a
    /// reconciliation knows their calls by.
    pub fn wire_key(&self, step: &str) -> Result<String, MessageError> {
        wire_key_of(self.record_id(), self.key(), step)
    }

    /// Returns the fence that every write of this attempt to the store carries, in [`Mode::Reserved`]. In
    /// [`Mode::Atomic`] there is none: the transaction keeps rivals out.
    ///
    /// A fence names one attempt. Fences of different lives of a key are not ordered, so other systems must not
    /// refuse smaller ones: give them [`derived_key`](Self::derived_key) instead.
    pub fn fence(&self) -> Option<Fence> {
        self.reserved.as_ref().map(|(fence, _)| *fence)
    }

    /// Returns the time for which this attempt certainly still owns its key, in [`Mode::Reserved`]. The lease
    /// is renewed while the handler runs and the store answers. Do not begin irreversible work when nothing is
    /// left: another attempt may have begun.
    pub fn lease_left(&self) -> Option<Duration> {
        self.reserved.as_ref().map(|(_, lease)| lease.left())
    }

    /// A message of `step` under this attempt's key, to be written with the effect.
    pub fn message(
        &self,
        step: &str,
        destination: &str,
        payload: Bytes,
    ) -> Result<Message, MessageError> {
        Message::new(self.tenant(), self.key(), step, destination, payload)
    }
}
