//! Dictionaries of tenants and profiles: values that many records share are stored once and referred to by
//! number.
//!
//! Both dictionaries are bounded: past the bound, the same values are stored in the record's own row. So an
//! endless stream of new paths or tenants costs space only in its own rows, and no table grows for ever.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use firstwrite_core::encoding::{retention_of, tenant_of};
use firstwrite_core::{BodyForm, Retention, StoreError, Tenant};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};

use super::driver_error::{corrupt, definite};

/// Values that a completed record shares with the others of its operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Profile {
    pub(super) operation: Arc<str>,
    pub(super) on_lost_answer: i64,
    pub(super) fingerprint_version: u8,
    pub(super) fingerprint_form: i64,
    /// As [`firstwrite_core::encoding::retention_numbers`].
    pub(super) retention: [i64; 3],
}

/// Maximum number of entries in the tables; caches hold no more than that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum number of tenants: some ten megabytes of names in memory.
    pub(super) tenants_max: i64,
    /// Maximum number of profiles. An application has tens of operations; thousands mean that it uses
    /// concrete paths as operations.
    pub(super) profiles_max: i64,
}

pub(super) const BOUNDS: Bounds = Bounds { tenants_max: 65_536, profiles_max: 4096 };

/// The dictionaries as one connection knows them. Entries never change, so a cached one is right as
/// long as its row was committed.
#[derive(Debug)]
pub(super) struct Dictionary {
    bounds: Bounds,
    tenants: RefCell<Cache<Tenant>>,
    profiles: RefCell<Cache<Arc<Profile>>>,
}

#[derive(Debug)]
struct Cache<T> {
    numbers: HashMap<T, i64>,
    entries: HashMap<i64, T>,
    /// Written or read in the transaction that is still open.
    uncommitted: Vec<i64>,
    is_full: bool,
}

impl Dictionary {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, tenants: RefCell::default(), profiles: RefCell::default() }
    }

    /// Returns the value for a `tenant` column.
    pub(super) fn tenant_value(
        &self,
        connection: &Connection,
        tenant: &Tenant,
    ) -> rusqlite::Result<Value> {
        let mut cache = self.tenants.borrow_mut();
        if let Some(number) = cache.numbers.get(tenant) {
            return Ok(Value::Integer(*number));
        }
        let stored: Option<i64> = connection
            .prepare_cached("SELECT tenant FROM firstwrite_tenants WHERE name = ?1")?
            .query_row([tenant.as_str()], |row| row.get(0))
            .optional()?;
        let number = match stored {
            Some(number) => number,
            None if cache.is_full(connection, "firstwrite_tenants", self.bounds.tenants_max)? => {
                return Ok(Value::Text(tenant.as_str().to_owned()));
            }
            None => connection
                .prepare_cached("INSERT INTO firstwrite_tenants (name) VALUES (?1)")?
                .insert([tenant.as_str()])?,
        };
        cache.add(number, tenant.clone());
        Ok(Value::Integer(number))
    }

    /// Returns the value for a `profile` column.
    pub(super) fn profile_value(
        &self,
        connection: &Connection,
        profile: Profile,
    ) -> rusqlite::Result<Value> {
        let mut cache = self.profiles.borrow_mut();
        if let Some(number) = cache.numbers.get(&profile) {
            return Ok(Value::Integer(*number));
        }
        let [replay_for, linger_for, refuses_spent] = profile.retention;
        let facts = params![
            profile.operation,
            profile.on_lost_answer,
            profile.fingerprint_version,
            profile.fingerprint_form,
            replay_for,
            linger_for,
            refuses_spent,
        ];
        let stored: Option<i64> = connection
            .prepare_cached(
                "SELECT profile FROM firstwrite_profiles
                 WHERE operation = ?1 AND on_lost_answer = ?2 AND fingerprint_version = ?3
                   AND fingerprint_form = ?4 AND replay_for = ?5 AND linger_for = ?6
                   AND refuses_spent = ?7",
            )?
            .query_row(facts, |row| row.get(0))
            .optional()?;
        let number = match stored {
            Some(number) => number,
            None if cache.is_full(
                connection,
                "firstwrite_profiles",
                self.bounds.profiles_max,
            )? =>
            {
                return Ok(Value::Blob(profile.to_bytes()));
            }
            None => connection
                .prepare_cached(
                    "INSERT INTO firstwrite_profiles (operation, on_lost_answer,
                         fingerprint_version, fingerprint_form, replay_for, linger_for,
                         refuses_spent)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .insert(facts)?,
        };
        cache.add(number, Arc::new(profile));
        Ok(Value::Integer(number))
    }

    /// Reads a `tenant` column.
    pub(super) fn tenant(
        &self,
        connection: &Connection,
        value: ValueRef<'_>,
    ) -> Result<Tenant, StoreError> {
        let number = match value {
            ValueRef::Text(name) => return tenant_named(name),
            ValueRef::Integer(number) => number,
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {
                return Err(corrupt("a tenant is neither a number nor a name"));
            }
        };
        if let Some(tenant) = self.tenants.borrow().entries.get(&number) {
            return Ok(tenant.clone());
        }
        let name: Option<String> = connection
            .prepare_cached("SELECT name FROM firstwrite_tenants WHERE tenant = ?1")
            .and_then(|mut query| query.query_row([number], |row| row.get(0)).optional())
            .map_err(definite("reading a tenant"))?;
        let name = name.ok_or_else(|| corrupt("a tenant's number has no name"))?;
        let tenant = tenant_named(name.as_bytes())?;
        self.tenants.borrow_mut().add(number, tenant.clone());
        Ok(tenant)
    }

    /// Reads a `profile` column.
    pub(super) fn profile(
        &self,
        connection: &Connection,
        value: ValueRef<'_>,
    ) -> Result<Arc<Profile>, StoreError> {
        let number = match value {
            ValueRef::Blob(bytes) => {
                let profile = Profile::from_bytes(bytes);
                return profile.map(Arc::new).ok_or_else(|| corrupt("a profile's bytes"));
            }
            ValueRef::Integer(number) => number,
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) => {
                return Err(corrupt("a profile is neither a number nor its facts"));
            }
        };
        if let Some(profile) = self.profiles.borrow().entries.get(&number) {
            return Ok(Arc::clone(profile));
        }
        let profile = connection
            .prepare_cached(
                "SELECT operation, on_lost_answer, fingerprint_version, fingerprint_form,
                        replay_for, linger_for, refuses_spent
                 FROM firstwrite_profiles WHERE profile = ?1",
            )
            .and_then(|mut query| {
                let read = |row: &rusqlite::Row<'_>| {
                    Ok(Profile {
                        operation: row.get::<_, String>(0)?.into(),
                        on_lost_answer: row.get(1)?,
                        fingerprint_version: row.get(2)?,
                        fingerprint_form: row.get(3)?,
                        retention: [row.get(4)?, row.get(5)?, row.get(6)?],
                    })
                };
                query.query_row([number], read).optional()
            })
            .map_err(definite("reading a profile"))?;
        let profile = Arc::new(profile.ok_or_else(|| corrupt("a profile's number has no facts"))?);
        self.profiles.borrow_mut().add(number, Arc::clone(&profile));
        Ok(profile)
    }

    /// The shortest time that any completed record is kept, in milliseconds.
    pub(super) fn kept_for_min(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let mut query =
            connection.prepare_cached("SELECT replay_for, linger_for FROM firstwrite_profiles")?;
        let mut rows = query.query([])?;
        let (mut count, mut shortest) = (0, i64::MAX);
        while let Some(row) = rows.next()? {
            count += 1;
            shortest = shortest.min(row.get::<_, i64>(0)?.saturating_add(row.get(1)?));
        }
        // Past the bound, some profiles are stored only in their records.
        Ok(if count >= self.bounds.profiles_max { 0 } else { shortest })
    }

    /// The open transaction was committed.
    pub(super) fn committed(&self) {
        self.tenants.borrow_mut().uncommitted.clear();
        self.profiles.borrow_mut().uncommitted.clear();
    }

    /// Forgets entries that may be gone because the open transaction was rolled back, at least in part.
    pub(super) fn rolled_back(&self) {
        self.tenants.borrow_mut().forget_uncommitted();
        self.profiles.borrow_mut().forget_uncommitted();
    }
}

impl<T: Clone + Eq + std::hash::Hash> Cache<T> {
    fn add(&mut self, number: i64, entry: T) {
        self.numbers.insert(entry.clone(), number);
        self.entries.insert(number, entry);
        self.uncommitted.push(number);
    }

    fn forget_uncommitted(&mut self) {
        for number in self.uncommitted.drain(..) {
            if let Some(entry) = self.entries.remove(&number) {
                self.numbers.remove(&entry);
            }
        }
        self.is_full = false;
    }

    fn is_full(
        &mut self,
        connection: &Connection,
        table: &'static str,
        count_max: i64,
    ) -> rusqlite::Result<bool> {
        if !self.is_full {
            // Entries are never deleted, so the largest rowid is their number.
            let sql = format!("SELECT coalesce(max(rowid), 0) FROM {table}");
            let count: i64 = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
            self.is_full = count >= count_max;
        }
        Ok(self.is_full)
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            entries: HashMap::new(),
            uncommitted: Vec::new(),
            is_full: false,
        }
    }
}

impl Profile {
    /// The first byte of a profile that is stored in its record.
    const VERSION: u8 = 1;

    pub(super) fn retention(&self) -> Retention {
        retention_of(self.retention)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![Self::VERSION, self.fingerprint_version];
        for number in [self.on_lost_answer, self.fingerprint_form].into_iter().chain(self.retention)
        {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(self.operation.as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[Self::VERSION, fingerprint_version], mut rest) = bytes.split_first_chunk()? else {
            return None;
        };
        let mut number = || {
            let (number, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(i64::from_be_bytes(*number))
        };
        let (on_lost_answer, fingerprint_form) = (number()?, number()?);
        let retention = [number()?, number()?, number()?];
        let operation = std::str::from_utf8(rest).ok()?.into();
        Some(Self { operation, on_lost_answer, fingerprint_version, fingerprint_form, retention })
    }
}

pub(super) fn number_of_form(form: BodyForm) -> i64 {
    match form {
        BodyForm::Canonical => 0,
        BodyForm::Raw => 1,
    }
}

pub(super) fn form_of(number: i64) -> Result<BodyForm, StoreError> {
    match number {
        0 => Ok(BodyForm::Canonical),
        1 => Ok(BodyForm::Raw),
        _ => Err(corrupt("an unknown form of fingerprint")),
    }
}

fn tenant_named(name: &[u8]) -> Result<Tenant, StoreError> {
    let name = std::str::from_utf8(name).map_err(|_encoding| corrupt("text is not UTF-8"))?;
    Ok(tenant_of(name)?)
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    fn profile(operation: &str) -> Profile {
        Profile {
            operation: operation.into(),
            on_lost_answer: 1,
            fingerprint_version: 1,
            fingerprint_form: 0,
            retention: [86_400_000, 3_600_000, 1],
        }
    }

    fn connection() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(schema::SQL).unwrap();
        connection
    }

    #[test]
    fn past_the_bound_the_facts_stand_in_the_record_and_read_the_same() {
        let connection = connection();
        let bounds = Bounds { tenants_max: 1, profiles_max: 1 };
        for (round, dictionary) in
            [Dictionary::new(bounds), Dictionary::new(bounds)].iter().enumerate()
        {
            for (place, name) in ["first", "second", "third"].into_iter().enumerate() {
                let tenant = Tenant::new(name).unwrap();
                let value = dictionary.tenant_value(&connection, &tenant).unwrap();
                assert_eq!(value == Value::Integer(1), place == 0, "{name} in round {round}");
                assert_eq!(dictionary.tenant(&connection, (&value).into()).unwrap(), tenant);

                let value = dictionary.profile_value(&connection, profile(name)).unwrap();
                assert_eq!(value == Value::Integer(1), place == 0, "{name} in round {round}");
                let read = dictionary.profile(&connection, (&value).into()).unwrap();
                assert_eq!(*read, profile(name));
            }
            assert_eq!(dictionary.kept_for_min(&connection).unwrap(), 0);
        }
    }

    #[test]
    fn what_was_rolled_back_is_not_remembered() {
        let connection = connection();
        let dictionary = Dictionary::new(BOUNDS);
        let (lost, kept) = (Tenant::new("lost").unwrap(), Tenant::new("kept").unwrap());
        connection.execute_batch("BEGIN").unwrap();
        dictionary.tenant_value(&connection, &lost).unwrap();
        dictionary.profile_value(&connection, profile("lost")).unwrap();
        connection.execute_batch("ROLLBACK").unwrap();
        dictionary.rolled_back();
        let value = dictionary.tenant_value(&connection, &kept).unwrap();
        dictionary.committed();
        assert_eq!(dictionary.tenant(&connection, (&value).into()).unwrap(), kept);
        let again = dictionary.tenant_value(&connection, &lost).unwrap();
        assert_ne!(again, value, "two tenants share a number");
        assert_eq!(dictionary.kept_for_min(&connection).unwrap(), i64::MAX);
    }

    #[test]
    fn numbers_and_bytes_that_mean_nothing_are_corrupt() {
        let connection = connection();
        let dictionary = Dictionary::new(BOUNDS);
        for value in [Value::Integer(9), Value::Null, Value::Blob(vec![9]), Value::Real(1.0)] {
            assert!(dictionary.tenant(&connection, (&value).into()).is_err(), "{value:?}");
            assert!(dictionary.profile(&connection, (&value).into()).is_err(), "{value:?}");
        }
        assert!(dictionary.tenant(&connection, ValueRef::Text(b"a\nb")).is_err());
        assert!(Profile::from_bytes(&[1; 20]).is_none());
        assert!(Profile::from_bytes(&[2; 40]).is_none());
    }
}
