//! Ledger of the clients: every key ever sent, and the first answer to each.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use super::report::Report;
use crate::clock::Stopwatch;
use crate::http::Response;

/// Whose key it is. The same text under another tenant is another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tenant {
    Acme,
    Globex,
}

/// One client action.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyId {
    pub(crate) tenant: Tenant,
    pub(crate) key: String,
}

/// The parts of an answer that a replay repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
}

/// Kinds of errors that the demo can be found to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A key with more than one payment.
    Duplicate,
    /// A client saw an answer, and its payment is not in the books.
    Lost,
    /// Two answers to one key differ.
    Changed,
    /// A key without a payment or without an answer, though it was sent until the end.
    Missing,
    /// A payment that was accepted and is never settled.
    Pending,
    /// An unexpected answer: a status other than 201 or 202, or a payment without a key.
    Unexpected,
}

/// Shared by all clients.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) seed: u64,
    key_count_max: usize,
    /// Time for which the keys must last; a fast machine would otherwise use them up before most of the kills.
    last_for: Duration,
    since: Stopwatch,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    keys: HashMap<KeyId, Option<Answer>>,
    /// Complete answers, refusals not among them.
    answers: u64,
    /// Answers that said that the final one is still to come.
    interim: u64,
    /// Answers that were compared with an earlier one to the same key.
    replays: u64,
    /// 409 and other answers that ask to come again.
    refusals: u64,
    /// Requests that were sent and whose answer never came, or not to its end.
    cut_off: u64,
    /// Number of answers that came while the demo was being killed.
    under_load: u64,
    faults: Vec<(Fault, String)>,
}

impl Tenant {
    pub(crate) const ALL: [Self; 2] = [Self::Acme, Self::Globex];

    pub(crate) fn credentials(self) -> String {
        match self {
            Self::Acme => "Bearer demo-acme".to_owned(),
            Self::Globex => "Bearer demo-globex".to_owned(),
        }
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}", self.key, self.tenant)
    }
}

impl Answer {
    pub(crate) fn of(response: Response) -> Self {
        let location = response.header("location").map(str::to_owned);
        Self { status: response.status, location, body: response.body }
    }

    /// Returns true if the final answer is still to come: the provider has not answered yet.
    pub(crate) fn is_interim(&self) -> bool {
        self.status == 202
    }

    /// Returns true if both can be answers to one key. A final answer never changes; an interim one is about the same
    /// payment, and may be read after the final one that another thread got.
    fn agrees_with(&self, other: &Self) -> bool {
        if self.is_interim() || other.is_interim() {
            return self.payment_id() == other.payment_id() && self.location == other.location;
        }
        self == other
    }

    /// The payment's id, as text.
    pub(crate) fn payment_id(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        id_text(&body["id"])
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = self.location.as_deref().unwrap_or("nowhere");
        write!(f, "{} {location} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// An id is text or a number; both are compared as text.
pub(crate) fn id_text(id: &Value) -> Option<String> {
    match id {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Ledger {
    pub(crate) fn new(seed: u64, key_count_max: usize, last_for: Duration) -> Self {
        let since = Stopwatch::start();
        Self { seed, key_count_max, last_for, since, pages: Mutex::default() }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("writing in the ledger does not panic")
    }

    /// Writes a key down before it is sent for the first time; `false` when there are enough keys by now.
    pub(crate) fn open(&self, id: &KeyId) -> bool {
        let mut pages = self.pages();
        if pages.keys.len() >= share(self.key_count_max, self.since.elapsed(), self.last_for) {
            return false;
        }
        pages.keys.insert(id.clone(), None);
        true
    }

    /// Writes down an answer that a client has read to its end.
    pub(crate) fn answered(&self, id: &KeyId, answer: Answer) {
        let mut pages = self.pages();
        pages.answers += 1;
        if answer.is_interim() {
            pages.interim += 1;
        } else if answer.status != 201 {
            pages.faults.push((Fault::Unexpected, format!("{id}: answered {answer}")));
        }
        let Some(first) = pages.keys.get(id).cloned().flatten() else {
            pages.keys.insert(id.clone(), Some(answer));
            return;
        };
        pages.replays += 1;
        if !first.agrees_with(&answer) {
            let line = format!("{id}: first {first}, later {answer}");
            pages.faults.push((Fault::Changed, line));
        }
        if first.is_interim() {
            pages.keys.insert(id.clone(), Some(answer));
        }
    }

    pub(crate) fn refused(&self) {
        self.pages().refusals += 1;
    }

    pub(crate) fn cut_off(&self) {
        self.pages().cut_off += 1;
    }

    /// The killing is over; what comes now is the last round.
    pub(crate) fn load_is_over(&self) {
        let mut pages = self.pages();
        pages.under_load = pages.answers;
    }

    pub(crate) fn fault(&self, fault: Fault, line: String) {
        self.pages().faults.push((fault, line));
    }

    /// Every key ever sent, with the first answer to it.
    pub(crate) fn entries(&self) -> Vec<(KeyId, Option<Answer>)> {
        self.pages().keys.iter().map(|(id, answer)| (id.clone(), answer.clone())).collect()
    }

    /// Returns the number of keys that were answered. It grows only with fresh keys, and only while the store works.
    pub(crate) fn answered_count(&self) -> usize {
        self.pages().keys.values().filter(|answer| answer.is_some()).count()
    }

    pub(crate) fn report(self, kills: u64, seconds: f64) -> Report {
        let pages = self.pages.into_inner().expect("writing in the ledger does not panic");
        Report {
            kills,
            keys: pages.keys.len(),
            answers: pages.answers,
            interim: pages.interim,
            replays: pages.replays,
            refusals: pages.refusals,
            cut_off: pages.cut_off,
            under_load: pages.under_load,
            faults: pages.faults,
            seed: self.seed,
            seconds,
        }
    }
}

/// The part of `count` that may be used up after `elapsed`; all of it in the end.
fn share(count: usize, elapsed: Duration, last_for: Duration) -> usize {
    if last_for.is_zero() {
        return count;
    }
    let (elapsed, all) = (elapsed.as_micros(), last_for.as_micros().max(1));
    let share = u128::try_from(count).map_or(u128::MAX, |count| count * elapsed.min(all) / all);
    usize::try_from(share).unwrap_or(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, id: u64, provider: u64) -> Answer {
        let body = format!(r#"{{"id":{id},"provider":{provider}}}"#).into_bytes();
        Answer { status, location: Some(format!("/payments/{id}")), body }
    }

    #[test]
    fn an_interim_answer_may_become_the_final_one_and_the_final_one_nothing_else() {
        let interim = answer(202, 1, 0);
        assert!(interim.agrees_with(&interim) && interim.agrees_with(&answer(201, 1, 7)));
        assert!(!interim.agrees_with(&answer(202, 2, 0)));
        assert!(!interim.agrees_with(&answer(201, 2, 7)));
        assert!(!answer(201, 1, 7).agrees_with(&answer(201, 1, 8)));
    }

    #[test]
    fn keys_last_as_long_as_they_must() {
        let second = Duration::from_secs(1);
        assert_eq!(share(100, Duration::ZERO, second), 0);
        assert_eq!(share(100, Duration::from_millis(250), second), 25);
        assert_eq!(share(100, Duration::from_mins(1), second), 100);
        assert_eq!(share(100, Duration::ZERO, Duration::ZERO), 100, "all at once");
    }
}
