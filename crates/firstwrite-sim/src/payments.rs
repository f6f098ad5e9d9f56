//! The provider's payments: paid, failed or pending, under the keys that it was given. Accounts are made of them.

use std::time::Duration;

use firstwrite_core::Timestamp;
use firstwrite_testkit::accounts::{Entry, Status};

use crate::world::World;

/// Every payment of a history, and of the days before it.
#[derive(Debug, Default)]
pub(crate) struct Payments(Vec<Payment>);

#[derive(Debug)]
struct Payment {
    entry: Entry,
    /// The era of its key that asked for it; none for an earlier life of the key.
    era: Option<u32>,
}

/// Amounts that tell entries apart badly. Even ones are reported late where an account lags.
const AMOUNTS: [u64; 3] = [500, 701, 900];

impl Payments {
    /// The amount that is asked for under a client's key, or a wire key made of it.
    pub(crate) fn amount(key: &str) -> u64 {
        let sum: usize = key.bytes().take_while(|byte| *byte != b':').map(usize::from).sum();
        AMOUNTS[sum % AMOUNTS.len()]
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().map(|payment| &payment.entry)
    }

    /// Returns true if `id` is a payment that was made for this key in this era of the key.
    pub(crate) fn is_made(&self, id: &str, key: &str, era: u32) -> bool {
        self.0.iter().any(|Payment { entry, era: of }| {
            entry.id == id && entry.key == key && entry.status == Status::Paid && *of == Some(era)
        })
    }

    /// Returns true if a payment was made for this key, in any era of this history.
    pub(crate) fn has_made(&self, key: &str) -> bool {
        self.0.iter().any(|Payment { entry, era }| {
            entry.key == key && entry.status == Status::Paid && era.is_some()
        })
    }

    fn add(&mut self, key: &str, at: Timestamp, status: Status, era: Option<u32>) -> usize {
        let place = self.0.len();
        let (id, key) = (format!("pay_{place}"), key.to_owned());
        let amount = Self::amount(&key);
        self.0.push(Payment { entry: Entry { id, key, amount, at, status }, era });
        place
    }
}

impl World {
    /// The provider takes a call up. Half of the calls are listed from then on as pending.
    pub(crate) fn take_up(&self, key: &str) -> Option<usize> {
        let now = self.provider_now();
        let mut state = self.state();
        let is_listed = state.account_rng.bool();
        is_listed.then(|| state.ledger.payments.add(key, now, Status::Pending, None))
    }

    /// The provider makes a payment, and says what it calls it.
    pub(crate) fn pay(&self, pending: Option<usize>, key: &str, era: u32) -> String {
        let now = self.provider_now();
        let mut state = self.state();
        let payments = &mut state.ledger.payments;
        let place = pending.unwrap_or_else(|| payments.add(key, now, Status::Paid, None));
        let payment = &mut payments.0[place];
        (payment.entry.status, payment.era) = (Status::Paid, Some(era));
        payment.entry.id.clone()
    }

    /// The provider makes no payment. What is pending has failed; of other calls half are listed as failed.
    pub(crate) fn decline(&self, pending: Option<usize>, key: &str) {
        let now = self.provider_now();
        let mut state = self.state();
        let is_listed = state.account_rng.bool();
        let payments = &mut state.ledger.payments;
        match pending.and_then(|place| payments.0.get_mut(place)) {
            Some(payment) if payment.entry.status == Status::Pending => {
                payment.entry.status = Status::Failed;
            }
            None if is_listed => {
                payments.add(key, now, Status::Failed, None);
            }
            Some(_) | None => {}
        }
    }

    /// A payment of an earlier life of the key, which its retention has ended.
    pub(crate) fn paid_in_an_earlier_life(&self, key: &str) {
        let now = self.provider_now();
        let mut state = self.state();
        let ago = Duration::from_mins(state.account_rng.u64(25 * 60..6 * 24 * 60));
        state.ledger.payments.add(key, now.minus(ago), Status::Paid, None);
    }
}
