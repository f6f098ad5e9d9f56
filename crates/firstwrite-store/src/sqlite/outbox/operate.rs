//! What operators do to messages: put dead letters back, and say how it ended where nobody else can.

use firstwrite_core::outbox::{Held, MessageNumber, MessageQuery, MessageState, Resolution};
use firstwrite_core::{AuditEntry, Fence, Timestamp};

use super::super::fault::{Failure, definite};
use super::super::session::Session;
use super::listing::Filter;
use super::pending::{self, Pending, Phase};
use crate::pending::{DELIVERED, DROPPED, Entry, REFUSED};
use crate::pending::{Kind, Tallies};

/// Put back in one command: everybody's commits wait for them.
const REDRIVEN_MAX: usize = 1000;

impl Session {
    /// See [`firstwrite_core::outbox::Outbox::redrive`].
    pub(super) fn redrive(
        &self,
        query: &MessageQuery,
        limit: usize,
        by: &AuditEntry,
    ) -> Result<usize, Failure> {
        const DOING: &str = "redriving messages";
        if query.state.is_some_and(|state| state != MessageState::Dead) {
            return Ok(0);
        }
        let now = self.now();
        let dead = MessageQuery { state: Some(MessageState::Dead), ..query.clone() };
        let filter = Filter::new(&self.connection, &dead).map_err(definite(DOING))?;
        let numbers =
            filter.numbers(&self.connection, limit.min(REDRIVEN_MAX)).map_err(definite(DOING))?;
        let mut redriven = Vec::with_capacity(numbers.len());
        for number in numbers {
            redriven.extend(pending::find(&self.connection, number)?);
        }
        let mut tallies = Tallies::default();
        for pending in &redriven {
            tallies.moved(&pending.destination, pending.phase, Some(Kind::Open));
            let entry = audit(by, &format!("redrive message {}", pending.number));
            let write = || {
                self.update_pending(&Pending {
                    phase: Phase::Waiting,
                    due_at: self.due_now(pending, now)?,
                    delivery_count: 0,
                    lapse_count: 0,
                    ..pending.clone()
                })?;
                self.put_audit(pending.id.as_bytes(), &entry, now)
            };
            wrote(write(), DOING)?;
        }
        wrote(self.put_tallies(&tallies), DOING)?;
        self.nudge();
        Ok(redriven.len())
    }

    /// See [`firstwrite_core::outbox::Outbox::resolve`].
    pub(super) fn resolve(
        &self,
        number: MessageNumber,
        seen: Fence,
        resolution: &Resolution,
        by: &AuditEntry,
    ) -> Result<Held, Failure> {
        const DOING: &str = "resolving a message";
        let now = self.now();
        let pending = pending::find(&self.connection, number)?;
        let Some(pending) = pending.filter(|pending| {
            let is_being_sent = pending.phase == Phase::Sending && pending.due_at > Some(now);
            pending.fence == seen && !is_being_sent
        }) else {
            return Ok(Held::No);
        };
        // No claim can have this count: the next one is made from it.
        let fence = seen.next(0);
        let (told, answer, becomes) = match resolution {
            Resolution::Delivered { receipt, answer } => {
                let told = (DELIVERED, receipt.provider_id.as_deref());
                (Some(told), answer.as_ref(), Some(Kind::Delivered))
            }
            Resolution::Refused { answer } => (Some((REFUSED, None)), answer.as_ref(), None),
            Resolution::Dropped => (Some((DROPPED, None)), None, None),
            Resolution::NotDelivered => {
                let write = || {
                    self.update_pending(&Pending {
                        phase: Phase::Waiting,
                        due_at: self.due_now(&pending, now)?,
                        fence,
                        delivery_count: 0,
                        lapse_count: 0,
                        maybe_sent_at: None,
                        ..pending.clone()
                    })
                };
                wrote(write(), DOING)?;
                self.nudge();
                (None, None, Some(Kind::Open))
            }
        };
        if let Some(told) = told {
            wrote(self.put_finding((number, fence), told, by, now), DOING)?;
            wrote(self.end_pending(&pending, now), DOING)?;
        }
        if let Some(outcome) = answer {
            self.replace_interim(pending.id, outcome, now)?;
        }
        let mut tallies = Tallies::default();
        tallies.moved(&pending.destination, pending.phase, becomes);
        wrote(self.put_tallies(&tallies), DOING)?;
        let entry = audit(by, &format!("{} message {number}", by.action));
        wrote(self.put_audit(pending.id.as_bytes(), &entry, now), DOING)?;
        Ok(Held::Yes)
    }

    /// Writes down how a message ended on somebody's word.
    fn put_finding(
        &self,
        (number, fence): (MessageNumber, Fence),
        (ending, provider_id): (&'static str, Option<&str>),
        by: &AuditEntry,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        let entry = Entry { number, fence, ending, status: None, detail: &by.reason, provider_id };
        self.put_delivery(&entry, now)
    }

    /// `now`, unless an older message under the same ordering key stands in the way.
    fn due_now(&self, pending: &Pending, now: Timestamp) -> rusqlite::Result<Option<Timestamp>> {
        let Some(key) = &pending.ordering_key else { return Ok(Some(now)) };
        let oldest = self.oldest_under(&pending.destination, key)?;
        Ok((oldest == Some(pending.number)).then_some(now))
    }
}

fn audit(by: &AuditEntry, action: &str) -> AuditEntry {
    AuditEntry { action: action.to_owned(), ..by.clone() }
}

fn wrote(result: rusqlite::Result<()>, doing: &'static str) -> Result<(), Failure> {
    result.map_err(Failure::batch(doing))
}
