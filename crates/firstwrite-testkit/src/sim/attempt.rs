//! The simulated processes: clients with their attempts, the sweep, operators, the reaper.

use std::sync::Arc;

use firstwrite_core::protocol::{
    self, Atomic, Completed, Force, Renewed, Reservation, Reserved, Settlement,
};
use firstwrite_core::{Change, Fence, Guard, Outcome, Query, StateFilter, Store, Verdict, judge};
use http::{Response, StatusCode};

use super::cast::{Role, Way};
use super::store::{SimStore, record_of};
use super::{Event, Plan};
use crate::defects::{Defect, yield_once};
use crate::sample;

/// More than the cast has, so that no step is cut short.
const LIMIT: usize = 16;

/// Reply to a client.
#[derive(Debug)]
pub(super) enum Reply {
    /// An answer that is meant to be final.
    Answer(Outcome),
    /// The key belongs to another request; no retry helps.
    Mismatch,
    /// Try again later.
    NotNow,
}

/// A client that sends its request up to `tries` times, or until it is answered.
pub(super) async fn client(store: SimStore, plan: Plan, role: Role, tries: u8) {
    for _ in 0..tries {
        let reply = serve(&store, plan, role).await;
        // A client may lose the answer on its own side and ask again.
        let content = match reply {
            Reply::Answer(_) => !store.mishap(3),
            Reply::Mismatch => true,
            Reply::NotNow => false,
        };
        if content {
            return;
        }
        yield_once().await;
    }
}

/// One request from its arrival to its reply.
pub(super) async fn serve(store: &SimStore, plan: Plan, role: Role) -> Reply {
    let (since, nonce, way) = {
        let mut shared = store.shared();
        let nonce = shared.rng.u64(..);
        (shared.log.era(role.record), nonce, shared.log.ways[role.record])
    };
    let reply = match way {
        Way::Atomic => serve_atomic(store, role, nonce).await,
        Way::Uncertain | Way::Resend => serve_reserved(store, plan, role, nonce).await,
    };
    let mut shared = store.shared();
    match &reply {
        Reply::Answer(outcome) => shared.log.answered(role, since, outcome),
        Reply::Mismatch => shared.log.note(Event::Mismatch),
        Reply::NotNow => {}
    }
    reply
}

async fn serve_atomic(store: &SimStore, role: Role, nonce: u64) -> Reply {
    let status = handler_status(store);
    let own = outcome(role, status, nonce);
    let answer = own.clone();
    let work = move |tx: &mut firstwrite_core::MemoryTx<'_>| {
        tx.put(&format!("{nonce}"), "paid");
        let firstwrite_core::Body::Bytes(body) = answer.body else { return Err(()) };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        Ok(response)
    };
    let policy = Arc::clone(Way::Atomic.policy());
    let request = Arc::clone(role.request());
    match protocol::atomic(store, request, policy, nonce, work).await {
        Ok(Atomic::Kept { .. }) => {
            store.note(Event::AtomicKept);
            if own.status.is_client_error() {
                store.note(Event::AtomicClientError);
            }
            Reply::Answer(own)
        }
        Ok(Atomic::RolledBack(_)) => {
            store.note(Event::AtomicRolledBack);
            Reply::NotNow
        }
        Ok(Atomic::Refused(verdict, _)) => refusal(store, verdict),
        Ok(Atomic::Failed(())) | Err(_) => Reply::NotNow,
    }
}

/// An attempt's process: gone when it is dropped, be it at its end or by a crash.
struct Alive<'a> {
    store: &'a SimStore,
    nonce: u64,
}

impl<'a> Alive<'a> {
    /// The part of a nonce that a fence shows.
    const MASK: u64 = (1 << 40) - 1;

    fn new(store: &'a SimStore, nonce: u64) -> Self {
        let nonce = nonce & Self::MASK;
        store.shared().log.live.push(nonce);
        Self { store, nonce }
    }

    /// Returns true if the attempt with this fence may still do something.
    fn owns(store: &SimStore, fence: Fence) -> bool {
        store.shared().log.live.contains(&(fence.as_u64() & Self::MASK))
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.store.shared().log.live.retain(|nonce| *nonce != self.nonce);
    }
}

async fn serve_reserved(store: &SimStore, plan: Plan, role: Role, nonce: u64) -> Reply {
    let _alive = Alive::new(store, nonce);
    let policy = store.shared().log.ways[role.record].policy();
    let has = |defect| plan.defect == Some(defect);
    if has(Defect::EffectBeforeReserve) {
        let era = store.shared().log.era(role.record);
        send(store, role, era, outcome(role, 201, nonce));
    }
    let reservation = match protocol::reserve(store, role.request(), policy, nonce).await {
        Ok(Reserved::Granted(reservation)) => reservation,
        Ok(Reserved::Refused(Verdict::Mismatch, found, _)) if has(Defect::MismatchReplays) => {
            return match found.record.state {
                firstwrite_core::State::Completed { outcome, .. } => Reply::Answer(outcome),
                firstwrite_core::State::Reserved(_) | firstwrite_core::State::Uncertain { .. } => {
                    Reply::Mismatch
                }
            };
        }
        Ok(Reserved::Refused(verdict, ..)) => return refusal(store, verdict),
        Err(_) if has(Defect::FailOpen) => {
            let era = store.shared().log.era(role.record);
            return Reply::Answer(send(store, role, era, outcome(role, 201, nonce)));
        }
        Err(_) => return Reply::NotNow,
    };
    {
        let mut shared = store.shared();
        shared.log.note(Event::Ran);
        shared.log.ended_well(role.record, reservation.fence());
        shared.log.line(|| format!("{role:?} runs under {:?}", reservation.fence()));
    }
    run(store, plan, role, reservation, nonce).await
}

/// The attempt itself: the handler, the remote effect, and the end of the record.
async fn run(
    store: &SimStore,
    plan: Plan,
    role: Role,
    mut reservation: Reservation,
    nonce: u64,
) -> Reply {
    yield_once().await;
    let status = handler_status(store);
    if status >= 500 {
        return match protocol::release(store, reservation).await {
            Ok(()) => {
                store.note(Event::Released);
                Reply::NotNow
            }
            Err(_) => Reply::NotNow,
        };
    }
    if store.mishap(4) {
        match protocol::renew(store, &mut reservation).await {
            Ok(Renewed::Current) => store.note(Event::Renewed),
            // An attempt that loses its lease before it sent anything stops here.
            Ok(Renewed::Lost) => {
                store.note(Event::RenewalLost);
                return Reply::NotNow;
            }
            Err(_) => {}
        }
    }
    let mut answer = outcome(role, status, nonce);
    if status < 400 {
        let lost_on_the_way = store.mishap(16);
        if !lost_on_the_way {
            let era = store.shared().log.era_of(role.record, reservation.fence());
            answer = send(store, role, era, answer);
            yield_once().await;
        }
        if lost_on_the_way || store.mishap(8) {
            return give_up(store, role, reservation).await;
        }
    }
    if plan.defect == Some(Defect::ReplyBeforeRecord) {
        let era = store.shared().log.era(role.record);
        store.shared().log.answered(role, era, &answer);
    }
    complete(store, plan, role, reservation, answer).await
}

/// Gives up after a call without an answer, whose effect is unknown.
async fn give_up(store: &SimStore, role: Role, reservation: Reservation) -> Reply {
    let way = store.shared().log.ways[role.record];
    let ended = match way {
        Way::Atomic | Way::Uncertain => {
            protocol::mark_uncertain(store, reservation, "no answer").await.map(drop)
        }
        Way::Resend => protocol::release(store, reservation).await,
    };
    drop(ended);
    Reply::NotNow
}

async fn complete(
    store: &SimStore,
    plan: Plan,
    role: Role,
    reservation: Reservation,
    answer: Outcome,
) -> Reply {
    let fence = reservation.fence();
    let mut completed = protocol::complete(store, reservation, answer.clone()).await;
    if let Err(undone) = completed {
        completed = protocol::complete(store, undone.reservation, undone.outcome).await;
    }
    match completed {
        Ok(Completed::Kept { .. }) => {
            store.shared().log.ended_well(role.record, fence);
            Reply::Answer(answer)
        }
        Ok(Completed::Late(found)) => {
            store.note(Event::ZombieRefused);
            if plan.defect == Some(Defect::ReplyDespiteLate) {
                return Reply::Answer(answer);
            }
            match found.map(|found| judge(Some(&found), role.request())) {
                Some(verdict) => refusal(store, verdict),
                None => Reply::NotNow,
            }
        }
        Err(_) => Reply::NotNow,
    }
}

/// One turn of the sweep.
pub(super) async fn sweep(store: SimStore, plan: Plan) {
    if plan.defect == Some(Defect::SweepFreesAll) {
        let Ok(lapsed) = store.list(&Query::lapsed(LIMIT)).await else { return };
        for record in lapsed.records {
            let guard = Guard::Seen(record.seen());
            drop(store.swap(record.id, guard, Change::Remove, None).await);
        }
        return;
    }
    if let Ok(swept) = protocol::sweep_once(&store, LIMIT).await {
        (0..swept.freed).for_each(|_| store.note(Event::SweptFree));
        (0..swept.uncertain).for_each(|_| store.note(Event::SweptUncertain));
    }
}

/// An operator who looks at every uncertain record and settles it by what the upstream shows.
pub(super) async fn operate(store: SimStore) {
    let state = Some(StateFilter::Uncertain);
    let query = Query { tenant: None, state, after: None, limit: LIMIT };
    let Ok(page) = store.list(&query).await else { return };
    for record in page.records {
        let Some(at) = record_of(record.id) else { continue };
        // Taken out of the match: its scrutinee would hold the lock for all of it.
        let truth = store.shared().log.truth(at, record.fence);
        let settlement = match truth {
            // Not yet is not never: absence is proven only when no attempt is left that could cause the effect.
            None if Alive::owns(&store, record.fence) => continue,
            None => Settlement::NotHappened,
            Some(upstreams) => {
                // The upstream's own answer, as a reconciler finds it, or an operator's words.
                let outcome = if record.fence.as_u64().is_multiple_of(2) {
                    upstreams
                } else {
                    let variant = record.fingerprint.digest()[0];
                    let role = Role { record: at, variant };
                    sample::outcome(200, &format!("{}settled", role.signature()))
                };
                Settlement::Happened { outcome }
            }
        };
        store.shared().log.line(|| {
            let found = if matches!(settlement, Settlement::NotHappened) { "no" } else { "an" };
            format!("an operator found {found} effect of {:?} of record {at}", record.fence)
        });
        let entry = sample::audit("seen upstream");
        drop(protocol::settle(&store, &record, settlement, Force::No, &entry).await);
    }
}

/// One turn of the reaper.
pub(super) async fn reap(store: SimStore) {
    if let Ok(reaped) = store.reap(LIMIT).await {
        (0..reaped).for_each(|_| store.note(Event::Reaped));
    }
}

/// The remote effect; returns what the upstream answers.
fn send(store: &SimStore, role: Role, era: usize, answer: Outcome) -> Outcome {
    store.shared().log.effect(role, era, answer)
}

fn handler_status(store: &SimStore) -> u16 {
    let mut shared = store.shared();
    if shared.healed {
        return 201;
    }
    match shared.rng.u8(..10) {
        0 => 503,
        1 => 402,
        _ => 201,
    }
}

fn outcome(role: Role, status: u16, nonce: u64) -> Outcome {
    let status = StatusCode::from_u16(status).map_or(201, |status| status.as_u16());
    sample::outcome(status, &format!("{}attempt {nonce:016x}", role.signature()))
}

fn refusal(store: &SimStore, verdict: Verdict) -> Reply {
    match verdict {
        Verdict::Replay { outcome, .. } => {
            store.note(Event::Replayed);
            Reply::Answer(outcome)
        }
        Verdict::InProgress { .. } => {
            store.note(Event::InProgress);
            Reply::NotNow
        }
        Verdict::Uncertain => {
            store.note(Event::ToldUncertain);
            Reply::NotNow
        }
        Verdict::Mismatch => Reply::Mismatch,
        Verdict::Fresh | Verdict::TakeOver { .. } | Verdict::Expired | Verdict::Unreadable => {
            Reply::NotNow
        }
    }
}
