//! The small world that a model explores: one record, the attempts on it, and what the upstream did.

use firstwrite_core::Fence;

use super::cell::Cell;

/// Bounds of the exploration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Requests that clients send under the one key; at most 8.
    pub attempts: u8,
    /// Crashes of attempts.
    pub crashes: u8,
    /// Leases that run out.
    pub lapses: u8,
    /// Steps of the store whose answer never arrives.
    pub losses: u8,
    /// Of those, steps that take effect only later.
    pub strays: u8,
    /// Retentions that end; at most 1.
    pub retentions: u8,
}

/// A state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(super) cell: Option<Cell>,
    pub(super) attempts: Vec<Attempt>,
    /// Events under the key, one entry for each retention.
    pub(super) eras: [Era; 2],
    pub(super) era: u8,
    /// Finding that an operator or a probe has not reported yet.
    pub(super) finding: Option<Finding>,
    /// Attempts of which no living process knows how they ended, one bit each.
    pub(super) doubtful: u8,
    pub(super) replies_differ: bool,
    pub(super) refusal_is_false: bool,
    pub(super) spent: Spent,
    /// Notable event of the last step: a model in which an event never happens proves nothing about it.
    pub(super) sight: Option<Sight>,
}

/// Events under the key within one retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Era {
    /// Effects that count.
    pub(super) effects: u8,
    /// Effects of attempts that ended with a 500 where the operation says that a retry runs afresh.
    pub(super) admitted: u8,
    /// First answer of the upstream.
    pub(super) upstream: Option<u8>,
    /// The first answer a client got.
    pub(super) first_reply: Option<u8>,
}

/// Used part of the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Spent {
    pub(super) crashes: u8,
    pub(super) lapses: u8,
    pub(super) losses: u8,
    pub(super) strays: u8,
}

/// One request and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// The call to the upstream, which goes on when the attempt has ended.
    pub(super) call: Call,
    /// The retention that the attempt belongs to.
    pub(super) era: u8,
    /// The lease of its reservation ended.
    pub(super) late: bool,
    /// A write that is on its way to the store after its caller has stopped waiting.
    pub(super) stray: Option<Stray>,
}

/// Progress of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Not sent yet.
    Idle,
    /// Waits for the attempt that holds the key.
    Waiting,
    /// Looked, may write over what it saw, and has not written yet.
    Checked(Option<Cell>),
    /// Its commit was not acknowledged.
    Asking,
    /// Is about to write its reservation.
    Placing(Placing),
    /// Owns the key.
    Granted(Fence),
    /// The upstream is called.
    Running(Fence),
    /// Knows the outcome and writes it.
    Completing(Fence),
    /// Marks the record uncertain, for the first or the second time.
    Marking(Fence, Try),
    /// Frees the key from what it may have written.
    Leaving([Option<Fence>; 2]),
    /// The record is written; the client waits for this answer.
    Written(u8),
    /// The client was answered before the record was written.
    Replied,
    /// The attempt is over.
    Over,
}

/// A reservation that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Placing {
    pub(super) fence: Fence,
    /// Record that it takes over; `None` for an insert.
    pub(super) seen: Option<Cell>,
    /// Fence that an earlier try may have written, if its acknowledgement was lost.
    pub(super) perhaps: Option<Fence>,
}

/// Number of the try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Try {
    First,
    Second,
}

/// Progress of a call to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Call {
    /// None was made, or it no longer matters.
    None,
    /// It may still have its effect.
    OnTheWay(Fence, Counts),
    /// It had its effect.
    Landed,
    /// It never will.
    Vanished,
}

/// Says if an effect counts against the promise of one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Counts {
    Yes,
    /// The upstream said 500, and the operation says that a retry after it runs afresh.
    Admitted,
}

/// A write that takes effect later than its caller waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stray {
    Place(Placing),
    Complete(Fence, u8),
    Mark(Fence),
}

/// Finding of an operator or a probe at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Finding {
    /// The attempt that the record showed then.
    pub(super) fence: Fence,
    pub(super) happened: bool,
}

/// Delivery of a store step and of its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ack {
    /// The step is done and its caller knows.
    Heard,
    /// The step is done and its caller does not know.
    Lost,
    /// The step is not done and its caller does not know.
    Dropped,
    /// The step is done later, if it can be then.
    Late,
}

/// A possible next step. The number names the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's request arrives, and is judged.
    Arrive(u8, Ack),
    /// A duplicate that waited looks again.
    Wake(u8),
    /// An attempt writes its reservation; in the atomic design, it commits.
    Write(u8, Ack),
    /// An attempt looks how its unacknowledged commit ended.
    Ask(u8),
    /// An attempt ends without a call.
    Quit(u8),
    /// An attempt calls the upstream.
    Begin(u8),
    /// A call has its effect, even if its caller has stopped waiting.
    Land(u8),
    /// A call is lost on its way and will never have an effect.
    Vanish(u8),
    /// The answer of the upstream arrives.
    Answer(u8),
    /// The upstream answers with a 500.
    ServerError(u8),
    /// A proxy before the upstream answers with a 502 or a 504.
    GatewayError(u8),
    /// No answer arrives in time.
    GiveUp(u8),
    /// An attempt renews its lease.
    Renew(u8),
    /// An attempt writes its outcome; an application commits its rows with it.
    Complete(u8, Ack),
    /// An attempt marks its record uncertain.
    Mark(u8, Ack),
    /// An attempt frees the key.
    Leave(u8, Ack),
    /// A write takes effect after its caller has stopped waiting.
    Stray(u8),
    /// A client hears the answer.
    Reply(u8),
    /// An attempt's process dies.
    Crash(u8),
    /// The lease of the record runs out.
    Lapse,
    /// The sweep looks at the record.
    Sweep,
    /// An operator or a probe looks at the record and at the upstream.
    Look,
    /// The operator or the probe says what it found.
    Settle,
    /// The retention of the outcome ends.
    Expire,
    /// The spent record is reaped.
    Reap,
}

/// A notable event that a step can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sight {
    Replayed,
    TakenOver,
    TakenOverSpent,
    MarkedUncertain,
    SettledHappened,
    SettledAbsent,
    ZombieRefused,
    LateOwnerKept,
    OwnWriteFound,
    CallWithheld,
    Withdrawn,
    Renewed,
    Crashed,
    RivalMet,
    LandedLate,
    RerunAdmitted,
    DoubtKept,
    FollowerAnswered,
    StrayLanded,
    Reaped,
    SecondCompleteRefused,
    CommitFound,
}

impl Bounds {
    /// Seconds in a test build.
    pub const SMALL: Self =
        Self { attempts: 2, crashes: 1, lapses: 1, losses: 2, strays: 0, retentions: 1 };

    /// With this many attempts: millions of states with 3; 4 and more need more memory than most machines have.
    pub fn of_depth(attempts: u8) -> Self {
        let attempts = attempts.clamp(2, 8);
        Self { attempts, crashes: 1, lapses: 1, losses: 1, strays: 1, retentions: 1 }
    }
}

impl World {
    pub(super) fn new(attempts: u8) -> Self {
        let idle = Attempt::ended(Phase::Idle);
        Self {
            cell: None,
            attempts: vec![idle; usize::from(attempts)],
            eras: [Era::default(); 2],
            era: 0,
            finding: None,
            doubtful: 0,
            replies_differ: false,
            refusal_is_false: false,
            spent: Spent::default(),
            sight: None,
        }
    }

    pub(super) fn attempt(&mut self, at: u8) -> &mut Attempt {
        &mut self.attempts[usize::from(at)]
    }

    /// Returns the events in the retention that an attempt belongs to.
    pub(super) fn era_of(&mut self, at: u8) -> &mut Era {
        let era = self.attempts[usize::from(at)].era;
        &mut self.eras[usize::from(era)]
    }

    /// Forgets what can no longer make a difference, so that equal states look equal.
    pub(super) fn tidy(&mut self) {
        let owner = self.cell.filter(|cell| cell.is_open()).map(|cell| owner(cell.fence));
        for (at, attempt) in (0_u8..).zip(&mut self.attempts) {
            if attempt.phase == Phase::Over {
                attempt.late = false;
                if !matches!(attempt.call, Call::OnTheWay(..)) {
                    attempt.call = Call::None;
                    attempt.era = 0;
                }
                if owner != Some(at) && attempt.stray.is_none() {
                    self.doubtful &= !(1 << at);
                }
            }
        }
    }
}

impl Attempt {
    pub(super) fn ended(phase: Phase) -> Self {
        Self { phase, call: Call::None, era: 0, late: false, stray: None }
    }

    /// Returns true if it is about to write a reservation.
    pub(super) fn is_placing(&self) -> bool {
        matches!(self.phase, Phase::Placing(_))
    }

    /// The fence of its reservation, while it acts on it.
    pub(super) fn fence(&self) -> Option<Fence> {
        match self.phase {
            Phase::Placing(placing) => placing.perhaps.or(Some(placing.fence)),
            Phase::Granted(fence)
            | Phase::Running(fence)
            | Phase::Completing(fence)
            | Phase::Marking(fence, _) => Some(fence),
            Phase::Idle
            | Phase::Waiting
            | Phase::Checked(_)
            | Phase::Asking
            | Phase::Leaving(_)
            | Phase::Written(_)
            | Phase::Replied
            | Phase::Over => None,
        }
    }
}

/// The attempt whose nonce a fence carries.
pub(super) fn owner(fence: Fence) -> u8 {
    u8::try_from(fence.as_u64() & 0xff).unwrap_or(u8::MAX)
}
