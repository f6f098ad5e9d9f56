//! The API behind the layer or the gateway. It works, fails, is slow, and loses answers; what it did stands in the
//! ledger, whatever it said.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    BoxFuture, Change, Fence, Guard, KeptHeaders, Outcome, Policy, RecordId, State, Swapped,
};
use firstwrite_gateway::{FIRSTWRITE_FENCE, FIRSTWRITE_RECORD, Line, LineBody, LineFailure};
use http::{Method, Request, Response, StatusCode};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::cast::{REQUEST_NUMBER, wire_key};
use crate::defects::Defect;
use crate::events::Event;
use crate::ledger::Effect;
use crate::store::{SimStore, now};
use crate::terms::{Path, Terms};
use crate::world::World;

/// A call as the upstream sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) key: usize,
    pub(crate) variant: u8,
    pub(crate) request: u64,
    pub(crate) fence: Option<u64>,
    /// Index of the provider's pending entry for it, if there is one.
    pub(crate) pending: Option<usize>,
}

/// Course of a call, drawn in advance.
#[derive(Clone, Copy, Debug)]
struct Script {
    /// From the beginning of the call to its effect.
    works_for: Duration,
    /// From the effect to the answer.
    answers_after: Duration,
    acts: bool,
    answer: Answer,
    /// Percentage of the body after which the answer breaks off.
    cut_at: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Status(StatusCode),
    Lost,
}

/// The gateway's way to the upstream, for one process.
#[derive(Debug)]
pub(crate) struct SimLine(pub(crate) SimStore);

impl Line for SimLine {
    fn connect(&self) -> BoxFuture<'static, Result<(), LineFailure>> {
        let store = self.0.clone();
        Box::pin(async move { connect(&store).await })
    }

    fn call(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<LineBody>, LineFailure>> {
        let store = self.0.clone();
        Box::pin(async move {
            if request.method() == Method::GET {
                return probe(&store, request.uri().path()).await;
            }
            let number = |name: &str| {
                let text = request.headers().get(name)?.to_str().ok()?;
                text.parse::<u64>().ok()
            };
            let record =
                request.headers().get(FIRSTWRITE_RECORD).and_then(|value| value.to_str().ok());
            let key = record.and_then(|record| {
                let state = store.process.world().state();
                state
                    .ledger
                    .keys
                    .iter()
                    .position(|key| key.id.is_some_and(|id| id.to_string() == record))
            });
            let call = Call {
                key: key.unwrap_or_default(),
                variant: variant(request.body()),
                request: number(REQUEST_NUMBER).unwrap_or_default(),
                fence: number(FIRSTWRITE_FENCE.as_str()),
                pending: None,
            };
            make(&store, call).await
        })
    }
}

/// Which of two requests under one key it is.
pub(crate) fn variant(body: &[u8]) -> u8 {
    u8::from(body.ends_with(b"1}"))
}

/// Connects from a process, now and then in vain.
pub(crate) async fn connect(store: &SimStore) -> Result<(), LineFailure> {
    let (world, process) = (store.process.world(), &store.process);
    if !world.chance(3) || world.state().is_healed {
        return Ok(());
    }
    world.hop().await;
    process.gate().await;
    world.note(Event::NotSent, || format!("by process {}", process.number));
    Err(LineFailure::NotSent)
}

/// Makes a call from a process. Dropped, it hangs up; what was sent goes on.
pub(crate) async fn make(store: &SimStore, call: Call) -> Result<Response<LineBody>, LineFailure> {
    let (world, process) = (store.process.world().clone(), &store.process);
    world.note(Event::Called, || format!("{call:?} by process {}", process.number));
    world.state().ledger.called.push((call.request, Instant::now()));
    let allowed =
        call.fence.map(|fence| world.state().ledger.call(fence, call.request, call.variant));
    if let Some(Err(words)) = allowed {
        world.violation(|| words);
    }
    let script = Script::draw(&world, process.slot);
    let (sender, answer) = oneshot::channel();
    let upstream = store.clone();
    tokio::spawn(async move {
        let (Ok(()) | Err(_)) = sender.send(work(&upstream, call, script).await);
    });
    let answered = answer.await.unwrap_or(Err(LineFailure::Lost));
    world.hop().await;
    process.may_pause();
    process.gate().await;
    if let Some(fence) = call.fence
        && let Some(attempt) = world.state().ledger.attempts.get_mut(&fence)
    {
        let keeps = |status| world.terms().policy(0).kept_statuses.keeps(status);
        attempt.knows_outcome = answered
            .as_ref()
            .is_ok_and(|response| keeps(response.status()) && !response.body().is_cut());
        attempt.answered = Some(Instant::now());
    }
    answered
}

impl Script {
    fn draw(world: &World, slot: usize) -> Self {
        let terms = world.terms();
        let mut state = world.state();
        let rng = &mut state.rng;
        let is_bad = rng.u8(..100) < terms.upstream_faults;
        let mut script = Self {
            works_for: Duration::from_millis(rng.u64(0..400)),
            answers_after: Duration::from_millis(rng.u64(0..200)),
            acts: true,
            answer: Answer::Status(StatusCode::CREATED),
            cut_at: None,
        };
        // A transaction that completes its key may come at any time: its fence shuts it out.
        let late_max = if terms.path == Path::Sql { LATE_TRANSACTION } else { terms.late_max };
        let late_max = u64::try_from(late_max.as_millis()).unwrap_or(1).max(2);
        if !is_bad || state.is_healed {
            return script;
        }
        let rng = &mut state.rng;
        match rng.u8(..12) {
            // Slow, and perhaps too slow for the caller.
            0 | 1 => script.works_for = Duration::from_millis(rng.u64(..late_max)),
            2 => script.answers_after = Duration::from_millis(rng.u64(..8000)),
            3 => script.answer = Answer::Lost,
            4 => {
                script.answer = Answer::Lost;
                script.acts = false;
            }
            // It did its work, and says that it failed.
            5 | 6 => script.answer = Answer::Status(fails_after_effect(terms, slot, rng)),
            7 => {
                script.acts = false;
                let refusals = [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::NOT_FOUND];
                script.answer = Answer::Status(refusals[rng.usize(..2)]);
            }
            // The answer breaks off in its body.
            8 | 9 => {
                script.acts = rng.bool();
                script.cut_at = Some(rng.usize(..100));
                // "Not now" says that nothing ran, also where it is cut.
                let statuses = &CUT_STATUSES[..CUT_STATUSES.len() - usize::from(script.acts)];
                script.answer = Answer::Status(statuses[rng.usize(..statuses.len())]);
            }
            _ => {
                script.acts = false;
                let errors = [
                    StatusCode::INTERNAL_SERVER_ERROR,
                    StatusCode::SERVICE_UNAVAILABLE,
                    StatusCode::TOO_MANY_REQUESTS,
                    StatusCode::BAD_GATEWAY,
                ];
                script.answer = Answer::Status(errors[rng.usize(..errors.len())]);
            }
        }
        script
    }
}

/// The longest time between the beginning of a call and the application's own transaction.
const LATE_TRANSACTION: Duration = Duration::from_secs(40);

/// Statuses of answers that break off; the last one only without an effect.
const CUT_STATUSES: [StatusCode; 7] = [
    StatusCode::CREATED,
    StatusCode::INTERNAL_SERVER_ERROR,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::BAD_GATEWAY,
    StatusCode::GATEWAY_TIMEOUT,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Returns the status of an API that has done its work and fails afterwards. A 500 or 503 of the API itself is
/// returned only if the caller counts such errors as lost answers or has a probe; otherwise they mean that the API
/// did nothing. The statuses of an inner proxy are never believed.
fn fails_after_effect(terms: &Terms, slot: usize, rng: &mut fastrand::Rng) -> StatusCode {
    let is_doubted = terms.probe_graces[slot].is_some() || terms.errors_are_lost[slot];
    let statuses = [
        StatusCode::BAD_GATEWAY,
        StatusCode::GATEWAY_TIMEOUT,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    statuses[rng.usize(..if is_doubted { 5 } else { 3 })]
}

/// Carries out a call at the upstream, whether or not the caller still waits.
async fn work(
    store: &SimStore,
    call: Call,
    script: Script,
) -> Result<Response<LineBody>, LineFailure> {
    let world = store.process.world();
    let began = Instant::now();
    let wire = wire_key(world.terms().path, call.key);
    let call = Call { pending: world.take_up(&wire), ..call };
    sleep(script.works_for).await;
    let mut status = match script.answer {
        Answer::Status(status) => status,
        Answer::Lost => StatusCode::CREATED,
    };
    let mut body = format!("{{\"said\":{},\"variant\":{}}}", call.request, call.variant);
    let mut has_paid = false;
    if script.acts {
        let acted = if world.terms().path == Path::Sql {
            transaction(store, call).await
        } else {
            act(world, call)
        };
        match acted {
            Acted::Done(effect) => (has_paid, body) = (true, effect),
            Acted::Remembered(first_status, first) => {
                if status == StatusCode::CREATED {
                    status = first_status;
                }
                body = first;
            }
            Acted::RolledBack => status = StatusCode::INTERNAL_SERVER_ERROR,
        }
        if began.elapsed() > world.terms().answer_within {
            world.note(Event::LateEffect, || format!("request {}", call.request));
        }
    }
    if !has_paid {
        world.decline(call.pending, &wire);
    }
    sleep(script.answers_after).await;
    match script.answer {
        Answer::Lost => {
            world.note(Event::AnswerLost, || format!("request {}", call.request));
            return Err(LineFailure::Lost);
        }
        Answer::Status(answer)
            if answer.is_server_error() || answer == StatusCode::REQUEST_TIMEOUT =>
        {
            let event =
                if script.acts { Event::EffectThenError } else { Event::ErrorWithoutEffect };
            world.note(event, || format!("request {}: {status}", call.request));
        }
        Answer::Status(_) => {}
    }
    let is_proxys = matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT
    );
    if is_proxys && world.has(Defect::ProxyErrorIsUpstreams) {
        status = StatusCode::INTERNAL_SERVER_ERROR;
    }
    let mut response = Response::new(carried(world, call, script, body));
    *response.status_mut() = status;
    Ok(response)
}

/// The body as it reaches the caller.
fn carried(world: &World, call: Call, script: Script, mut body: String) -> LineBody {
    let Some(cut_at) = script.cut_at else { return LineBody::whole(body.into()) };
    let event = if script.acts { Event::CutAfterEffect } else { Event::CutWithoutEffect };
    world.note(event, || format!("request {}: {:?}", call.request, script.answer));
    body.truncate(body.len() * cut_at / 100);
    if world.has(Defect::CutIsWhole) {
        return LineBody::whole(body.into());
    }
    LineBody::cut(body.into())
}

enum Acted {
    Done(String),
    /// It was done before, and the upstream knows.
    Remembered(StatusCode, String),
    RolledBack,
}

/// The effect itself.
fn act(world: &World, call: Call) -> Acted {
    let honours = world.terms().upstream_honours_keys() && !world.has(Defect::UpstreamForgetsKeys);
    let remembered = world.state().ledger.keys[call.key].remembered.clone();
    if let Some((variant, body)) = remembered.filter(|_| honours) {
        world.note(Event::KeyRecognised, || format!("request {}", call.request));
        if variant != call.variant {
            let refusal = format!("{{\"another\":\"request\",\"variant\":{}}}", call.variant);
            return Acted::Remembered(StatusCode::UNPROCESSABLE_ENTITY, refusal);
        }
        return Acted::Remembered(StatusCode::CREATED, body);
    }
    let body = effect(world, call);
    if honours {
        world.state().ledger.keys[call.key].remembered = Some((call.variant, body.clone()));
    }
    Acted::Done(body)
}

/// Writes the effect into the ledger.
fn effect(world: &World, call: Call) -> String {
    let Call { key, variant, request, fence, pending } = call;
    let mut state = world.state();
    let era = state.ledger.era(key, fence);
    let number = state.ledger.effects.len();
    let acted = state.ledger.act(Effect { key, variant, era, request });
    let is_absent = fence.is_some() && state.ledger.keys[key].absent == fence;
    drop(state);
    world.pay(pending, &wire_key(world.terms().path, key), era);
    if is_absent {
        world.violation(|| {
            format!("request {request} had its effect after a reconciliation had freed its key")
        });
    }
    world.note(Event::Effect, || format!("{number}: {call:?} in era {era}"));
    if let Err(words) = acted {
        world.violation(|| words);
    }
    format!("{{\"effect\":{number},\"variant\":{variant}}}")
}

/// An application's own transaction: its rows, and its key completed by its fence; repeated where the acknowledgement
/// of COMMIT is lost.
async fn transaction(store: &SimStore, call: Call) -> Acted {
    let world = store.process.world();
    let Some(id) = world.state().ledger.keys[call.key].id else { return Acted::RolledBack };
    let Some(fence) = call.fence.map(Fence::from_u64) else { return Acted::RolledBack };
    for turn in 0.. {
        world.hop().await;
        let ended = commit(store, call, id, fence);
        let is_lost = turn < 2 && world.chance(25) && !world.state().is_healed;
        if !is_lost {
            return ended;
        }
        world.note(Event::CommitLost, || format!("request {}", call.request));
        world.passes(1, 1500).await;
        world.note(Event::CommitRepeated, || format!("request {}", call.request));
    }
    Acted::RolledBack
}

/// `BEGIN; INSERT …; firstwrite.complete(…); COMMIT` in one go.
fn commit(store: &SimStore, call: Call, id: RecordId, fence: Fence) -> Acted {
    let world = store.process.world();
    // What the transaction would answer must be known before it commits: the number of the row to come.
    let number = world.state().ledger.effects.len();
    let body = format!("{{\"effect\":{number},\"variant\":{}}}", call.variant);
    let outcome = Outcome::new(StatusCode::CREATED, KeptHeaders::default(), Bytes::from(body));
    let stands = now(firstwrite_core::Store::get(&store.memory, id)).map(|found| found.record);
    let own_ending = stands.as_ref().filter(|record| record.fence == fence);
    if let Some(State::Completed { outcome, .. }) = own_ending.map(|record| &record.state) {
        if world.has(Defect::SqlCompletesTwice) {
            effect(world, call);
        }
        // Ended by an earlier COMMIT: roll back, and answer from what stands.
        let body = match &outcome.body {
            firstwrite_core::Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            firstwrite_core::Body::Tombstone
            | firstwrite_core::Body::Sealed(_)
            | firstwrite_core::Body::Released => String::new(),
        };
        return Acted::Remembered(outcome.status, body);
    }
    let guard = match stands.as_ref().filter(|_| world.has(Defect::SqlIgnoresFence)) {
        Some(record) => Guard::Seen(record.seen()),
        None => Guard::Owner(fence),
    };
    let reserved_with = stands.as_ref().map(|record| record.retention);
    let retention = reserved_with
        .filter(|_| !world.has(Defect::SqlRetentionIsDefault))
        .unwrap_or_else(|| Policy::default().record_retention());
    let change = Change::Complete { outcome, retention };
    match store.apply_swap(id, guard, change) {
        Swapped::Done(_) => Acted::Done(effect(world, call)),
        Swapped::Moved(_) => Acted::RolledBack,
    }
}

/// Answers a probe from the ledger, as it stands when the question arrives.
async fn probe(store: &SimStore, path: &str) -> Result<Response<LineBody>, LineFailure> {
    let (world, process) = (store.process.world(), &store.process);
    world.hop().await;
    let asked = {
        let is_asked =
            |at: &usize| path.ends_with(&wire_key(world.terms().path, *at).replace(':', "%3A"));
        (0..world.terms().key_count).find(is_asked)
    };
    world.note(Event::ProbeAsked, || format!("{path}: key {asked:?}"));
    let found = {
        let state = world.state();
        let under = asked.and_then(|key| state.ledger.effect_under(key));
        under.map(|(number, effect)| (number, effect.variant))
    };
    let lags = world.has(Defect::ProbeLags) && world.chance(50);
    let mut body = String::new();
    let mut status = StatusCode::NOT_FOUND;
    if let Some((number, variant)) = found.filter(|_| !lags) {
        body = format!("{{\"effect\":{number},\"variant\":{variant}}}");
        status = StatusCode::CREATED;
    }
    let is_silent = world.chance(world.terms().upstream_faults / 4) && !world.state().is_healed;
    let is_cut = is_silent && world.chance(50);
    world.passes(0, 50).await;
    process.gate().await;
    if is_silent && !is_cut {
        return Err(LineFailure::Lost);
    }
    let body = if is_cut {
        body.truncate(body.len() / 2);
        LineBody::cut(body.into())
    } else {
        LineBody::whole(body.into())
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    Ok(response)
}
