//! Rules that decide what to do with a message before a delivery and after it.
//!
//! This is the only place where deliveries are decided. A message that may have had its effect is sent
//! again only while the destination is known to recognise its key, or after the destination has said that
//! nothing happened; otherwise it is held until there is proof. Neither a refusal nor a failure to connect
//! says anything about the deliveries before it.

use std::time::Duration;

use super::{
    ClaimedMessage, Delivery, Ending, FailureWindow, MessageState, Probed, Receipt, Terms,
};
use crate::Timestamp;

/// Next step of a worker with a claimed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It arrived before; only that is left to be written down.
    Settle(Receipt),
    /// It can be sent without harm.
    Send,
    /// It may have arrived: ask first.
    Ask,
    /// It may have arrived and the destination cannot be asked. Holds the reason why it is not sent again.
    Hold(&'static str),
}

/// Next state of a message after a delivery, or after the destination was asked about one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// It arrived.
    Delivered(Receipt),
    /// It is due again.
    Waiting {
        /// After this long.
        pause: Duration,
        /// True if the delivery counts towards the limit.
        counts: bool,
        /// Knowledge of whether it arrived.
        sent: Sent,
    },
    /// It is unknown whether it arrived; it waits for proof.
    Unknown(&'static str),
    /// The destination will never take it, and the client that waits for the answer is told so. This is
    /// final.
    Refused,
    /// It is no longer delivered by itself, until an operator redrives it. Holds the cause.
    Dead(Cause),
}

/// Knowledge of whether a message arrived, after this claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// It certainly has not arrived: this claim sent nothing, or the destination said so.
    No,
    /// As before this claim.
    AsBefore,
    /// It may have arrived, since this claim if not before.
    Maybe,
}

/// Cause for which a message became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The destination will never take it.
    Refused,
    /// It was delivered as often as it may be, without success.
    Exhausted,
}

/// Time of a decision, and the random number that spreads the pauses that follow from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The store's time.
    pub now: Timestamp,
    /// Drawn anew for each decision, from 0 to 1.
    pub random: f64,
}

/// A claim that runs out without a word is no delivery and counts for nothing, unless it is always the
/// same message: that one may be what ends the worker.
pub const LAPSE_COUNT_MAX: u32 = 10;

/// A look at the destination that finds nothing is no proof for this long after the last claim, longer
/// than the longest claim and what it may leave under way. A reconciliation waits as long by default.
pub const ABSENCE_SHOWS_AFTER: Duration = Duration::from_hours(1);

/// A message of a store that lost history rests for this long after an operator has cleared the loss: a
/// delivery that the store does not know of may be under way, and a destination that is asked meanwhile would
/// say that nothing happened. As long as the longest claim for a destination that can be asked and has a
/// timeout of a minute and a half.
pub const REST_AFTER_LOSS: Duration = Duration::from_mins(5);

/// Says what to do with a message that was claimed at `now`.
pub fn next_step(message: &ClaimedMessage, terms: &Terms, now: Timestamp) -> Step {
    if let Some(receipt) = &message.receipt {
        return Step::Settle(receipt.clone());
    }
    if message.lapse_count >= LAPSE_COUNT_MAX {
        return Step::Hold("its claims keep running out: it may be what ends the worker");
    }
    let Some(first) = message.maybe_sent_at else { return Step::Send };
    if terms.can_be_asked {
        return Step::Ask;
    }
    if is_recognised(first, terms, now) { Step::Send } else { Step::Hold(hold_reason(terms)) }
}

/// Says what becomes of a message that is given back unsent, since too little is left of its claim.
pub fn given_back(absence_proven: bool) -> Next {
    let sent = if absence_proven { Sent::No } else { Sent::AsBefore };
    Next::Waiting { pause: Duration::ZERO, counts: false, sent }
}

/// Says what becomes of a message whose delivery ended. `absence_proven`: the destination said, just
/// before, that nothing had happened.
pub fn after_delivery(
    message: &ClaimedMessage,
    terms: &Terms,
    delivery: &Delivery,
    absence_proven: bool,
    moment: Moment,
) -> Next {
    let Moment { now, random } = moment;
    let before = if absence_proven { None } else { message.maybe_sent_at };
    // A message that goes to see whether the destination is back is not to blame if it is not.
    let counts = !message.is_trial;
    let count = message.delivery_count + u32::from(counts);
    let is_last = count >= terms.delivery_count_max;
    let asked = delivery.retry_after.unwrap_or_default().min(Terms::RETRY_AFTER_MAX);
    let wait = |floor: Duration| pause(terms, count, random).max(asked).max(floor);
    match &delivery.ending {
        Ending::Delivered(receipt) => Next::Delivered(receipt.clone()),
        // Only this delivery was refused: an earlier one may have had its effect.
        Ending::Refused if before.is_some_and(|first| !is_answer_by_key(first, terms, now)) => {
            if terms.can_be_asked && !is_last {
                Next::Waiting { pause: wait(terms.timeout), counts, sent: Sent::AsBefore }
            } else {
                Next::Unknown("refused, but an earlier delivery may have arrived")
            }
        }
        // The answer that the client gets is final, so such a message must not become a dead letter that
        // can be redriven.
        Ending::Refused if message.answers.is_some() => Next::Refused,
        Ending::Refused => Next::Dead(Cause::Refused),
        Ending::Retry if is_last && before.is_some() => {
            Next::Unknown("deliveries are exhausted, and an earlier one may have arrived")
        }
        Ending::Retry if is_last => Next::Dead(Cause::Exhausted),
        Ending::Retry => Next::Waiting {
            pause: wait(Duration::ZERO),
            counts,
            sent: if absence_proven { Sent::No } else { Sent::AsBefore },
        },
        // An outage takes time but uses up no deliveries, however long it lasts. Some destinations act and
        // then redirect the caller, so a destination that can be asked is asked.
        Ending::NotThere => Next::Waiting {
            pause: away(terms, random).max(asked),
            counts: false,
            sent: match (terms.can_be_asked, absence_proven) {
                (true, _) => Sent::Maybe,
                (false, true) => Sent::No,
                (false, false) => Sent::AsBefore,
            },
        },
        Ending::Unknown if is_last => Next::Unknown("deliveries are exhausted"),
        Ending::Unknown if terms.can_be_asked => {
            // What was sent may still be under way: an answer before then would prove nothing.
            Next::Waiting { pause: wait(terms.timeout), counts, sent: Sent::Maybe }
        }
        Ending::Unknown => {
            let pause = wait(Duration::ZERO);
            if is_recognised(before.unwrap_or(now), terms, now.plus(pause)) {
                Next::Waiting { pause, counts, sent: Sent::Maybe }
            } else {
                Next::Unknown(hold_reason(terms))
            }
        }
    }
}

/// Says what becomes of a message after its destination was asked about it. `None`: it did not arrive,
/// so it is to be sent now.
pub fn after_probe(
    message: &ClaimedMessage,
    terms: &Terms,
    probed: &Probed,
    moment: Moment,
) -> Option<Next> {
    match probed {
        Probed::Happened(receipt) => Some(Next::Delivered(receipt.clone())),
        Probed::NotHappened => None,
        Probed::Silent(_) => {
            let counts = !message.is_trial;
            let count = message.delivery_count + u32::from(counts);
            if count >= terms.delivery_count_max {
                return Some(Next::Unknown("the destination was asked and did not say"));
            }
            let pause = pause(terms, count, moment.random);
            Some(Next::Waiting { pause, counts, sent: Sent::AsBefore })
        }
        // As after a delivery: an outage uses up no deliveries.
        Probed::NotThere(_) => {
            let pause = away(terms, moment.random);
            Some(Next::Waiting { pause, counts: false, sent: Sent::AsBefore })
        }
    }
}

/// Returns the time from which an effect missing at the destination counts as absent; `None` if it always
/// does. Before that time, a delivery may still be under way.
pub fn absence_shows_from(
    state: MessageState,
    maybe_sent_at: Option<Timestamp>,
    handled_at: Option<Timestamp>,
) -> Option<Timestamp> {
    let may_have_been_sent = maybe_sent_at.is_some() || state == MessageState::Sending;
    let last = handled_at.filter(|_| may_have_been_sent && !state.is_final());
    last.map(|at| at.plus(ABSENCE_SHOWS_AFTER))
}

/// Returns the time before which a message in doubt that was `handled_at` last is not claimed again: a delivery
/// that the store knows nothing of may be under way. `None` if it is in no doubt.
pub fn rested_at(
    maybe_sent_at: Option<Timestamp>,
    handled_at: Option<Timestamp>,
) -> Option<Timestamp> {
    maybe_sent_at.and(handled_at).map(|at| at.plus(REST_AFTER_LOSS))
}

/// Returns true if a delivery that begins at `now` arrives, however late, while the destination still
/// recognises the key.
fn is_recognised(first: Timestamp, terms: &Terms, now: Timestamp) -> bool {
    now.plus(terms.arrives_within()) < first.plus(terms.dedupe_for)
}

/// Returns true if a refusal that came at `now` is the destination's one answer under the key, so that no
/// delivery has had its effect and none will.
fn is_answer_by_key(first: Timestamp, terms: &Terms, now: Timestamp) -> bool {
    terms.answers_refusals_by_key && now < first.plus(terms.dedupe_for)
}

fn hold_reason(terms: &Terms) -> &'static str {
    if terms.dedupe_for.is_zero() {
        "it may have arrived, and the destination does not recognise repetitions"
    } else {
        "it may have arrived, and the destination no longer recognises its key"
    }
}

/// Full jitter: anything up to a bound that doubles with each delivery, so that messages that failed
/// together do not come back together.
fn pause(terms: &Terms, count: u32, random: f64) -> Duration {
    let doubled = terms.pause_first.saturating_mul(2u32.saturating_pow(count.saturating_sub(1)));
    doubled.min(terms.pause_max).mul_f64(random.clamp(0.0, 1.0))
}

/// As long as a destination is left alone at most: no count grows that a pause could follow.
fn away(terms: &Terms, random: f64) -> Duration {
    FailureWindow::open_for(u32::MAX, random).min(terms.pause_max)
}

impl Cause {
    /// The word used in SQL, listings and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Exhausted => "exhausted",
        }
    }
}

#[cfg(test)]
mod tests;
