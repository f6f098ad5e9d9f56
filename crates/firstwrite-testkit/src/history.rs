//! Concurrent histories on a real store: many tasks on few keys, every call and return stamped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firstwrite_core::{
    Certainty, Change, Fence, Found, Guard, Inserted, OnLostAnswer, Policy, Record, RecordId,
    Request, State, StateKind, Store, StoreError, Swapped, Tenant, Timestamp,
};

use crate::linearizability::{
    Answer, Call, Check, Edit, LeaseEnd, OPERATIONS_MAX, Operation, Standing, is_linearizable,
};
use crate::sample;

/// How much happens in a history.
#[derive(Clone, Copy, Debug)]
pub struct HistoryOptions {
    /// Tasks at once.
    pub tasks: u64,
    /// Steps of each.
    pub steps: u64,
    /// Keys they share.
    pub keys: u64,
}

/// What was recorded and found in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryReport {
    /// Steps that were called.
    pub operations: usize,
    /// Of those, how many wrote.
    pub written: usize,
    /// Of those, how many lost their acknowledgement.
    pub lost: usize,
}

/// A history that no order of its steps explains.
#[derive(Debug)]
pub struct Violation {
    /// The seed that gave it.
    pub seed: u64,
    /// The steps on the key that cannot be explained, in the order of their calls.
    pub history: Vec<Operation>,
    /// What else went wrong, if a step failed for good.
    pub error: Option<StoreError>,
}

/// Records one seeded history on `store` and checks it key by key.
///
/// The tasks are spawned on the caller's runtime: on a multi-threaded one, they really run at once.
pub async fn check_store(
    store: Arc<dyn Store>,
    seed: u64,
    options: HistoryOptions,
) -> Result<HistoryReport, Violation> {
    let recorder = Arc::new(Recorder::new(store, seed, options));
    let tasks: Vec<_> =
        (0..options.tasks).map(|task| tokio::spawn(Arc::clone(&recorder).run(task))).collect();
    for task in tasks {
        let ended = task.await;
        if let Err(error) = ended.expect("a recording task does not panic") {
            return Err(Violation { seed, history: Vec::new(), error: Some(error) });
        }
    }
    let histories = std::mem::take(&mut *recorder.histories());
    let mut report = HistoryReport::default();
    for history in histories.into_values() {
        report.operations += history.len();
        report.written += history.iter().filter(|step| step.answer == Answer::Done).count();
        report.lost += history.iter().filter(|step| step.answer == Answer::Lost).count();
        if !is_linearizable(&history) {
            return Err(Violation { seed, history, error: None });
        }
    }
    Ok(report)
}

struct Recorder {
    store: Arc<dyn Store>,
    requests: Vec<Request>,
    seed: u64,
    steps: u64,
    /// Stamps every call and every return.
    order: AtomicU64,
    histories: Mutex<BTreeMap<RecordId, Vec<Operation>>>,
}

impl Recorder {
    fn new(store: Arc<dyn Store>, seed: u64, options: HistoryOptions) -> Self {
        let tenant: Tenant =
            sample::tenant(&format!("history-{seed:016x}-{:08x}", fastrand::u32(..)));
        let requests = (0..options.keys)
            .map(|key| sample::request(&tenant, &sample::key(&format!("k-{key}")), 1))
            .collect();
        // The checker's sets are numbers: keep each key's history well below its limit.
        let steps_max = OPERATIONS_MAX as u64 / options.tasks.max(1);
        let steps = options.steps.min(steps_max);
        let histories = Mutex::default();
        Self { store, requests, seed, steps, order: AtomicU64::new(0), histories }
    }

    async fn run(self: Arc<Self>, task: u64) -> Result<(), StoreError> {
        let mut rng =
            fastrand::Rng::with_seed(self.seed ^ (task + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // What this task last saw under each key, and which fences it wore itself.
        let mut sights: BTreeMap<RecordId, Record> = BTreeMap::new();
        for step in 0..self.steps {
            let request = &self.requests[rng.usize(..self.requests.len())];
            let nonce = (task << 20) | (step << 4) | 1;
            let found = self.step(request, nonce, sights.get(&request.id), &mut rng).await?;
            match found {
                Some(record) => sights.insert(request.id, record),
                None => sights.remove(&request.id),
            };
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// One step; returns what the task now believes to stand there.
    async fn step(
        &self,
        request: &Request,
        nonce: u64,
        sight: Option<&Record>,
        rng: &mut fastrand::Rng,
    ) -> Result<Option<Record>, StoreError> {
        let policy = sample::policy(OnLostAnswer::Resend);
        let Some(record) = sight.filter(|_| rng.u8(..10) > 2) else {
            let looks = rng.u8(..3) == 0;
            return if looks {
                self.look(request.id).await
            } else {
                self.reserve(request, &policy, Fence::first(nonce)).await
            };
        };
        let guard =
            if rng.bool() { Guard::Owner(record.fence) } else { Guard::Seen(record.seen()) };
        let lease_for = policy.lease + Duration::from_millis(rng.u64(..1000));
        let change = match rng.u8(..6) {
            0 | 1 => Change::Renew { lease_for },
            2 if record.state.kind() != StateKind::Completed => complete(nonce),
            3 if record.state.kind() != StateKind::Completed => Change::MarkUncertain,
            4 => {
                let tagged = Request { operation: nonce.to_string().into(), ..request.clone() };
                let next = sample::reserved(&tagged, &policy, record.fence.next(nonce));
                Change::TakeOver(Box::new(next))
            }
            _ => Change::Remove,
        };
        self.swap(request.id, guard, change, nonce).await
    }

    async fn look(&self, id: RecordId) -> Result<Option<Record>, StoreError> {
        let called_at = self.stamp();
        let found = self.store.get(id).await?;
        let answer = Answer::Stands(found.as_ref().map(|found| standing(&found.record)));
        self.record(id, called_at, Call::Get, answer);
        Ok(found.map(|found| found.record))
    }

    async fn reserve(
        &self,
        request: &Request,
        policy: &Policy,
        fence: Fence,
    ) -> Result<Option<Record>, StoreError> {
        let tag = fence.as_u64() & 0xff_ffff_ffff;
        let tagged = Request { operation: tag.to_string().into(), ..request.clone() };
        let draft = sample::reserved(&tagged, policy, fence);
        let called_at = self.stamp();
        let lease = |now: Timestamp| LeaseEnd::Known(now.plus(policy.lease));
        let standing_with =
            |lease| Standing { fence, state: StateKind::Reserved, lease: Some(lease), tag };
        let inserted = self.store.insert(&draft).await;
        let (drawn, answer, sight) = match inserted {
            Ok(Inserted::Done(now)) => {
                (lease(now), Answer::Done, Some(Record::from_draft(&draft, now)))
            }
            Ok(Inserted::Stands(found)) => refused(Some(found)),
            Err(error) => lost(error)?,
        };
        self.record(request.id, called_at, Call::Insert(standing_with(drawn)), answer);
        Ok(sight)
    }

    async fn swap(
        &self,
        id: RecordId,
        guard: Guard,
        change: Change,
        nonce: u64,
    ) -> Result<Option<Record>, StoreError> {
        let called_at = self.stamp();
        let (lease_for, next) = match &change {
            Change::Renew { lease_for } => (*lease_for, None),
            Change::TakeOver(draft) => (Policy::LEASE_DEFAULT, Some(draft.clone())),
            Change::Complete { .. } | Change::MarkUncertain | Change::Remove => {
                (Duration::ZERO, None)
            }
        };
        let kind = change.clone();
        let (lease, answer, sight) = match self.store.swap(id, guard, change, None).await {
            Ok(Swapped::Done(now)) => {
                let sight = next.as_ref().map(|draft| Record::from_draft(draft, now));
                (LeaseEnd::Known(now.plus(lease_for)), Answer::Done, sight)
            }
            Ok(Swapped::Moved(found)) => refused(found),
            Err(error) => lost(error)?,
        };
        let edit = match kind {
            Change::Renew { .. } => Edit::Renew(lease),
            Change::Complete { .. } => Edit::Complete(nonce),
            Change::MarkUncertain => Edit::MarkUncertain,
            Change::TakeOver(draft) => Edit::TakeOver(Standing {
                fence: draft.fence,
                state: StateKind::Reserved,
                lease: Some(lease),
                tag: nonce,
            }),
            Change::Remove => Edit::Remove,
        };
        let check = match guard {
            Guard::Owner(fence) => Check::Owner(fence),
            Guard::Seen(seen) => Check::Seen(seen.fence, seen.state, seen.lease_until),
        };
        self.record(id, called_at, Call::Swap(check, edit), answer);
        Ok(sight)
    }

    fn stamp(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    fn record(&self, id: RecordId, called_at: u64, call: Call, answer: Answer) {
        let returned_at = if answer == Answer::Lost { u64::MAX } else { self.stamp() };
        let operation = Operation { call, answer, called_at, returned_at };
        self.histories().entry(id).or_default().push(operation);
    }

    fn histories(&self) -> std::sync::MutexGuard<'_, BTreeMap<RecordId, Vec<Operation>>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for HistoryOptions {
    /// Enough to collide often, few enough for the checker to be quick.
    fn default() -> Self {
        Self { tasks: 4, steps: 20, keys: 2 }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            return write!(f, "history of seed {}: {error}", self.seed);
        }
        writeln!(f, "no order explains the history of seed {}:", self.seed)?;
        self.history.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}

impl std::error::Error for Violation {}

type Ended = (LeaseEnd, Answer, Option<Record>);

fn refused(found: Option<Box<Found>>) -> Ended {
    let answer = Answer::Stands(found.as_ref().map(|found| standing(&found.record)));
    (LeaseEnd::Unknown, answer, found.map(|found| found.record))
}

fn lost(error: StoreError) -> Result<Ended, StoreError> {
    match error.certainty() {
        Certainty::Indeterminate => Ok((LeaseEnd::Unknown, Answer::Lost, None)),
        Certainty::Definite => Err(error),
    }
}

fn complete(tag: u64) -> Change {
    Change::Complete {
        outcome: sample::outcome(201, &tag.to_string()),
        retention: Policy::default().retention(),
    }
}

/// What a history compares of a record: its content is told by the tag of the step that wrote it.
fn standing(record: &Record) -> Standing {
    let written_by = match &record.state {
        State::Completed { outcome, .. } => match &outcome.body {
            firstwrite_core::Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            firstwrite_core::Body::Tombstone | firstwrite_core::Body::Sealed(_) => String::new(),
        },
        State::Reserved(_) | State::Uncertain => record.operation.to_string(),
    };
    Standing {
        fence: record.fence,
        state: record.state.kind(),
        lease: record.state.lease_until().map(LeaseEnd::Known),
        tag: written_by.parse().unwrap_or(u64::MAX),
    }
}
