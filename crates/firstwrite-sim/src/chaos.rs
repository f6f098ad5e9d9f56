//! Injected failures, the maintenance of the store during them, and the recovery phase at the end.

use std::time::Duration;

use firstwrite::worker::{reap_once, sweep_once};
use firstwrite_core::protocol::{Force, Settled, Settlement, settle};
use firstwrite_core::{
    AuditEntry, KeptHeaders, OnLostAnswer, Outcome, Record, State, Store as _, StoreError,
};
use http::StatusCode;
use tokio::time::{Instant, sleep};

use crate::client::{self, Told, Wish};
use crate::courier;
use crate::defects::Defect;
use crate::events::Event;
use crate::stage::{SLOTS, Stage};
use crate::store::{SimStore, now};
use crate::terms::{Path, RETENTION};
use crate::world::World;

/// The bad times: things go wrong, one after another.
pub(crate) async fn bad_times(stage: Stage) {
    let world = stage.world().clone();
    let terms = world.terms().clone();
    let caretaker = stage.store();
    let longest = if terms.operators { 60_000 } else { 25_000 };
    let until = Instant::now() + Duration::from_millis(12_000 + world.draw(longest));
    while Instant::now() < until {
        world.passes(100, 3000).await;
        match world.draw(16) {
            0 | 1 if terms.pauses => {
                let slot = usize::try_from(world.draw(2)).unwrap_or(0);
                let longest = [800, 8000, 40_000][usize::try_from(world.draw(3)).unwrap_or(0)];
                stage.front(slot).process.pause(Duration::from_millis(1 + world.draw(longest)));
            }
            2 if terms.kills => kill(&stage),
            3 if terms.outages => {
                let longest = [2000, 8000, 40_000][usize::try_from(world.draw(3)).unwrap_or(0)];
                let away_for = Duration::from_millis(1 + world.draw(longest));
                world.note(Event::StoreAway, || format!("for {away_for:?}"));
                world.state().away_until = Instant::now() + away_for;
            }
            4 if terms.clock_steps => {
                let millis = i64::try_from(world.draw(4000)).unwrap_or(0) - 2000;
                world.note(Event::ClockStep, || format!("by {millis} ms"));
                world.step_clock(millis);
            }
            5 if terms.retention_jumps => {
                // Half of the jumps end just before the retention of what was kept last does.
                let is_near = world.chance(50);
                let last = world.state().ledger.last_kept.filter(|_| is_near);
                let kept_for = last.map_or(Duration::ZERO, |(at, _)| at.elapsed());
                let left = last.map_or(0, |_| world.draw(4000));
                let retention = last.map_or(RETENTION, |(_, retention)| retention);
                let passed = retention.saturating_sub(kept_for + Duration::from_millis(left));
                world.note(Event::RetentionJump, || format!("by {passed:?}"));
                world.state().ledger.jumps.push(Instant::now());
                world.jump_clocks(i64::try_from(passed.as_millis()).unwrap_or(0));
            }
            6 => {
                tokio::spawn(reap(caretaker.clone()));
            }
            7..=9 => {
                tokio::spawn(sweep(caretaker.clone()));
            }
            10 | 11 if terms.operators => {
                tokio::spawn(operate(caretaker.clone()));
            }
            12 | 13 => resolve(&stage),
            14 if terms.early_answers => {
                let (front, world) = (stage.any_front(), world.clone());
                tokio::spawn(async move { client::poll(&world, &front).await });
            }
            _ => {}
        }
    }
}

fn kill(stage: &Stage) {
    let slot = usize::try_from(stage.world().draw(2)).unwrap_or(0);
    let front = stage.front(slot);
    if !stage.world().is_alive(front.process.number) {
        return;
    }
    front.process.kill();
    let stage = stage.clone();
    tokio::spawn(async move {
        stage.world().passes(1, 3000).await;
        stage.restart(slot);
    });
}

fn resolve(stage: &Stage) {
    if stage.world().terms().has_probe() {
        let front = stage.any_front();
        tokio::spawn(async move { front.resolve().await });
    }
}

fn resolve_all(stage: &Stage) {
    for front in (0..SLOTS).map(|slot| stage.front(slot)) {
        tokio::spawn(async move { front.resolve().await });
    }
}

async fn sweep(store: SimStore) {
    if let Ok(swept) = sweep_once(&store, 100).await
        && swept.freed + swept.uncertain + swept.moved > 0
    {
        store.process.world().note(Event::Swept, || format!("{swept:?}"));
    }
}

async fn reap(store: SimStore) {
    let (Ok(_) | Err(_)) = reap_once(&store, 100).await;
}

/// An operator looks into every doubt, asks the provider, and settles what is certain enough. The provider tells the
/// truth of the moment, and the operator acts a while later.
async fn operate(store: SimStore) {
    for at in 0..store.process.world().terms().key_count {
        let (Ok(()) | Err(_)) = operate_on(&store, at).await;
    }
}

async fn operate_on(store: &SimStore, at: usize) -> Result<(), StoreError> {
    let world = store.process.world();
    let id = world.state().ledger.keys[at].id;
    let Some(found) = (match id {
        Some(id) => store.get(id).await?,
        None => None,
    }) else {
        return Ok(());
    };
    let record = found.record;
    let is_lapsed = record.state.lease_until().is_some_and(|until| until <= found.now);
    if !is_lapsed && !is_uncertain(&record) {
        return Ok(());
    }
    let doubted_for = doubted_for(world, at, &record);
    let effect = {
        let state = world.state();
        let under = state.ledger.effect_under(at);
        under.map(|(number, effect)| {
            format!("{{\"effect\":{number},\"variant\":{}}}", effect.variant)
        })
    };
    world.passes(0, 3000).await;
    let patience = if world.has(Defect::OperatorHasNoPatience) {
        Duration::ZERO
    } else {
        world.terms().operator_grace
    };
    let (settlement, event) = match effect {
        Some(body) => {
            let outcome = Outcome::new(StatusCode::CREATED, KeptHeaders::default(), body.into());
            (Settlement::Happened { outcome }, Event::OperatorHappened)
        }
        None if doubted_for >= patience => (Settlement::NotHappened, Event::OperatorNot),
        None => return Ok(()),
    };
    let audit = AuditEntry {
        actor: "operator".to_owned(),
        action: "settle".to_owned(),
        reason: "asked the provider".to_owned(),
    };
    if settle(store, &record, settlement, Force::No, &audit).await? == Settled::Done {
        world.note(event, || format!("key {at}, {:?}", record.fence));
    }
    Ok(())
}

fn is_uncertain(record: &Record) -> bool {
    matches!(record.state, State::Uncertain { .. })
}

/// Returns the time for which the outcome of the attempt has been unknown, by the operator's own clock: since it was
/// marked uncertain, or since its lease ended.
fn doubted_for(world: &World, at: usize, record: &Record) -> Duration {
    let state = world.state();
    let marked = state.ledger.keys[at].doubt.filter(|(fence, _)| *fence == record.fence.as_u64());
    let lapsed = state.ledger.attempts.get(&record.fence.as_u64()).map(|attempt| attempt.lapses_at);
    let since = marked.map(|(_, since)| since).or(lapsed).unwrap_or_else(Instant::now);
    Instant::now().saturating_duration_since(since)
}

/// The good times: everything is there again, and every key must come to its end.
pub(crate) async fn good_times(stage: &Stage, wishes: &[Wish]) {
    let world = stage.world().clone();
    world.heal();
    world.note(Event::Restarted, || "the bad times are over".to_owned());
    for slot in 0..SLOTS {
        if !world.is_alive(stage.front(slot).process.number) {
            stage.restart(slot);
        }
    }
    // Longer than any lease, any grace, and whatever a process does in the background.
    let caretaker = stage.store();
    for _ in 0..6 {
        sleep(Duration::from_secs(30)).await;
        sweep(caretaker.clone()).await;
    }
    client::poll(&world, &stage.front(0)).await;
    nothing_blocked(stage);
    for _ in 0..3 {
        resolve_all(stage);
        sleep(Duration::from_secs(31)).await;
    }
    probes_settled(stage);
    operate(caretaker.clone()).await;
    sleep(world.terms().operator_grace).await;
    operate(caretaker.clone()).await;
    world.state().is_closing = true;
    for wish in wishes {
        last_request(stage, *wish).await;
    }
    if world.terms().path == Path::Atomic {
        courier::check(stage).await;
    }
    let false_claim = world.state().ledger.false_claims();
    if let Some(words) = false_claim {
        world.violation(|| words);
    }
}

/// No key is blocked, and nothing is in doubt without a reason.
fn nothing_blocked(stage: &Stage) {
    let world = stage.world();
    for at in 0..world.terms().key_count {
        let Some(id) = world.state().ledger.keys[at].id else { continue };
        let Some(found) = now(stage.memory().get(id)) else { continue };
        let record = found.record;
        let attempt = world.state().ledger.attempts.get(&record.fence.as_u64()).copied();
        if matches!(record.state, State::Reserved(_)) {
            world.violation(|| format!("key {at} is still reserved when all is well: {record:?}"));
        }
        let Some(attempt) = attempt.filter(|_| is_uncertain(&record)) else { continue };
        // What its process did with it, the store has forgotten.
        if world.state().ledger.keys[at].has_lost_history {
            continue;
        }
        if !world.is_alive(attempt.process) {
            continue;
        }
        if !attempt.was_called {
            world.violation(|| {
                let late = if attempt.came_late { " (its reservation came late)" } else { "" };
                format!(
                    "key {at} is uncertain{late}: nothing ran under {:?}, and its process lives",
                    record.fence
                )
            });
        }
        if attempt.knows_outcome {
            world.violation(|| {
                format!(
                    "key {at} is uncertain: process {} knows the outcome and lives",
                    attempt.process
                )
            });
        }
    }
}

/// Checks that no key is uncertain that was reserved with a probe: the probe has been asked by then.
fn probes_settled(stage: &Stage) {
    let world = stage.world();
    let is_asked = |record: &Record| {
        is_uncertain(record) && matches!(record.on_lost_answer, OnLostAnswer::Ask(_))
    };
    for at in 0..world.terms().key_count {
        let Some(id) = world.state().ledger.keys[at].id else { continue };
        let found = now(stage.memory().get(id)).map(|found| found.record);
        if let Some(record) = found.filter(is_asked) {
            world.violation(|| {
                format!(
                    "the probe was asked three times and key {at} is in doubt: {:?}",
                    record.fence
                )
            });
        }
    }
}

/// In good times every request is answered, unless the key is another request's or in real doubt.
async fn last_request(stage: &Stage, wish: Wish) {
    let world = stage.world();
    let patience = Duration::from_mins(1);
    let mut told = Told::Nothing;
    for _ in 0..4 {
        let front = stage.any_front();
        told = client::send(world, &front, wish, patience).await;
        if matches!(told, Told::Final | Told::Mismatch) {
            return;
        }
        sleep(Duration::from_secs(2)).await;
    }
    let is_atomic = world.terms().path == Path::Atomic;
    match told {
        // A message's end may be long in coming: the courier's own check says whether it came.
        Told::Later if is_atomic => {}
        Told::Later | Told::Nothing => {
            world
                .violation(|| format!("key {} has no answer when all is well: {told:?}", wish.key));
        }
        Told::Final | Told::Mismatch | Told::Unknown => {}
    }
}
