//! The path of one request through the gateway, top to bottom.
//!
//! 1. The head: what makes no sense, or could be read in two ways, is refused.
//! 2. A browser that asks what a page may send is answered, where origins are named.
//! 3. What is asked of the gateway itself is answered, and never passed on.
//! 4. An upgrade to another protocol passes through, unless its operation is protected.
//! 5. A protected call of gRPC, and a request whose own timestamp is too old, are refused.
//! 6. From here on it is the layer's: policy, tenant, key, body, fingerprint, reservation.
//! 7. Forwarding: headers, and what the upstream is told of the attempt.
//! 8. The call. How it ends decides what becomes of the key; where an answer is lost, or is a server error,
//!    and the operation has a probe, that is asked.

mod failures;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use firstwrite::{
    ATTEMPT_TRACEPARENT, Attempt, Effect, IdempotencyLayer, Operation, PolicyResolver as _,
    ResponseBody, Seldom,
};
use firstwrite_core::{
    BoxFuture, ProblemBase, Rejection, RejectionKind, Timestamp, is_server_error,
};
use http::header::{CONTENT_LENGTH, ORIGIN};
use http::{Request, Response, StatusCode, Version, request, response};
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Incoming};
use tower::{Layer as _, Service};
use tracing::{Instrument as _, Span};

use crate::body::RequestBody;
use crate::body_budget::BodyBudget;
use crate::cors::Cors;
use crate::forward::{self, Forwarding, IDEMPOTENCY_KEY, Names};
use crate::metrics::{Kind, Metrics};
use crate::operations::Operations;
use crate::peer::Peer;
use crate::probe::{Found, Probe};
use crate::tenants::Tenants;
use crate::traces::Tracer;
use crate::uncounted::Uncounted;
use crate::unprotected::{Passing, Unprotected};
use crate::upstream::{AnswerBody, CallError, Caller, Upstreams};
use crate::{grpc, head, path, traces, upgrade};
use failures::broken_upload;

/// Everything that a request passes, as it was set up; a reload makes another one.
pub(crate) struct Stack {
    layer: IdempotencyLayer,
    calls: Arc<Calls>,
    uncounted: Uncounted,
    bodies: Arc<BodyBudget>,
    answers: Arc<BodyBudget>,
}

/// Answer of an upstream, or one given in its place.
type Answer = Response<Either<AnswerBody, Full<Bytes>>>;

/// Everything needed to call upstreams.
pub(crate) struct Calls {
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) forwarding: Forwarding,
    pub(crate) operations: Arc<Operations>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) names: Arc<Names>,
    pub(crate) cors: Option<Cors>,
    pub(crate) problem_base: ProblemBase,
    pub(crate) metrics: Option<Arc<Metrics>>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) clock: fn() -> SystemTime,
    pub(crate) lines: Lines,
    pub(crate) unprotected: Unprotected,
}

/// Log lines that strangers could repeat while an upstream is down.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    not_sent: Seldom,
    failed: Seldom,
    silent: Seldom,
    no_room: Seldom,
    too_late: Seldom,
    pub(crate) other_protocol: Seldom,
}

/// The upstreams in the handler's place.
#[derive(Clone)]
struct Handler {
    calls: Arc<Calls>,
    answers: Arc<BodyBudget>,
}

impl Stack {
    pub(crate) fn new(layer: IdempotencyLayer, calls: Calls) -> Self {
        let calling = calls.upstreams.calling();
        let bytes_max = calling.held_bytes_max;
        let share = calling.tenant_part_of(bytes_max);
        let budget = || BodyBudget::new(bytes_max, share, calls.tenants.verifies());
        let (bodies, answers) = (budget(), budget());
        Self { layer, calls: Arc::new(calls), uncounted: Uncounted::default(), bodies, answers }
    }

    pub(crate) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Returns true if no attempt is under way.
    pub(crate) fn is_drained(&self) -> bool {
        let drained = std::pin::pin!(self.layer.drained());
        drained.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Returns the number of attempts under way.
    pub(crate) fn attempts_under_way(&self) -> usize {
        self.layer.attempts_under_way()
    }

    /// Waits until no attempt is under way.
    pub(crate) async fn drained(&self) {
        self.layer.drained().await;
    }

    /// Answers a request, in a span of its own if spans are collected.
    ///
    /// Futures that few requests need are boxed: otherwise every request would move the room for them about.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let cors = self.calls.cors.as_ref();
        let origin = cors.and_then(|_| request.headers().get(ORIGIN).cloned());
        let mut response = if let Some(tracer) = &self.calls.tracer {
            let span = traces::request(&**tracer, request.method(), request.headers());
            let response = Box::pin(self.pass(request, peer)).instrument(span.clone()).await?;
            traces::answered(&**tracer, &span, &response);
            response
        } else {
            self.pass(request, peer).await?
        };
        response.headers_mut().remove(ATTEMPT_TRACEPARENT);
        if let Some(cors) = cors {
            cors.allow(origin.as_ref(), &mut response);
        }
        Ok(response)
    }

    async fn pass(
        &self,
        mut request: Request<Incoming>,
        peer: &Peer,
    ) -> Result<Response<ResponseBody>, Infallible> {
        request.extensions_mut().insert(peer.clone());
        let (mut parts, body) = request.into_parts();
        let metrics = self.calls.metrics.as_deref();
        let checked = self.check_head(&parts);
        if let Err(refused) = checked {
            metrics.inspect(|metrics| metrics.refused_head());
            return Ok(closing(self.calls.refusal(&refused), parts.version));
        }
        if let Some(answer) = self.calls.cors.as_ref().and_then(|cors| cors.preflight(&parts)) {
            return Ok(answer);
        }
        if path::is_own(parts.uri.path()) {
            return Ok(Box::pin(self.answer_itself(parts, body)).await);
        }
        let operation = self.calls.operations.operation(&parts);
        if let Some(name) = operation.as_ref().map(|operation| &*operation.name)
            && self.calls.operations.is_named(name)
        {
            Span::current().record("otel.name", name);
        }
        let kind = if operation.is_some() { Kind::Protected } else { Kind::Passed };
        if operation.is_none()
            && let Err(refused) = forward::check_key(&parts.headers, self.calls.forwarding.key)
        {
            metrics.inspect(|metrics| metrics.passed(refused.status()));
            return Ok(closing(self.calls.refusal(&refused), parts.version));
        }
        let _under_way = metrics.map(|metrics| metrics.under_way(kind));
        if let Some(token) = self.calls.forwarding.upgrades.wanted(&parts) {
            if let Some(operation) = &operation {
                let refused = Rejection::new(RejectionKind::UpgradeRefused);
                metrics.inspect(|metrics| metrics.refused(operation, refused.kind()));
                return Ok(closing(self.calls.refusal(&refused), parts.version));
            }
            let request = Request::from_parts(parts, body);
            let response = Box::pin(upgrade::pass(request, token, &self.calls)).await;
            metrics.inspect(|metrics| metrics.passed(response.status()));
            return Ok(response);
        }
        if grpc::is_call(&parts.headers)
            && let Err(refused) = self.check_grpc(&parts, operation.as_ref())
        {
            let readable = grpc::trailers_only(&parts, &refused);
            let response = readable.unwrap_or_else(|| self.calls.refusal(&refused));
            return Ok(closing(response, parts.version));
        }
        if let Some(operation) = operation {
            if let Some(limit) = &self.calls.operations.extras(&operation.name).age
                && let Err(refused) = limit.check(&parts, (self.calls.clock)())
            {
                metrics.inspect(|metrics| metrics.refused(&operation, refused.kind()));
                return Ok(closing(self.calls.refusal(&refused), parts.version));
            }
            self.uncounted.note(&parts.headers, &operation.policy);
            parts.extensions.insert(operation);
        }
        let idle_for_max = self.calls.upstreams.calling().idle_for_max;
        // Without a key, where it is optional, a body is passed on as it comes.
        let is_held = kind == Kind::Protected && parts.headers.contains_key(IDEMPOTENCY_KEY);
        let body = if is_held {
            let share = self.bodies.share();
            parts.extensions.insert(Arc::clone(&share));
            RequestBody::held(body, idle_for_max, share)
        } else {
            RequestBody::with_trailers(body, idle_for_max, Arc::clone(&self.calls.names))
        };
        Ok(self.through(Request::from_parts(parts, body)).await)
    }

    fn check_head(&self, parts: &request::Parts) -> Result<(), Rejection> {
        let operations = &self.calls.operations;
        head::check(parts)?;
        operations.check_method(&parts.method)?;
        operations.check_path(parts)
    }

    /// Refuses a gRPC call whose status would be lost: in a kept answer, or on the way to and from an upstream.
    fn check_grpc(
        &self,
        parts: &request::Parts,
        operation: Option<&Operation>,
    ) -> Result<(), Rejection> {
        let metrics = self.calls.metrics.as_deref();
        if let Some(operation) = operation
            && Operations::is_protected(operation, parts)
        {
            let refused = grpc::protected(parts);
            metrics.inspect(|metrics| metrics.refused(operation, refused.kind()));
            return Err(refused);
        }
        if grpc::needs_trailers(&parts.headers) && !self.calls.upstreams.calling().http2 {
            let refused = grpc::without_trailers();
            metrics.inspect(|metrics| metrics.passed(refused.status()));
            return Err(refused);
        }
        Ok(())
    }

    /// Answers what is asked of the gateway itself. No operation is looked for, and nothing is passed on.
    async fn answer_itself(
        &self,
        mut parts: request::Parts,
        body: Incoming,
    ) -> Response<ResponseBody> {
        if !path::is_answered(parts.uri.path()) {
            let refused = Rejection::new(RejectionKind::NotFound);
            return closing(self.calls.refusal(&refused), parts.version);
        }
        let metrics = self.calls.metrics.as_deref();
        let _under_way = metrics.map(|metrics| metrics.under_way(Kind::Passed));
        // Who waits for a status holds its head meanwhile.
        parts.extensions.insert(self.bodies.share());
        let body = RequestBody::streamed(body, self.calls.upstreams.calling().idle_for_max);
        self.through(Request::from_parts(parts, body)).await
    }

    /// From here on it is the layer's.
    pub(crate) async fn through(&self, request: Request<RequestBody>) -> Response<ResponseBody> {
        let (version, method) = (request.version(), request.method().clone());
        let (calls, answers) = (Arc::clone(&self.calls), Arc::clone(&self.answers));
        let mut service = self.layer.layer(Handler { calls, answers });
        match service.call(request).await {
            Ok(response) => response,
            // Only a call that passed through ends here: the layer answers for the others.
            Err(error) => {
                let response = self.calls.failed(&error, &method, version);
                self.calls.metrics.as_ref().inspect(|metrics| metrics.passed(response.status()));
                response
            }
        }
    }
}

impl Service<Request<RequestBody>> for Handler {
    type Response = Answer;
    type Error = CallError;
    type Future = BoxFuture<'static, Result<Self::Response, CallError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    /// Does all immediate work before the future is made, which keeps the future small.
    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let (calls, answers) = (Arc::clone(&self.calls), Arc::clone(&self.answers));
        let (mut parts, body) = request.into_parts();
        let is_framed = forward::request(&mut parts, &calls);
        forward::frame(&mut parts, is_framed, &body, calls.upstreams.calling());
        let attempt = parts.extensions.remove::<Attempt>();
        let operation = parts.extensions.remove::<Operation>();
        let passing = operation.is_none().then(|| Passing::of(&parts, &calls.operations)).flatten();
        let mark = calls.tracer.as_ref().filter(|_| attempt.is_some());
        let mark = mark.and_then(|tracer| tracer.traceparent(&Span::current()));
        let span = traces::call(calls.tracer.as_ref(), &parts.method, &mut parts.headers);
        let request = Box::new(Request::from_parts(parts, body));
        Box::pin(async move {
            let calling = calls.upstreams.call(request, Caller::of(attempt.as_ref()));
            let called = calling.instrument(span.clone()).await;
            traces::called(&span, called.as_ref().ok().map(Response::status));
            let called = called.and_then(|response| match response.status() {
                StatusCode::SWITCHING_PROTOCOLS => {
                    Err(CallError::Lost("the upstream changed the protocol unasked".into()))
                }
                _ => Ok(response),
            });
            calls.count(&called, attempt.is_some());
            if let (Some(passing), Ok(response)) = (&passing, &called) {
                calls.unprotected.note(passing, response.status());
            }
            let answered = match (called, attempt) {
                (Ok(mut response), attempt) => {
                    let said = forward::effect(response.headers_mut());
                    forward::response(response.headers_mut());
                    if let Some(attempt) =
                        attempt.as_ref().filter(|_| !response.body().is_end_stream())
                    {
                        let room = answers.room(attempt.tenant());
                        response.extensions_mut().insert(room);
                    }
                    let response = response.map(Either::Left);
                    match (attempt, said) {
                        (Some(attempt), None) if may_have_happened(response.status()) => {
                            let asking = calls.ask_after(response, &attempt, operation.as_ref());
                            Ok(Box::pin(asking).await)
                        }
                        (_, said) => Ok(saying(response, said)),
                    }
                }
                // Nothing happened, and saying so frees the key.
                (Err(CallError::NotSent(error)), Some(_)) => {
                    if let Some(left_out) = calls.lines.not_sent.now() {
                        tracing::warn!(%error, left_out, "no upstream could be reached; nothing was sent");
                    }
                    Ok(calls.not_sent().map(whole))
                }
                (Err(CallError::NoRoom), Some(_)) => Ok(calls.no_room().map(whole)),
                (Err(CallError::LeaseEnded), Some(_)) => Ok(calls.too_late().map(whole)),
                (Err(lost @ CallError::Lost(_)), Some(attempt)) => {
                    Box::pin(calls.ask_about(&attempt, operation.as_ref())).await.ok_or(lost)
                }
                (Err(error), None) => Err(error),
            };
            answered.map(|mut response| {
                // Kept with the outcome, for replays to point at.
                if let Some(mark) = mark {
                    response.headers_mut().insert(ATTEMPT_TRACEPARENT, mark);
                }
                response
            })
        })
    }
}

impl Calls {
    /// A refusal of ours, as it goes to the client.
    pub(crate) fn refusal(&self, refusal: &Rejection) -> Response<Bytes> {
        refusal.to_response_at(&self.problem_base)
    }

    fn count(&self, called: &Result<Response<AnswerBody>, CallError>, is_protected: bool) {
        let Some(metrics) = &self.metrics else { return };
        match called {
            // What is protected, the layer tells of.
            Ok(_response) if is_protected => {}
            Ok(response) => metrics.passed(response.status()),
            // A client's mistake says nothing of an upstream.
            Err(error) if broken_upload(error).is_some() => {}
            Err(error) => metrics.call_failed(error),
        }
    }

    /// The answer to a call that ended with a server error, once the operation's probe was asked, if it has
    /// one. A yes is answered with; a no leaves the error as it is, since the upstream has ended its work
    /// or will be asked about again; silence keeps the doubt.
    async fn ask_after(&self, failed: Answer, attempt: &Attempt, of: Option<&Operation>) -> Answer {
        let probe = of.and_then(|of| self.operations.extras(&of.name).probe.as_ref());
        let Some(probe) = probe else { return failed };
        match self.ask(probe, attempt).await {
            Found::Happened(found) => happened(*found),
            Found::Nothing => failed,
            Found::Silence(why) => {
                if let Some(left_out) = self.lines.silent.now() {
                    let record_id = attempt.record_id();
                    tracing::warn!(
                        %record_id,
                        why,
                        left_out,
                        "a probe did not say what came before a server error"
                    );
                }
                saying(failed, Some(Effect::Happened))
            }
        }
    }

    /// Asks about an attempt whose call has just ended. The record's own time is the store's, so the
    /// request is taken to be as old as a call can be.
    async fn ask(&self, probe: &Probe, attempt: &Attempt) -> Found {
        let now = (self.clock)().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp::from_millis(0).plus(now);
        let asked_at = now.minus(self.upstreams.calling().answer_within);
        probe.ask(&self.upstreams, (attempt.tenant(), attempt.key()), asked_at).await
    }

    /// Asks the operation's probe whether the request took effect; only a yes counts so soon.
    async fn ask_about(&self, attempt: &Attempt, of: Option<&Operation>) -> Option<Answer> {
        let probe = self.operations.extras(&of?.name).probe.as_ref()?;
        match self.ask(probe, attempt).await {
            Found::Happened(found) => Some(happened(*found)),
            found @ (Found::Nothing | Found::Silence(_)) => {
                tracing::info!(record_id = %attempt.record_id(), %found, "asked about a lost answer");
                None
            }
        }
    }
}

/// Turns what a probe found into the upstream's answer.
fn happened((mut parts, body): (response::Parts, Bytes)) -> Answer {
    forward::response(&mut parts.headers);
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, whole(body))
}

/// Returns true if an upstream that answers with this status may have done its work before.
fn may_have_happened(status: StatusCode) -> bool {
    is_server_error(status) || status == StatusCode::REQUEST_TIMEOUT
}

/// The answer, with what is known about its effect.
fn saying(mut answer: Answer, effect: Option<Effect>) -> Answer {
    if let Some(effect) = effect {
        answer.extensions_mut().insert(effect);
    }
    answer
}

fn whole(body: Bytes) -> Either<AnswerBody, Full<Bytes>> {
    Either::Right(Full::from(body))
}

/// Closes an HTTP/1 connection after a refusal, so that the rest of the request is not taken for the next one.
pub(crate) fn closing(mut response: Response<Bytes>, version: Version) -> Response<ResponseBody> {
    if version <= Version::HTTP_11 {
        let close = http::HeaderValue::from_static("close");
        response.headers_mut().insert(http::header::CONNECTION, close);
    }
    response.map(ResponseBody::from)
}
