//! The outbox of the store in memory: the reference for what an outbox does.

mod operate;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Content, MemoryStore};
use crate::outbox::{
    ClaimRequest, ClaimStatus, Claimed, ClaimedMessage, DestinationChange, DestinationView, Gate,
    HistoryRow, MessageContent, MessageNumber, MessageStory, Move, Outbox, PastDelivery,
    PastEnding, Problem, Receipt, Scan, ScanPage, Standing,
};
use crate::{Audited, BoxFuture, Fence, Message, Outcome, RecordId, State, StoreError, Timestamp};

/// All messages and destinations.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    entries: BTreeMap<MessageNumber, Entry>,
    destinations: BTreeMap<String, DestinationRow>,
    last_number: i64,
}

#[derive(Debug)]
struct Entry {
    message: Message,
    created_at: Timestamp,
    standing: Standing,
    problem: Option<Problem>,
    /// In the order of their fences.
    past: Vec<PastDelivery>,
}

#[derive(Debug, Default)]
struct DestinationRow {
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
            problem: None,
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

    fn claim(&mut self, requests: &[ClaimRequest], nonce: u64, now: Timestamp) -> Claimed {
        let mut claimed = Claimed { messages: Vec::new(), now, closed: Vec::new() };
        for request in requests {
            let row = self.destinations.entry(request.destination.clone()).or_default();
            let gate = Gate::of(row.open_until, now);
            let room = gate.room(request.count_max).filter(|_| row.paused.is_none());
            let Some(count_max) = room else {
                claimed.closed.push(request.destination.clone());
                continue;
            };
            let is_trial = gate == Gate::Trial;
            let numbers = self.claimable(&request.destination, now);
            let lease_until = now.plus(request.lease_for);
            if is_trial
                && count_max > 0
                && !numbers.is_empty()
                && let Some(row) = self.destinations.get_mut(&request.destination)
            {
                row.open_until = Some(lease_until);
            }
            for number in numbers.into_iter().take(count_max) {
                let Some(entry) = self.entries.get_mut(&number) else { continue };
                claimed.messages.push(entry.claim(number, nonce, is_trial, (now, lease_until)));
            }
        }
        claimed
    }
}

impl Entry {
    /// Returns the number of deliveries. A row written when an operator dropped the message is not a
    /// delivery.
    fn handed_over(&self) -> u32 {
        let count =
            self.past.iter().filter(|past| past.ending != PastEnding::Dropped.as_str()).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn is_settled(&self) -> bool {
        self.standing.state.is_final()
    }

    fn claim(
        &mut self,
        number: MessageNumber,
        nonce: u64,
        is_trial: bool,
        (now, lease_until): (Timestamp, Timestamp),
    ) -> ClaimedMessage {
        let fence = self.standing.claim(nonce, now, lease_until);
        ClaimedMessage {
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
            receipt: self.receipt(),
            answers: self.message.answers().cloned().map(Box::new),
            claimed_at: now,
            status: self.status(),
            problem: self.problem.as_ref().map(|problem| problem.text.clone()),
        }
    }

    /// The first receipt in the history.
    fn receipt(&self) -> Option<Receipt> {
        let is_receipt = |past: &&PastDelivery| past.ending == PastEnding::Delivered.as_str();
        let first = self.past.iter().find(is_receipt);
        first.map(|past| Receipt { provider_id: past.provider_id.clone() })
    }

    /// Its fence, or that of the last history row if it is settled.
    fn fence(&self) -> Fence {
        let last = self.past.last().filter(|_| self.is_settled());
        last.map_or(self.standing.worn(), |past| past.fence)
    }

    fn status(&self) -> Option<u16> {
        self.problem.as_ref().and_then(|problem| problem.status)
    }

    fn content(&self) -> MessageContent {
        MessageContent {
            content_type: self.message.payload_type().to_owned(),
            payload: self.message.payload().clone(),
            answers: self.message.answers().cloned().map(Box::new),
        }
    }

    /// Adds a row to the history; see [`HistoryRow`] for two rows of one fence.
    fn put(&mut self, row: &HistoryRow, at: Timestamp) {
        let past = PastDelivery {
            at,
            fence: row.fence,
            ending: row.ending.as_str().to_owned(),
            status: row.status,
            detail: row.detail.clone(),
            provider_id: row.provider_id.clone(),
        };
        match self.past.binary_search_by_key(&row.fence, |past| past.fence) {
            Ok(place) if row.replaces(&self.past[place].ending) => self.past[place] = past,
            Ok(_) => {}
            Err(place) => self.past.insert(place, past),
        }
    }
}

impl Content {
    fn apply_move(&mut self, step: &Move, now: Timestamp) -> ClaimStatus {
        let Some(entry) = self.outgoing.entries.get_mut(&step.number) else {
            return ClaimStatus::Lost;
        };
        let holds = entry.standing.holds(step.guard, now);
        let last = entry.past.last().map(|past| past.ending.clone());
        if let Some(row) = step.history.as_ref().filter(|row| row.is_due(holds, last.as_deref())) {
            entry.put(row, now);
        }
        if !holds {
            return ClaimStatus::Lost;
        }
        entry.standing.take(&step.becomes, now);
        if let Some(problem) = step.becomes.problem() {
            entry.problem = Some(problem.clone());
        }
        let record = entry.message.record();
        self.answer(record, step.answer.as_ref(), now);
        if let Some(entry) = &step.audit {
            let audited = Audited { at: now, entry: entry.clone() };
            self.audits.entry(record).or_default().push(audited);
        }
        ClaimStatus::Current
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
        requests: &'a [ClaimRequest],
        nonce: u64,
    ) -> BoxFuture<'a, Result<Claimed, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.content().outgoing.claim(requests, nonce, now))
        })
    }

    fn apply<'a>(
        &'a self,
        receipts: &'a [HistoryRow],
        moves: &'a [Move],
    ) -> BoxFuture<'a, Result<Vec<ClaimStatus>, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            let mut content = self.content();
            for row in receipts {
                if let Some(entry) = content.outgoing.entries.get_mut(&row.number) {
                    entry.put(row, now);
                }
            }
            Ok(moves.iter().map(|step| content.apply_move(step, now)).collect())
        })
    }

    fn put_destination<'a>(
        &'a self,
        destination: &'a str,
        change: &'a DestinationChange,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            let mut content = self.content();
            content.outgoing.put_destination(destination, change, now);
            if let Some(entry) = &change.audit {
                let audited = Audited { at: now, entry: entry.clone() };
                let id = RecordId::of_destination(destination);
                content.audits.entry(id).or_default().push(audited);
            }
            Ok(())
        })
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Vec<DestinationView>, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.content().outgoing.views(now))
        })
    }

    fn message(
        &self,
        number: MessageNumber,
    ) -> BoxFuture<'_, Result<Option<MessageStory>, StoreError>> {
        Box::pin(async move { Ok(self.content().story(number, (self.clock)())) })
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<ScanPage, StoreError>> {
        Box::pin(async move { Ok(self.content().outgoing.scan(scan, (self.clock)())) })
    }

    fn upkeep(&self, kept_for: Duration, limit: usize) -> BoxFuture<'_, Result<usize, StoreError>> {
        Box::pin(async move {
            let now = (self.clock)();
            Ok(self.content().outgoing.upkeep(kept_for, limit, now))
        })
    }

    /// Never returns: this crate has no runtime to send notifications with, so workers find messages by
    /// polling.
    fn wait_for_work(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
