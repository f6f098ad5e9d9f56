//! Designs of the protocol, the real ones and the known-bad ones, as transitions of a small world.

use firstwrite_core::{Change, Fence, Guard, OnLostAnswer, Verdict};
use stateright::{Model, Property};

use super::cell::{self, Cell, CellState};

/// A way to build the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// Effect and record in one commit.
    Atomic,
    /// Reserved first, and uncertain when nobody knows: the gateway's default.
    ReservedUncertain,
    /// Reserved first, taken over when lapsed, in front of an upstream that honours the key.
    ReservedResend,
    /// Known bad: look whether the key is free, then write.
    CheckThenInsert,
    /// Known bad: a lease, and writes that compare no fence.
    LeaseWithoutFence,
    /// Known bad: a fence, and a remote effect that is simply run again.
    FenceWithoutUncertain,
    /// Known bad: one commit for effect and record, but the client is answered before it.
    ReplyBeforeRecord,
}

/// How far a model is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Requests that clients send under the one key; at most 8.
    pub attempts: u8,
    /// Crashes of attempts.
    pub crashes: u8,
    /// Leases that run out.
    pub lapses: u8,
}

/// A design within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Which design.
    pub design: Design,
    /// How far.
    pub bounds: Bounds,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    cell: Option<Cell>,
    attempts: Vec<Phase>,
    effects: u8,
    /// What the upstream answered first.
    upstream: Option<u8>,
    /// The first answer a client got, and whether another one differed.
    first_reply: Option<u8>,
    replies_differ: bool,
    crashes: u8,
    lapses: u8,
    seen: Sights,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Not sent yet.
    Idle,
    /// Looked, found the key free, and has not written yet.
    Checked,
    /// Owns the key.
    Granted(Fence),
    /// The effect is out.
    Sent(Fence),
    /// The record is written; the client waits for this answer.
    Written(u8),
    /// The client was answered before the record was written.
    Replied,
    /// The attempt is over.
    Over,
}

/// What was seen on the way: a model that never gets there proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Sights(u8);

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's request arrives, and is judged.
    Arrive(u8),
    /// An attempt that looked first now writes; in the atomic design, it commits.
    Write(u8),
    /// An attempt ends without an effect and frees the key.
    Release(u8),
    /// An attempt's effect went out, the answer is lost, and the attempt says so.
    GiveUp(u8),
    /// An attempt's effect goes out.
    Send(u8),
    /// An attempt writes its outcome.
    Complete(u8),
    /// A client hears the answer.
    Reply(u8),
    /// An attempt's process dies.
    Crash(u8),
    /// The lease of the record runs out.
    Lapse,
    /// The sweep looks at the record.
    Sweep,
    /// An operator settles the record by what the upstream shows.
    Settle,
}

const ONE_EFFECT: &str = "one effect";
const EQUAL_REPLIES: &str = "equal replies";

impl Design {
    /// Every design.
    pub const ALL: [Self; 7] = [
        Self::Atomic,
        Self::ReservedUncertain,
        Self::ReservedResend,
        Self::CheckThenInsert,
        Self::LeaseWithoutFence,
        Self::FenceWithoutUncertain,
        Self::ReplyBeforeRecord,
    ];

    /// The promises that a known-bad design must be seen to break; nothing for a real one.
    pub fn must_break(self) -> &'static [&'static str] {
        match self {
            Self::Atomic | Self::ReservedUncertain | Self::ReservedResend => &[],
            Self::CheckThenInsert | Self::LeaseWithoutFence => &[ONE_EFFECT, EQUAL_REPLIES],
            // The fence keeps the replies equal; it does not reach the remote system.
            Self::FenceWithoutUncertain => &[ONE_EFFECT],
            Self::ReplyBeforeRecord => &[EQUAL_REPLIES],
        }
    }

    /// Whether it must hold; the others must be refuted.
    pub fn is_real(self) -> bool {
        matches!(self, Self::Atomic | Self::ReservedUncertain | Self::ReservedResend)
    }

    fn on_lost_answer(self) -> OnLostAnswer {
        match self {
            Self::Atomic
            | Self::ReservedUncertain
            | Self::CheckThenInsert
            | Self::ReplyBeforeRecord => OnLostAnswer::Uncertain,
            Self::ReservedResend | Self::LeaseWithoutFence | Self::FenceWithoutUncertain => {
                OnLostAnswer::Resend
            }
        }
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::ReplyBeforeRecord)
    }
}

impl Bounds {
    /// Seconds in a test build.
    pub const SMALL: Self = Self { attempts: 4, crashes: 2, lapses: 2 };

    /// With this many attempts, and crashes and lapses to match.
    pub fn of_depth(attempts: u8) -> Self {
        let attempts = attempts.clamp(2, 8);
        Self { attempts, crashes: attempts / 2, lapses: attempts / 2 }
    }
}

impl Sights {
    const REPLAYED: u8 = 1;
    const TAKEN_OVER: u8 = 2;
    const UNCERTAIN: u8 = 4;
    const SETTLED_HAPPENED: u8 = 8;
    const SETTLED_ABSENT: u8 = 16;
    const ZOMBIE_REFUSED: u8 = 32;
    const LATE_OWNER_KEPT: u8 = 64;
    const CRASHED: u8 = 128;
    /// Only the atomic design meets rivals, and it takes nothing over.
    const RIVAL_MET: u8 = Self::TAKEN_OVER;

    fn note(&mut self, sight: u8) {
        self.0 |= sight;
    }

    fn has(self, sight: u8) -> bool {
        self.0 & sight != 0
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            cell: None,
            attempts: vec![Phase::Idle; usize::from(self.bounds.attempts)],
            effects: 0,
            upstream: None,
            first_reply: None,
            replies_differ: false,
            crashes: 0,
            lapses: 0,
            seen: Sights::default(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let mut idle_seen = false;
        for (at, phase) in (0_u8..).zip(&world.attempts) {
            match phase {
                // Attempts that were not sent yet are alike: one of them stands for all.
                Phase::Idle if idle_seen => {}
                Phase::Idle => {
                    idle_seen = true;
                    actions.push(Action::Arrive(at));
                }
                Phase::Checked if self.design == Design::ReplyBeforeRecord => {
                    actions.push(Action::Reply(at));
                }
                Phase::Checked | Phase::Replied => actions.push(Action::Write(at)),
                Phase::Granted(_) => actions.extend([Action::Send(at), Action::Release(at)]),
                Phase::Sent(_) if self.design == Design::ReservedUncertain => {
                    actions.extend([Action::Complete(at), Action::GiveUp(at)]);
                }
                Phase::Sent(_) => actions.push(Action::Complete(at)),
                Phase::Written(_) => actions.push(Action::Reply(at)),
                Phase::Over => {}
            }
            if !matches!(phase, Phase::Idle | Phase::Over) && world.crashes < self.bounds.crashes {
                actions.push(Action::Crash(at));
            }
        }
        let state = world.cell.map(|cell| cell.state);
        if state == Some(CellState::Held) && world.lapses < self.bounds.lapses {
            actions.push(Action::Lapse);
        }
        if state == Some(CellState::Lapsed) {
            actions.push(Action::Sweep);
        }
        if state == Some(CellState::Uncertain) {
            actions.push(Action::Settle);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Arrive(at) => self.arrive(&mut next, at),
            Action::Write(at) if self.design.is_atomic() => self.commit(&mut next, at),
            Action::Write(at) => {
                // What came in between is simply written over.
                let fence = Fence::first(u64::from(at));
                next.cell = Some(Cell { fence, state: CellState::Held });
                next.attempts[usize::from(at)] = Phase::Granted(fence);
            }
            Action::Release(at) => self.end(&mut next, at, Change::Remove),
            Action::GiveUp(at) => self.end(&mut next, at, Change::MarkUncertain),
            Action::Send(at) => self.send(&mut next, at),
            Action::Complete(at) => self.complete(&mut next, at),
            Action::Reply(at) => reply(&mut next, at),
            Action::Crash(at) => {
                next.crashes += 1;
                next.seen.note(Sights::CRASHED);
                next.attempts[usize::from(at)] = Phase::Over;
            }
            Action::Lapse => {
                next.lapses += 1;
                next.cell = next.cell.map(|cell| Cell { state: CellState::Lapsed, ..cell });
            }
            Action::Sweep => self.sweep(&mut next),
            Action::Settle => self.settle(&mut next),
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(ONE_EFFECT, |_, world| world.effects <= 1),
            Property::<Self>::always(EQUAL_REPLIES, |_, world| !world.replies_differ),
            Property::<Self>::sometimes("a retry is replayed", |_, world| {
                world.seen.has(Sights::REPLAYED)
            }),
            Property::<Self>::sometimes("an attempt crashes", |_, world| {
                world.seen.has(Sights::CRASHED)
            }),
        ];
        if self.design == Design::Atomic {
            properties.push(Property::<Self>::sometimes("a rival commits first", |_, world| {
                world.seen.has(Sights::RIVAL_MET)
            }));
        }
        if self.design == Design::ReservedUncertain {
            properties.extend([
                Property::<Self>::sometimes("a record becomes uncertain", |_, world| {
                    world.seen.has(Sights::UNCERTAIN)
                }),
                Property::<Self>::sometimes("it is settled that it happened", |_, world| {
                    world.seen.has(Sights::SETTLED_HAPPENED)
                }),
                Property::<Self>::sometimes("it is settled that it did not", |_, world| {
                    world.seen.has(Sights::SETTLED_ABSENT)
                }),
                Property::<Self>::sometimes("a late owner completes", |_, world| {
                    world.seen.has(Sights::LATE_OWNER_KEPT)
                }),
            ]);
        }
        if self.design == Design::ReservedResend {
            properties.extend([
                Property::<Self>::sometimes("a lapsed attempt is taken over", |_, world| {
                    world.seen.has(Sights::TAKEN_OVER)
                }),
                Property::<Self>::sometimes("a late owner is refused", |_, world| {
                    world.seen.has(Sights::ZOMBIE_REFUSED)
                }),
            ]);
        }
        properties
    }
}

impl Protocol {
    /// The upstream's answer to the one action: an upstream that honours the key repeats it.
    fn answer(self, world: &World, at: u8) -> u8 {
        match (self.design, world.upstream) {
            (Design::ReservedResend, Some(first)) => first,
            _ => at,
        }
    }

    fn arrive(self, world: &mut World, at: u8) {
        let (nonce, on_lost_answer) = (u64::from(at), self.design.on_lost_answer());
        let phase = match cell::verdict(world.cell, on_lost_answer) {
            // A transaction, too, looks first: its snapshot may be old when it commits.
            Verdict::Fresh if self.design.is_atomic() || self.design == Design::CheckThenInsert => {
                Phase::Checked
            }
            Verdict::Fresh => {
                let fence = Fence::first(nonce);
                world.cell = Some(Cell { fence, state: CellState::Held });
                Phase::Granted(fence)
            }
            Verdict::TakeOver { from } => {
                // Without fences, the next attempt looks like the one before.
                let fence =
                    if self.design == Design::LeaseWithoutFence { from } else { from.next(nonce) };
                let change = Change::TakeOver(Box::new(cell::draft(fence, on_lost_answer)));
                let guard = world.cell.map(|stands| cell::seen(stands, on_lost_answer));
                let taken = guard.is_some_and(|guard| {
                    cell::swap(&mut world.cell, guard, change, on_lost_answer)
                });
                debug_assert!(taken, "what was judged in this step did not move");
                world.seen.note(Sights::TAKEN_OVER);
                Phase::Granted(fence)
            }
            Verdict::Replay { .. } => {
                world.seen.note(Sights::REPLAYED);
                match world.cell.map(|stands| stands.state) {
                    Some(CellState::Completed(answer)) => Phase::Written(answer),
                    Some(CellState::Held | CellState::Lapsed | CellState::Uncertain) | None => {
                        Phase::Over
                    }
                }
            }
            // The client is refused and may send again: the next attempt stands for that.
            Verdict::InProgress { .. }
            | Verdict::Mismatch
            | Verdict::Uncertain
            | Verdict::Expired
            | Verdict::Unreadable => Phase::Over,
        };
        world.attempts[usize::from(at)] = phase;
    }

    /// Effect and record in one commit; a rival's record in the way rolls both back.
    fn commit(self, world: &mut World, at: u8) {
        let replied = world.attempts[usize::from(at)] == Phase::Replied;
        if world.cell.is_some() {
            world.seen.note(Sights::RIVAL_MET);
            self.arrive(world, at);
        } else {
            world.effects = world.effects.saturating_add(1);
            let fence = Fence::first(u64::from(at));
            world.cell = Some(Cell { fence, state: CellState::Completed(at) });
            world.attempts[usize::from(at)] = Phase::Written(at);
        }
        if replied {
            world.attempts[usize::from(at)] = Phase::Over;
        }
    }

    /// The attempt ends without an answer and says how, under its own fence.
    fn end(self, world: &mut World, at: u8, change: Change) {
        let phase = world.attempts[usize::from(at)];
        world.attempts[usize::from(at)] = Phase::Over;
        if let Phase::Granted(fence) | Phase::Sent(fence) = phase {
            if change == Change::MarkUncertain {
                world.seen.note(Sights::UNCERTAIN);
            }
            cell::swap(&mut world.cell, Guard::Owner(fence), change, self.design.on_lost_answer());
        }
    }

    fn send(self, world: &mut World, at: u8) {
        let phase = &mut world.attempts[usize::from(at)];
        if let Phase::Granted(fence) = *phase {
            *phase = Phase::Sent(fence);
            world.upstream.get_or_insert(at);
            // An upstream that honours the key does a repetition once.
            if self.design != Design::ReservedResend || world.effects == 0 {
                world.effects = world.effects.saturating_add(1);
            }
        }
    }

    fn complete(self, world: &mut World, at: u8) {
        let on_lost_answer = self.design.on_lost_answer();
        let Phase::Sent(fence) = world.attempts[usize::from(at)] else { return };
        let answer = self.answer(world, at);
        let was_uncertain = world.cell.is_some_and(|stands| stands.state == CellState::Uncertain);
        let change = cell::completion(answer);
        let written = cell::swap(&mut world.cell, Guard::Owner(fence), change, on_lost_answer);
        world.seen.note(match (written, was_uncertain) {
            (true, true) => Sights::LATE_OWNER_KEPT,
            (true, false) => 0,
            (false, _) => Sights::ZOMBIE_REFUSED,
        });
        // A writer that compares no fence does not notice that it was refused either.
        let believes = written || self.design == Design::LeaseWithoutFence;
        world.attempts[usize::from(at)] =
            if believes { Phase::Written(answer) } else { Phase::Over };
    }

    fn sweep(self, world: &mut World) {
        let on_lost_answer = self.design.on_lost_answer();
        let Some(stands) = world.cell else { return };
        let Some(change) = cell::sweep(stands, on_lost_answer) else { return };
        if change == Change::MarkUncertain {
            world.seen.note(Sights::UNCERTAIN);
        }
        let guard = cell::seen(stands, on_lost_answer);
        cell::swap(&mut world.cell, guard, change, on_lost_answer);
    }

    /// An operator knows what the upstream shows, and calls something absent only when the attempt
    /// that could still send it is dead.
    fn settle(self, world: &mut World) {
        let on_lost_answer = self.design.on_lost_answer();
        let Some(stands) = world.cell else { return };
        let guard = cell::seen(stands, on_lost_answer);
        let owner_lives = world.attempts.iter().any(|phase| match phase {
            Phase::Granted(fence) | Phase::Sent(fence) => *fence == stands.fence,
            Phase::Idle | Phase::Checked | Phase::Written(_) | Phase::Replied | Phase::Over => {
                false
            }
        });
        let owner = u8::try_from(stands.fence.as_u64() & 0xff).unwrap_or(0);
        let (change, sight) = if world.effects > 0 {
            (cell::completion(owner), Sights::SETTLED_HAPPENED)
        } else if owner_lives {
            return;
        } else {
            (Change::Remove, Sights::SETTLED_ABSENT)
        };
        if cell::swap(&mut world.cell, guard, change, on_lost_answer) {
            world.seen.note(sight);
        }
    }
}

fn reply(world: &mut World, at: u8) {
    let phase = &mut world.attempts[usize::from(at)];
    let answer = match *phase {
        Phase::Written(answer) => {
            *phase = Phase::Over;
            answer
        }
        Phase::Checked => {
            *phase = Phase::Replied;
            at
        }
        Phase::Idle | Phase::Granted(_) | Phase::Sent(_) | Phase::Replied | Phase::Over => return,
    };
    match world.first_reply {
        None => world.first_reply = Some(answer),
        Some(first) if first != answer => world.replies_differ = true,
        Some(_) => {}
    }
}
