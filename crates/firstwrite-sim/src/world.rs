//! The world that a history happens in: time, chance, processes, and the log of what happened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstwrite_core::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::defects::Defect;
use crate::events::{Event, Events};
use crate::ledger::Ledger;
use crate::loss::History;
use crate::terms::Terms;

/// Everything that a history shares. Clones are the same world.
#[derive(Clone, Debug)]
pub(crate) struct World(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    terms: Terms,
    defect: Option<Defect>,
    began: Instant,
    /// Notified when a process is killed.
    killed: Notify,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rng: fastrand::Rng,
    /// Decides what the accounts of the provider, its other customers and reconciliations do, so that histories
    /// without them are what they were.
    pub(crate) account_rng: fastrand::Rng,
    /// The same for lost history.
    pub(crate) loss_rng: fastrand::Rng,
    pub(crate) history: History,
    pub(crate) log: Log,
    pub(crate) ledger: Ledger,
    /// Offset of the store's clock from the elapsed time, in milliseconds.
    clock_offset: i64,
    /// The same for the provider's clock, which does not step.
    provider_offset: i64,
    pub(crate) away_until: Instant,
    /// Trouble does not come alone: until then most steps go wrong.
    pub(crate) trouble_until: Instant,
    pub(crate) is_healed: bool,
    /// The history comes to its end: no reconciliation begins any more.
    pub(crate) is_closing: bool,
    processes: Vec<Life>,
}

/// State of a process.
#[derive(Clone, Copy, Debug)]
struct Life {
    paused_until: Instant,
    is_dead: bool,
}

/// One life of a process. What it asks of the world passes through [`Process::gate`].
#[derive(Clone, Debug)]
pub(crate) struct Process {
    world: World,
    pub(crate) number: usize,
    /// Index of its settings.
    pub(crate) slot: usize,
}

/// Log of a history.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) events: Events,
    pub(crate) steps: u64,
    pub(crate) hash: u64,
    /// The trace for people, if it was asked for.
    pub(crate) lines: Option<Vec<String>>,
    pub(crate) violation: Option<String>,
}

/// The store's clock begins here: not at zero, where nothing can lie before.
pub(crate) const EPOCH_MILLIS: i64 = 1_700_000_000_000;

impl World {
    pub(crate) fn new(
        [rng, account_rng, loss_rng]: [fastrand::Rng; 3],
        terms: Terms,
        defect: Option<Defect>,
        traced: bool,
    ) -> Self {
        let began = Instant::now();
        let log = Log {
            events: Events::default(),
            steps: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            lines: traced.then(Vec::new),
            violation: None,
        };
        let state = State {
            rng,
            account_rng,
            loss_rng,
            history: History::Whole,
            log,
            ledger: Ledger::new(terms.key_count),
            clock_offset: EPOCH_MILLIS,
            provider_offset: EPOCH_MILLIS,
            away_until: began,
            trouble_until: began,
            is_healed: false,
            is_closing: false,
            processes: Vec::new(),
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            terms,
            defect,
            began,
            killed: Notify::new(),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.0.terms
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.0.defect == Some(defect)
    }

    pub(crate) fn has_any_defect(&self) -> bool {
        self.0.defect.is_some()
    }

    /// The store's clock.
    pub(crate) fn store_now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        Timestamp::from_millis(self.state().clock_offset + elapsed)
    }

    /// The provider's clock.
    pub(crate) fn provider_now(&self) -> Timestamp {
        let elapsed = self.elapsed();
        Timestamp::from_millis(self.state().provider_offset + elapsed)
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Lets this much time pass for all clocks at once.
    pub(crate) fn jump_clocks(&self, millis: i64) {
        let mut state = self.state();
        state.clock_offset += millis;
        state.provider_offset += millis;
    }

    pub(crate) fn step_clock(&self, millis: i64) {
        self.state().clock_offset += millis;
    }

    /// Writes down what happened.
    pub(crate) fn note(&self, event: Event, words: impl FnOnce() -> String) {
        self.state().note(self.0.began, event, words);
    }

    /// A promise was broken. Only the first counts: the rest follows from it.
    pub(crate) fn violation(&self, words: impl FnOnce() -> String) {
        let mut state = self.state();
        if state.log.violation.is_none() {
            let words = words();
            if let Some(lines) = &mut state.log.lines {
                lines.push(format!("BROKEN: {words}"));
            }
            state.log.violation = Some(words);
        }
    }

    /// A number below `below`.
    pub(crate) fn draw(&self, below: u64) -> u64 {
        self.state().rng.u64(..below)
    }

    /// True `percent` times out of a hundred.
    pub(crate) fn chance(&self, percent: u8) -> bool {
        self.state().rng.u8(..100) < percent
    }

    /// Time passes: at least `from`, less than `to` milliseconds.
    pub(crate) async fn passes(&self, from: u64, to: u64) {
        let millis = self.state().rng.u64(from..to);
        if millis > 0 {
            sleep(Duration::from_millis(millis)).await;
        }
    }

    /// A short way over a good network.
    pub(crate) async fn hop(&self) {
        self.passes(0, 4).await;
    }

    /// Starts a process with the settings of a slot.
    pub(crate) fn start(&self, slot: usize) -> Process {
        let mut state = self.state();
        state.processes.push(Life { paused_until: self.0.began, is_dead: false });
        let number = state.processes.len() - 1;
        drop(state);
        Process { world: self.clone(), number, slot }
    }

    pub(crate) fn is_alive(&self, number: usize) -> bool {
        !self.state().processes[number].is_dead
    }

    /// Ends the failures: resumes all processes, and makes the store available.
    pub(crate) fn heal(&self) {
        let now = Instant::now();
        let mut state = self.state();
        state.is_healed = true;
        state.away_until = now;
        for life in &mut state.processes {
            life.paused_until = life.paused_until.min(now);
        }
    }
}

impl State {
    fn note(&mut self, began: Instant, event: Event, words: impl FnOnce() -> String) {
        let log = &mut self.log;
        log.events.note(event);
        log.steps += 1;
        let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for part in [millis, event as u64] {
            log.hash = (log.hash ^ part).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(lines) = &mut log.lines {
            lines.push(format!("{:>7} ms  {}: {}", millis, event.words(), words()));
        }
    }
}

impl Process {
    pub(crate) fn pause(&self, for_: Duration) {
        let until = Instant::now() + for_;
        self.world.note(Event::Paused, || format!("process {} for {for_:?}", self.number));
        self.world.state().processes[self.number].paused_until = until;
    }

    pub(crate) fn kill(&self) {
        self.world.note(Event::Killed, || format!("process {}", self.number));
        self.world.state().processes[self.number].is_dead = true;
        self.world.0.killed.notify_waiters();
    }

    /// Now and then a process stands still where it waits, for any length of time.
    pub(crate) fn may_pause(&self) {
        let terms = self.world.terms();
        let is_due = terms.pauses && !self.world.state().is_healed && self.world.chance(2);
        if is_due && self.world.is_alive(self.number) {
            let longest = [500, 6000, 45_000][usize::try_from(self.world.draw(3)).unwrap_or(0)];
            self.pause(Duration::from_millis(1 + self.world.draw(longest)));
        }
    }

    /// Lets a running process go on; holds a paused one; never lets go of a dead one.
    pub(crate) async fn gate(&self) {
        loop {
            let Life { paused_until, is_dead } = self.world.state().processes[self.number];
            if is_dead {
                std::future::pending::<()>().await;
            }
            if paused_until <= Instant::now() {
                return;
            }
            // The end of a pause can come earlier than planned.
            sleep_until(paused_until.min(Instant::now() + Duration::from_secs(3))).await;
        }
    }

    /// Ends when the process does.
    pub(crate) async fn died(&self) {
        loop {
            let mut killed = std::pin::pin!(self.world.0.killed.notified());
            killed.as_mut().enable();
            if !self.world.is_alive(self.number) {
                return;
            }
            killed.await;
        }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }
}
