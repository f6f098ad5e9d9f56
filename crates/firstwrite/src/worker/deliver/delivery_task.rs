//! One task: what a delivery task does with the message it was given.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::{
    Carrier, Claim, ClaimedMessage, Delivery, Ending, Load, Moment, Next, Probed, Receipt,
    Received, Settlement, Step, Terms, after_delivery, after_probe, given_back, next_step,
};
use firstwrite_core::{Store, Timestamp, crash_point};
use tokio::time::{Instant, timeout};

use super::lives::whose_payment;

/// A message that was claimed, and where it goes.
#[derive(Debug)]
pub(super) struct DeliveryTask {
    pub(super) store: Arc<dyn Store>,
    pub(super) message: ClaimedMessage,
    pub(super) terms: Terms,
    pub(super) carrier: Arc<dyn Carrier>,
    /// The store's time when the claim was made, and how long ago that is.
    pub(super) claimed_at: Timestamp,
    pub(super) since: Instant,
}

/// Result of an task.
#[derive(Debug)]
pub(super) struct Done {
    /// To be durable before the settlement, if the destination gave an id.
    pub(super) received: Option<Received>,
    pub(super) settlement: Settlement,
    /// Load signal from the destination; `None` if it was not contacted.
    pub(super) load: Option<Load>,
    /// True if the destination was available and did its part; `None` if it was not contacted.
    pub(super) was_there: Option<bool>,
    pub(super) is_trial: bool,
    /// Cause to report for a destination that was not available.
    pub(super) cause: String,
}

impl DeliveryTask {
    pub(super) async fn run(self) -> Done {
        crash_point!("deliver-claimed");
        match next_step(&self.message, &self.terms, self.now()) {
            Step::Settle(receipt) => self.unsent(Next::Delivered(receipt)),
            Step::Hold(why) => self.unsent(Next::Unknown(why)),
            Step::Send => self.send(false).await,
            Step::Ask => self.ask().await,
        }
    }

    async fn ask(self) -> Done {
        let Some(asking) = self.carrier.probe(&self.message) else {
            return self.unsent(Next::Unknown("its destination cannot be asked after all"));
        };
        let began_at = Instant::now();
        let probed = timeout(self.terms.timeout, asking).await;
        let probed = probed.unwrap_or_else(|_| Probed::Silent("no answer in time".to_owned()));
        let took = began_at.elapsed();
        let was_told = matches!(probed, Probed::Happened(_) | Probed::NotHappened);
        let probed = match probed {
            Probed::Happened(receipt) => whose_payment(&*self.store, &self.message, receipt).await,
            Probed::NotHappened | Probed::Silent(_) | Probed::NotThere(_) => probed,
        };
        let moment = self.moment();
        let Some(next) = after_probe(&self.message, &self.terms, &probed, moment) else {
            return self.send(true).await;
        };
        let mut done = self.unsent(next);
        done.load = Some(if was_told { Load::Answered(took) } else { Load::Overloaded });
        done.was_there = Some(was_told);
        if let Probed::Silent(why) | Probed::NotThere(why) = probed {
            done.cause = format!("asked, and not told: {why}");
        }
        done
    }

    async fn send(self, absence_proven: bool) -> Done {
        if !self.terms.may_send_after(self.since.elapsed()) {
            // A worker that was suspended while it held a claim must not send under a lease that may end
            // during the delivery.
            return self.unsent(given_back(absence_proven));
        }
        crash_point!("deliver-before-call");
        let began_at = Instant::now();
        let delivery = timeout(self.terms.timeout, self.carrier.carry(&self.message)).await;
        let delivery =
            delivery.unwrap_or_else(|_| Delivery::new(Ending::Unknown, "no answer in time"));
        crash_point!("deliver-after-call");
        let (load, was_there) = look(&delivery, began_at.elapsed());
        let next =
            after_delivery(&self.message, &self.terms, &delivery, absence_proven, self.moment());
        let cause = delivery.detail.clone();
        let mut done = self.unsent(next);
        done.load = Some(load);
        done.was_there = Some(was_there);
        done.cause = cause;
        // An id must be durable before anything follows from it; without one, both are one step.
        if let Ending::Delivered(Receipt { provider_id: Some(_) }) = &delivery.ending {
            let Claim { number, fence, .. } = done.settlement.claim;
            done.received = Some(Received { number, fence, delivery });
        } else {
            done.settlement.delivery = Some(delivery);
        }
        done
    }

    /// Returns the result of an task that sent nothing.
    fn unsent(self, next: Next) -> Done {
        let message = self.message;
        let answer = message.answers.as_ref().and_then(|answers| answers.after(&next));
        Done {
            received: None,
            settlement: Settlement { claim: message.claim(), delivery: None, next, answer },
            load: None,
            was_there: None,
            is_trial: message.is_trial,
            cause: String::new(),
        }
    }

    fn now(&self) -> Timestamp {
        self.claimed_at.plus(self.since.elapsed())
    }

    fn moment(&self) -> Moment {
        Moment { now: self.now(), random: fastrand::f64() }
    }
}

/// Returns the load signal of a delivery, and whether the destination was available.
fn look(delivery: &Delivery, took: Duration) -> (Load, bool) {
    let load = match delivery.ending {
        _ if delivery.is_overloaded => Load::Overloaded,
        Ending::Delivered(_) | Ending::Refused | Ending::Retry => Load::Answered(took),
        Ending::NotThere | Ending::Unknown => Load::Overloaded,
    };
    let was_there = match delivery.ending {
        Ending::Delivered(_) | Ending::Refused => true,
        // One that says "not so fast" is there.
        Ending::Retry => delivery.status == Some(429),
        Ending::NotThere | Ending::Unknown => false,
    };
    (load, was_there)
}
