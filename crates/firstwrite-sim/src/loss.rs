//! Lost history: an older copy of the records is put back, unknown keys are refused, an operator clears the loss.
//!
//! The loss is noticed at once: how stores notice it is tested with real servers.

use std::time::Duration;

use firstwrite_core::{
    Change, Draft, DraftState, Guard, MemoryStore, Record, Retention, State, Store as _, Timestamp,
};
use tokio::time::sleep;

use crate::events::Event;
use crate::stage::Stage;
use crate::store::now;
use crate::world::World;

/// State of the store's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    Whole,
    /// Something that was acknowledged is missing.
    Lost,
    /// An operator said that keys may run that the store does not know.
    Cleared,
}

/// Puts copies back until one was older than what stands, and clears the loss.
pub(crate) async fn lose(stage: Stage) {
    const COPIES_MAX: u8 = 4;
    let world = stage.world().clone();
    for _ in 0..COPIES_MAX {
        passes(&world, 0, 8000).await;
        let copy = copy(&stage);
        passes(&world, 200, 10_000).await;
        put_back(&stage, copy);
        if world.state().history == History::Lost {
            passes(&world, 2000, 20_000).await;
            clear(&world);
            return;
        }
    }
}

async fn passes(world: &World, from: u64, to: u64) {
    let millis = world.state().loss_rng.u64(from..to);
    sleep(Duration::from_millis(millis)).await;
}

fn copy(stage: &Stage) -> Vec<Option<Record>> {
    let ids: Vec<_> = stage.world().state().ledger.keys.iter().map(|key| key.id).collect();
    let record = |id| now(stage.memory().get(id)).map(|found| found.record);
    ids.into_iter().map(|id| id.and_then(record)).collect()
}

/// The records are as they were when the copy was made. Processes, calls and the upstream go on.
fn put_back(stage: &Stage, copy: Vec<Option<Record>>) {
    let world = stage.world();
    let memory = stage.memory();
    for (at, old) in copy.into_iter().enumerate() {
        let Some(id) = world.state().ledger.keys[at].id else { continue };
        let stands = now(memory.get(id)).map(|found| found.record);
        let seen = |record: &Option<Record>| record.as_ref().map(Record::seen);
        if seen(&stands) == seen(&old) {
            continue;
        }
        world.note(Event::HistoryLost, || format!("key {at}: {stands:?} is {old:?} again"));
        if let Some(stands) = stands {
            now(memory.swap(id, Guard::Seen(stands.seen()), Change::Remove, None));
        }
        if let Some(old) = old {
            restore(memory, &old, world.store_now());
        }
        let mut state = world.state();
        state.history = History::Lost;
        let book = &mut state.ledger.keys[at];
        book.has_lost_history = true;
    }
}

/// Writes a record as it was.
fn restore(memory: &MemoryStore, old: &Record, at: Timestamp) {
    let (state, retention) = match &old.state {
        State::Reserved(lease) => (DraftState::reserved(lease.until.since(at)), old.retention),
        State::Uncertain { .. } => (DraftState::reserved(Duration::ZERO), old.retention),
        State::Completed { outcome, retained_until, kept_until } => {
            let retention = Retention {
                replay_for: retained_until.since(at),
                linger_for: kept_until.since((*retained_until).max(at)),
                refuses_spent: old.retention.refuses_spent,
            };
            (DraftState::Completed { outcome: outcome.clone() }, retention)
        }
    };
    let draft = Draft {
        id: old.id,
        tenant: old.tenant.clone(),
        key: old.key.clone(),
        operation: old.operation.clone(),
        fingerprint: old.fingerprint.clone(),
        fence: old.fence,
        on_lost_answer: old.on_lost_answer,
        retention,
        state,
    };
    now(memory.insert(&draft));
    if let State::Uncertain { since } = old.state {
        let change = Change::MarkUncertain { ago: at.since(since) };
        now(memory.swap(old.id, Guard::Owner(old.fence), change, None));
    }
}

/// What the store has forgotten may run again: an operator has accepted that. A record that was put back may be of
/// another attempt, whose owner may free it.
fn clear(world: &World) {
    let mut state = world.state();
    if state.history != History::Lost {
        return;
    }
    state.history = History::Cleared;
    for book in state.ledger.keys.iter_mut().filter(|book| book.has_lost_history) {
        book.era += 1;
    }
    drop(state);
    world.note(Event::LossCleared, String::new);
}
