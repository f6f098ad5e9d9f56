//! The key store and the orders: what is under a key, and what was done.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::message::Answer;

/// A full store is as good as none; no run of a checker comes near it.
const RECORDS_MAX: usize = 20_000;

/// What a record stands under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id {
    pub(super) tenant: String,
    pub(super) key: String,
    /// Empty, but for a server that takes the body for a part of the key.
    pub(super) body: Vec<u8>,
}

/// What a request would meet under its key.
pub(super) enum Verdict {
    Fresh,
    Replay(Arc<Outcome>),
    InFlight,
    /// Another request has the key.
    Mismatch {
        in_flight: bool,
    },
    /// There is no room for one more.
    Full,
}

impl Verdict {
    pub(super) fn outcome(self) -> Option<Arc<Outcome>> {
        if let Self::Replay(outcome) = self { Some(outcome) } else { None }
    }
}

/// How an attempt ended, as it is kept.
pub(super) struct Outcome {
    /// The answer to the first caller, with what is only for it.
    pub(super) first: Answer,
    pub(super) expires: String,
}

#[derive(Default)]
pub(super) struct Store {
    records: HashMap<Id, Record>,
    /// Tenant and id. Each is an effect.
    orders: HashSet<(String, String)>,
}

struct Record {
    /// Nothing while the body is not there yet, where a server reserves without it.
    fingerprint: Option<Vec<u8>>,
    /// Nothing while the attempt runs.
    outcome: Option<Arc<Outcome>>,
    /// Nothing while somebody sees to it that the record stands: an attempt ends or dies with the
    /// process, and both are noticed, so there is nothing to renew.
    until: Option<Instant>,
}

impl Record {
    fn stands(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl Store {
    pub(super) fn judge(&self, id: &Id, fingerprint: &[u8]) -> Verdict {
        let Some(record) = self.records.get(id).filter(|record| record.stands()) else {
            return Verdict::Fresh;
        };
        match (&record.fingerprint, &record.outcome) {
            (Some(other), outcome) if other != fingerprint => {
                Verdict::Mismatch { in_flight: outcome.is_none() }
            }
            (_, Some(outcome)) => Verdict::Replay(Arc::clone(outcome)),
            (_, None) => Verdict::InFlight,
        }
    }

    /// What any tenant at all has under this key for this request.
    pub(super) fn of_anybody(&self, key: &str, fingerprint: &[u8]) -> Option<Arc<Outcome>> {
        let ids = self.records.keys().filter(|id| id.key == key);
        ids.map(|id| self.judge(id, fingerprint)).find_map(Verdict::outcome)
    }

    /// The record of another tenant under the same key.
    pub(super) fn of_others(&self, id: &Id) -> Option<Id> {
        let others = self.records.iter().filter(|(_, record)| record.stands());
        let mut others = others.map(|(other, _)| other);
        others.find(|other| other.key == id.key && other.tenant != id.tenant).cloned()
    }

    /// Puts a reservation there, whatever stands there, unless there is no room.
    pub(super) fn reserve(
        &mut self,
        id: &Id,
        fingerprint: Option<&[u8]>,
        life: Option<Duration>,
    ) -> Verdict {
        if self.records.len() >= RECORDS_MAX {
            self.records.retain(|_, record| record.stands());
        }
        if self.records.len() >= RECORDS_MAX || self.orders.len() >= RECORDS_MAX {
            return Verdict::Full;
        }
        let until = life.map(|life| Instant::now() + life);
        let fingerprint = fingerprint.map(<[u8]>::to_vec);
        self.records.insert(id.clone(), Record { fingerprint, outcome: None, until });
        Verdict::Fresh
    }

    pub(super) fn complete(
        &mut self,
        id: Id,
        fingerprint: Vec<u8>,
        outcome: Arc<Outcome>,
        kept_for: Duration,
    ) {
        let until = Some(Instant::now() + kept_for);
        let record = Record { fingerprint: Some(fingerprint), outcome: Some(outcome), until };
        self.records.insert(id, record);
    }

    pub(super) fn is_in_flight(&self, id: &Id) -> bool {
        self.records.get(id).is_some_and(|record| record.stands() && record.outcome.is_none())
    }

    pub(super) fn outcome(&self, id: &Id) -> Option<Arc<Outcome>> {
        self.records.get(id).and_then(|record| record.outcome.clone())
    }

    pub(super) fn release(&mut self, id: &Id) {
        self.records.remove(id);
    }

    /// The effect, if there is one.
    pub(super) fn order(&mut self, tenant: &str, order: Option<&str>) {
        self.orders.extend(order.map(|order| (tenant.to_owned(), order.to_owned())));
    }

    pub(super) fn has_order(&self, tenant: &str, order: &str) -> bool {
        self.orders.contains(&(tenant.to_owned(), order.to_owned()))
    }

    pub(super) fn orders(&self) -> usize {
        self.orders.len()
    }

    /// How many attempts are under way; a key that was reserved before its body came is none yet.
    pub(super) fn reserved(&self) -> usize {
        let open = self.records.values().filter(|record| record.outcome.is_none());
        open.filter(|record| record.stands() && record.fingerprint.is_some()).count()
    }

    /// Every reservation stands until then and no longer.
    pub(super) fn lost_until(&mut self, until: Instant) {
        for record in self.records.values_mut().filter(|record| record.outcome.is_none()) {
            record.until = Some(record.until.map_or(until, |own| own.min(until)));
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.records.clear();
    }
}
