//! Profiles: values that many records share, stored once and referred to by number.
//!
//! A profile is never changed or deleted, so a cached one stays right until older tables are restored. A
//! missing one is written in its own transaction before the write that uses it, never inside a caller's
//! transaction, which might roll it back or make others wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::encoding::{as_i64, retention_numbers};
use firstwrite_core::{Draft, StoreError, lock};
use tokio_postgres::Row;

use super::Shared;
use super::columns::Values;
use super::connect::Role;
use super::driver_error::{DriverError, definite, unsupported};
use super::link::{Link, OwnClient};
use super::rows::{column, only};
use super::sql::statements;

/// Values that a record shares with the others of its operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Profile {
    pub(super) operation: Arc<str>,
    pub(super) on_lost_answer: i32,
    pub(super) fingerprint_version: i16,
    pub(super) fingerprint_form: i16,
    /// As [`retention_numbers`].
    pub(super) retention: [i64; 3],
}

/// The profiles as this process knows them.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    known: Mutex<ProfileMaps>,
    /// Locked while a profile is written: many callers need a new one at the same moment.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct ProfileMaps {
    numbers: HashMap<Arc<Profile>, i16>,
    profiles: HashMap<i16, Arc<Profile>>,
}

/// Maximum number of profiles. An application has tens of operations; thousands mean that it uses concrete
/// paths as operations. Numbers are small integers, and some are lost when two processes write the same
/// profile at once.
const COUNT_MAX: i64 = 10_000;

/// Name shared by all operations past the bound: the name is for people only. The other values of these
/// profiles still differ, so there is room for some more.
const OTHER: &str = "(other)";
const OTHER_COUNT_MAX: i64 = 12_000;

/// Maximum length of an operation in an index entry; a longer name is truncated.
const OPERATION_BYTES_MAX: usize = 1000;

const DOING: &str = "writing a profile";

statements! {
    /// Every statement about profiles.
    pub(super) struct ProfilesSql() {
        read: "SELECT profile, operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for,
                      linger_for, refuses_spent
               FROM firstwrite.profiles WHERE $1::int2[] IS NULL OR profile = ANY ($1)",
            [INT2_ARRAY];
        number: "SELECT firstwrite.profile_number($1, $2, $3, $4, $5, $6, $7, $8)",
            [TEXT, INT4, INT2, INT2, INT8, INT8, BOOL, INT8];
    }
}

impl Profiles {
    /// Returns the number of the profile of `draft`; if there is none, writes it on a new connection:
    /// handlers that wait for this may hold all those of the pool.
    pub(super) async fn number_for(
        &self,
        shared: &Arc<Shared>,
        draft: &Draft,
    ) -> Result<i16, StoreError> {
        let profile = Profile::of_draft(draft);
        let known = lock(&self.known).numbers.get(&profile).copied();
        match known {
            Some(number) => Ok(number),
            // Boxed: it happens once for each operation, and its space would be moved with every draft.
            None => Box::pin(self.put(shared, profile)).await,
        }
    }

    async fn put(&self, shared: &Arc<Shared>, profile: Profile) -> Result<i16, StoreError> {
        let _turn = self.writing.lock().await;
        if let Some(number) = lock(&self.known).numbers.get(&profile) {
            return Ok(*number);
        }
        let mut client = OwnClient::new(shared, Role::Pooled, None);
        let link = Link { client: client.get().await.map_err(definite(DOING))?, shared };
        let written = self.written(&link, &profile, COUNT_MAX).await;
        let mut number = written.map_err(definite(DOING))?;
        if number.is_none() {
            let other = Profile { operation: OTHER.into(), ..profile.clone() };
            let written = self.written(&link, &other, OTHER_COUNT_MAX).await;
            number = written.map_err(definite(DOING))?;
        }
        let number = number.ok_or_else(|| unsupported(DOING, "there are too many profiles"))?;
        // Under its own name, so that the next record of this operation does not ask again.
        let mut known = lock(&self.known);
        // More names than profiles are known when operations share `(other)`: then it begins anew.
        if known.numbers.len() > 2 * usize::try_from(OTHER_COUNT_MAX).unwrap_or(usize::MAX) {
            known.numbers.clear();
        }
        known.numbers.insert(Arc::new(profile), number);
        Ok(number)
    }

    /// Returns the number of a profile that exists or could be written; `None` if there is no room.
    async fn written(
        &self,
        link: &Link<'_>,
        profile: &Profile,
        count_max: i64,
    ) -> Result<Option<i16>, DriverError> {
        let [replay_for, linger_for, refuses_spent] = profile.retention;
        let values = Values::default()
            .and(&*profile.operation)
            .and(profile.on_lost_answer)
            .and(profile.fingerprint_version)
            .and(profile.fingerprint_form)
            .and(replay_for)
            .and(linger_for)
            .and(refuses_spent != 0)
            .and(count_max);
        let (begin, sql) = (&link.shared.server.begins().rare, &link.sql().profiles.number);
        let rows = link.alone(begin, sql, &values.parameters()).await?;
        let number = column(only(&rows, "a profile's number is not told")?, 0)?;
        if let Some(number) = number {
            lock(&self.known).profiles.insert(number, Arc::new(profile.clone()));
        }
        Ok(number)
    }

    /// Returns the profile with this number, if it was read before.
    pub(super) fn get(&self, number: i16) -> Option<Arc<Profile>> {
        lock(&self.known).profiles.get(&number).cloned()
    }

    /// Remembers rows that were read.
    pub(super) fn learn(&self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            let profile = Profile {
                operation: column::<&str>(row, 1)?.into(),
                on_lost_answer: column(row, 2)?,
                fingerprint_version: column(row, 3)?,
                fingerprint_form: column(row, 4)?,
                retention: [column(row, 5)?, column(row, 6)?, column::<bool>(row, 7)?.into()],
            };
            let number = column(row, 0)?;
            let profile = Arc::new(profile);
            let mut known = lock(&self.known);
            known.profiles.insert(number, Arc::clone(&profile));
            known.numbers.insert(profile, number);
        }
        Ok(())
    }

    /// The tables may be older ones, which number their profiles otherwise.
    pub(super) fn forget_all(&self) {
        *lock(&self.known) = ProfileMaps::default();
    }
}

impl Profile {
    fn of_draft(draft: &Draft) -> Self {
        Self {
            operation: shortened(&draft.operation),
            on_lost_answer: draft.on_lost_answer.to_number().cast_signed(),
            fingerprint_version: draft.fingerprint.version().into(),
            fingerprint_form: draft.fingerprint.form().as_byte().into(),
            retention: retention_numbers(draft.retention),
        }
    }
}

pub(super) fn whole_millis(duration: Duration) -> i64 {
    as_i64(duration.as_millis())
}

fn shortened(operation: &Arc<str>) -> Arc<str> {
    // A text column takes every character but this one.
    if operation.len() <= OPERATION_BYTES_MAX && !operation.contains('\0') {
        return Arc::clone(operation);
    }
    let name = operation.replace('\0', "\u{fffd}");
    name[..name.floor_char_boundary(OPERATION_BYTES_MAX)].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_between_characters_and_takes_no_zero() {
        let long: Arc<str> = "ö".repeat(600).into();
        assert_eq!(shortened(&long).len(), 1000);
        let odd: Arc<str> = format!("a\0{}", "ö".repeat(600)).into();
        assert!(shortened(&odd).len() <= 1000 && !shortened(&odd).contains('\0'));
        let usual: Arc<str> = "POST /payments".into();
        assert_eq!(shortened(&usual), usual);
    }
}
