//! The model as the checker sees it: which steps are possible, and what must hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use firstwrite_core::OnLostAnswer;
use stateright::{Model, Property};

use super::cell::CellState;
use super::design::{
    Design, EQUAL_REPLIES, Followers, Mode, NO_NEEDLESS_DOUBT, NOT_BLOCKED, ONE_EFFECT,
    OnServerError, Rules, TRUE_REFUSALS,
};
use super::keepers::End;
use super::world::{Ack, Action, Attempt, Bounds, Call, Phase, Sight, World};

/// A design within bounds.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub(super) design: Design,
    pub(super) bounds: Bounds,
    pub(super) rules: Rules,
    /// Which of the promises that the design must break were seen broken, one bit each.
    broken: Arc<AtomicU8>,
}

impl Protocol {
    /// This design within these bounds.
    pub fn new(design: Design, bounds: Bounds) -> Self {
        Self { design, bounds, rules: design.rules(), broken: Arc::default() }
    }

    /// A step of the store, once for each way its answer can go.
    fn step(&self, world: &World, can_be_late: bool, step: impl Fn(Ack) -> Action) -> Vec<Action> {
        let mut steps = vec![step(Ack::Heard)];
        if world.spent.losses < self.bounds.losses {
            steps.extend([step(Ack::Lost), step(Ack::Dropped)]);
            if can_be_late && world.spent.strays < self.bounds.strays {
                steps.push(step(Ack::Late));
            }
        }
        steps
    }

    fn steps_of(&self, world: &World, at: u8, attempt: &Attempt, actions: &mut Vec<Action>) {
        let can_be_late = attempt.stray.is_none();
        match attempt.phase {
            Phase::Idle if self.rules.mode == Mode::Atomic => {
                actions.push(Action::Arrive(at, Ack::Heard));
            }
            Phase::Idle => {
                actions.extend(self.step(world, can_be_late, |ack| Action::Arrive(at, ack)));
            }
            Phase::Waiting => actions.push(Action::Wake(at)),
            Phase::Checked(_) if self.design == Design::ReplyBeforeRecord => {
                actions.push(Action::Reply(at));
            }
            Phase::Checked(_) | Phase::Replied if self.rules.mode == Mode::Atomic => {
                actions.extend(self.step(world, false, |ack| Action::Write(at, ack)));
            }
            Phase::Checked(_) | Phase::Replied => actions.push(Action::Write(at, Ack::Heard)),
            Phase::Asking => actions.push(Action::Ask(at)),
            Phase::Placing(_) => {
                actions.extend(self.step(world, can_be_late, |ack| Action::Write(at, ack)));
            }
            Phase::Granted(_) => {
                actions.push(Action::Quit(at));
                if self.rules.mode == Mode::Application {
                    actions.extend(self.step(world, false, |ack| Action::Complete(at, ack)));
                } else if !(attempt.late && self.rules.checks_lease) {
                    actions.push(Action::Begin(at));
                }
            }
            Phase::Running(_) => {
                actions.extend([Action::GiveUp(at), Action::ServerError(at)]);
                // A renewal of a lease that holds changes nothing.
                if world.cell.is_some_and(|stands| stands.state == CellState::Lapsed) {
                    actions.push(Action::Renew(at));
                }
                // Where it counts as a lost answer, it is one.
                if !self.rules.gateway_error_is_lost {
                    actions.push(Action::GatewayError(at));
                }
                if attempt.call == Call::Landed {
                    actions.push(Action::Answer(at));
                }
            }
            Phase::Completing(_) => {
                actions.extend(self.step(world, can_be_late, |ack| Action::Complete(at, ack)));
            }
            Phase::Marking(..) => {
                actions.extend(self.step(world, can_be_late, |ack| Action::Mark(at, ack)));
            }
            Phase::Leaving(_) => {
                actions.extend(self.step(world, false, |ack| Action::Leave(at, ack)));
            }
            Phase::Written(_) => actions.push(Action::Reply(at)),
            Phase::Over => {}
        }
        if matches!(attempt.call, Call::OnTheWay(..)) {
            actions.extend([Action::Land(at), Action::Vanish(at)]);
        }
        if attempt.stray.is_some() {
            actions.push(Action::Stray(at));
        }
        let can_crash = !matches!(attempt.phase, Phase::Idle | Phase::Over);
        if can_crash && world.spent.crashes < self.bounds.crashes {
            actions.push(Action::Crash(at));
        }
    }

    /// Returns true if this state breaks a promise.
    fn breaks(&self, world: &World, promise: &str) -> bool {
        match promise {
            ONE_EFFECT => world.eras.iter().any(|era| era.effects > 1),
            EQUAL_REPLIES => world.replies_differ,
            TRUE_REFUSALS => world.refusal_is_false,
            NO_NEEDLESS_DOUBT => self.run_out(world) == End::NeedlessDoubt,
            NOT_BLOCKED => self.run_out(world) == End::Blocked,
            _ => false,
        }
    }

    /// Returns true if a known-bad design has broken all it must: further exploration shows nothing more.
    fn is_refuted(&self, world: &World) -> bool {
        let wanted = self.design.must_break();
        if wanted.is_empty() {
            return false;
        }
        let all = (1_u8 << wanted.len()) - 1;
        if self.broken.load(Ordering::Relaxed) == all {
            return true;
        }
        for (at, promise) in wanted.iter().enumerate() {
            if self.breaks(world, promise) {
                self.broken.fetch_or(1 << at, Ordering::Relaxed);
            }
        }
        false
    }

    /// Counts what the bounds limit.
    fn spend(world: &mut World, action: Action) {
        match action {
            Action::Arrive(_, ack)
            | Action::Write(_, ack)
            | Action::Complete(_, ack)
            | Action::Mark(_, ack)
            | Action::Leave(_, ack) => {
                world.spent.losses += u8::from(ack != Ack::Heard);
                world.spent.strays += u8::from(ack == Ack::Late);
            }
            Action::Crash(_) => world.spent.crashes += 1,
            Action::Lapse => world.spent.lapses += 1,
            Action::Wake(_)
            | Action::Ask(_)
            | Action::Quit(_)
            | Action::Begin(_)
            | Action::Land(_)
            | Action::Vanish(_)
            | Action::Answer(_)
            | Action::ServerError(_)
            | Action::GatewayError(_)
            | Action::GiveUp(_)
            | Action::Renew(_)
            | Action::Stray(_)
            | Action::Reply(_)
            | Action::Sweep
            | Action::Look
            | Action::Settle
            | Action::Expire
            | Action::Reap => {}
        }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.bounds.attempts)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let mut idle_seen = false;
        for (at, attempt) in (0_u8..).zip(&world.attempts) {
            // Attempts that were not sent yet are alike: one of them stands for all.
            let is_idle = attempt.phase == Phase::Idle;
            if !(is_idle && idle_seen) {
                self.steps_of(world, at, attempt, actions);
            }
            idle_seen |= is_idle;
        }
        if world.finding.is_some() {
            actions.push(Action::Settle);
        }
        let Some(stands) = world.cell else { return };
        if world.finding.is_none() && self.may_look(world, stands) {
            actions.push(Action::Look);
        }
        match stands.state {
            CellState::Held if self.rules.leases && world.spent.lapses < self.bounds.lapses => {
                actions.push(Action::Lapse);
            }
            CellState::Lapsed => actions.push(Action::Sweep),
            CellState::Completed(_) if world.era < self.bounds.retentions => {
                actions.push(Action::Expire);
            }
            CellState::Spent(_) => actions.push(Action::Reap),
            // A note stays for an hour: an attempt that is still about to write then does not begin any more.
            CellState::Freed if world.attempts.iter().all(|attempt| !attempt.is_placing()) => {
                actions.push(Action::Reap);
            }
            CellState::Held | CellState::Uncertain | CellState::Completed(_) | CellState::Freed => {
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.sight = None;
        Self::spend(&mut next, action);
        match action {
            Action::Arrive(at, ack) => self.arrive(&mut next, at, ack),
            Action::Wake(at) => self.wake(&mut next, at),
            Action::Write(at, ack) => {
                if let Phase::Placing(placing) = next.attempt(at).phase {
                    self.place(&mut next, at, placing, ack);
                } else if self.rules.mode == Mode::Atomic {
                    self.commit(&mut next, at, ack);
                } else {
                    self.overwrite(&mut next, at);
                }
            }
            Action::Ask(at) => self.ask(&mut next, at),
            Action::Quit(at) => self.quit(&mut next, at),
            Action::Begin(at) => Self::begin(&mut next, at),
            Action::Land(at) => self.land(&mut next, at),
            Action::Vanish(at) => next.attempt(at).call = Call::Vanished,
            Action::Answer(at) => {
                if let Phase::Running(fence) = next.attempt(at).phase {
                    next.attempt(at).phase = Phase::Completing(fence);
                }
            }
            Action::ServerError(at) => self.server_error(&mut next, at),
            Action::GatewayError(at) => {
                if let Phase::Running(fence) = next.attempt(at).phase {
                    next.attempt(at).phase = Phase::Leaving([Some(fence), None]);
                }
            }
            Action::GiveUp(at) => self.lose_answer(&mut next, at),
            Action::Renew(at) => self.renew(&mut next, at),
            Action::Complete(at, ack) => self.complete(&mut next, at, ack),
            Action::Mark(at, ack) => self.mark(&mut next, at, ack),
            Action::Leave(at, ack) => self.leave(&mut next, at, ack),
            Action::Stray(at) => self.stray(&mut next, at),
            Action::Reply(at) => Self::reply(&mut next, at),
            Action::Crash(at) => {
                next.doubtful |= 1 << at;
                next.sight = Some(Sight::Crashed);
                next.attempt(at).phase = Phase::Over;
            }
            Action::Lapse => Self::lapse(&mut next),
            Action::Sweep => self.sweep(&mut next),
            Action::Look => Self::look(&mut next),
            Action::Settle => self.settle(&mut next),
            Action::Expire => Self::expire(&mut next),
            Action::Reap => {
                next.cell = None;
                next.sight = Some(Sight::Reaped);
            }
        }
        next.tidy();
        (next != *world).then_some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        !self.is_refuted(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_EFFECT, |it, world| !it.breaks(world, ONE_EFFECT)),
            Property::<Self>::always(EQUAL_REPLIES, |it, world| !it.breaks(world, EQUAL_REPLIES)),
            Property::<Self>::always(TRUE_REFUSALS, |it, world| !it.breaks(world, TRUE_REFUSALS)),
            Property::<Self>::always(NO_NEEDLESS_DOUBT, |it, world| {
                !it.breaks(world, NO_NEEDLESS_DOUBT)
            }),
            Property::<Self>::always(NOT_BLOCKED, |it, world| !it.breaks(world, NOT_BLOCKED)),
            sight::<{ Sight::Replayed as u8 }>("a retry is replayed"),
            sight::<{ Sight::Crashed as u8 }>("an attempt crashes"),
            sight::<{ Sight::TakenOverSpent as u8 }>("a spent key is taken over"),
            sight::<{ Sight::Reaped as u8 }>("a spent key is reaped"),
        ];
        properties.extend(self.sights());
        properties
    }
}

impl Protocol {
    /// Returns the events that must be possible in this design, beyond those that must be in all.
    fn sights(&self) -> Vec<Property<Self>> {
        if self.rules.mode == Mode::Atomic {
            return vec![
                sight::<{ Sight::RivalMet as u8 }>("a rival commits first"),
                sight::<{ Sight::CommitFound as u8 }>("an unacknowledged commit is found"),
            ];
        }
        let mut sights = vec![
            sight::<{ Sight::OwnWriteFound as u8 }>("an unacknowledged reservation is found"),
            sight::<{ Sight::Withdrawn as u8 }>("a reservation is withdrawn"),
        ];
        if self.bounds.strays > 0 {
            sights.push(sight::<{ Sight::StrayLanded as u8 }>("a write lands late"));
        }
        if self.rules.mode == Mode::Application {
            sights.push(sight::<{ Sight::SecondCompleteRefused as u8 }>(
                "a second complete is refused",
            ));
            return sights;
        }
        sights.extend([
            sight::<{ Sight::CallWithheld as u8 }>("a call is withheld after its lease"),
            sight::<{ Sight::Renewed as u8 }>("a lease is renewed"),
            sight::<{ Sight::LandedLate as u8 }>("an effect lands after its attempt"),
        ]);
        match self.rules.on_lost_answer {
            OnLostAnswer::Uncertain | OnLostAnswer::Ask(_) => sights.extend([
                sight::<{ Sight::MarkedUncertain as u8 }>("a record becomes uncertain"),
                sight::<{ Sight::SettledHappened as u8 }>("it is settled that it happened"),
                sight::<{ Sight::SettledAbsent as u8 }>("it is settled that it did not"),
                sight::<{ Sight::LateOwnerKept as u8 }>("a late owner completes"),
            ]),
            OnLostAnswer::Resend => sights.extend([
                sight::<{ Sight::TakenOver as u8 }>("a lapsed attempt is taken over"),
                sight::<{ Sight::ZombieRefused as u8 }>("a late owner is refused"),
            ]),
        }
        match self.rules.on_server_error {
            OnServerError::Release => {
                sights.push(sight::<{ Sight::RerunAdmitted as u8 }>("a 500 admits a second run"));
            }
            OnServerError::AskThenRelease => {
                sights.push(sight::<{ Sight::DoubtKept as u8 }>("a probe keeps the doubt"));
            }
            OnServerError::Lost => {}
        }
        if self.rules.followers == Followers::Answered {
            sights.push(sight::<{ Sight::FollowerAnswered as u8 }>("a follower is answered"));
        }
        sights
    }
}

/// Something that a step must show at least once.
fn sight<const SIGHT: u8>(name: &'static str) -> Property<Protocol> {
    Property::<Protocol>::sometimes(name, |_, world| {
        world.sight.is_some_and(|sight| sight as u8 == SIGHT)
    })
}
