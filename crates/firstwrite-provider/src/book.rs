//! The payments in memory: what the ledger says, arranged for questions.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use crate::behaviour::Keys;
use crate::clock::Moment;
use crate::ledger::{Entry, Made};
use crate::payment::{Payment, Wanted};

/// Everything the ledger says.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// By number; never fewer.
    effects: Vec<Effect>,
    keys: HashMap<String, Keyed>,
    /// Reported payments, oldest first.
    reported: BTreeSet<Place>,
    /// Time of the last payment that a caller asked for.
    latest: Option<Moment>,
    /// Numbers of the payments whose webhook has not been accepted yet.
    owed: BTreeSet<usize>,
}

/// Position of a payment in a report: its date and its number.
pub(crate) type Place = (Moment, usize);

#[derive(Debug)]
struct Effect {
    payment: Payment,
    /// A planted amount, which is reported instead.
    amount_reported: Option<u64>,
}

#[derive(Debug, Default)]
struct Keyed {
    /// Numbers of all payments under the key.
    numbers: Vec<usize>,
    /// The one that a repetition gets.
    remembered: Option<usize>,
}

/// Decision about a call under a key.
pub(crate) enum Judged {
    Fresh,
    Replay(Payment),
    Mismatch,
}

/// Which payments are asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    pub(crate) key: Option<String>,
    pub(crate) from: Option<Moment>,
    /// The first moment that is too late.
    pub(crate) until: Option<Moment>,
    pub(crate) after: Option<Place>,
}

impl Book {
    /// Takes in what was written down. An error says what makes no sense about it.
    pub(crate) fn apply(&mut self, entry: Entry) -> Result<(), &'static str> {
        match entry {
            Entry::Made(Made { payment, owes_webhook }) => {
                self.latest = self.latest.max(Some(payment.created_at));
                self.add(payment, true)?;
                if owes_webhook {
                    self.owed.insert(self.len());
                }
                Ok(())
            }
            Entry::Told { id } => {
                let number = Payment::number_of(&id).ok_or("no id of this provider")?;
                self.owed.remove(&number);
                Ok(())
            }
            Entry::Duplicate(payment) | Entry::Foreign(payment) => self.add(payment, false),
            Entry::Amount { id, amount } => {
                let number = Payment::number_of(&id).ok_or("no id of this provider")?;
                let effect = self.effects.get_mut(number - 1).ok_or("no such payment")?;
                effect.amount_reported = Some(amount);
                Ok(())
            }
            Entry::Removed { id } => {
                let number = Payment::number_of(&id).ok_or("no id of this provider")?;
                let effect = self.effects.get(number - 1).ok_or("no such payment")?;
                self.reported.remove(&(effect.payment.created_at, number));
                if let Some(key) = &effect.payment.idempotency_key
                    && let Some(keyed) = self.keys.get_mut(key)
                {
                    keyed.remembered = keyed.remembered.filter(|other| *other != number);
                }
                Ok(())
            }
        }
    }

    fn add(&mut self, payment: Payment, is_remembered: bool) -> Result<(), &'static str> {
        let number = self.effects.len() + 1;
        if payment.id != Payment::id_of(number) {
            return Err("a payment out of its turn");
        }
        if let Some(key) = payment.idempotency_key.clone() {
            let keyed = self.keys.entry(key).or_default();
            keyed.numbers.push(number);
            if is_remembered {
                keyed.remembered = Some(number);
            }
        }
        self.reported.insert((payment.created_at, number));
        self.effects.push(Effect { payment, amount_reported: None });
        Ok(())
    }

    /// Decides about a call. A repetition gets the payment as it was made, whatever was planted since.
    pub(crate) fn judge(&self, key: &str, wanted: &Wanted, keys: Keys, now: Moment) -> Judged {
        let forget_after = match keys {
            Keys::Ignore => return Judged::Fresh,
            Keys::Honour => None,
            Keys::ForgetAfter(window) => Some(window),
        };
        let remembered = self.keys.get(key).and_then(|keyed| keyed.remembered);
        let Some(effect) = remembered.and_then(|number| self.effects.get(number - 1)) else {
            return Judged::Fresh;
        };
        if forget_after.is_some_and(|window| effect.payment.created_at.plus(window) <= now) {
            return Judged::Fresh;
        }
        if effect.payment.is_what(wanted) {
            Judged::Replay(effect.payment.clone())
        } else {
            Judged::Mismatch
        }
    }

    /// Returns the number of payments, reported or not.
    pub(crate) fn len(&self) -> usize {
        self.effects.len()
    }

    /// Returns the payments whose webhook has not been accepted yet, oldest first.
    pub(crate) fn owed(&self) -> Vec<Payment> {
        let effects = self.owed.iter().filter_map(|number| self.effects.get(number - 1));
        effects.map(|effect| effect.payment.clone()).collect()
    }

    /// Returns true if the webhook of this payment has not been accepted yet.
    pub(crate) fn is_owed(&self, id: &str) -> bool {
        Payment::number_of(id).is_some_and(|number| self.owed.contains(&number))
    }

    /// The id of the payment that is made next.
    pub(crate) fn id_next(&self) -> String {
        Payment::id_of(self.len() + 1)
    }

    /// Returns the time of the last payment that a caller asked for.
    pub(crate) fn latest(&self) -> Option<Moment> {
        self.latest
    }

    /// Every payment that was made, as it was made.
    pub(crate) fn effects(&self) -> Vec<Payment> {
        self.effects.iter().map(|effect| effect.payment.clone()).collect()
    }

    /// A payment as it is reported; `None` if it is not.
    pub(crate) fn payment(&self, id: &str) -> Option<Payment> {
        let number = Payment::number_of(id)?;
        let effect = self.effects.get(number - 1)?;
        self.report((effect.payment.created_at, number))
    }

    /// At most `limit` payments as they are reported, oldest first, and after which one to go on.
    pub(crate) fn list(&self, question: &Question, limit: usize) -> (Vec<Payment>, Option<Place>) {
        let places = self.places(question, limit.saturating_add(1));
        let next = if places.len() > limit { places.get(limit.saturating_sub(1)) } else { None };
        let payments = places.iter().take(limit).filter_map(|place| self.report(*place)).collect();
        (payments, next.copied())
    }

    fn places(&self, question: &Question, limit: usize) -> Vec<Place> {
        let from = (question.from.unwrap_or(Moment::from_millis(0)), 0);
        let begin = match question.after {
            Some(after) if after >= from => Bound::Excluded(after),
            Some(_) | None => Bound::Included(from),
        };
        let is_in_time =
            |place: &Place| question.until.is_none_or(|until| (place.0, place.1) < (until, 0));
        let Some(key) = &question.key else {
            let places = self.reported.range((begin, Bound::Unbounded)).copied();
            return places.take_while(is_in_time).take(limit).collect();
        };
        let numbers = self.keys.get(key).map_or(&[][..], |keyed| &keyed.numbers);
        let mut places: Vec<Place> = numbers
            .iter()
            .filter_map(|number| self.effects.get(number - 1).map(|effect| (effect, *number)))
            .map(|(effect, number)| (effect.payment.created_at, number))
            .filter(|place| self.reported.contains(place) && is_in_time(place))
            .filter(|place| match begin {
                Bound::Excluded(after) => *place > after,
                Bound::Included(from) => *place >= from,
                Bound::Unbounded => true,
            })
            .collect();
        places.sort_unstable();
        places.truncate(limit);
        places
    }

    fn report(&self, place: Place) -> Option<Payment> {
        let effect = self.effects.get(place.1.checked_sub(1)?)?;
        let amount = effect.amount_reported.unwrap_or(effect.payment.amount);
        let is_reported = self.reported.contains(&place);
        is_reported.then(|| Payment { amount, ..effect.payment.clone() })
    }
}

#[cfg(test)]
mod tests;
