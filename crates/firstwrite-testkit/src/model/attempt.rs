//! Steps of an attempt: reserve, call, complete, leave. Each step of the store may lose its answer.

use firstwrite_core::{Change, Fence, Guard, Verdict};

use super::cell::{self, Cell, CellState};
use super::checks::Protocol;
use super::design::{Design, Followers, Mode, OnServerError};
use super::world::{Ack, Call, Counts, Phase, Placing, Sight, Stray, Try, World};

impl Protocol {
    pub(super) fn arrive(&self, world: &mut World, at: u8, ack: Ack) {
        if self.rules.mode == Mode::Atomic || self.design == Design::CheckThenInsert {
            return self.judge(world, at, None);
        }
        let fence = self.first_fence(at);
        self.place(world, at, Placing { fence, seen: None, perhaps: None }, ack);
    }

    /// A duplicate that waited looks again; only a known-bad design lets it run.
    pub(super) fn wake(&self, world: &mut World, at: u8) {
        match cell::verdict(world.cell, self.rules.on_lost_answer) {
            Verdict::Fresh if self.rules.followers == Followers::Run => {
                // No client has asked again since the 500: that effect and this one are one too many.
                let era = &mut world.eras[usize::from(world.era)];
                era.effects = era.effects.saturating_add(std::mem::take(&mut era.admitted));
                for attempt in &mut world.attempts {
                    if let Call::OnTheWay(_, counts) = &mut attempt.call {
                        *counts = Counts::Yes;
                    }
                }
                self.arrive(world, at, Ack::Heard);
            }
            Verdict::Replay { .. } => self.judge(world, at, None),
            Verdict::Fresh
            | Verdict::TakeOver { .. }
            | Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable => {
                world.sight = Some(Sight::FollowerAnswered);
                world.attempt(at).phase = Phase::Over;
            }
        }
    }

    /// One round of writing a reservation, as `protocol::reserve` does it.
    pub(super) fn place(&self, world: &mut World, at: u8, placing: Placing, ack: Ack) {
        let written = matches!(ack, Ack::Heard | Ack::Lost) && self.write(world, placing);
        if ack == Ack::Heard {
            let own = |stands: &Cell| stands.fence == placing.fence && stands.is_reserved();
            if written {
                Self::grant(world, at, placing.fence);
            } else if world.cell.as_ref().is_some_and(own) {
                world.sight = Some(Sight::OwnWriteFound);
                Self::grant(world, at, placing.fence);
            } else {
                self.judge(world, at, placing.perhaps);
            }
            return;
        }
        if ack == Ack::Late {
            world.attempt(at).stray = Some(Stray::Place(placing));
        }
        world.attempt(at).phase = match placing.perhaps {
            None => Phase::Placing(Placing { perhaps: Some(placing.fence), ..placing }),
            Some(_) if !self.rules.withdraws_all => {
                Phase::Leaving([Some(self.first_fence(at)), None])
            }
            Some(perhaps) => Phase::Leaving([
                Some(placing.fence),
                Some(perhaps).filter(|perhaps| *perhaps != placing.fence),
            ]),
        };
    }

    /// Judges what stands and does what the verdict says, apart from writing.
    fn judge(&self, world: &mut World, at: u8, perhaps: Option<Fence>) {
        let stands = world.cell;
        let first = Placing { fence: self.first_fence(at), seen: None, perhaps };
        let phase = match cell::verdict(stands, self.rules.on_lost_answer) {
            // A transaction, too, looks first: its snapshot may be old when it commits.
            Verdict::Fresh | Verdict::TakeOver { .. } if self.rules.mode == Mode::Atomic => {
                Phase::Checked(stands)
            }
            Verdict::Fresh if self.design == Design::CheckThenInsert => Phase::Checked(None),
            Verdict::Fresh => Phase::Placing(first),
            Verdict::TakeOver { from } => {
                // Without fences, the next attempt looks like the one before.
                let fence = if self.rules.fences { from.next(self.nonce(at)) } else { from };
                Phase::Placing(Placing { fence, seen: stands, perhaps })
            }
            Verdict::Replay { .. } => {
                world.sight = Some(Sight::Replayed);
                world.attempt(at).era = world.era;
                stands.map_or(Phase::Over, |stands| Phase::Written(answer_in(stands, at)))
            }
            Verdict::InProgress { .. } if self.rules.followers != Followers::Refused => {
                Phase::Waiting
            }
            // The client is refused and may send again: the next attempt stands for that.
            Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable => Phase::Over,
        };
        let is_refused = !matches!(phase, Phase::Placing(_));
        world.attempt(at).phase = match perhaps {
            // A sweep may have met the unacknowledged reservation: nothing runs under it any more.
            Some(_) if is_refused && self.rules.withdraws_refused => {
                Phase::Leaving([perhaps, None])
            }
            _ => phase,
        };
    }

    /// Applies a reservation to the store; returns true if it was written.
    pub(super) fn write(&self, world: &mut World, placing: Placing) -> bool {
        let on_lost_answer = self.rules.on_lost_answer;
        let Some(seen) = placing.seen else {
            let is_free = world.cell.is_none();
            if is_free {
                world.cell = Some(Cell::held(placing.fence));
            }
            return is_free;
        };
        let change = Change::TakeOver(Box::new(cell::draft(placing.fence, on_lost_answer)));
        let taken =
            cell::swap(&mut world.cell, cell::seen(seen, on_lost_answer), change, on_lost_answer);
        if taken {
            let spent = matches!(seen.state, CellState::Spent(_));
            world.sight = Some(if spent { Sight::TakenOverSpent } else { Sight::TakenOver });
        }
        taken
    }

    fn grant(world: &mut World, at: u8, fence: Fence) {
        let era = world.era;
        let attempt = world.attempt(at);
        attempt.phase = Phase::Granted(fence);
        attempt.era = era;
    }

    /// An attempt that looked first writes over whatever stands there now: known bad.
    pub(super) fn overwrite(&self, world: &mut World, at: u8) {
        let fence = self.first_fence(at);
        world.cell = Some(Cell::held(fence));
        Self::grant(world, at, fence);
    }

    /// Effect and record in one commit; a record that came in between rolls both back.
    pub(super) fn commit(&self, world: &mut World, at: u8, ack: Ack) {
        let phase = world.attempt(at).phase;
        let seen = if let Phase::Checked(seen) = phase { seen } else { None };
        let fence = seen.map_or(self.first_fence(at), |seen| seen.fence.next(self.nonce(at)));
        let clear = world.cell == seen;
        if clear && matches!(ack, Ack::Heard | Ack::Lost) {
            world.attempt(at).era = world.era;
            world.cell = Some(Cell::completed(fence, at));
            world.sight = seen.map(|_| Sight::TakenOverSpent);
            land_effect(world, at, Counts::Yes);
        }
        world.attempt(at).phase = match (phase, ack, clear) {
            (Phase::Replied, ..) => Phase::Over,
            (_, Ack::Lost | Ack::Dropped | Ack::Late, _) => Phase::Asking,
            (_, Ack::Heard, true) => Phase::Written(at),
            (_, Ack::Heard, false) => {
                self.judge(world, at, None);
                world.sight = Some(Sight::RivalMet);
                return;
            }
        };
    }

    /// Finds out from its own record how an unacknowledged commit ended.
    pub(super) fn ask(&self, world: &mut World, at: u8) {
        let stands = world.cell.filter(|stands| super::world::owner(stands.fence) == at);
        world.attempt(at).phase = match stands {
            Some(stands) if self.rules.looks_again => {
                world.sight = Some(Sight::CommitFound);
                Phase::Written(answer_in(stands, at))
            }
            found => {
                // The client hears that nothing was run.
                world.refusal_is_false |= found.is_some();
                Phase::Over
            }
        };
    }

    pub(super) fn quit(&self, world: &mut World, at: u8) {
        let attempt = world.attempt(at);
        if let Phase::Granted(fence) = attempt.phase {
            let late = attempt.late && self.rules.checks_lease;
            attempt.phase = Phase::Leaving([Some(fence), None]);
            if late {
                world.sight = Some(Sight::CallWithheld);
            }
        }
    }

    pub(super) fn begin(world: &mut World, at: u8) {
        let attempt = world.attempt(at);
        if let Phase::Granted(fence) = attempt.phase {
            attempt.phase = Phase::Running(fence);
            attempt.call = Call::OnTheWay(fence, Counts::Yes);
        }
    }

    pub(super) fn land(&self, world: &mut World, at: u8) {
        let attempt = world.attempt(at);
        let Call::OnTheWay(_, counts) = attempt.call else { return };
        attempt.call = Call::Landed;
        if attempt.phase == Phase::Over {
            world.sight = Some(Sight::LandedLate);
        }
        // An upstream that honours the key does a repetition once.
        if !self.rules.honours_key || world.era_of(at).upstream.is_none() {
            land_effect(world, at, counts);
        }
        world.era_of(at).upstream.get_or_insert(at);
    }

    /// The upstream answers with a 500, whatever it did.
    pub(super) fn server_error(&self, world: &mut World, at: u8) {
        let attempt = world.attempt(at);
        let Phase::Running(fence) = attempt.phase else { return };
        let shows = attempt.call == Call::Landed;
        match self.rules.on_server_error {
            OnServerError::Lost => return self.lose(world, at, fence),
            OnServerError::AskThenRelease if shows => {
                self.lose(world, at, fence);
                world.sight = Some(Sight::DoubtKept);
                return;
            }
            OnServerError::AskThenRelease | OnServerError::Release => {}
        }
        attempt.phase = Phase::Leaving([Some(fence), None]);
        if !self.rules.admits_rerun {
            return;
        }
        if let Call::OnTheWay(_, counts) = &mut attempt.call {
            *counts = Counts::Admitted;
        } else if shows {
            attempt.call = Call::None;
            let era = world.era_of(at);
            era.effects = era.effects.saturating_sub(1);
            era.admitted = era.admitted.saturating_add(1);
            world.sight = Some(Sight::RerunAdmitted);
        }
    }

    /// The answer is lost, or a 502 or 504 says that it is.
    pub(super) fn lose_answer(&self, world: &mut World, at: u8) {
        if let Phase::Running(fence) = world.attempt(at).phase {
            self.lose(world, at, fence);
        }
    }

    fn lose(&self, world: &mut World, at: u8, fence: Fence) {
        world.doubtful |= 1 << at;
        world.attempt(at).phase = match self.rules.on_lost_answer {
            firstwrite_core::OnLostAnswer::Uncertain | firstwrite_core::OnLostAnswer::Ask(_) => {
                Phase::Marking(fence, Try::First)
            }
            firstwrite_core::OnLostAnswer::Resend => Phase::Leaving([Some(fence), None]),
        };
    }

    pub(super) fn renew(&self, world: &mut World, at: u8) {
        let Phase::Running(fence) = world.attempt(at).phase else { return };
        let change = Change::Renew { lease_for: firstwrite_core::Policy::LEASE_DEFAULT };
        if self.swap(world, Guard::Owner(fence), change) {
            world.attempt(at).late = false;
            world.sight = Some(Sight::Renewed);
        }
    }

    pub(super) fn complete(&self, world: &mut World, at: u8, ack: Ack) {
        let Phase::Completing(fence) = world.attempt(at).phase else {
            return self.application_completes(world, at, ack);
        };
        let answer = self.answer(world, at);
        let was_uncertain = world.cell.is_some_and(|stands| stands.state == CellState::Uncertain);
        let written = matches!(ack, Ack::Heard | Ack::Lost)
            && self.swap(world, Guard::Owner(fence), cell::completion(answer));
        if written && was_uncertain {
            world.sight = Some(Sight::LateOwnerKept);
        }
        if ack == Ack::Late {
            world.attempt(at).stray = Some(Stray::Complete(fence, answer));
        }
        let stands = world.cell.filter(|stands| stands.fence == fence && stands.is_kept());
        world.attempt(at).phase = match (ack, stands) {
            (Ack::Heard, _) if written => Phase::Written(answer),
            // An earlier try was written, or an operator was first.
            (Ack::Heard, Some(stands)) => Phase::Written(answer_in(stands, at)),
            // A writer that compares no fence does not notice that it was refused either.
            (Ack::Heard, None) if !self.rules.fences => Phase::Written(answer),
            (Ack::Heard, None) => {
                world.sight = Some(Sight::ZombieRefused);
                Phase::Over
            }
            (Ack::Lost | Ack::Dropped | Ack::Late, _) => {
                let gives_up = world.attempt(at).late && !self.rules.completes_late;
                if gives_up { Phase::Over } else { Phase::Completing(fence) }
            }
        };
    }

    /// An application commits its rows and the outcome; after a lost acknowledgement, it does so again.
    fn application_completes(&self, world: &mut World, at: u8, ack: Ack) {
        let Phase::Granted(fence) = world.attempt(at).phase else { return };
        let stands = world.cell.filter(|stands| stands.fence == fence && stands.is_kept());
        let reaches = matches!(ack, Ack::Heard | Ack::Lost);
        let repeats = stands.is_some() && !self.rules.refuses_second_complete;
        let wrote =
            reaches && (repeats || self.swap(world, Guard::Owner(fence), cell::completion(at)));
        if wrote {
            land_effect(world, at, Counts::Yes);
        }
        if ack != Ack::Heard {
            return;
        }
        world.attempt(at).phase = match (wrote, stands) {
            (true, _) => Phase::Written(at),
            (false, Some(stands)) => {
                world.sight = Some(Sight::SecondCompleteRefused);
                Phase::Written(answer_in(stands, at))
            }
            (false, None) => Phase::Over,
        };
    }

    pub(super) fn mark(&self, world: &mut World, at: u8, ack: Ack) {
        let Phase::Marking(fence, tried) = world.attempt(at).phase else { return };
        if matches!(ack, Ack::Heard | Ack::Lost)
            && self.swap(world, Guard::Owner(fence), Change::MARK_UNCERTAIN)
        {
            world.sight = Some(Sight::MarkedUncertain);
        }
        if ack == Ack::Late {
            world.attempt(at).stray = Some(Stray::Mark(fence));
        }
        // Marked twice in vain, the record is left to its lease.
        world.attempt(at).phase = match (ack, tried) {
            (Ack::Lost | Ack::Dropped | Ack::Late, Try::First) => {
                Phase::Marking(fence, Try::Second)
            }
            (Ack::Heard, _) | (_, Try::Second) => Phase::Over,
        };
    }

    /// Frees the key from everything that may have been written.
    pub(super) fn leave(&self, world: &mut World, at: u8, ack: Ack) {
        let Phase::Leaving(fences) = world.attempt(at).phase else { return };
        if matches!(ack, Ack::Heard | Ack::Lost) {
            for fence in fences.into_iter().flatten() {
                if self.swap(world, Guard::Owner(fence), Change::Remove) {
                    world.sight = Some(Sight::Withdrawn);
                }
            }
        }
        if ack == Ack::Heard {
            world.attempt(at).phase = Phase::Over;
        }
    }

    pub(super) fn stray(&self, world: &mut World, at: u8) {
        let Some(stray) = world.attempt(at).stray.take() else { return };
        let landed = match stray {
            Stray::Place(placing) => self.write(world, placing),
            Stray::Complete(fence, answer) => {
                self.swap(world, Guard::Owner(fence), cell::completion(answer))
            }
            Stray::Mark(fence) => self.swap(world, Guard::Owner(fence), Change::MARK_UNCERTAIN),
        };
        if landed {
            world.sight = Some(Sight::StrayLanded);
            // Its process was told neither that it was written nor that it would be.
            world.doubtful |= 1 << at;
        }
    }

    pub(super) fn reply(world: &mut World, at: u8) {
        let attempt = world.attempt(at);
        let answer = if let Phase::Written(answer) = attempt.phase {
            attempt.phase = Phase::Over;
            answer
        } else {
            attempt.phase = Phase::Replied;
            at
        };
        let first = *world.era_of(at).first_reply.get_or_insert(answer);
        world.replies_differ |= first != answer;
    }

    /// The upstream's answer to the one action: an upstream that honours the key repeats it.
    fn answer(&self, world: &mut World, at: u8) -> u8 {
        match world.era_of(at).upstream {
            Some(first) if self.rules.honours_key => first,
            _ => at,
        }
    }

    pub(super) fn swap(&self, world: &mut World, guard: Guard, change: Change) -> bool {
        cell::swap(&mut world.cell, guard, change, self.rules.on_lost_answer)
    }

    fn first_fence(&self, at: u8) -> Fence {
        Fence::first(self.nonce(at))
    }

    fn nonce(&self, at: u8) -> u64 {
        if self.rules.nonces { at.into() } else { 0 }
    }
}

fn land_effect(world: &mut World, at: u8, counts: Counts) {
    let era = world.era_of(at);
    let count = match counts {
        Counts::Yes => &mut era.effects,
        Counts::Admitted => &mut era.admitted,
    };
    *count = count.saturating_add(1);
}

/// The answer that a completed record gives.
fn answer_in(stands: Cell, otherwise: u8) -> u8 {
    match stands.state {
        CellState::Completed(answer) | CellState::Spent(answer) => answer,
        CellState::Held | CellState::Lapsed | CellState::Uncertain | CellState::Freed => otherwise,
    }
}
