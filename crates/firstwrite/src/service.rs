//! The path of one request, in order.
//!
//! 1. The status resource and the pages of problems are answered here.
//! 2. An operation without a policy passes through untouched.
//! 3. The tenant, then the key: nothing is read or looked up without them.
//! 4. The body is read whole, under a cap, before anything is reserved.
//! 5. The fingerprint says what the request asks for.
//! 6. Duplicates in this process follow the one that came first.
//! 7. The leader's attempt asks the store and, if the key is its own, runs the handler. Where no new key
//!    may be made, it looks first whether one stands.
//! 8. Where the handler's answer is interim, the final one is waited for, within the handler's bound.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    BoxError, BoxFuture, Comparison, Fingerprint, Key, KeyRequirement, Mode, OnConflict, Rejection,
    RejectionKind, Tenant, Verdict, judge,
};
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Request, Response, Version};
use http_body::Body;
use tokio::time::{Instant, sleep_until, timeout_at};
use tower::Service;
use tracing::Instrument as _;

use crate::attempt::{self, Led};
use crate::body::{self, Drained, ResponseBody, Unread};
use crate::coalesce::{Ended, Follow, Joined, Phase};
use crate::exchange::{AnswerWhen, Call, Exchange};
use crate::layer::Shared;
use crate::lines::say;
use crate::observe::{AdmitContext, Place, Seen};
use crate::policies::Operation;
use crate::{interim, problems, respond, status};

/// The service of an [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    inner: S,
    shared: Arc<Shared>,
}

/// Decision on a request before its body is read.
enum Admission {
    Problems,
    Status,
    PassThrough,
    Refused(Operation, Option<Tenant>, Rejection),
    Protected(Protected),
}

/// A request to a protected operation, from a known tenant, under a key.
struct Protected {
    operation: Operation,
    tenant: Tenant,
    key: Key,
    place: Arc<Place>,
}

/// Reason why a request that does not run has no answer yet.
enum NotRunning {
    /// There is no record under the key any more.
    Free,
    /// Another attempt holds the key; the request goes on waiting.
    Held(Box<Call>),
}

/// Result of following.
enum Followed {
    Ended(Ended),
    InProgress,
    /// The attempt was accepted early, and so is this request.
    Accepted,
    /// The attempt is for another request. Whether that still owns the key, the store must say: this
    /// process may have been paused.
    Differs,
}

/// Interval between look-ups in the store while another process holds the key and the policy is to wait.
const POLL_EVERY: Duration = Duration::from_millis(250);

impl<S> Idempotency<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The inner service that was polled ready is the one to call; its clone is not.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        let (parts, body) = request.into_parts();
        match admit(&shared, &parts) {
            Admission::Problems => Box::pin(async move {
                Ok(shared.typed(refuse(problems::answer(&parts), &parts, body).await))
            }),
            Admission::Status => Box::pin(async move {
                let answer = status::answer(&shared, &parts).await;
                Ok(shared.typed(refuse(answer, &parts, body).await))
            }),
            Admission::PassThrough => {
                let answer = inner.call(Request::from_parts(parts, body));
                Box::pin(async move { Ok(answer.await?.map(ResponseBody::passed)) })
            }
            Admission::Refused(operation, tenant, refusal) => Box::pin(async move {
                let seen = Seen::new(&shared.observer, operation, tenant, false, Instant::now());
                let response = refuse(respond::rejection(&refusal), &parts, body).await;
                Ok(shared.typed(seen.answered(response)))
            }),
            Admission::Protected(protected) => Box::pin(async move {
                let Protected { operation, tenant, .. } = &protected;
                let (operation, tenant) = (operation.clone(), Some(tenant.clone()));
                let bytes_max = operation.policy.request_bytes_max;
                let seen = Seen::new(&shared.observer, operation, tenant, true, Instant::now());
                let body = match body::read(body, bytes_max).await {
                    Ok(body) => body,
                    Err(unread) => {
                        let response = seen.answered(close(unreadable(&shared, unread), &parts));
                        return Ok(shared.typed(response));
                    }
                };
                let run = Box::new(move |parts, body| -> crate::exchange::Running {
                    let answer = inner.call(Request::from_parts(parts, B::from(body)));
                    Box::pin(async move {
                        Ok(answer.await.map_err(Into::into)?.map(ResponseBody::passed))
                    })
                });
                let service_name = shared.service_name.clone();
                let call = Call { run, parts, body, service_name };
                let response = protect(Arc::clone(&shared), protected, call).await;
                Ok(shared.typed(seen.answered(response)))
            }),
        }
    }
}

/// Decides what becomes of a request, by its head alone.
fn admit(shared: &Shared, parts: &Parts) -> Admission {
    if problems::is_page(parts) {
        return Admission::Problems;
    }
    if status::is_status(parts) {
        return Admission::Status;
    }
    let Some(operation) = shared.policies.operation(parts) else { return Admission::PassThrough };
    let tenant = match shared.tenants.resolve(parts) {
        Ok(tenant) => tenant,
        Err(refusal) => return Admission::Refused(operation, None, refusal),
    };
    let key = match (Key::from_headers(&parts.headers), operation.policy.key) {
        (Ok(Some(key)), _) => key,
        (Ok(None), KeyRequirement::Optional) => return Admission::PassThrough,
        (Ok(None), KeyRequirement::Required) => {
            let refusal = Rejection::new(RejectionKind::KeyMissing);
            return Admission::Refused(operation, Some(tenant), refusal);
        }
        (Err(error), _) => return Admission::Refused(operation, Some(tenant), error.into()),
    };
    let asked = AdmitContext { operation: &operation, tenant: &tenant, key: &key, request: parts };
    match shared.observer.admit(&asked) {
        Ok(()) => {
            let place = Place::new(&shared.observer, &tenant);
            Admission::Protected(Protected { operation, tenant, key, place })
        }
        Err(refusal) => Admission::Refused(operation, Some(tenant), refusal),
    }
}

/// Answers a protected request that was read whole.
async fn protect(shared: Arc<Shared>, protected: Protected, call: Call) -> Response<ResponseBody> {
    let Protected { operation, tenant, key, place } = protected;
    let mut exchange = Exchange::new(tenant, key, operation, &shared.secrets, &call);
    // A 202 points to the status resource: a caller that may not read it waits for the answer.
    if exchange.answer_when == AnswerWhen::Accepted
        && shared.tenants.resolve_all(&call.parts).is_err()
    {
        exchange.answer_when = AnswerWhen::Ended;
    }
    let record_id = exchange.request.id;
    let operation = &*exchange.request.operation;
    let span = tracing::info_span!("idempotency", %record_id, operation);
    answer(&shared, Arc::new(exchange), &place, call).instrument(span).await
}

async fn answer(
    shared: &Arc<Shared>,
    mut exchange: Arc<Exchange>,
    place: &Arc<Place>,
    mut call: Call,
) -> Response<ResponseBody> {
    let patience = match exchange.policy.on_conflict {
        OnConflict::Reject => None,
        OnConflict::Wait(up_to) => Some(Instant::now() + up_to),
    };
    let mut seat = None;
    loop {
        let ended = match shared.running.join(&exchange, place, seat.take()) {
            Joined::Lead(lead) => match attempt::start(shared, lead, &exchange, call).await {
                Led::Answered(response) => {
                    return interim::or_final(shared, exchange.request.id, response).await;
                }
                Led::Refused(refused) => {
                    let ended;
                    (ended, call) = *refused;
                    ended
                }
            },
            Joined::Wait(waiting) => {
                seat = waiting.seat().await;
                if seat.is_none() {
                    return too_many(shared);
                }
                continue;
            }
            Joined::Full => return too_many(shared),
            Joined::Follow(first) => {
                let is_same = asks_the_same(shared, &exchange, &call, first.fingerprint());
                match behind(&exchange, first, is_same, patience).await {
                    Followed::Ended(ended) => ended,
                    Followed::InProgress => return in_progress(&exchange),
                    Followed::Accepted => {
                        return respond::accepted(&exchange.request.key, &exchange.policy);
                    }
                    Followed::Differs => {
                        let standing = standing(shared, &exchange, call).await;
                        return standing.unwrap_or_else(|_call| in_progress(&exchange));
                    }
                }
            }
        };
        if let Some(again) = taken_again(shared, &exchange, &call, &ended) {
            exchange = Arc::new(again);
            continue;
        }
        match (&ended, patience) {
            (Ended::Open, _) => {}
            // Another process holds the key: wait until it has ended or patience has.
            (Ended::Stands { verdict: Verdict::InProgress { .. }, .. }, Some(until))
                if exchange.answer_when == AnswerWhen::Ended && Instant::now() < until =>
            {
                match exchange.policy.mode {
                    Mode::Reserved => return elsewhere(shared, &exchange, call, until).await,
                    // Its record appears with its commit. One that was rolled back left no effect, so
                    // that running here is safe.
                    Mode::Atomic => sleep_until(until.min(Instant::now() + POLL_EVERY)).await,
                }
            }
            (Ended::Stands { verdict: Verdict::InProgress { .. }, .. }, _) => {
                return in_progress(&exchange);
            }
            (
                Ended::Stands { .. }
                | Ended::StoreFailed(_)
                | Ended::Refused(_)
                | Ended::Released(_),
                _,
            ) => {
                return from_ended(shared, &exchange, &call, &ended);
            }
        }
    }
}

/// The same request by the way in which the fingerprint under its key was taken, if that is another one and
/// known here.
fn taken_again(
    shared: &Shared,
    exchange: &Exchange,
    call: &Call,
    ended: &Ended,
) -> Option<Exchange> {
    match ended {
        Ended::Stands { verdict: Verdict::Unreadable, stored: Some(stored) } => {
            exchange.like(stored, &shared.secrets, call)
        }
        Ended::Stands { .. }
        | Ended::StoreFailed(_)
        | Ended::Refused(_)
        | Ended::Released(_)
        | Ended::Open => None,
    }
}

fn asks_the_same(shared: &Shared, exchange: &Exchange, call: &Call, first: &Fingerprint) -> bool {
    let again = exchange.like(first, &shared.secrets, call);
    match again.as_ref().unwrap_or(exchange).request.fingerprint.compare(first) {
        Comparison::Same => true,
        Comparison::Different | Comparison::OtherWay => false,
    }
}

/// Waits for an attempt of another process, to its end or to the end of our patience. If that attempt is
/// released, the request is refused and does not run: its effect may have happened before a server error.
async fn elsewhere(
    shared: &Shared,
    exchange: &Exchange,
    call: Call,
    until: Instant,
) -> Response<ResponseBody> {
    let mut call = call;
    while Instant::now() < until {
        sleep_until(until.min(Instant::now() + POLL_EVERY)).await;
        call = match standing(shared, exchange, call).await {
            Ok(answer) => return answer,
            Err(NotRunning::Free) => break,
            Err(NotRunning::Held(call)) => *call,
        };
    }
    in_progress(exchange)
}

/// The answer from what stands under the key, without running; or why there is none.
async fn standing(
    shared: &Shared,
    exchange: &Exchange,
    call: Call,
) -> Result<Response<ResponseBody>, NotRunning> {
    let found = match shared.store.get(exchange.request.id).await {
        Ok(found) => found,
        Err(error) => {
            shared.lines.not_looked_up(&error, Some(exchange.request.id));
            return Ok(respond::store_failed(error.kind()));
        }
    };
    let stored = found.as_ref().map(|found| &found.record.fingerprint);
    let again = stored.and_then(|stored| exchange.like(stored, &shared.secrets, &call));
    let exchange = again.as_ref().unwrap_or(exchange);
    match judge(found.as_ref(), &exchange.request) {
        Verdict::InProgress { .. } => Err(NotRunning::Held(Box::new(call))),
        Verdict::Fresh | Verdict::TakeOver { .. } => Err(NotRunning::Free),
        verdict @ (Verdict::Replay { .. }
        | Verdict::Mismatch
        | Verdict::Uncertain
        | Verdict::Expired
        | Verdict::Unreadable) => {
            let ended = Ended::stands(verdict, found.as_ref());
            Ok(from_ended(shared, exchange, &call, &ended))
        }
    }
}

/// Follows the attempt that came first, to its end or to the end of our patience.
async fn behind(
    exchange: &Exchange,
    mut first: Follow,
    asks_the_same: bool,
    patience: Option<Instant>,
) -> Followed {
    match first.decided().await {
        // The record that differed may be gone since the leader looked.
        Phase::Ended(Ended::Stands { verdict: Verdict::Mismatch, .. }) => {
            Followed::Ended(Ended::Open)
        }
        Phase::Ended(ended) if asks_the_same => Followed::Ended(ended),
        // It ended as another request would: what that means for this one, the store must say.
        Phase::Ended(_) | Phase::Asking => Followed::Ended(Ended::Open),
        Phase::Owned if !asks_the_same && exchange.policy.mode == Mode::Reserved => {
            Followed::Differs
        }
        Phase::Owned if !asks_the_same => {
            let stored = Some(first.fingerprint().clone());
            Followed::Ended(Ended::Stands { verdict: Verdict::Mismatch, stored })
        }
        Phase::Owned => match (exchange.answer_when, patience) {
            (AnswerWhen::Ended, Some(until)) => match timeout_at(until, first.ended()).await {
                Ok(ended) => Followed::Ended(ended),
                Err(_elapsed) => Followed::InProgress,
            },
            (AnswerWhen::Accepted, _) if first.is_accepted() => Followed::Accepted,
            (AnswerWhen::Ended, None) | (AnswerWhen::Accepted, _) => Followed::InProgress,
        },
    }
}

fn from_ended(
    shared: &Shared,
    exchange: &Exchange,
    call: &Call,
    ended: &Ended,
) -> Response<ResponseBody> {
    match ended {
        Ended::Stands { verdict: Verdict::Mismatch, stored: Some(stored) } => {
            tracing::debug!(verdict = "mismatch", "answered without running");
            let differing = exchange.differing(stored, &shared.secrets, call);
            respond::rejection(&Rejection::new(RejectionKind::KeyReused).differing(differing))
        }
        Ended::Stands { verdict, .. } => {
            tracing::debug!(verdict = name(verdict), "answered without running");
            respond::verdict(verdict, &exchange.policy)
        }
        Ended::StoreFailed(kind) => respond::store_failed(*kind),
        Ended::Refused(refusal) => respond::rejection(refusal),
        Ended::Released(answer) => answer.response(),
        Ended::Open => respond::rejection(&Rejection::new(RejectionKind::StoreUnavailable)),
    }
}

/// Makes the 409 of a duplicate while another attempt runs. Not a 202, whatever it prefers: an attempt that was
/// not accepted early may leave no result to poll for.
fn in_progress(exchange: &Exchange) -> Response<ResponseBody> {
    let retry_after = exchange.policy.retry_after;
    respond::rejection(&Rejection::new(RejectionKind::InProgress).retry_after(retry_after))
}

/// Answers a request whose body was not read: what is left of it must not be taken for the next
/// request on the same connection.
async fn refuse<B>(
    response: Response<ResponseBody>,
    parts: &Parts,
    body: B,
) -> Response<ResponseBody>
where
    B: Body<Data = Bytes>,
{
    // Reading would tell a client that waits for "100 Continue" to go ahead.
    if !parts.headers.contains_key(EXPECT) && body::drain(body).await == Drained::Yes {
        return response;
    }
    close(response, parts)
}

/// Sets `Connection: close`. HTTP/2 and later end the stream instead.
fn close(mut response: Response<ResponseBody>, parts: &Parts) -> Response<ResponseBody> {
    if parts.version <= Version::HTTP_11 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn unreadable(shared: &Shared, unread: Unread) -> Response<ResponseBody> {
    match unread {
        Unread::TooLarge => respond::rejection(&Rejection::new(RejectionKind::BodyTooLarge)),
        Unread::TooSlow => respond::rejection(
            &Rejection::new(RejectionKind::RequestTimeout)
                .detail("The request's body did not arrive in time; nothing was run. Retry with the same key."),
        ),
        Unread::NoRoom => {
            say!(shared.lines.no_room, warn, "requests' bodies take up all their room; one was refused");
            no_room()
        }
        Unread::Broken(error) => {
            tracing::debug!(%error, "a request's body broke off");
            respond::rejection(
                &Rejection::new(RejectionKind::RequestMalformed)
                    .detail("The request's body could not be read; nothing was run."),
            )
        }
    }
}

fn too_many(shared: &Shared) -> Response<ResponseBody> {
    say!(
        shared.lines.too_many,
        warn,
        "there are too many attempts under way; a request was refused"
    );
    no_room()
}

/// Makes the refusal of a process that has too much to do.
fn no_room() -> Response<ResponseBody> {
    respond::rejection(&Rejection::new(RejectionKind::Overloaded))
}

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Fresh => "fresh",
        Verdict::TakeOver { .. } => "take over",
        Verdict::Replay { .. } => "replay",
        Verdict::InProgress { .. } => "in progress",
        Verdict::Mismatch => "mismatch",
        Verdict::Uncertain => "uncertain",
        Verdict::Expired => "expired",
        Verdict::Unreadable => "unreadable",
    }
}

#[cfg(test)]
pub(crate) mod tests;
