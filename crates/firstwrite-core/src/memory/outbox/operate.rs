//! Operator queries and actions on the messages in memory.

use std::ops::Bound;
use std::time::Duration;

use super::{Content, Entry, Outgoing};
use crate::outbox::{
    Among, DestinationChange, DestinationView, MessageNumber, MessageState, MessageStory,
    MessageView, OpeningChange, PauseChange, Scan, ScanPage, Scanned,
};
use crate::{Audited, Timestamp};

impl Outgoing {
    pub(super) fn put_destination(
        &mut self,
        destination: &str,
        change: &DestinationChange,
        now: Timestamp,
    ) {
        let row = self.destinations.entry(destination.to_owned()).or_default();
        match &change.pause {
            Some(PauseChange::Paused(by)) => {
                row.paused = Some(Audited { at: now, entry: by.clone() });
            }
            Some(PauseChange::Resumed) => row.paused = None,
            None => {}
        }
        match &change.opening {
            Some(OpeningChange::Open { open_for, cause, opening_count }) => {
                row.open_until = Some(now.plus(*open_for));
                row.open_cause = Some(cause.clone());
                row.opening_count = *opening_count;
            }
            Some(OpeningChange::TrialNow) => {
                row.open_until = row.open_until.map(|until| until.min(now));
            }
            Some(OpeningChange::Closed) => {
                (row.open_until, row.open_cause, row.opening_count) = (None, None, 0);
            }
            None => {}
        }
    }

    pub(super) fn views(&self, now: Timestamp) -> Vec<DestinationView> {
        let view = |(name, row): (&String, &super::DestinationRow)| {
            let of = |states: &[MessageState]| {
                let here = self.entries.values().filter(|entry| {
                    entry.message.destination() == name && states.contains(&entry.standing.state)
                });
                i64::try_from(here.count()).unwrap_or(i64::MAX)
            };
            DestinationView {
                name: name.clone(),
                paused: row.paused.clone(),
                open_until: row.open_until,
                open_cause: row.open_cause.clone(),
                opening_count: row.opening_count,
                open_count: of(&[MessageState::Waiting, MessageState::Sending]),
                unknown_count: of(&[MessageState::Unknown]),
                dead_count: of(&[MessageState::Dead]),
                delivered_count: of(&[MessageState::Delivered]),
                oldest_due_at: self
                    .entries
                    .iter()
                    .filter(|(number, entry)| {
                        entry.message.destination() == name
                            && entry.standing.state == MessageState::Waiting
                            && entry.standing.due_at <= now
                            && !self.waits_for_predecessor(**number)
                    })
                    .map(|(_, entry)| entry.standing.due_at)
                    .min(),
            }
        };
        self.destinations.iter().map(view).collect()
    }

    pub(super) fn scan(&self, scan: &Scan, now: Timestamp) -> ScanPage {
        let is_among = |entry: &Entry| match &scan.among {
            Among::Everything => true,
            Among::Pending => !entry.is_settled(),
            Among::Unknown => entry.standing.state == MessageState::Unknown,
            Among::Dead => entry.standing.state == MessageState::Dead,
            Among::Record(record) => entry.message.record() == *record,
            Among::Key(key) => entry.message.derived_key() == key,
        };
        let after = scan.after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.entries.range((after, Bound::Unbounded));
        let found = found.filter(|(_, entry)| is_among(entry)).take(scan.row_max());
        let found = found.map(|(number, entry)| {
            let is_wanted = scan.contents_to.as_deref() == Some(entry.message.destination());
            Scanned { view: self.view(*number), content: is_wanted.then(|| entry.content()) }
        });
        ScanPage::new(found.collect(), scan, now)
    }

    fn view(&self, number: MessageNumber) -> MessageView {
        let entry = &self.entries[&number];
        let standing = &entry.standing;
        let is_due = standing.state == MessageState::Waiting && !self.waits_for_predecessor(number);
        MessageView {
            number,
            record: entry.message.record(),
            tenant: entry.message.tenant().clone(),
            derived_key: entry.message.derived_key().to_owned(),
            destination: entry.message.destination().to_owned(),
            ordering_key: entry.message.ordering_key().map(str::to_owned),
            created_at: entry.created_at,
            state: standing.state,
            fence: entry.fence(),
            due_at: is_due.then_some(standing.due_at),
            delivery_count: entry.handed_over(),
            maybe_sent_at: standing.maybe_sent_at,
            handled_at: standing.settled_at.or(standing.claimed_at),
            status: entry.status(),
            problem: entry.problem.as_ref().map(|problem| problem.text.clone()),
            receipt: entry.receipt(),
            payload_bytes: entry.message.payload().len(),
        }
    }

    pub(super) fn upkeep(&mut self, kept_for: Duration, limit: usize, now: Timestamp) -> usize {
        let is_old = |entry: &Entry| {
            entry.standing.settled_at.is_some_and(|settled_at| settled_at.plus(kept_for) <= now)
        };
        let old = self.entries.iter().filter(|(_, entry)| is_old(entry));
        let numbers: Vec<MessageNumber> = old.take(limit).map(|(number, _)| *number).collect();
        for number in &numbers {
            self.entries.remove(number);
        }
        numbers.len()
    }
}

impl Content {
    pub(super) fn story(&self, number: MessageNumber, now: Timestamp) -> Option<MessageStory> {
        let entry = self.outgoing.entries.get(&number)?;
        Some(MessageStory {
            message: self.outgoing.view(number),
            content: entry.content(),
            deliveries: entry.past.clone(),
            audits: self.audits.get(&entry.message.record()).cloned().unwrap_or_default(),
            now,
        })
    }
}
