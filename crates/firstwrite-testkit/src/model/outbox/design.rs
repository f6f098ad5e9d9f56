//! Designs of the outbox: the real one, and known-bad ones that differ from it in one rule.

use std::time::Duration;

use firstwrite_core::outbox::{
    Cause, ClaimedMessage, Delivery, Ending, Moment, Next, Sent, Step, Terms, after_delivery,
    next_step,
};

use super::destination::Kind;
use super::promises::{
    ANSWERED_ONCE, DOUBT_KEPT, NOTHING_LOST, ONE_EFFECT, REFUSED_IS_TRUE, ROLLED_BACK, TOLD_IS_TRUE,
};
use super::time::{TIMEOUT, at};

/// A way to build the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutboxDesign {
    /// Production's rules.
    Real,
    /// Known bad: a refusal is final, whatever became of the deliveries before it.
    RefusalEndsDoubt,
    /// Known bad: what answers in the destination's place is taken for its refusal.
    NotThereIsRefusal,
    /// Known bad: a claim that ran out counts as never sent.
    LapseLeavesNoDoubt,
    /// Known bad: a delivery that found no connection clears the doubt about those before it.
    FailureClearsDoubt,
    /// Known bad: the last try makes a dead letter of what may have arrived.
    ExhaustionDropsDoubt,
    /// Known bad: a message is sent again whether or not its key is still recognised.
    WindowIgnored,
    /// Known bad: a message is sent again if its answer, not its last arrival, falls into the window.
    WindowCountsAnswers,
    /// Known bad: the destination is asked while the delivery is still under way.
    ProbeTooEarly,
    /// Known bad: a claim for a destination that is asked ends while its delivery is under way.
    LeaseTooShort,
    /// Known bad: a worker sends under a claim that may have run out.
    SendsPastLease,
    /// Known bad: settlements compare no fence.
    SettlesWithoutFence,
    /// Known bad: the client's answer is written although the claim was lost.
    AnswersWithoutClaim,
    /// Known bad: an operator who finds nothing is believed at any time.
    WordTooEarly,
    /// Known bad: a redrive puts unknown messages back as if they had never been sent.
    RedrivesUnknown,
    /// Known bad: messages are delivered before their transaction has committed.
    SendsUncommitted,
    /// Known bad: a claim that ran out is never taken again.
    ClaimsOnce,
    /// Known bad: after a history loss, messages are as the copy has them.
    LossLeavesNoDoubt,
    /// Known bad: after a history loss, a worker goes on under the claim that it had.
    LossMarkLeavesClaim,
    /// Known bad: after a history loss, a message is claimed while a forgotten delivery is under way.
    LossMarkWithoutRest,
}

impl OutboxDesign {
    /// Every design.
    pub const ALL: [Self; 20] = [
        Self::Real,
        Self::RefusalEndsDoubt,
        Self::NotThereIsRefusal,
        Self::LapseLeavesNoDoubt,
        Self::FailureClearsDoubt,
        Self::ExhaustionDropsDoubt,
        Self::WindowIgnored,
        Self::WindowCountsAnswers,
        Self::ProbeTooEarly,
        Self::LeaseTooShort,
        Self::SendsPastLease,
        Self::SettlesWithoutFence,
        Self::AnswersWithoutClaim,
        Self::WordTooEarly,
        Self::RedrivesUnknown,
        Self::SendsUncommitted,
        Self::ClaimsOnce,
        Self::LossLeavesNoDoubt,
        Self::LossMarkLeavesClaim,
        Self::LossMarkWithoutRest,
    ];

    /// A promise that a known-bad design must be seen to break; `None` for the real one. It may break
    /// others too.
    pub fn must_break(self) -> Option<&'static str> {
        Some(match self {
            Self::Real => return None,
            Self::RefusalEndsDoubt | Self::NotThereIsRefusal => TOLD_IS_TRUE,
            Self::LapseLeavesNoDoubt | Self::FailureClearsDoubt | Self::LossMarkLeavesClaim => {
                DOUBT_KEPT
            }
            Self::ExhaustionDropsDoubt | Self::SettlesWithoutFence => REFUSED_IS_TRUE,
            Self::WindowIgnored
            | Self::WindowCountsAnswers
            | Self::ProbeTooEarly
            | Self::LeaseTooShort
            | Self::SendsPastLease
            | Self::WordTooEarly
            | Self::RedrivesUnknown
            | Self::LossLeavesNoDoubt
            | Self::LossMarkWithoutRest => ONE_EFFECT,
            Self::AnswersWithoutClaim => ANSWERED_ONCE,
            Self::SendsUncommitted => ROLLED_BACK,
            Self::ClaimsOnce => NOTHING_LOST,
        })
    }

    /// The kind of destination at which a known-bad design goes wrong first, if it takes one.
    pub(super) fn shows_at(self) -> Option<Kind> {
        match self {
            Self::RefusalEndsDoubt
            | Self::NotThereIsRefusal
            | Self::FailureClearsDoubt
            | Self::ExhaustionDropsDoubt
            | Self::WindowIgnored
            | Self::WindowCountsAnswers
            | Self::SettlesWithoutFence
            | Self::LossMarkLeavesClaim => Some(Kind::RecognisesKeys),
            Self::ProbeTooEarly
            | Self::LeaseTooShort
            | Self::SendsPastLease
            | Self::LossMarkWithoutRest => Some(Kind::CanBeAsked),
            Self::LossLeavesNoDoubt => Some(Kind::Forgetful),
            Self::Real
            | Self::LapseLeavesNoDoubt
            | Self::AnswersWithoutClaim
            | Self::WordTooEarly
            | Self::RedrivesUnknown
            | Self::SendsUncommitted
            | Self::ClaimsOnce => None,
        }
    }

    /// Returns the length of a claim's lease.
    pub(super) fn lease_for(self, terms: &Terms) -> Duration {
        if self == Self::LeaseTooShort && terms.can_be_asked {
            return terms.lease_for().saturating_sub(terms.timeout);
        }
        terms.lease_for()
    }

    pub(super) fn may_send_after(self, terms: &Terms, elapsed: Duration) -> bool {
        if self == Self::LeaseTooShort {
            return elapsed + terms.timeout < self.lease_for(terms);
        }
        self == Self::SendsPastLease || terms.may_send_after(elapsed)
    }

    /// Returns the next step with a claimed message: by production's rule, or by the design's mistake.
    pub(super) fn next_step(self, message: &ClaimedMessage, terms: &Terms, now: u16) -> Step {
        if self == Self::WindowIgnored && !terms.dedupe_for.is_zero() && message.receipt.is_none() {
            return Step::Send;
        }
        next_step(message, &self.believed(terms), at(now))
    }

    /// Returns the next state of a message after a delivery: by production's rule, or by the design's
    /// mistake.
    pub(super) fn after_delivery(
        self,
        message: &ClaimedMessage,
        terms: &Terms,
        (delivery, is_proven): (&Delivery, bool),
        moment: Moment,
    ) -> Next {
        let terms = &self.believed(terms);
        let real =
            |message: &ClaimedMessage| after_delivery(message, terms, delivery, is_proven, moment);
        let without_doubt = || real(&ClaimedMessage { maybe_sent_at: None, ..message.clone() });
        match (self, &delivery.ending) {
            (Self::RefusalEndsDoubt, Ending::Refused) => without_doubt(),
            (Self::NotThereIsRefusal, Ending::NotThere) => {
                let refused = Delivery::new(Ending::Refused, "");
                let message = ClaimedMessage { maybe_sent_at: None, ..message.clone() };
                after_delivery(&message, terms, &refused, is_proven, moment)
            }
            (Self::FailureClearsDoubt, Ending::Retry) => match without_doubt() {
                Next::Waiting { pause, counts, .. } => {
                    Next::Waiting { pause, counts, sent: Sent::No }
                }
                other @ (Next::Delivered(_) | Next::Unknown(_) | Next::Refused | Next::Dead(_)) => {
                    other
                }
            },
            (Self::ExhaustionDropsDoubt, Ending::Retry) => match real(message) {
                Next::Unknown(_) => Next::Dead(Cause::Exhausted),
                other @ (Next::Delivered(_)
                | Next::Waiting { .. }
                | Next::Refused
                | Next::Dead(_)) => other,
            },
            (Self::ProbeTooEarly, Ending::Unknown) => match real(message) {
                Next::Waiting { counts, sent, .. } => {
                    Next::Waiting { pause: Duration::ZERO, counts, sent }
                }
                other @ (Next::Delivered(_) | Next::Unknown(_) | Next::Refused | Next::Dead(_)) => {
                    other
                }
            },
            _ => real(message),
        }
    }

    /// The terms as the rules are given them: the mistake takes the window to end a time limit later.
    fn believed(self, terms: &Terms) -> Terms {
        let mut terms = terms.clone();
        if self == Self::WindowCountsAnswers && !terms.dedupe_for.is_zero() {
            terms.dedupe_for += TIMEOUT;
        }
        terms
    }
}
