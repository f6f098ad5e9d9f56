//! Operator queries and actions on the messages in memory.

use std::time::Duration;

use super::{Content, Entry, Outgoing};
use crate::outbox::{
    DestinationChange, DestinationView, MessageNumber, MessagePage, MessageQuery, MessageState,
    MessageStory, MessageView, OpeningChange, PauseChange, Written, WrittenPage, WrittenQuery,
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

    fn matching(&self, query: &MessageQuery) -> impl Iterator<Item = (&MessageNumber, &Entry)> {
        let is_wanted = |entry: &Entry| {
            let problem = |text: &String| {
                entry.problem.as_ref().is_some_and(|problem| problem.text.contains(text))
                    || entry.status().is_some_and(|status| status.to_string() == *text)
            };
            query.destination.as_ref().is_none_or(|name| entry.message.destination() == name)
                && query.state.is_none_or(|state| entry.standing.state == state)
                && query.tenant.as_ref().is_none_or(|tenant| entry.message.tenant() == tenant)
                && query.problem.as_ref().is_none_or(problem)
                && query.derived_key.as_ref().is_none_or(|key| entry.message.derived_key() == key)
                && query.record.is_none_or(|record| entry.message.record() == record)
        };
        self.entries
            .iter()
            .filter(|(number, _)| query.after.is_none_or(|after| **number > after))
            .filter(move |(_, entry)| is_wanted(entry))
    }

    pub(super) fn page(&self, query: &MessageQuery, now: Timestamp) -> MessagePage {
        let limit = query.limit.clamp(1, MessageQuery::LIMIT_MAX);
        let mut messages: Vec<MessageView> =
            self.matching(query).take(limit + 1).map(|(number, _)| self.view(*number)).collect();
        let next = (messages.len() > limit).then(|| messages[limit - 1].number);
        messages.truncate(limit);
        MessagePage { messages, next, now }
    }

    pub(super) fn written(&self, query: &WrittenQuery, now: Timestamp) -> WrittenPage {
        let limit = query.limit.clamp(1, WrittenQuery::LIMIT_MAX);
        let is_wanted = |(number, entry): &(&MessageNumber, &Entry)| {
            entry.message.destination() == query.destination
                && (query.from..query.until).contains(&entry.created_at)
                && query.after.is_none_or(|after| **number > after)
        };
        let mut page = WrittenPage { messages: Vec::new(), next: None, now };
        let mut bytes = 0;
        for (number, entry) in self.entries.iter().filter(is_wanted) {
            if page.messages.len() == limit || bytes > WrittenQuery::PAGE_BYTES_MAX {
                page.next = page.messages.last().map(|last| last.view.number);
                break;
            }
            bytes += entry.message.payload().len();
            page.messages.push(Written {
                view: self.view(*number),
                content_type: entry.message.payload_type().to_owned(),
                payload: entry.message.payload().clone(),
                answers: entry.message.answers().cloned().map(Box::new),
                handled_at: entry.standing.settled_at.or(entry.standing.claimed_at),
            });
        }
        page
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
            claimed_at: standing.claimed_at.filter(|_| standing.settled_at.is_none()),
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
            content_type: entry.message.payload_type().to_owned(),
            payload: entry.message.payload().clone(),
            answers: entry.message.answers().cloned().map(Box::new),
            deliveries: entry.past.clone(),
            audits: self.audits.get(&entry.message.record()).cloned().unwrap_or_default(),
            now,
        })
    }
}
