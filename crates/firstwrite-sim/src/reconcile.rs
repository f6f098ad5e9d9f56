//! Reconciliations at random moments, and the judgement of what they settle.

use std::time::Duration;

use firstwrite::reconcile::{
    AnswerTemplate, MessageScope, RecordScope, Report, Rules, Settings, next_window, reconcile_once,
};
use firstwrite_core::findings::NewFinding;
use firstwrite_core::outbox::{
    Becomes, HistoryRow, MessageState, MessageView, Move, Outbox as _, Resolution, protocol,
    wire_key,
};
use firstwrite_core::protocol::{Force, Settlement, settle};
use firstwrite_core::{AuditEntry, Body, Fence, FindingKind, Outcome, Store as _, StoreError};
use firstwrite_testkit::accounts::Account;
use tokio::time::{Instant, sleep};

use crate::account::{PACE, SimAccount, pointer};
use crate::cast::{self, OPERATION, STEP};
use crate::courier;
use crate::defects::Defect;
use crate::events::Event;
use crate::front::{DESTINATION, MESSAGE_STEP};
use crate::stage::Stage;
use crate::store::SimStore;
use crate::terms::{CLOCK_STEPS_MAX, Path};
use crate::world::World;

/// Name of the source. `ACTOR` is derived from it, and is the actor of the settlements.
const SOURCE: &str = "provider";
const ACTOR: &str = "reconcile provider";

/// Returns true if a reconciliation made the change of this audit entry.
pub(crate) fn is_reconciliation(audit: Option<&AuditEntry>) -> bool {
    audit.is_some_and(|entry| entry.actor == ACTOR)
}

/// Compares the books with an account now and then, until the history closes. Two comparisons may overlap.
pub(crate) async fn look_now_and_then(stage: Stage) {
    let world = stage.world().clone();
    loop {
        let pause = world.state().account_rng.u64(2000..60_000);
        sleep(Duration::from_millis(pause)).await;
        let is_over = {
            let state = world.state();
            state.is_closing || state.log.violation.is_some()
        };
        if is_over {
            return;
        }
        let store = stage.store();
        let (dies, lives_for) = {
            let mut state = world.state();
            let rng = &mut state.account_rng;
            (rng.u8(..10) == 0 && world.terms().kills, rng.u64(1..400))
        };
        if dies {
            let process = store.process.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(lives_for)).await;
                process.kill();
            });
        }
        tokio::spawn(async move { look(&store).await });
    }
}

async fn look(store: &SimStore) {
    let world = store.process.world();
    let settings = settings(world);
    let account = SimAccount::draw(&store.process);
    let Ok(window) = next_window(store, &settings).await else { return };
    let ended = reconcile_once(store, &account, &settings, window, &mut |_| {}).await;
    let Ok(report) = ended else { return };
    note(world, account.account(), &report);
    let settled = report.delivered + report.resent + report.completed + report.freed;
    if settings.dry_run && settled + report.moved > 0 {
        world.violation(|| "a dry run settled something".to_owned());
    }
    if !settings.dry_run {
        for found in &report.found {
            let (Ok(()) | Err(_)) = act_carelessly(store, found).await;
        }
    }
}

fn note(world: &World, account: Account, report: &Report) {
    world.note(Event::BooksCompared, || {
        format!("{account:?}, {:?}, {:?}", report.classes, report.contradictions)
    });
    if !report.is_complete {
        world.note(Event::AccountFlawed, || format!("{:?}", report.flaws.first()));
    }
    for found in &report.found {
        if account == Account::Whole && is_false_alarm(world, found) {
            world.violation(|| format!("a false alarm: {}: {}", found.subject, found.detail));
        }
        if found.kind == FindingKind::Unproven {
            world.note(Event::AbsenceFound, || found.detail.clone());
        } else if found.detail.contains("before it was asked for") {
            world.note(Event::OtherLifeFound, || found.subject.clone());
        }
    }
}

/// No account that is whole lacks what arrived, or has it twice; and a planted defect must show by its harm.
/// A provider that recognises keys is not asked about what it has twice: a payment of an earlier life of the key
/// can be meant.
fn is_false_alarm(world: &World, found: &NewFinding) -> bool {
    let terms = world.terms();
    match found.kind {
        _ if world.has_any_defect() => false,
        FindingKind::MissingThere => !is_really_missing(world, found),
        FindingKind::Duplicate => terms.path == Path::Atomic || !terms.upstream_honours_keys(),
        FindingKind::Differs
        | FindingKind::MissingHere
        | FindingKind::Likely
        | FindingKind::Unproven => false,
    }
}

/// Returns true if the provider's own books have no payment for the finding. Other customers always pay.
fn is_really_missing(world: &World, found: &NewFinding) -> bool {
    let state = world.state();
    let key = found.record.and_then(|id| state.ledger.key_of(id));
    key.is_some_and(|key| !state.ledger.payments.has_made(&cast::wire_key(world.terms().path, key)))
}

fn settings(world: &World) -> Settings {
    let terms = world.terms();
    let lag = Account::LAG / u32::try_from(PACE).unwrap_or(1);
    let clocks = if terms.clock_steps { CLOCK_STEPS_MAX } else { Duration::ZERO };
    // A claim may send until it runs out, and what it sends arrives a time limit later at most.
    let sending = courier::terms(world);
    let grace = sending.lease_for() + sending.timeout + lag + clocks;
    let tolerance = clocks + Duration::from_secs(10);
    let mut rules = Rules { grace, tolerance, ..Rules::default() };
    let attempt_max = terms.operator_grace;
    if world.has(Defect::OlderIsProof) {
        rules.tolerance = Duration::from_hours(30 * 24);
    }
    let is_atomic = terms.path == Path::Atomic;
    let messages = MessageScope {
        destination: DESTINATION.to_owned(),
        steps: vec![MESSAGE_STEP.to_owned()],
        amount: Some(pointer("/amount")),
        currency: None,
    };
    let records = RecordScope {
        retention: terms.policy(0).record_retention(),
        attempt_max,
        ..RecordScope::new(
            STEP,
            OPERATION,
            AnswerTemplate::created("{\"payment\":\"{provider_id}\"}"),
        )
    };
    Settings {
        messages: is_atomic.then_some(messages),
        records: (!is_atomic).then_some(records),
        rules,
        dry_run: world.state().account_rng.u8(..10) == 0,
        ..Settings::new(SOURCE, DESTINATION)
    }
}

/// A reconciliation completed a record: its own effect must be what it was completed with.
pub(crate) fn judge_completed(world: &World, key: usize, outcome: &Outcome) {
    let text = match &outcome.body {
        Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Body::Tombstone | Body::Sealed(_) | Body::Released => String::new(),
    };
    let id = text.split('"').nth(3).unwrap_or_default();
    world.note(Event::ProvedCompleted, || format!("key {key} with {id}"));
    let is_made = {
        let state = world.state();
        let era = state.ledger.keys[key].era;
        state.ledger.payments.is_made(id, &cast::wire_key(world.terms().path, key), era)
    };
    if !is_made {
        world.violation(|| {
            format!("a reconciliation completed key {key} with {id}, which is not its payment")
        });
    }
}

/// A reconciliation freed a key: it must have no effect.
pub(crate) fn judge_freed(world: &World, key: usize, fence: Fence) {
    world.note(Event::AbsenceFreed, || format!("key {key}, {fence:?}"));
    let has_effect = {
        let mut state = world.state();
        state.ledger.keys[key].absent = Some(fence.as_u64());
        state.ledger.effect_under(key).is_some()
    };
    if has_effect {
        world.violation(|| format!("a reconciliation freed key {key}, whose effect exists"));
    }
}

/// A reconciliation settled a message.
pub(crate) fn judge_message(world: &World, message: &MessageView, step: &Move) {
    let wire = wire_key(&message.derived_key, message.record);
    match &step.becomes {
        Becomes::Settled(MessageState::Delivered) => {
            let receipt = step.history.as_ref().and_then(HistoryRow::receipt).unwrap_or_default();
            world.note(Event::ProvedDelivered, || wire.clone());
            let id = receipt.provider_id.as_deref().unwrap_or_default();
            if !world.state().ledger.payments.is_made(id, &wire, 0) {
                world.violation(|| {
                    format!("a reconciliation called {wire} delivered as {id}, not its payment")
                });
            }
        }
        Becomes::Pending(_) => {
            world.note(Event::AbsenceResent, || wire.clone());
            let has_effect = {
                let mut state = world.state();
                let book = state.ledger.deliveries.entry(wire.clone()).or_default();
                book.absent_since = Some(Instant::now());
                book.effects > 0
            };
            if has_effect {
                world.violation(|| {
                    format!("a reconciliation sends {wire} again, whose effect exists")
                });
            }
        }
        Becomes::Settled(_) | Becomes::MaybeSent(_) => {
            world.violation(|| format!("a reconciliation ended or doubted {wire}"));
        }
    }
}

/// A planted defect takes for an absence what a run only found.
async fn act_carelessly(store: &SimStore, found: &NewFinding) -> Result<(), StoreError> {
    let world = store.process.world();
    let careless = match found.kind {
        FindingKind::Unproven => world.has(Defect::AbsenceIgnoresEvidence),
        FindingKind::Likely => world.has(Defect::NamelessIsNobodys),
        FindingKind::Differs
        | FindingKind::Duplicate
        | FindingKind::MissingHere
        | FindingKind::MissingThere => false,
    };
    if !careless {
        return Ok(());
    }
    let by = AuditEntry {
        actor: ACTOR.to_owned(),
        action: "not happened".to_owned(),
        reason: "the provider's account does not have it".to_owned(),
    };
    if let Some(number) = found.message {
        if let Some(story) = store.message(number).await? {
            let seen = story.message.fence;
            protocol::resolve(store, number, seen, &Resolution::NotDelivered, &by).await?;
        }
    } else if let Some(id) = found.record
        && let Some(seen) = store.get(id).await?
    {
        settle(store, &seen.record, Settlement::NotHappened, Force::No, &by).await?;
    }
    Ok(())
}
