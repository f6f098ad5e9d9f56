//! The moves over a real store, and over one that loses acknowledgements.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};

use super::*;
use crate::store::{BeginResult, Transacted, Write};
use crate::{
    AsyncTransactionalStore, BoxFuture, Fingerprint, FingerprintRules, HeldMemoryTx, KeptHeaders,
    Key, MemoryStore, OnLostAnswer, Parts, StateKind, Tenant, delegate_store,
};

/// A store in memory with a clock to turn, whose acknowledgements can be lost.
#[derive(Clone, Debug)]
struct Bench {
    store: MemoryStore,
    clock: Arc<AtomicI64>,
    lose: Arc<AtomicUsize>,
    /// True if a loss takes so long that the lease ends and a sweep comes.
    sweeps_at_loss: Arc<AtomicBool>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(AtomicI64::new(1_000_000));
        let reader = Arc::clone(&clock);
        let store = MemoryStore::new(move || Timestamp::from_millis(reader.load(Ordering::SeqCst)));
        Self { store, clock, lose: Arc::default(), sweeps_at_loss: Arc::default() }
    }

    fn advance(&self, duration: Duration) {
        self.clock.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// The next `count` writes are applied and then reported as lost.
    fn lose_acknowledgements(&self, count: usize) {
        self.lose.store(count, Ordering::SeqCst);
    }

    fn acknowledge<T>(&self, written: T) -> Result<T, StoreError> {
        let lost = self.lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match lost {
            Ok(_) => {
                if self.sweeps_at_loss.load(Ordering::SeqCst) {
                    self.advance(Policy::LEASE_DEFAULT);
                    now(sweep_once(&self.store, 10))?;
                }
                Err(StoreError::indeterminate(StoreErrorKind::Unavailable, "writing"))
            }
            Err(_) => Ok(written),
        }
    }

    fn reserve(&self, body: &str, policy: &Policy, nonce: u64) -> Reserved {
        now(reserve(self, &request(body), policy, nonce)).unwrap()
    }

    fn granted(&self, policy: &Policy, nonce: u64) -> Reservation {
        match self.reserve("first", policy, nonce) {
            Reserved::Granted(reservation) => reservation,
            Reserved::Refused(verdict, ..) => panic!("expected a reservation, got {verdict:?}"),
        }
    }

    fn refused(&self, policy: &Policy, nonce: u64) -> Verdict {
        match self.reserve("first", policy, nonce) {
            Reserved::Granted(_) => panic!("expected a refusal"),
            Reserved::Refused(verdict, ..) => verdict,
        }
    }

    fn complete(&self, reservation: Reservation, body: &'static str) -> Completed {
        now(complete(self, reservation, outcome(body))).unwrap()
    }

    fn record(&self) -> Option<Record> {
        now(self.store.get(request("first").id)).unwrap().map(|found| found.record)
    }

    fn state(&self) -> Option<StateKind> {
        self.record().map(|record| record.state.kind())
    }

    /// Settles the attempt that stands, as an operator who has just looked.
    fn settle(&self, settlement: Settlement, force: Force) -> Settled {
        let Some(seen) = self.record() else { return Settled::Absent };
        now(settle(self, &seen, settlement, force, &audit())).unwrap()
    }
}

impl Store for Bench {
    delegate_store!(
        store:
            capabilities, get, list, usage, reap, audits, now, check_history
    );

    fn insert<'a>(&'a self, draft: &'a Draft) -> BoxFuture<'a, Result<Inserted, StoreError>> {
        Box::pin(async move { self.acknowledge(self.store.insert(draft).await?) })
    }

    fn swap<'a>(
        &'a self,
        id: RecordId,
        guard: Guard,
        change: Change,
        audit: Option<&'a AuditEntry>,
    ) -> BoxFuture<'a, Result<Swapped, StoreError>> {
        Box::pin(async move { self.acknowledge(self.store.swap(id, guard, change, audit).await?) })
    }
}

/// The memory store never waits, so one poll is the whole run.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory does not wait"),
    }
}

fn request(body: &str) -> Request {
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::parse("order-1").unwrap());
    let id = RecordId::of(&tenant, &key);
    let headers = HeaderMap::new();
    let parts = Parts {
        method: &Method::POST,
        authority: "api.example",
        path: "/payments",
        query: None,
        headers: &headers,
        body: body.as_bytes(),
    };
    let fingerprint = Fingerprint::of(&parts, &FingerprintRules::default(), None, &id);
    Request { id, tenant, key, operation: "POST /payments".into(), fingerprint }
}

fn outcome(body: &'static str) -> Outcome {
    Outcome::new(StatusCode::CREATED, KeptHeaders::default(), Bytes::from_static(body.as_bytes()))
}

fn resend() -> Policy {
    Policy::default().on_lost_answer(OnLostAnswer::Resend)
}

fn audit() -> AuditEntry {
    AuditEntry { actor: "ann".into(), action: "settle".into(), reason: "asked the bank".into() }
}

#[test]
fn the_first_attempt_runs_and_every_retry_gets_its_answer() {
    let (bench, policy) = (Bench::new(), Policy::default());
    let reservation = bench.granted(&policy, 1);
    assert!(matches!(bench.refused(&policy, 2), Verdict::InProgress { .. }));
    assert!(matches!(bench.complete(reservation, "one"), Completed::Kept { .. }));
    for nonce in 3..6 {
        let Verdict::Replay { outcome: replayed, .. } = bench.refused(&policy, nonce) else {
            panic!("expected a replay")
        };
        assert_eq!(replayed, outcome("one"));
    }
    assert!(matches!(bench.reserve("other", &policy, 9), Reserved::Refused(Verdict::Mismatch, ..)));
}

#[test]
fn a_reservation_whose_acknowledgement_was_lost_is_recognised_as_ours() {
    let bench = Bench::new();
    bench.lose_acknowledgements(1);
    let reservation = bench.granted(&Policy::default(), 1);
    assert!(matches!(bench.complete(reservation, "one"), Completed::Kept { .. }));
}

#[test]
fn a_reservation_that_was_swept_before_it_was_asked_for_again_is_taken_back() {
    let bench = Bench::new();
    bench.sweeps_at_loss.store(true, Ordering::SeqCst);
    bench.lose_acknowledgements(1);
    let reservation = bench.granted(&Policy::default(), 1);
    assert_eq!(reservation.fence().count(), 2);
    now(release(&bench, reservation)).unwrap();
    assert_eq!(bench.state(), None, "nothing ran, so nobody has to find out");
}

#[test]
fn a_take_over_whose_acknowledgement_was_lost_is_recognised_as_ours() {
    let (bench, policy) = (Bench::new(), resend());
    let first = bench.granted(&policy, 1);
    bench.advance(policy.lease);
    let second = bench.granted(&policy, 2);
    assert!(second.fence() > first.fence());
    bench.advance(policy.lease);
    bench.lose_acknowledgements(2);
    let result = now(reserve(&bench, &request("first"), &policy, 3));
    assert!(result.is_err(), "two losses in one call are reported, not guessed");
    // The take-over may have been applied: the store tells the next request the truth.
    bench.lose_acknowledgements(0);
    assert!(matches!(
        bench.reserve("first", &policy, 4),
        Reserved::Granted(_) | Reserved::Refused(Verdict::InProgress { .. }, ..)
    ));
    assert!(matches!(bench.complete(second, "two"), Completed::Late(_)));
    assert!(matches!(bench.complete(first, "one"), Completed::Late(_)));
}

#[test]
fn a_completion_whose_acknowledgement_was_lost_is_kept() {
    let bench = Bench::new();
    let reservation = bench.granted(&Policy::default(), 1);
    bench.lose_acknowledgements(1);
    assert!(matches!(bench.complete(reservation, "one"), Completed::Kept { .. }));
}

#[test]
fn a_completion_that_cannot_be_confirmed_keeps_the_right_to_try_again() {
    let bench = Bench::new();
    let reservation = bench.granted(&Policy::default(), 1);
    bench.lose_acknowledgements(2);
    let undone = now(complete(&bench, reservation, outcome("one"))).unwrap_err();
    let Undone { reservation, outcome, .. } = *undone;
    let completed = now(complete(&bench, reservation, outcome)).unwrap();
    assert!(matches!(completed, Completed::Kept { .. }));
}

#[test]
fn an_answer_without_a_reservation_is_kept_unless_a_rival_came_first() {
    let (bench, policy) = (Bench::new(), Policy::default());
    bench.lose_acknowledgements(1);
    let kept = now(keep(&bench, &request("first"), &policy, 1, outcome("no"))).unwrap();
    assert!(matches!(kept, Kept::Done { .. }), "its own write is recognised: {kept:?}");
    let second = now(keep(&bench, &request("first"), &policy, 2, outcome("other"))).unwrap();
    let Kept::Refused(Verdict::Replay { outcome: replayed, .. }, _) = second else {
        panic!("expected the first answer")
    };
    assert_eq!(replayed, outcome("no"));
    bench.advance(policy.retention);
    let third = now(keep(&bench, &request("other"), &policy, 3, outcome("new"))).unwrap();
    assert!(matches!(third, Kept::Done { .. }), "an expired key is free: {third:?}");
}

#[test]
fn a_late_owner_cannot_overwrite_its_successor() {
    let (bench, policy) = (Bench::new(), resend());
    let late = bench.granted(&policy, 1);
    bench.advance(policy.lease);
    let successor = bench.granted(&policy, 2);
    let Completed::Late(Some(found)) = bench.complete(late, "late") else {
        panic!("expected the late owner to be refused")
    };
    assert_eq!(found.record.fence, successor.fence());
    assert!(matches!(bench.complete(successor, "two"), Completed::Kept { .. }));
    let Verdict::Replay { outcome: replayed, .. } = bench.refused(&policy, 3) else {
        panic!("expected a replay")
    };
    assert_eq!(replayed, outcome("two"));
}

#[test]
fn an_owner_that_an_operator_settled_gets_what_stands() {
    let (bench, policy) = (Bench::new(), Policy::default());
    let owner = bench.granted(&policy, 1);
    let settlement = Settlement::Happened { outcome: outcome("settled") };
    assert_eq!(bench.settle(settlement, Force::Yes), Settled::Done);
    assert!(matches!(bench.complete(owner, "its own"), Completed::Late(Some(_))));
}

#[test]
fn a_fence_of_a_former_life_opens_nothing() {
    let bench = Bench::new();
    let policy = Policy::default();
    let zombie = bench.granted(&policy, 1);
    assert_eq!(bench.settle(Settlement::NotHappened, Force::Yes), Settled::Done);
    let heir = bench.granted(&policy, 2);
    assert!(matches!(bench.complete(zombie, "zombie"), Completed::Late(Some(_))));
    assert!(matches!(bench.complete(heir, "heir"), Completed::Kept { .. }));
}

#[test]
fn a_renewal_in_time_keeps_the_key_and_a_late_one_says_so() {
    let (bench, policy) = (Bench::new(), resend());
    let mut reservation = bench.granted(&policy, 1);
    for _ in 0..5 {
        bench.advance(policy.lease / 2);
        assert_eq!(now(renew(&bench, &mut reservation)).unwrap(), Renewed::Current);
    }
    assert!(matches!(bench.refused(&policy, 2), Verdict::InProgress { .. }));
    bench.advance(policy.lease);
    let _successor = bench.granted(&policy, 3);
    assert_eq!(now(renew(&bench, &mut reservation)).unwrap(), Renewed::Lost);
}

#[test]
fn a_released_key_runs_afresh() {
    let (bench, policy) = (Bench::new(), Policy::default());
    let reservation = bench.granted(&policy, 1);
    bench.lose_acknowledgements(1);
    now(release(&bench, reservation)).unwrap();
    assert_eq!(bench.state(), None);
    let _again = bench.granted(&policy, 2);
}

#[test]
fn an_uncertain_record_waits_for_proof_and_its_owner_may_bring_it() {
    let (bench, policy) = (Bench::new(), Policy::default());
    let owner = bench.granted(&policy, 1);
    bench.advance(policy.lease);
    let swept = now(sweep_once(&bench, 10)).unwrap();
    assert_eq!(swept, Swept { uncertain: 1, ..Swept::default() });
    assert_eq!(bench.refused(&policy, 2), Verdict::Uncertain);
    assert!(matches!(bench.complete(owner, "proof"), Completed::Kept { .. }));
}

#[test]
fn a_sweep_frees_what_may_run_again() {
    let (bench, policy) = (Bench::new(), resend());
    let zombie = bench.granted(&policy, 1);
    assert_eq!(now(sweep_once(&bench, 10)).unwrap(), Swept::default());
    bench.advance(policy.lease);
    assert_eq!(now(sweep_once(&bench, 10)).unwrap(), Swept { freed: 1, ..Swept::default() });
    assert!(matches!(bench.complete(zombie, "late"), Completed::Late(Some(_))));
}

#[test]
fn settling_needs_an_uncertain_record_or_force_and_leaves_an_audit_entry() {
    let (bench, policy) = (Bench::new(), Policy::default());
    let id = request("first").id;
    let free = |force| bench.settle(Settlement::NotHappened, force);
    assert_eq!(free(Force::No), Settled::Absent);

    let reservation = bench.granted(&policy, 1);
    assert_eq!(free(Force::No), Settled::StillHeld(policy.lease));
    now(mark_uncertain(&bench, reservation, "no answer")).unwrap();
    assert_eq!(bench.refused(&policy, 2), Verdict::Uncertain);

    let happened = Settlement::Happened { outcome: outcome("true") };
    assert_eq!(bench.settle(happened, Force::No), Settled::Done);
    assert!(matches!(bench.refused(&policy, 3), Verdict::Replay { .. }));
    assert_eq!(free(Force::Yes), Settled::AlreadyCompleted);

    let audits = now(bench.audits(id)).unwrap();
    assert_eq!(audits.len(), 2, "only what was done is in the audit");
    assert_eq!(audits[0].entry, AuditEntry::uncertain("no answer"));
    assert_eq!(audits[1].entry, audit());
}

#[test]
fn what_was_found_out_about_one_attempt_settles_no_other() {
    let (bench, policy) = (Bench::new(), Policy::default());
    now(mark_uncertain(&bench, bench.granted(&policy, 1), "no answer")).unwrap();
    let seen = bench.record().unwrap();
    let free =
        || now(settle(&bench, &seen, Settlement::NotHappened, Force::Yes, &audit())).unwrap();
    assert_eq!(free(), Settled::Done);
    assert_eq!(free(), Settled::Absent);
    let heir = bench.granted(&policy, 2);
    assert_eq!(free(), Settled::Moved, "a second operator, late, with the same finding");
    assert!(matches!(bench.complete(heir, "heir"), Completed::Kept { .. }));
}

fn run(
    bench: &Bench,
    status: u16,
    work: impl FnOnce() -> Result<(), &'static str> + Send + 'static,
) -> Result<Atomic<&'static str>, StoreError> {
    let (request, policy) = (Arc::new(request("first")), Arc::new(Policy::default()));
    now(atomic(&bench.store, request, policy, 1, move |tx: &mut crate::MemoryTx<'_>| {
        tx.put("payment", "4990");
        work()?;
        let mut response = Response::new(Bytes::from_static(b"answer"));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok(response)
    }))
}

#[test]
fn an_atomic_handler_commits_its_rows_with_its_outcome_and_runs_once() {
    let bench = Bench::new();
    assert!(matches!(run(&bench, 201, || Ok(())).unwrap(), Atomic::Kept { .. }));
    assert_eq!(bench.store.row("payment").as_deref(), Some("4990"));
    let second = run(&bench, 201, || panic!("the handler ran twice")).unwrap();
    assert!(matches!(second, Atomic::Refused(Verdict::Replay { .. }, Some(_))));
}

#[test]
fn a_kept_client_error_rolls_the_rows_back_and_is_replayed() {
    let bench = Bench::new();
    assert!(matches!(run(&bench, 422, || Ok(())).unwrap(), Atomic::Kept { .. }));
    assert_eq!(bench.store.row_count(), 0);
    assert_eq!(bench.state(), Some(StateKind::Completed));
}

#[test]
fn a_server_error_a_failure_and_a_panic_leave_nothing() {
    let bench = Bench::new();
    assert!(matches!(run(&bench, 500, || Ok(())).unwrap(), Atomic::RolledBack(_)));
    assert!(matches!(run(&bench, 201, || Err("no")).unwrap(), Atomic::Failed("no")));
    let error = run(&bench, 201, || panic!("on purpose")).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Panicked);
    assert_eq!((bench.store.row_count(), bench.state()), (0, None));
    assert!(matches!(run(&bench, 201, || Ok(())).unwrap(), Atomic::Kept { .. }));
}

/// A store that loses the acknowledgement of a commit, before or after it took effect.
#[derive(Clone, Debug)]
struct Forgetful {
    store: MemoryStore,
    commits: bool,
}

impl Store for Forgetful {
    delegate_store!(
        store:
            capabilities, insert, swap, get, list, usage, reap, audits, now,
            check_history
    );
}

impl AsyncTransactionalStore for Forgetful {
    type Tx = HeldMemoryTx;

    async fn begin(&self, id: RecordId) -> Result<BeginResult<HeldMemoryTx>, StoreError> {
        self.store.begin(id).await
    }

    async fn conclude(&self, tx: HeldMemoryTx, write: Write) -> Result<Transacted<()>, StoreError> {
        if matches!(write, Write::Nothing) {
            return self.store.conclude(tx, write).await;
        }
        let write = if self.commits { write } else { Write::Nothing };
        self.store.conclude(tx, write).await?;
        Err(StoreError::indeterminate(StoreErrorKind::Unavailable, "committing"))
    }
}

fn begun<S: AsyncTransactionalStore>(store: &S, body: &str, nonce: u64) -> AtomicStart<S::Tx> {
    let (request, policy) = (Arc::new(request(body)), Arc::new(Policy::default()));
    now(begin(store, request, policy, nonce)).unwrap()
}

fn held<S: AsyncTransactionalStore>(store: &S, nonce: u64) -> OpenAttempt<S::Tx> {
    match begun(store, "first", nonce) {
        AtomicStart::Run(held) => held,
        AtomicStart::Refused(verdict, _) => panic!("expected a transaction, got {verdict:?}"),
    }
}

fn answer(status: u16) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"answer"));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

#[test]
fn a_held_transaction_commits_rows_and_outcome_and_refuses_a_duplicate() {
    let bench = Bench::new();
    let mut tx = held(&bench.store, 1);
    tx.put("payment", "4990");
    let AtomicStart::Refused(Verdict::InProgress { .. }, None) = begun(&bench.store, "first", 2)
    else {
        panic!("a rival is refused while the transaction is open");
    };
    let ended = now(conclude(&bench.store, tx, answer(201))).unwrap();
    assert!(matches!(ended, Atomic::Kept { .. }));
    assert_eq!(bench.store.row("payment").as_deref(), Some("4990"));
    let again = begun(&bench.store, "first", 3);
    assert!(matches!(again, AtomicStart::Refused(Verdict::Replay { .. }, Some(_))), "{again:?}");
    let other = begun(&bench.store, "other", 4);
    assert!(matches!(other, AtomicStart::Refused(Verdict::Mismatch, Some(_))), "{other:?}");
}

#[test]
fn a_held_transaction_keeps_a_client_error_without_its_rows_and_nothing_else() {
    let bench = Bench::new();
    let mut failed = held(&bench.store, 1);
    failed.put("payment", "1");
    let ended = now(conclude(&bench.store, failed, answer(500))).unwrap();
    assert!(matches!(ended, Atomic::RolledBack(_)));
    let mut given_up = held(&bench.store, 2);
    given_up.put("payment", "2");
    now(abandon(&bench.store, given_up)).unwrap();
    let mut dropped = held(&bench.store, 3);
    dropped.put("payment", "3");
    drop(dropped);
    assert_eq!((bench.store.row_count(), bench.state()), (0, None));
    let mut refused = held(&bench.store, 4);
    refused.put("payment", "4");
    let ended = now(conclude(&bench.store, refused, answer(422))).unwrap();
    assert!(matches!(ended, Atomic::Kept { .. }));
    assert_eq!((bench.store.row_count(), bench.state()), (0, Some(StateKind::Completed)));
}

#[test]
fn a_reservation_that_comes_in_between_rolls_a_held_transaction_back() {
    let (bench, policy) = (Bench::new(), Policy::default());
    let mut tx = held(&bench.store, 1);
    tx.put("payment", "4990");
    let rival = bench.granted(&policy, 2);
    let ended = now(conclude(&bench.store, tx, answer(201))).unwrap();
    assert!(matches!(ended, Atomic::Refused(Verdict::InProgress { .. }, Some(_))), "{ended:?}");
    assert_eq!(bench.store.row_count(), 0);
    assert!(matches!(bench.complete(rival, "rival"), Completed::Kept { .. }));
}

#[test]
fn a_lost_acknowledgement_of_a_commit_is_settled_by_asking_under_the_lock() {
    let (bench, commits) = (Bench::new(), true);
    let store = Forgetful { store: bench.store.clone(), commits };
    let ended = now(conclude(&store, held(&store, 1), answer(201))).unwrap();
    assert!(matches!(ended, Atomic::Kept { .. }), "it was committed: {ended:?}");

    let (bench, commits) = (Bench::new(), false);
    let store = Forgetful { store: bench.store.clone(), commits };
    let error = now(conclude(&store, held(&store, 1), answer(201))).unwrap_err();
    assert_eq!(error.certainty(), Certainty::Definite, "it was not committed");
    assert!(matches!(begun(&store, "first", 2), AtomicStart::Run(_)), "a retry runs at once");
}
