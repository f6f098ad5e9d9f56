//! The cases that define a store, by subject.
//!
//! A store crate runs them from its own tests with [`assert_conforms`]; the report names every case
//! that passed, failed, or was skipped because the store does not claim the capability it needs.
//!
//! ```
//! use std::sync::Arc;
//!
//! use firstwrite_testkit::conformance::assert_conforms;
//! use firstwrite_testkit::{MemorySubject, Subject};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! // In a store crate: its own type that implements `Subject`, with an empty store for each call.
//! let fresh = || -> firstwrite_core::BoxFuture<'static, Arc<dyn Subject>> {
//!     Box::pin(async { Arc::new(MemorySubject::new()) as Arc<dyn Subject> })
//! };
//! let report = assert_conforms(fresh).await;
//! assert!(report.passed.len() > 100);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firstwrite_core::protocol::{self, Reservation, Reserved};
use firstwrite_core::{
    BoxFuture, Capabilities, Draft, Fence, Inserted, OnLostAnswer, Policy, Record, RecordId,
    Request, State, Store, StoreError, Tenant, Timestamp, Verdict,
};

use crate::{Subject, sample};

mod clock_skew;
mod documents;
mod durable;
mod fence;
mod findings;
mod indeterminate;
mod insert;
mod lease;
mod listing;
mod outbox;
mod protocol_moves;
mod retention;
mod round_trip;
mod settle;
mod shown;
mod swap;
mod transaction;
mod usage;

/// One promise of a store, as a test.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Subject and promise, such as `swap/stale_fence_is_refused`.
    pub name: &'static str,
    /// Capabilities that a store must claim for the case to apply.
    pub needs: Capabilities,
    /// Runs the case on a subject of its own.
    pub run: fn(Harness) -> BoxFuture<'static, TestResult>,
}

/// Result of a case.
pub type TestResult = Result<(), Failure>;

/// The expectation of a case that did not hold, in the words of the domain.
#[derive(Debug)]
pub struct Failure(String);

/// Fixture of a case: a subject, and a tenant that no other case uses.
#[derive(Clone, Debug)]
pub struct Harness {
    subject: Arc<dyn Subject>,
    tenant: Tenant,
}

/// Result of a run of the suite.
#[derive(Debug, Default)]
pub struct Report {
    /// Names of the cases that passed.
    pub passed: Vec<&'static str>,
    /// Names of the cases that failed, and what they expected.
    pub failed: Vec<(&'static str, Failure)>,
    /// Names of the cases whose capability the store does not claim.
    pub skipped: Vec<&'static str>,
    /// Capabilities that the store claims.
    pub claims: Capabilities,
}

/// No capability beyond the minimum.
const MINIMUM: Capabilities = Capabilities {
    transactions: false,
    outbox: false,
    durable: false,
    server_time: false,
    answers_within: None,
};
const TRANSACTIONS: Capabilities = Capabilities { transactions: true, ..MINIMUM };
const OUTBOX: Capabilities = Capabilities { transactions: true, outbox: true, ..MINIMUM };
const DURABLE: Capabilities = Capabilities { durable: true, ..MINIMUM };
const DURABLE_TRANSACTIONS: Capabilities = Capabilities { durable: true, ..TRANSACTIONS };

/// All cases, in the order of their subjects.
pub fn cases() -> Vec<Case> {
    let records = [
        insert::CASES,
        round_trip::CASES,
        swap::CASES,
        lease::CASES,
        fence::CASES,
        retention::CASES,
        listing::CASES,
        usage::CASES,
        protocol_moves::CASES,
        settle::CASES,
        transaction::CASES,
        clock_skew::CASES,
        indeterminate::CASES,
        durable::CASES,
    ];
    [&records.concat(), &*outbox::cases(), documents::CASES, findings::CASES].concat()
}

/// Runs every case whose name contains `filter` (all of them if it is empty), each on a subject
/// that `factory` makes for it.
pub async fn run_all<F>(factory: F, filter: &str) -> Report
where
    F: Fn() -> BoxFuture<'static, Arc<dyn Subject>>,
{
    let mut report = Report::default();
    for case in cases().into_iter().filter(|case| case.name.contains(filter)) {
        let subject = factory().await;
        report.claims = subject.store().capabilities();
        if !report.claims.cover(case.needs) {
            report.skipped.push(case.name);
            continue;
        }
        match (case.run)(Harness::new(subject, case.name)).await {
            Ok(()) => report.passed.push(case.name),
            Err(failure) => report.failed.push((case.name, failure)),
        }
    }
    report
}

/// Runs every case and panics with a readable list if one failed: the whole of a store crate's
/// `tests/conformance`.
pub async fn assert_conforms<F>(factory: F) -> Report
where
    F: Fn() -> BoxFuture<'static, Arc<dyn Subject>>,
{
    let report = run_all(factory, "").await;
    assert!(report.failed.is_empty(), "{report}");
    assert!(!report.passed.is_empty(), "no case applied to this store");
    report
}

impl Harness {
    /// A harness with a tenant of its own, also on a database that earlier runs used.
    pub fn new(subject: Arc<dyn Subject>, case: &str) -> Self {
        static SEQUENCE: AtomicU64 = AtomicU64::new(0);
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{case}#{sequence}-{:08x}", fastrand::u32(..));
        let tenant = match subject.owner() {
            Some(owner) => owner.bound_to(&name),
            None => sample::tenant(&name),
        };
        Self { subject, tenant }
    }

    /// The subject itself, for scripts and reopening.
    pub fn subject(&self) -> &dyn Subject {
        &*self.subject
    }

    /// The store under test.
    pub fn store(&self) -> Arc<dyn Store> {
        self.subject.store()
    }

    /// Moves the store's clock.
    pub async fn advance(&self, by: Duration) {
        self.subject.advance(by).await;
    }

    /// This case's own tenant.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Returns a second tenant that no other case uses.
    pub fn other_tenant(&self) -> Tenant {
        sample::tenant(&format!("{}-other", self.tenant))
    }

    /// A request of this case's tenant.
    pub fn request(&self, key: &str) -> Request {
        sample::request(&self.tenant, &sample::key(key), 1)
    }

    /// Writes a draft where nothing stands, and says when.
    pub async fn put(&self, draft: &Draft) -> Result<Timestamp, Failure> {
        match self.store().insert(draft).await? {
            Inserted::Done(now) => Ok(now),
            Inserted::Stands(_) => Err(Failure::new("a draft under a free key is written")),
        }
    }

    /// Reserves `key` under `fence` with the default lease and this answer to a lost answer.
    pub async fn put_reserved(
        &self,
        key: &str,
        fence: Fence,
        on_lost_answer: OnLostAnswer,
    ) -> Result<RecordId, Failure> {
        let request = self.request(key);
        self.put(&sample::reserved(&request, &sample::policy(on_lost_answer), fence)).await?;
        Ok(request.id)
    }

    /// Writes `key` already completed under `fence` with the default retention.
    pub async fn put_completed(&self, key: &str, fence: Fence) -> Result<RecordId, Failure> {
        let request = self.request(key);
        let outcome = sample::outcome(201, key);
        self.put(&sample::completed(&request, &Policy::default(), fence, outcome)).await?;
        Ok(request.id)
    }

    /// Returns the record under `id`; fails if there is none.
    pub async fn record(&self, id: RecordId) -> Result<Record, Failure> {
        match self.store().get(id).await? {
            Some(found) => Ok(found.record),
            None => Err(Failure::new("a record stands under the key")),
        }
    }

    /// Reserves through the protocol; a failure unless it is granted.
    pub async fn granted(
        &self,
        request: &Request,
        policy: &Policy,
        nonce: u64,
    ) -> Result<Reservation, Failure> {
        match protocol::reserve(&*self.store(), request, policy, nonce).await? {
            Reserved::Granted(reservation) => Ok(reservation),
            Reserved::Refused(verdict, ..) => {
                Err(Failure::new(&format!("the key is reserved, but it was refused: {verdict:?}")))
            }
        }
    }

    /// Tries to reserve through the protocol; a failure unless it is refused.
    pub async fn refused(&self, request: &Request, policy: &Policy) -> Result<Verdict, Failure> {
        match protocol::reserve(&*self.store(), request, policy, 0xdead).await? {
            Reserved::Refused(verdict, ..) => Ok(verdict),
            Reserved::Granted(_) => Err(Failure::new("the key is refused, but it was granted")),
        }
    }
}

impl Failure {
    /// Creates a failure with the expectation that did not hold.
    pub fn new(expected: &str) -> Self {
        Self(expected.to_owned())
    }
}

impl Failure {
    /// A task of a case panicked, which a store must not make it do.
    #[expect(clippy::needless_pass_by_value, reason = "the shape that map_err asks for")]
    fn panicked(error: tokio::task::JoinError) -> Self {
        Self(format!("a store that does not panic: {error}"))
    }
}

impl From<Box<protocol::Unreserved>> for Failure {
    fn from(unreserved: Box<protocol::Unreserved>) -> Self {
        unreserved.error.into()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(format!("the store works, but it failed while {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected: {}", self.0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, skipped) = (self.passed.len(), self.failed.len(), self.skipped.len());
        writeln!(f, "conformance: {passed} passed, {failed} failed, {skipped} skipped")?;
        for (name, failure) in &self.failed {
            writeln!(f, "  failed   {name}\n           {failure}")?;
        }
        for name in &self.skipped {
            writeln!(f, "  skipped  {name} (a capability the store does not claim)")?;
        }
        Ok(())
    }
}

/// Fails with `expected` unless it holds.
fn expect(holds: bool, expected: &str) -> TestResult {
    if holds { Ok(()) } else { Err(Failure::new(expected)) }
}

/// Returns true if the key is free, and only a note for clients that poll stands under it.
fn is_note(record: &Record) -> bool {
    matches!(&record.state, State::Completed { outcome, .. } if outcome.is_release_note())
}

/// Fails with what was expected and what was found unless they are equal.
fn expect_equal<T: PartialEq + fmt::Debug>(expected: &str, found: &T, wanted: &T) -> TestResult {
    if found == wanted {
        return Ok(());
    }
    Err(Failure(format!("{expected}\n           wanted {wanted:?}\n           found  {found:?}")))
}

/// Names a case after its function.
macro_rules! case {
    ($subject:literal, $needs:expr, $name:ident) => {
        $crate::conformance::Case {
            name: concat!($subject, "/", stringify!($name)),
            needs: $needs,
            run: |harness| Box::pin($name(harness)),
        }
    };
}
use case;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn case_names_are_unique_and_name_their_subject() {
        let cases = cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(names.iter().all(|name| name.split('/').count() == 2), "{names:?}");
        assert!(cases.len() >= 45, "{} cases", cases.len());
    }

    #[test]
    fn a_failure_speaks_of_what_was_expected() {
        let failure = expect_equal("two is one", &2, &1).unwrap_err().to_string();
        assert!(failure.starts_with("expected: two is one"), "{failure}");
    }
}
