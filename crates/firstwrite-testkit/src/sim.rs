//! A seeded simulator: the production protocol over [`firstwrite_core::MemoryStore`], with clients
//! that duplicate and retry, crashes at every await point, lost and late acknowledgements, clock
//! jumps, sweeps, operators and a reaper.
//!
//! Single-threaded and without a runtime: every store call is a point where the seed decides who
//! goes on, so one seed is one history, always the same.

use std::fmt;

use crate::defects::Defect;

mod attempt;
mod cast;
mod events;
mod log;
mod schedule;
mod store;

pub use events::{Event, Events};

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// A mistake to make; none for the real thing.
    pub defect: Option<Defect>,
    /// Selects whether every step is written to the trace.
    pub trace: Trace,
}

/// Detail of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// Only what the checks need.
    #[default]
    Off,
    /// Every step, for a person to read.
    On,
}

/// Result of one history.
#[derive(Debug)]
pub struct Ended {
    /// Counts of events.
    pub events: Events,
    /// Number of steps.
    pub steps: u64,
    /// The first broken promise, if any.
    pub violation: Option<String>,
    /// Every step, if asked for.
    pub trace: Vec<String>,
}

/// Sums over many histories.
#[derive(Debug, Default)]
pub struct Summary {
    /// Histories that were run.
    pub histories: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// Counts of events in all of them.
    pub events: Events,
    /// The first broken promise.
    pub violation: Option<BrokenPromise>,
}

/// A history that broke a promise.
#[derive(Debug)]
pub struct BrokenPromise {
    /// Repeats it.
    pub seed: u64,
    /// Which promise it was.
    pub words: String,
    /// Every step that led there.
    pub trace: Vec<String>,
}

/// Below this many histories a planned event may be missing by chance.
pub const HISTORIES_FOR_ALL_EVENTS: u64 = 20_000;

/// Runs the history of one seed.
pub fn run(seed: u64, plan: Plan) -> Ended {
    schedule::run(seed, plan)
}

/// Runs the histories of `count` seeds from `first` on, up to the first broken promise; tells
/// `progress` how many are done, now and then.
pub fn run_many(first: u64, count: u64, plan: Plan, mut progress: impl FnMut(u64)) -> Summary {
    const PROGRESS_EVERY: u64 = 50_000;
    let mut summary = Summary::default();
    for seed in (0..count).map(|at| first.wrapping_add(at)) {
        let ended = run(seed, plan);
        summary.histories += 1;
        summary.steps += ended.steps;
        summary.events.add(&ended.events);
        if ended.violation.is_some() {
            let replayed = run(seed, Plan { trace: Trace::On, ..plan });
            let words = replayed.violation.unwrap_or_else(|| {
                "a seed did not repeat its own history: the simulator is broken".to_owned()
            });
            summary.violation = Some(BrokenPromise { seed, words, trace: replayed.trace });
            return summary;
        }
        if summary.histories.is_multiple_of(PROGRESS_EVERY) {
            progress(summary.histories);
        }
    }
    summary
}

impl Summary {
    /// The planned events that never happened: a run without them has not tested them.
    pub fn missing_events(&self) -> Vec<Event> {
        if self.histories < HISTORIES_FOR_ALL_EVENTS {
            return Vec::new();
        }
        Event::ALL.into_iter().filter(|event| self.events.count(*event) == 0).collect()
    }

    /// Returns true if no promise was broken and every planned event was tried.
    pub fn is_good(&self) -> bool {
        self.violation.is_none() && self.missing_events().is_empty()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "histories: {}, steps: {}", self.histories, self.steps)?;
        for event in Event::ALL {
            writeln!(f, "  {:<28} {}", event.words(), self.events.count(event))?;
        }
        for event in self.missing_events() {
            writeln!(f, "never happened: {}", event.words())?;
        }
        match &self.violation {
            None => write!(f, "violations: 0"),
            Some(BrokenPromise { seed, words, trace }) => {
                writeln!(f, "violation with --seed {seed}: {words}")?;
                trace.iter().try_for_each(|line| writeln!(f, "  {line}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
