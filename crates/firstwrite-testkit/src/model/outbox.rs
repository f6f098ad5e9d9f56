//! The outbox explored exhaustively: one message, two workers, a destination, an operator.
//!
//! A state is moved by production's own rules: [`next_step`], [`after_delivery`], [`after_probe`],
//! [`Standing`], [`Gate`], [`Terms`], [`Answers::after`] and [`absence_shows_from`]. Workers are
//! arbitrarily slow at every step, die and begin anew; deliveries arrive late, after they were given up;
//! answers are lost; the destination refuses at any time, recognises keys for a while or not at all, is
//! asked at any moment; operators look at any moment. At any moment an older copy of the store is put back,
//! and the loss is noticed and cleared: see [`after_history_loss`]. The destination's ledger counts effects,
//! and the promises compare it with the message and with what the client was told.
//!
//! Assumed: what a destination declares is true; a delivery arrives within [`Terms::arrives_within`] or
//! never; a worker that finds enough of its lease left begins to send at once; an operator looks at the
//! ledger after reading the message, says what is there, and looks anew once a loss was cleared; a message
//! rests for the length of a claim after that.
//!
//! [`next_step`]: firstwrite_core::outbox::next_step
//! [`after_delivery`]: firstwrite_core::outbox::after_delivery
//! [`after_probe`]: firstwrite_core::outbox::after_probe
//! [`Standing`]: firstwrite_core::outbox::Standing
//! [`Gate`]: firstwrite_core::outbox::Gate
//! [`Terms`]: firstwrite_core::outbox::Terms
//! [`Terms::arrives_within`]: firstwrite_core::outbox::Terms::arrives_within
//! [`Answers::after`]: firstwrite_core::outbox::Answers::after
//! [`absence_shows_from`]: firstwrite_core::outbox::absence_shows_from
//! [`after_history_loss`]: firstwrite_core::outbox::after_history_loss

mod design;
mod destination;
mod history_loss;
mod moves;
mod operator;
mod promises;
mod scope;
mod time;
mod worker;
mod world;

use std::fmt;
use std::sync::Arc;

use stateright::{Checker, HasDiscoveries, Model};

pub use design::OutboxDesign;
pub use destination::{Deed, Kind};
pub use moves::OutboxAction;
pub use operator::Word;
use promises::Sights;
use scope::Limits;
pub use scope::Scope;
pub use world::World as OutboxWorld;

/// A design of the outbox within a scope.
#[derive(Clone, Debug)]
pub struct Delivering {
    design: OutboxDesign,
    limits: Limits,
    kind: Kind,
    is_awaited: bool,
    sights: Arc<Sights>,
}

/// Result of exploring one design of the outbox.
#[derive(Clone, Debug)]
pub struct OutboxExplored {
    /// Which design.
    pub design: OutboxDesign,
    /// Different states that were reached.
    pub unique_states: usize,
    /// Steps that were tried.
    pub transitions: usize,
    /// Promises that some order of steps breaks, with the steps.
    pub broken: Vec<(&'static str, String)>,
    /// Things that must be possible and were not reached.
    pub unreached: Vec<String>,
}

/// Explores one design in each scope: the real one to its end, a known-bad one until it is refuted.
pub fn explore_outbox(design: OutboxDesign, scopes: &[Scope], threads: usize) -> OutboxExplored {
    let sights = Arc::new(Sights::default());
    let mut explored = OutboxExplored {
        design,
        unique_states: 0,
        transitions: 0,
        broken: Vec::new(),
        unreached: Vec::new(),
    };
    let shows = |scope: &&Scope| design.shows_at().is_none_or(|kind| scope.kind == kind);
    for Scope { kind, is_awaited, limits } in scopes.iter().filter(shows).copied() {
        let model = Delivering { design, limits, kind, is_awaited, sights: Arc::clone(&sights) };
        let checker = model.checker().threads(threads);
        let checker = match design.must_break() {
            Some(promise) => checker.finish_when(HasDiscoveries::AnyOf([promise].into())),
            None => checker.finish_when(HasDiscoveries::Any),
        };
        let checker = checker.spawn_bfs().join();
        explored.unique_states += checker.unique_state_count();
        explored.transitions += checker.state_count();
        for (promise, path) in checker.discoveries() {
            let actions = path.into_actions().into_iter();
            let steps: Vec<String> = actions.map(|action| format!("{action:?}")).collect();
            explored.broken.push((promise, format!("{kind:?}: {}", steps.join(", "))));
        }
        if !explored.broken.is_empty() && explored.is_as_expected() {
            return explored;
        }
    }
    if design == OutboxDesign::Real {
        explored.unreached = sights.missing();
    }
    explored
}

impl OutboxExplored {
    /// Returns true if the design behaves as it must: the real one holds and reaches everything, a
    /// known-bad one breaks what it is known to break.
    pub fn is_as_expected(&self) -> bool {
        match self.design.must_break() {
            None => self.broken.is_empty() && self.unreached.is_empty(),
            Some(promise) => self.broken.iter().any(|(broken, _)| *broken == promise),
        }
    }
}

impl fmt::Display for OutboxExplored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, steps) = (self.unique_states, self.transitions);
        let ended = match (self.design.must_break(), self.is_as_expected()) {
            (None, true) => "holds",
            (None, false) => "BROKEN",
            (Some(_), true) => "refuted, as it must be",
            (Some(_), false) => "NOT REFUTED",
        };
        write!(f, "outbox {:?}: {states} states, {steps} steps: {ended}", self.design)?;
        for (promise, path) in &self.broken {
            write!(f, "\n  breaks \"{promise}\": {path}")?;
        }
        for thing in &self.unreached {
            write!(f, "\n  never reached: {thing}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_outbox_holds_and_known_bad_ones_are_refuted() {
        for design in OutboxDesign::ALL {
            let explored = explore_outbox(design, Scope::SHORT, 1);
            println!("{explored}");
            assert!(explored.is_as_expected(), "{explored}");
        }
    }
}
