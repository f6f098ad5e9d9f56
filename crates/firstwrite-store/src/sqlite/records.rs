//! The moves on records, as statements inside a batch's transaction.
//!
//! Nothing else writes to the file, so a value read in this transaction still holds when the same
//! transaction writes; the unique id arbitrates all the same.

use firstwrite_core::encoding::{encode_fingerprint, encode_outcome, retention_numbers};
use firstwrite_core::{
    AuditEntry, Change, Conclusion, Draft, Found, Guard, Inserted, Lease, Outcome, Record,
    RecordId, State, StoreError, Swapped, Timestamp, Transacted, Write,
};
use rusqlite::{Error, params};

use super::dictionary::{Profile, number_of_form};
use super::driver_error::{Failure, unavailable, unsupported};
use super::keys::encode_key;
use super::rows::{StoredRecord, find};
use super::session::Session;
use super::tx::SqliteTx;

const TRANSACTING: &str = "running a handler";

impl Session {
    /// See [`firstwrite_core::Store::insert`].
    pub(super) fn insert(&self, draft: &Draft) -> Result<Inserted, Failure> {
        const DOING: &str = "inserting a record";
        let now = self.now();
        if !self.is_whole() && self.find(draft.id)?.is_none() {
            self.refuse_if_history_lost(DOING)?;
        }
        let number = self.new_number();
        if self.put_id(draft.id, number).map_err(Failure::batch(DOING))? {
            self.put_draft(number, None, draft, now).map_err(Failure::batch(DOING))?;
            return Ok(Inserted::Done(now));
        }
        match self.find(draft.id)? {
            Some(StoredRecord { record, .. }) => {
                Ok(Inserted::Stands(Box::new(Found { record, now })))
            }
            None => Err(unavailable(DOING, "a rival came and went").into()),
        }
    }

    /// See [`firstwrite_core::Store::swap`].
    pub(super) fn swap(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&AuditEntry>,
    ) -> Result<Swapped, Failure> {
        let now = self.now();
        let Some(standing) = self.find(id)? else { return Ok(Swapped::Moved(None)) };
        if !guard.holds(&standing.record, &change) {
            let found = Found { record: standing.record, now };
            return Ok(Swapped::Moved(Some(Box::new(found))));
        }
        if let Change::TakeOver(draft) = &change {
            self.refuse_lost("swapping a record")?;
            if draft.id != id {
                let why = "the draft is for another record";
                return Err(unsupported("swapping a record", why).into());
            }
        }
        let audited_at = now.minus(change.audited_ago());
        self.apply(standing, change, now).map_err(Failure::batch("swapping a record"))?;
        if let Some(entry) = audit {
            self.put_audit(id.as_bytes(), entry, audited_at)
                .map_err(Failure::batch("writing an audit entry"))?;
        }
        Ok(Swapped::Done(now))
    }

    /// See [`firstwrite_core::TransactionalStore::transact`].
    ///
    /// The id is written first, outside the closure's savepoint: writing it and looking it up are one
    /// step then, and undoing the closure does not have to undo the ids' page. It can only fail
    /// together with the whole batch.
    pub(super) fn transact<T>(
        &self,
        id: RecordId,
        work: impl for<'t> FnOnce(&mut SqliteTx<'t>, Option<Found>) -> Conclusion<T>,
    ) -> Result<Transacted<T>, Failure> {
        let now = self.now();
        if !self.is_whole() && self.find(id)?.is_none() {
            self.refuse_if_history_lost(TRANSACTING)?;
        }
        let number = self.new_number();
        let is_fresh = self.put_id(id, number).map_err(Failure::batch(TRANSACTING))?;
        let standing = if is_fresh { None } else { self.find(id)? };
        let place = standing.as_ref().map(StoredRecord::place);
        let found = standing.map(|StoredRecord { record, .. }| Found { record, now });
        match self.conclude(id, now, found, work) {
            Ok(Concluded { draft: Some(draft), answer }) => {
                self.put_draft(number, place, &draft, now).map_err(Failure::batch(TRANSACTING))?;
                Ok(Transacted::Done(answer, now))
            }
            Ok(Concluded { draft: None, answer }) => {
                self.take_back(id, is_fresh)?;
                Ok(Transacted::Done(answer, now))
            }
            Err(Failure::Own(error)) => {
                self.take_back(id, is_fresh)?;
                Err(Failure::Own(error))
            }
            Err(failure @ Failure::Batch(_)) => Err(failure),
        }
    }

    /// Runs `work` and keeps or rolls back its writes; returns the record to be written.
    fn conclude<T>(
        &self,
        id: RecordId,
        now: Timestamp,
        found: Option<Found>,
        work: impl for<'t> FnOnce(&mut SqliteTx<'t>, Option<Found>) -> Conclusion<T>,
    ) -> Result<Concluded<T>, Failure> {
        let Conclusion { write, answer } =
            self.run_closure(TRANSACTING, || work(&mut SqliteTx::new(self, now), found))?;
        let (draft, keeps_rows) = match write {
            Write::All(draft) => (Some(draft), true),
            Write::RecordOnly(draft) => (Some(draft), false),
            Write::Nothing => (None, false),
        };
        if draft.as_ref().is_some_and(|draft| draft.id != id) {
            self.undo_closure(TRANSACTING)?;
            return Err(unsupported(TRANSACTING, "the draft is for another record").into());
        }
        if draft.is_some()
            && let Err(lost) = self.refuse_lost(TRANSACTING)
        {
            self.undo_closure(TRANSACTING)?;
            return Err(lost);
        }
        if keeps_rows {
            self.keep_closure(TRANSACTING)?;
        } else {
            self.undo_closure(TRANSACTING)?;
        }
        Ok(Concluded { draft, answer })
    }

    /// Takes an id back that was written for a record which then was not.
    fn take_back(&self, id: RecordId, is_fresh: bool) -> Result<(), Failure> {
        if is_fresh {
            self.delete_id(id).map_err(Failure::batch(TRANSACTING))?;
        }
        Ok(())
    }

    fn find(&self, id: RecordId) -> Result<Option<StoredRecord>, StoreError> {
        find(&self.connection, (&self.dictionary, &self.clock), id)
    }

    /// Writes the record of `draft` under `number`, whose id is there, in place of the one at `old`. A
    /// replacement gets a new number, so that numbers grow with the time of creation.
    fn put_draft(
        &self,
        number: i64,
        old: Option<Place>,
        draft: &Draft,
        now: Timestamp,
    ) -> Result<(), Error> {
        if let Some(old) = old {
            self.delete_row(old)?;
            self.move_id(draft.id, number)?;
        }
        self.put(number, &Record::from_draft(draft, now))
    }

    pub(super) fn apply(
        &self,
        standing: StoredRecord,
        change: Change,
        now: Timestamp,
    ) -> Result<(), Error> {
        let place = standing.place();
        let StoredRecord { number, mut record } = standing;
        match change {
            Change::Note { .. } => Ok(()),
            Change::Renew { lease_for } => {
                record.state = State::Reserved(Lease { until: now.plus(lease_for) });
                self.put_open_state(number, &record.state)
            }
            Change::MarkUncertain { ago } => {
                record.state = State::Uncertain { since: now.minus(ago) };
                if place.is_completed {
                    self.delete_row(place)?;
                    self.put(number, &record)
                } else {
                    self.put_open_state(number, &record.state)
                }
            }
            Change::Complete { outcome, retention } => {
                record.retention = retention;
                self.delete_row(place)?;
                self.put_completed(number, &record, &outcome, now)
            }
            Change::TakeOver(draft) => self.put_draft(self.new_number(), Some(place), &draft, now),
            Change::Remove => {
                self.delete_row(place)?;
                self.delete_id(record.id)
            }
        }
    }

    /// Returns false if the id exists already.
    fn put_id(&self, id: RecordId, number: i64) -> Result<bool, Error> {
        let sql = "INSERT INTO firstwrite_ids (id, record) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        let count = self.connection.prepare_cached(sql)?.execute(params![id.as_bytes(), number])?;
        Ok(count == 1)
    }

    fn move_id(&self, id: RecordId, number: i64) -> Result<(), Error> {
        let sql = "UPDATE firstwrite_ids SET record = ?2 WHERE id = ?1";
        self.connection.prepare_cached(sql)?.execute(params![id.as_bytes(), number]).map(drop)
    }

    pub(super) fn delete_id(&self, id: RecordId) -> Result<(), Error> {
        let sql = "DELETE FROM firstwrite_ids WHERE id = ?1";
        self.connection.prepare_cached(sql)?.execute([id.as_bytes()]).map(drop)
    }

    pub(super) fn delete_row(&self, place: Place) -> Result<(), Error> {
        let sql = if place.is_completed {
            "DELETE FROM firstwrite_records WHERE record = ?1"
        } else {
            "DELETE FROM firstwrite_reservations WHERE record = ?1"
        };
        self.connection.prepare_cached(sql)?.execute([place.number]).map(drop)
    }

    fn put_open_state(&self, number: i64, state: &State) -> Result<(), Error> {
        let sql = "UPDATE firstwrite_reservations SET lease_until = ?2, uncertain_since = ?3
                   WHERE record = ?1";
        let [lease_until, since] = open_columns(state);
        self.connection.prepare_cached(sql)?.execute(params![number, lease_until, since]).map(drop)
    }

    fn put(&self, number: i64, record: &Record) -> Result<(), Error> {
        match &record.state {
            State::Completed { outcome, .. } => {
                self.put_completed(number, record, outcome, record.created_at)
            }
            State::Reserved(_) | State::Uncertain { .. } => self.put_reservation(number, record),
        }
    }

    fn put_completed(
        &self,
        number: i64,
        record: &Record,
        outcome: &Outcome,
        completed_at: Timestamp,
    ) -> Result<(), Error> {
        let profile = Profile {
            operation: record.operation.clone(),
            on_lost_answer: i64::from(record.on_lost_answer.to_number()),
            fingerprint_version: record.fingerprint.version(),
            fingerprint_form: number_of_form(record.fingerprint.form()),
            retention: retention_numbers(record.retention),
        };
        let created_at = record.created_at.as_millis();
        let sql =
            "INSERT INTO firstwrite_records (record, tenant, key, profile, fingerprint, fence,
                       created_at, completed_after, outcome)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        self.connection
            .prepare_cached(sql)?
            .execute(params![
                number,
                self.dictionary.tenant_value(&self.connection, &record.tenant)?,
                encode_key(&record.key),
                self.dictionary.profile_value(&self.connection, profile)?,
                encode_fingerprint(&record.fingerprint),
                record.fence.as_u64().cast_signed(),
                created_at,
                completed_at.as_millis().saturating_sub(created_at),
                encode_outcome(outcome),
            ])
            .map(drop)
    }

    fn put_reservation(&self, number: i64, record: &Record) -> Result<(), Error> {
        let sql = "INSERT INTO firstwrite_reservations (record, id, tenant, key, operation,
                       on_lost_answer, fingerprint_version, fingerprint_form, fingerprint, fence,
                       created_at, lease_until, uncertain_since, replay_for, linger_for,
                       refuses_spent)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
        let [lease_until, since] = open_columns(&record.state);
        let [replay_for, linger_for, refuses_spent] = retention_numbers(record.retention);
        self.connection
            .prepare_cached(sql)?
            .execute(params![
                number,
                record.id.as_bytes(),
                record.tenant.as_str(),
                encode_key(&record.key),
                record.operation,
                i64::from(record.on_lost_answer.to_number()),
                record.fingerprint.version(),
                number_of_form(record.fingerprint.form()),
                encode_fingerprint(&record.fingerprint),
                record.fence.as_u64().cast_signed(),
                record.created_at.as_millis(),
                lease_until,
                since,
                replay_for,
                linger_for,
                refuses_spent,
            ])
            .map(drop)
    }

    /// `id` is a record's, or the name of a destination.
    pub(super) fn put_audit(
        &self,
        id: &[u8],
        entry: &AuditEntry,
        at: Timestamp,
    ) -> Result<(), Error> {
        let sql = "INSERT INTO firstwrite_audit (id, at, actor, action, reason)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let AuditEntry { actor, action, reason } = entry;
        self.connection
            .prepare_cached(sql)?
            .execute(params![id, at.as_millis(), actor, action, reason])
            .map(drop)
    }
}

/// Result of work inside the transaction: a draft to be written and the answer for the caller.
struct Concluded<T> {
    draft: Option<Box<Draft>>,
    answer: T,
}

/// The row of a record.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) number: i64,
    pub(super) is_completed: bool,
}

impl StoredRecord {
    fn place(&self) -> Place {
        let is_completed = matches!(self.record.state, State::Completed { .. });
        Place { number: self.number, is_completed }
    }
}

/// The columns that tell a reserved record from an uncertain one: one of them is null.
fn open_columns(state: &State) -> [Option<i64>; 2] {
    let since = match state {
        State::Uncertain { since } => Some(*since),
        State::Reserved(_) | State::Completed { .. } => None,
    };
    [state.lease_until(), since].map(|at| at.map(Timestamp::as_millis))
}
