//! Many histories, and what they came to.

use std::fmt;
use std::ops::Range;

use crate::{Defect, Event, Events, Plan, run};

/// Totals of many histories.
#[derive(Debug, Default)]
pub struct Summary {
    /// Histories that were run.
    pub histories: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// Events of all of them, and how often each happened.
    pub events: Events,
    /// Every broken promise, in the order of the seeds.
    pub violations: Vec<BrokenPromise>,
}

/// A history that broke a promise.
#[derive(Clone, Debug)]
pub struct BrokenPromise {
    /// Repeats it.
    pub seed: u64,
    /// Which promise it was.
    pub words: String,
}

/// Below this many histories a planned event may be missing by chance.
pub const HISTORIES_FOR_ALL_EVENTS: u64 = 20_000;

/// Runs the histories of `count` seeds from `first` on, on several threads, until `violations_max` promises were
/// broken.
pub fn run_many(first: u64, count: u64, plan: Plan, violations_max: usize) -> Summary {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let stop = std::sync::atomic::AtomicUsize::new(0);
    let parts: Vec<Summary> = std::thread::scope(|scope| {
        let stop = &stop;
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut summary = Summary::default();
                    for at in (thread..count).step_by(usize::try_from(threads).unwrap_or(1)) {
                        if stop.load(std::sync::atomic::Ordering::Relaxed) >= violations_max {
                            break;
                        }
                        let seed = first.wrapping_add(at);
                        let ended = run(seed, plan);
                        summary.histories += 1;
                        summary.steps += ended.steps;
                        summary.events.add(&ended.events);
                        if let Some(words) = ended.violation {
                            stop.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            summary.violations.push(BrokenPromise { seed, words });
                        }
                    }
                    summary
                })
            })
            .collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut sum = Summary::default();
    for part in parts {
        sum.histories += part.histories;
        sum.steps += part.steps;
        sum.events.add(&part.events);
        sum.violations.extend(part.violations);
    }
    sum.violations.sort_by_key(|broken| broken.seed.wrapping_sub(first));
    sum
}

/// The first history of `seeds` that a planted defect breaks and that holds without it.
pub fn catch(defect: Defect, seeds: Range<u64>) -> Option<BrokenPromise> {
    const AT_ONCE: u64 = 1000;
    let planted = Plan { defect: Some(defect), ..Plan::default() };
    let end = seeds.end;
    let mut parts = seeds.step_by(usize::try_from(AT_ONCE).unwrap_or(usize::MAX));
    parts.find_map(|first| {
        let summary = run_many(first, AT_ONCE.min(end - first), planted, usize::MAX);
        let mut broken = summary.violations.into_iter();
        broken.find(|broken| run(broken.seed, Plan::default()).violation.is_none())
    })
}

impl Summary {
    /// The planned events that never happened: a run without them has not tested them.
    pub fn missing_events(&self) -> Vec<Event> {
        if self.histories < HISTORIES_FOR_ALL_EVENTS {
            return Vec::new();
        }
        Event::ALL.iter().copied().filter(|event| self.events.count(*event) == 0).collect()
    }

    /// Returns true if no promise was broken and everything planned was tried.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.missing_events().is_empty()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "histories: {}, steps: {}", self.histories, self.steps)?;
        for event in Event::ALL {
            writeln!(f, "  {:<52} {}", event.words(), self.events.count(*event))?;
        }
        for event in self.missing_events() {
            writeln!(f, "never happened: {}", event.words())?;
        }
        for BrokenPromise { seed, words } in &self.violations {
            writeln!(f, "violation with --seed {seed}: {words}")?;
        }
        write!(f, "violations: {}", self.violations.len())
    }
}
