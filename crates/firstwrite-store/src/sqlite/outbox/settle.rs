//! Writing down how claims ended.

use firstwrite_core::outbox::{
    Cause, Delivery, Ending, Held, MessageNumber, Next, Received, Settlement,
};
use firstwrite_core::{Fence, Timestamp};

use super::super::fault::Failure;
use super::super::session::Session;
use super::claim::skip;
use super::pending::{self, Pending, Phase};
use crate::pending::{Entry, said};
use crate::pending::{Kind, Tallies};

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
                pending.proceed(delivery.as_ref(), next, now);
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
