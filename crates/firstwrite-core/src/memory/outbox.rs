//! The outbox of the store in memory: the reference for what an outbox does.

mod operate;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Content, MemoryStore};
use crate::outbox::{
    Claimed, Counted, Delivery, DestinationView, Ending, Gate, Held, MessageNumber, MessagePage,
    MessageQuery, MessageStory, Next, Outbox, Parcel, PastDelivery, Receipt, Received, Resolution,
    Settlement, Standing, Switch, Want, WrittenPage, WrittenQuery,
};
use crate::{
    AuditEntry, Audited, BoxFuture, Fence, Message, Outcome, RecordId, State, StoreError, Timestamp,
};

/// What is known of all messages and destinations.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    entries: BTreeMap<MessageNumber, Entry>,
    destinations: BTreeMap<String, Lane>,
    last_number: i64,
}

#[derive(Debug)]
struct Entry {
    message: Message,
    created_at: Timestamp,
    standing: Standing,
    status: Option<u16>,
    problem: Option<String>,
    receipt: Option<Receipt>,
    past: Vec<PastDelivery>,
}

#[derive(Debug, Default)]
struct Lane {
    paused: Option<Audited>,
    open_until: Option<Timestamp>,
    open_cause: Option<String>,
    opening_count: u32,
}

impl Outgoing {
    pub(super) fn push(&mut self, message: Message, now: Timestamp) {
        self.last_number += 1;
        self.destinations.entry(message.destination().to_owned()).or_default();
        let entry = Entry {
            created_at: now,
            standing: Standing::new(now.plus(message.delay())),
            status: None,
            problem: None,
            receipt: None,
            past: Vec::new(),
            message,
        };
        self.entries.insert(MessageNumber(self.last_number), entry);
    }

    /// The messages that may be claimed for `destination`, the longest due first.
    fn claimable(&self, destination: &str, now: Timestamp) -> Vec<MessageNumber> {
        let mut due: Vec<(Timestamp, MessageNumber)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.message.destination() == destination)
            .filter(|(number, _)| !self.waits_for_predecessor(**number))
            .filter_map(|(number, entry)| Some((entry.standing.claimable_since(now)?, *number)))
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, number)| number).collect()
    }

    fn waits_for_predecessor(&self, number: MessageNumber) -> bool {
        let entry = &self.entries[&number];
        let Some(order) = entry.message.ordering_key() else { return false };
        self.entries.range(..number).any(|(_, older)| {
            older.message.ordering_key() == Some(order)
                && older.message.destination() == entry.message.destination()
                && !older.is_settled()
        })
    }

    fn claim(&mut self, wants: &[Want], nonce: u64, now: Timestamp) -> Claimed {
        let mut claimed = Claimed { parcels: Vec::new(), now, closed: Vec::new() };
        for want in wants {
            let lane = self.destinations.entry(want.destination.clone()).or_default();
            let gate = Gate::of(lane.open_until, now);
            if lane.paused.is_some() || gate == Gate::Closed {
                claimed.closed.push(want.destination.clone());
                continue;
            }
            let is_trial = gate == Gate::Trial;
            let count_max = if is_trial { want.count_max.min(1) } else { want.count_max };
            let numbers = self.claimable(&want.destination, now);
            let lease_until = now.plus(want.lease_for);
            if is_trial
                && count_max > 0
                && !numbers.is_empty()
                && let Some(lane) = self.destinations.get_mut(&want.destination)
            {
                lane.open_until = Some(lease_until);
            }
            for number in numbers.into_iter().take(count_max) {
                let Some(entry) = self.entries.get_mut(&number) else { continue };
                claimed.parcels.push(entry.claim(number, nonce, is_trial, (now, lease_until)));
            }
        }
        claimed
    }
}

impl Entry {
    fn is_settled(&self) -> bool {
        self.standing.state.is_final()
    }

    fn claim(
        &mut self,
        number: MessageNumber,
        nonce: u64,
        is_trial: bool,
        (now, lease_until): (Timestamp, Timestamp),
    ) -> Parcel {
        let fence = self.standing.claim(nonce, now, lease_until);
        Parcel {
            number,
            fence,
            record: self.message.record(),
            tenant: self.message.tenant().clone(),
            derived_key: self.message.derived_key().to_owned(),
            destination: self.message.destination().to_owned(),
            content_type: self.message.payload_type().to_owned(),
            payload: self.message.payload().clone(),
            ordering_key: self.message.ordering_key().map(str::to_owned),
            created_at: self.created_at,
            delivery_count: self.standing.delivery_count,
            lapse_count: self.standing.lapse_count,
            is_trial,
            maybe_sent_at: self.standing.maybe_sent_at,
            receipt: self.receipt.clone(),
            answers: self.message.answers().cloned().map(Box::new),
        }
    }

    fn note(&mut self, delivery: &Delivery, fence: Fence, at: Timestamp) {
        if self.past.iter().any(|past| past.fence == fence) {
            return;
        }
        let provider_id = match &delivery.ending {
            Ending::Delivered(receipt) => {
                self.receipt = Some(receipt.clone());
                receipt.provider_id.clone()
            }
            Ending::Refused | Ending::Retry | Ending::NotThere | Ending::Unknown => {
                self.status = delivery.status;
                self.problem = Some(delivery.detail.clone());
                None
            }
        };
        self.past.push(PastDelivery {
            at,
            fence,
            ending: delivery.ending.as_str().to_owned(),
            status: delivery.status,
            detail: delivery.detail.clone(),
            provider_id,
        });
    }

    fn follow(&mut self, next: &Next, now: Timestamp) {
        self.standing.follow(next, now);
        match next {
            Next::Delivered(receipt) => self.receipt = Some(receipt.clone()),
            Next::Unknown(why) => {
                self.problem = Some(match self.problem.take() {
                    Some(problem) => format!("{why}: {problem}"),
                    None => (*why).to_owned(),
                });
            }
            Next::Waiting { .. } | Next::Refused | Next::Dead(_) => {}
        }
    }
}

impl Content {
    fn settle_message(&mut self, settlement: &Settlement, now: Timestamp) -> Held {
        let Some(entry) = self.outgoing.entries.get_mut(&settlement.number) else {
            return Held::No;
        };
        let holds = entry.standing.is_claimed_under(settlement.fence);
        if let Some(delivery) = &settlement.delivery
            && (holds || matches!(delivery.ending, Ending::Delivered(_)))
        {
            entry.note(delivery, settlement.fence, now);
        }
        if !holds {
            return Held::No;
        }
        entry.follow(&settlement.next, now);
        let record = entry.message.record();
        self.answer(record, settlement.answer.as_ref(), now);
        Held::Yes
    }

    /// Replaces a record's interim answer.
    fn answer(&mut self, id: RecordId, answer: Option<&Outcome>, now: Timestamp) {
        let Some(answer) = answer else { return };
        let Some(record) = self.records.get_mut(&id) else { return };
        if let State::Completed { outcome, .. } = &record.state
            && outcome.is_interim
        {
            record.state = State::completed(answer.clone(), record.retention, now);
        }
    }
}

impl Outbox for MemoryStore {
    fn enqueue<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            let mut content = self.content();
            content.messages.push(message.clone());
            content.outgoing.push(message.clone(), now);
            Ok(())
        })
    }

    fn claim<'a>(
        &'a self,
        wants: &'a [Want],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.content().outgoing.claim(wants, nonce, now))
        })
    }

    fn settle<'a>(
        &'a self,
        receipts: &'a [Received],
        settlements: &'a [Settlement],
    ) -> BoxFuture<'a, Result<Vec<Held>, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            let mut content = self.content();
            for Received { number, fence, delivery } in receipts {
                if let Some(entry) = content.outgoing.entries.get_mut(number) {
                    entry.note(delivery, *fence, now);
                }
            }
            Ok(settlements
                .iter()
                .map(|settlement| content.settle_message(settlement, now))
                .collect())
        })
    }

    fn switch<'a>(
        &'a self,
        destination: &'a str,
        switch: &'a Switch,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            self.content().outgoing.switch(destination, switch, now);
            Ok(())
        })
    }

    fn pause<'a>(
        &'a self,
        destination: &'a str,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let paused = Audited { at: (self.clock)(), entry: by.clone() };
            let mut content = self.content();
            let lane = content.outgoing.destinations.entry(destination.to_owned()).or_default();
            lane.paused = Some(paused);
            Ok(())
        })
    }

    fn resume<'a>(
        &'a self,
        destination: &'a str,
        _by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            let mut content = self.content();
            let lane = content.outgoing.destinations.entry(destination.to_owned()).or_default();
            lane.paused = None;
            lane.open_until = lane.open_until.map(|until| until.min(now));
            Ok(())
        })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.content().outgoing.views(now))
        })
    }

    fn messages<'a>(
        &'a self,
        query: &'a MessageQuery,
    ) -> BoxFuture<'a, Result<MessagePage, StoreError>> {
        Box::pin(async move { Ok(self.content().outgoing.page(query, (self.clock)())) })
    }

    fn count<'a>(&'a self, query: &'a MessageQuery) -> BoxFuture<'a, Result<Counted, StoreError>> {
        Box::pin(async move {
            let count = self.content().outgoing.matching(query).count();
            let is_more = count > MessageQuery::COUNT_MAX;
            Ok(Counted { count: count.min(MessageQuery::COUNT_MAX), is_more })
        })
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(async move { Ok(self.content().story(number, (self.clock)())) })
    }

    fn written<'a>(
        &'a self,
        query: &'a WrittenQuery,
    ) -> BoxFuture<'a, Result<WrittenPage, StoreError>> {
        Box::pin(async move { Ok(self.content().outgoing.written(query, (self.clock)())) })
    }

    fn redrive<'a>(
        &'a self,
        query: &'a MessageQuery,
        limit: usize,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move { Ok(self.content().redrive(query, limit, by, (self.clock)())) })
    }

    fn resolve<'a>(
        &'a self,
        number: MessageNumber,
        seen: Fence,
        resolution: &'a Resolution,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<Held, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.content().resolve((number, seen), resolution, by, now))
        })
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.content().outgoing.upkeep(kept_for, limit, now))
        })
    }

    /// Nobody tells: this crate has no runtime. Looking again is the floor.
    fn nudged(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
