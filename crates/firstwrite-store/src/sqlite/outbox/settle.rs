//! Writing down how claims ended.

use firstwrite_core::outbox::{
    Cause, Delivery, Ending, Held, MessageNumber, Next, Received, Sent, Settlement,
};
use firstwrite_core::{Fence, Timestamp};

use super::super::fault::Failure;
use super::super::session::Session;
use super::claim::skip;
use super::deliveries::Entry;
use super::pending::{self, Pending, Phase};
use super::tallies::{Kind, Tallies};

const DOING: &str = "settling messages";

/// What is written down where the delivery itself was not.
const FOUND: &str = "found to have arrived";

impl Session {
    /// See [`firstwrite_core::outbox::Outbox::settle`].
    pub(super) fn settle(
        &self,
        receipts: &[Received],
        settlements: &[Settlement],
    ) -> Result<Vec<Held>, Failure> {
        let now = self.now();
        for received in receipts {
            let entry = Entry::of(received.number, received.fence, &received.delivery);
            self.put_delivery(&entry, now).map_err(Failure::batch(DOING))?;
        }
        let mut tallies = Tallies::default();
        let mut held = Vec::with_capacity(settlements.len());
        for settlement in settlements {
            held.push(self.settle_one(settlement, &mut tallies, now)?);
        }
        self.put_tallies(&tallies).map_err(Failure::batch(DOING))?;
        Ok(held)
    }

    fn settle_one(
        &self,
        settlement: &Settlement,
        tallies: &mut Tallies,
        now: Timestamp,
    ) -> Result<Held, Failure> {
        let Settlement { number, fence, delivery, next, answer } = settlement;
        let pending = match pending::find(&self.connection, *number) {
            Ok(pending) => pending,
            Err(error) => {
                skip(number.0, error)?;
                None
            }
        };
        let pending =
            pending.filter(|pending| pending.phase == Phase::Sending && pending.fence == *fence);
        let arrived = matches!(delivery, Some(Delivery { ending: Ending::Delivered(_), .. }));
        if let Some(delivery) = delivery
            && (pending.is_some() || arrived)
        {
            let entry = Entry::of(*number, *fence, delivery);
            self.put_delivery(&entry, now).map_err(Failure::batch(DOING))?;
        }
        let Some(mut pending) = pending else { return Ok(Held::No) };
        let was = pending.phase;
        let becomes = match next {
            Next::Delivered(receipt) => {
                let arrived = Delivery::new(Ending::Delivered(receipt.clone()), FOUND);
                self.end((*number, *fence), &arrived, &pending, now)?;
                Some(Kind::Delivered)
            }
            Next::Refused => {
                let refused = Delivery::new(Ending::Refused, said(Cause::Refused));
                self.end((*number, *fence), &refused, &pending, now)?;
                None
            }
            Next::Waiting { .. } | Next::Unknown(_) | Next::Dead(_) => {
                proceed(&mut pending, delivery.as_ref(), next, now);
                self.update_pending(&pending).map_err(Failure::batch(DOING))?;
                Some(pending.phase.kind())
            }
        };
        tallies.moved(&pending.destination, was, becomes);
        if let Some(outcome) = answer {
            self.replace_interim(pending.id, outcome, now)?;
        }
        Ok(Held::Yes)
    }

    /// Ends a message, and sees to it that its history ends like this.
    fn end(
        &self,
        (number, fence): (MessageNumber, Fence),
        delivery: &Delivery,
        pending: &Pending,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let end = || {
            if self.last_ending(number)?.as_deref() != Some(delivery.ending.as_str()) {
                self.put_delivery(&Entry::of(number, fence, delivery), now)?;
            }
            self.end_pending(pending, now)
        };
        end().map_err(Failure::batch(DOING))
    }

    /// Takes a message out of what is pending, and lets its successor go.
    pub(super) fn end_pending(&self, pending: &Pending, now: Timestamp) -> rusqlite::Result<()> {
        self.delete_pending(pending.number)?;
        self.release_successor(pending, now)
    }
}

/// What becomes of a message that did not arrive, as far as anybody knows.
fn proceed(pending: &mut Pending, delivery: Option<&Delivery>, next: &Next, now: Timestamp) {
    if let Some(delivery) = delivery {
        pending.status = delivery.status;
        pending.problem = Some(delivery.detail.clone());
    }
    match next {
        Next::Delivered(_) | Next::Refused => unreachable!("a message that ended is not pending"),
        Next::Waiting { pause, counts, sent } => {
            match sent {
                Sent::No => pending.maybe_sent_at = None,
                Sent::AsBefore => {}
                Sent::Maybe => pending.doubt(),
            }
            pending.phase = Phase::Waiting;
            pending.due_at = Some(now.plus(*pause));
            pending.delivery_count = pending.delivery_count.saturating_add(u32::from(*counts));
            pending.lapse_count = 0;
        }
        Next::Unknown(why) => {
            pending.doubt();
            pending.phase = Phase::Unknown;
            pending.due_at = None;
            pending.problem = Some(match pending.problem.take() {
                Some(problem) => format!("{why}: {problem}"),
                None => (*why).to_owned(),
            });
        }
        Next::Dead(cause) => {
            pending.phase = Phase::Dead;
            pending.due_at = None;
            pending.problem.get_or_insert_with(|| said(*cause).to_owned());
        }
    }
}

fn said(cause: Cause) -> &'static str {
    match cause {
        Cause::Refused => "the destination will never take it",
        Cause::Exhausted => "its deliveries are exhausted",
    }
}
