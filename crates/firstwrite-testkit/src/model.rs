//! The protocol explored exhaustively: every order of attempts, crashes, lapsed and renewed leases, lost
//! acknowledgements, late effects, late owners, sweeps, settlements and retentions within a bound.
//!
//! The model holds one record and calls production's own [`judge`], [`judge_lapsed`] and
//! [`Guard::holds`]. The real designs must hold; the known-bad ones must be *refuted*, or the model
//! proves nothing.
//!
//! It assumes two things of time: when the grace after giving up has passed, a call that began while its lease
//! held has landed or never will; and the note of a freed key outlasts an attempt that is about to write. That no key is blocked for ever is checked in every state by letting all
//! attempts and keepers finish, not with the checker's own *eventually*, which overlooks paths that join.
//!
//! [`judge`]: firstwrite_core::judge
//! [`judge_lapsed`]: firstwrite_core::judge_lapsed
//! [`Guard::holds`]: firstwrite_core::Guard::holds

use std::fmt;

use stateright::{Checker, Model};

mod attempt;
mod cell;
mod checks;
mod design;
mod keepers;
pub mod outbox;
mod world;

pub use checks::Protocol;
pub use design::Design;
pub use world::{Ack, Action, Bounds, World};

/// Results of exploring one design.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Which design.
    pub design: Design,
    /// Different states that were reached.
    pub unique_states: usize,
    /// Steps that were tried.
    pub transitions: usize,
    /// Promises that some order of steps breaks, with the steps.
    pub broken: Vec<(&'static str, String)>,
    /// Things that must be possible and were not reached.
    pub unreached: Vec<&'static str>,
}

/// Explores one design to its end.
pub fn explore(design: Design, bounds: Bounds, threads: usize) -> Explored {
    let checker = Protocol::new(design, bounds).checker().threads(threads).spawn_bfs().join();
    let discoveries = checker.discoveries();
    let mut explored = Explored {
        design,
        unique_states: checker.unique_state_count(),
        transitions: checker.state_count(),
        broken: Vec::new(),
        unreached: Vec::new(),
    };
    for property in checker.model().properties() {
        let found = discoveries.get(property.name);
        match property.expectation {
            stateright::Expectation::Always | stateright::Expectation::Eventually => {
                if let Some(path) = found {
                    let steps: Vec<String> = path
                        .clone()
                        .into_actions()
                        .into_iter()
                        .map(|action| format!("{action:?}"))
                        .collect();
                    explored.broken.push((property.name, steps.join(", ")));
                }
            }
            stateright::Expectation::Sometimes => {
                if found.is_none() {
                    explored.unreached.push(property.name);
                }
            }
        }
    }
    explored
}

impl Explored {
    /// Returns true if the design behaved as it must: a real one holds and reaches everything, a known-bad one
    /// breaks at least what it is known to break.
    pub fn is_as_expected(&self) -> bool {
        if self.design.is_real() {
            return self.broken.is_empty() && self.unreached.is_empty();
        }
        let is_broken = |promise| self.broken.iter().any(|(broken, _)| broken == promise);
        self.design.must_break().iter().all(is_broken)
    }
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, steps) = (self.unique_states, self.transitions);
        let ended = match (self.design.is_real(), self.broken.is_empty()) {
            (true, true) => "holds",
            (true, false) => "BROKEN",
            (false, false) => "refuted, as it must be",
            (false, true) => "NOT REFUTED",
        };
        write!(f, "model {:?}: {states} states, {steps} steps: {ended}", self.design)?;
        for (promise, path) in &self.broken {
            write!(f, "\n  breaks \"{promise}\": {path}")?;
        }
        let unreached = self.unreached.iter().filter(|_| self.design.is_real());
        for thing in unreached {
            write!(f, "\n  never reached: {thing}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_designs_hold_and_known_bad_ones_are_refuted() {
        for design in Design::ALL {
            let explored = explore(design, Bounds::SMALL, 1);
            println!("{explored}");
            assert!(explored.is_as_expected(), "{explored}");
        }
    }
}
