//! The stage of a history: which processes serve, and who else acts beside them.

use std::sync::{Arc, Mutex, PoisonError};

use firstwrite_core::{MemoryStore, RecordId};

use crate::cast::{key, tenant};
use crate::events::Event;
use crate::front::Front;
use crate::store::SimStore;
use crate::world::World;

/// State that all actors share. Clones are the same stage.
#[derive(Clone, Debug)]
pub(crate) struct Stage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    world: World,
    memory: MemoryStore,
    fronts: Mutex<Vec<Arc<Front>>>,
}

/// Processes that serve at the same time.
pub(crate) const SLOTS: usize = 2;

impl Stage {
    pub(crate) fn new(world: World) -> Self {
        let clock = world.clone();
        let memory = MemoryStore::new(move || clock.store_now());
        for at in 0..world.terms().key_count {
            let id = RecordId::of(&tenant(world.terms().path), &key(at));
            world.state().ledger.keys[at].id = Some(id);
        }
        let stage = Self(Arc::new(Inner { world, memory, fronts: Mutex::default() }));
        for slot in 0..SLOTS {
            let front = stage.start_front(slot);
            stage.0.fronts.lock().unwrap_or_else(PoisonError::into_inner).push(front);
        }
        stage
    }

    pub(crate) fn world(&self) -> &World {
        &self.0.world
    }

    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    /// The store, for a process of its own.
    pub(crate) fn store(&self) -> SimStore {
        self.store_of(0)
    }

    fn store_of(&self, slot: usize) -> SimStore {
        SimStore { memory: self.0.memory.clone(), process: self.0.world.start(slot) }
    }

    fn start_front(&self, slot: usize) -> Arc<Front> {
        Arc::new(Front::start(&self.store_of(slot)))
    }

    pub(crate) fn front(&self, slot: usize) -> Arc<Front> {
        Arc::clone(&self.0.fronts.lock().unwrap_or_else(PoisonError::into_inner)[slot])
    }

    pub(crate) fn any_front(&self) -> Arc<Front> {
        let slot = self.0.world.state().rng.usize(..SLOTS);
        self.front(slot)
    }

    /// Starts a slot's process anew; the former one must be dead.
    pub(crate) fn restart(&self, slot: usize) {
        let front = self.start_front(slot);
        self.0.world.note(Event::Restarted, || format!("process {}", front.process.number));
        self.0.fronts.lock().unwrap_or_else(PoisonError::into_inner)[slot] = front;
    }
}
