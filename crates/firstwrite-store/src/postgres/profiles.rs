//! Profiles: values that many records share, stored once and referred to by number.
//!
//! A profile is never changed or deleted, so a cached one stays right until older tables are restored. A
//! missing one is written in its own transaction before the write that uses it, never inside a caller's
//! transaction, which might roll it back or make others wait for it.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use firstwrite_core::{BodyForm, Draft, OnLostAnswer, StoreError};
use tokio_postgres::Row;

use super::Shared;
use super::columns::Values;
use super::connect::Role;
use super::driver_error::{corrupt, definite, unsupported};
use super::link::{Link, OwnClient};
use super::rows::column;
use crate::encoding::retention_numbers;

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
    known: RwLock<ProfileMaps>,
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

pub(super) const ALL: &str = "
    SELECT profile, operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for,
           linger_for, refuses_spent
    FROM firstwrite.profiles";

pub(super) const SOME: &str = "
    SELECT profile, operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for,
           linger_for, refuses_spent
    FROM firstwrite.profiles WHERE profile = ANY ($1)";

pub(super) const FIND: &str = "
    SELECT profile FROM firstwrite.profiles
    WHERE operation = $1 AND on_lost_answer = $2 AND fingerprint_version = $3
      AND fingerprint_form = $4 AND replay_for = $5 AND linger_for = $6 AND refuses_spent = $7";

pub(super) const PUT: &str = "
    INSERT INTO firstwrite.profiles (operation, on_lost_answer, fingerprint_version,
                                     fingerprint_form, replay_for, linger_for, refuses_spent)
    SELECT $1, $2, $3, $4, $5, $6, $7
    WHERE (SELECT count(*) FROM firstwrite.profiles) < $8
    ON CONFLICT DO NOTHING RETURNING profile";

impl Profiles {
    /// Returns the number of the profile of `draft`; if there is none, writes it on a new connection:
    /// handlers that wait for this may hold all those of the pool.
    pub(super) async fn number_for(
        &self,
        shared: &Arc<Shared>,
        draft: &Draft,
    ) -> Result<i16, StoreError> {
        let profile = Profile::of_draft(draft);
        let known = self.known().numbers.get(&profile).copied();
        match known {
            Some(number) => Ok(number),
            // Boxed: it happens once for each operation, and its space would be moved with every draft.
            None => Box::pin(self.put(shared, profile)).await,
        }
    }

    async fn put(&self, shared: &Arc<Shared>, profile: Profile) -> Result<i16, StoreError> {
        let _turn = self.writing.lock().await;
        if let Some(number) = self.known().numbers.get(&profile) {
            return Ok(*number);
        }
        let mut client = OwnClient::new(shared, Role::Pooled, None);
        let link = Link { client: client.get().await.map_err(definite(DOING))?, shared };
        let mut number = self.written(&link, &profile, COUNT_MAX).await?;
        if number.is_none() {
            let other = Profile { operation: OTHER.into(), ..profile.clone() };
            number = self.written(&link, &other, OTHER_COUNT_MAX).await?;
        }
        let number = number.ok_or_else(|| unsupported(DOING, "there are too many profiles"))?;
        // Under its own name, so that the next record of this operation does not ask again.
        self.known_mut().numbers.insert(Arc::new(profile), number);
        Ok(number)
    }

    /// Returns the number of a profile that exists or could be written; `None` if there is no room.
    async fn written(
        &self,
        link: &Link<'_>,
        profile: &Profile,
        count_max: i64,
    ) -> Result<Option<i16>, StoreError> {
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
        let facts = values.parameters();
        let sql = link.sql();
        // Look-ups before and after: an insert that meets a rival's still uses up a number.
        for (statement, facts) in [
            (&sql.find_profile, &facts[..7]),
            (&sql.put_profile, &facts[..]),
            (&sql.find_profile, &facts[..7]),
        ] {
            let begin = &link.shared.server.begins().rare;
            let rows = link.alone(begin, statement, facts).await.map_err(definite(DOING))?;
            if let Some(row) = rows.first() {
                let number = column(row, 0)?;
                self.known_mut().profiles.insert(number, Arc::new(profile.clone()));
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Returns the profile with this number, if it was read before.
    pub(super) fn get(&self, number: i16) -> Option<Arc<Profile>> {
        self.known().profiles.get(&number).cloned()
    }

    /// Remembers rows of [`ALL`] or [`SOME`].
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
            let mut known = self.known_mut();
            known.profiles.insert(number, Arc::clone(&profile));
            known.numbers.insert(profile, number);
        }
        Ok(())
    }

    /// The tables may be older ones, which number their profiles otherwise.
    pub(super) fn forget_all(&self) {
        let mut known = self.known_mut();
        known.numbers.clear();
        known.profiles.clear();
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn known(&self) -> RwLockReadGuard<'_, ProfileMaps> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, ProfileMaps> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // More names than profiles are known when operations share `(other)`: then it begins anew.
        if known.numbers.len() > 2 * usize::try_from(OTHER_COUNT_MAX).unwrap_or(usize::MAX) {
            known.numbers.clear();
        }
        known
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

    pub(super) fn on_lost_answer(&self) -> Result<OnLostAnswer, StoreError> {
        OnLostAnswer::from_number(self.on_lost_answer.into())
            .ok_or_else(|| corrupt("an unknown choice for lost answers"))
    }

    pub(super) fn form(&self) -> Result<BodyForm, StoreError> {
        let form = u8::try_from(self.fingerprint_form).ok().and_then(BodyForm::from_byte);
        form.ok_or_else(|| corrupt("an unknown form of fingerprint"))
    }

    pub(super) fn version(&self) -> Result<u8, StoreError> {
        u8::try_from(self.fingerprint_version)
            .map_err(|_range| corrupt("a fingerprint's version is one byte"))
    }
}

pub(super) fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn shortened(operation: &Arc<str>) -> Arc<str> {
    // A text column takes every character but this one.
    if operation.len() <= OPERATION_BYTES_MAX && !operation.contains('\0') {
        return Arc::clone(operation);
    }
    let mut name = operation.replace('\0', "\u{fffd}");
    let mut end = OPERATION_BYTES_MAX.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name.into()
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
