//! Changes to a record that its attempt does not make: by time, the sweep, operators and probes, the reaper.
//! Also computes how a key ends once the store is up and no new request comes.

use firstwrite_core::{Change, Verdict};

use super::cell::{self, Cell, CellState};
use super::checks::Protocol;
use super::world::{Ack, Call, Finding, Phase, Sight, World, owner};

/// End of a key when all attempts and keepers finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A retry is answered or runs.
    Open,
    /// A retry waits for a person, and no living process knows better.
    Doubt,
    /// A retry waits for a person although a living process knew what happened.
    NeedlessDoubt,
    /// A retry waits for ever.
    Blocked,
}

/// No attempt takes more steps than this to its end.
const STEPS_MAX: usize = 16;

impl Protocol {
    pub(super) fn lapse(world: &mut World) {
        let Some(stands) = &mut world.cell else { return };
        stands.state = CellState::Lapsed;
        let fence = stands.fence;
        for attempt in &mut world.attempts {
            let places_it =
                matches!(attempt.phase, Phase::Placing(placing) if placing.fence == fence);
            attempt.late |= places_it || attempt.fence() == Some(fence);
        }
    }

    pub(super) fn sweep(&self, world: &mut World) {
        let on_lost_answer = self.rules.on_lost_answer;
        let Some(stands) = world.cell else { return };
        let Some(change) = cell::sweep(stands, on_lost_answer) else { return };
        if change == Change::MARK_UNCERTAIN {
            world.sight = Some(Sight::MarkedUncertain);
        }
        self.swap(world, cell::seen(stands, on_lost_answer), change);
    }

    /// Returns true if an operator or a probe may look now: a call that was given up has landed or never will.
    pub(super) fn may_look(&self, world: &World, stands: Cell) -> bool {
        let is_given_up = matches!(stands.state, CellState::Lapsed | CellState::Uncertain);
        let may_land = world.attempts.iter().any(
            |attempt| matches!(attempt.call, Call::OnTheWay(fence, _) if fence == stands.fence),
        );
        if self.rules.waits_for_grace { is_given_up && !may_land } else { stands.is_open() }
    }

    pub(super) fn look(world: &mut World) {
        let era = world.eras[usize::from(world.era)];
        let happened = era.effects > 0 || era.admitted > 0;
        world.finding = world.cell.map(|stands| Finding { fence: stands.fence, happened });
    }

    /// Says what was found out, as `protocol::settle` does it without force.
    pub(super) fn settle(&self, world: &mut World) {
        let Some(finding) = world.finding.take() else { return };
        let given_up = |stands: &Cell| {
            matches!(stands.state, CellState::Lapsed | CellState::Uncertain)
                && stands.fence == finding.fence
        };
        let Some(stands) = world.cell.filter(given_up) else { return };
        let (change, sight) = if finding.happened {
            (cell::completion(owner(stands.fence)), Sight::SettledHappened)
        } else {
            (Change::free_given_up(), Sight::SettledAbsent)
        };
        if self.swap(world, cell::seen(stands, self.rules.on_lost_answer), change) {
            world.sight = Some(sight);
        }
    }

    pub(super) fn expire(world: &mut World) {
        if let Some(Cell { state, .. }) = &mut world.cell
            && let CellState::Completed(answer) = *state
        {
            *state = CellState::Spent(answer);
            world.era += 1;
            // No write is under way for as long as an outcome is kept.
            world.attempts.iter_mut().for_each(|attempt| attempt.stray = None);
        }
    }

    /// Lets every attempt do what is its own, with a store that answers, then the sweep; then says how a retry
    /// would fare, without an operator and with one.
    pub(super) fn run_out(&self, world: &World) -> End {
        let mut world = world.clone();
        for at in (0_u8..).take(world.attempts.len()) {
            world.attempt(at).stray = None;
            for _ in 0..STEPS_MAX {
                self.go_on(&mut world, at);
            }
            self.land(&mut world, at);
        }
        if world.cell.is_some_and(|stands| stands.state == CellState::Held) && self.rules.leases {
            Self::lapse(&mut world);
        }
        self.sweep(&mut world);
        let before = self.verdict(&world);
        let Some(stands) = world.cell else { return End::Open };
        if self.may_look(&world, stands) {
            Self::look(&mut world);
            self.settle(&mut world);
        }
        match (before, self.verdict(&world)) {
            (Answered::Yes, _) => End::Open,
            (Answered::No, Answered::No) => End::Blocked,
            (Answered::No, Answered::Yes) => {
                let nobody_knows = world.doubtful & (1 << owner(stands.fence)) != 0;
                if nobody_knows { End::Doubt } else { End::NeedlessDoubt }
            }
        }
    }

    /// The next step of an attempt that nothing disturbs.
    fn go_on(&self, world: &mut World, at: u8) {
        let attempt = world.attempts[usize::from(at)];
        match attempt.phase {
            Phase::Idle | Phase::Over | Phase::Waiting => {}
            Phase::Asking => self.ask(world, at),
            Phase::Placing(placing) => self.place(world, at, placing, Ack::Heard),
            Phase::Granted(_) => self.quit(world, at),
            Phase::Running(fence) => match attempt.call {
                Call::OnTheWay(..) => self.land(world, at),
                Call::Landed => world.attempt(at).phase = Phase::Completing(fence),
                Call::None | Call::Vanished => self.lose_answer(world, at),
            },
            Phase::Completing(_) => self.complete(world, at, Ack::Heard),
            Phase::Marking(..) => self.mark(world, at, Ack::Heard),
            Phase::Leaving(_) => self.leave(world, at, Ack::Heard),
            Phase::Checked(_) | Phase::Written(_) | Phase::Replied => {
                world.attempt(at).phase = Phase::Over;
            }
        }
    }

    fn verdict(&self, world: &World) -> Answered {
        match cell::verdict(world.cell, self.rules.on_lost_answer) {
            Verdict::Fresh | Verdict::TakeOver { .. } | Verdict::Replay { .. } => Answered::Yes,
            Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable => Answered::No,
        }
    }
}

/// Result of a retry: answered or run, or neither.
enum Answered {
    Yes,
    No,
}
