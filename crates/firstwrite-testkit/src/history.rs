//! Concurrent histories on a real store: many tasks on few keys, every call and return stamped.
//!
//! One process records and checks with [`check_store`]. Several processes each [`record`] their part with
//! stamps of one clock and hand it on as [`lines`](to_line); the process that collects the parts checks them
//! with [`check_histories`].

mod line;

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

pub use line::{BadLine, from_line, to_line};

/// Size of a history.
#[derive(Clone, Copy, Debug)]
pub struct HistoryOptions {
    /// Tasks at once.
    pub tasks: u64,
    /// Steps of each.
    pub steps: u64,
    /// Keys they share.
    pub keys: u64,
}

/// The part of one process in a history that several record on the same store.
#[derive(Clone, Debug)]
pub struct Part {
    /// The tenant of the keys, which all parts have in common.
    pub name: String,
    /// Seed of the steps.
    pub seed: u64,
    /// Which process this is, from 0.
    pub process: u64,
    /// Number of processes.
    pub processes: u64,
    /// Size of each process's part.
    pub options: HistoryOptions,
    /// Mistake of the recorder, made to prove that the check notices it.
    pub mistake: Option<Mistake>,
}

/// A mistake of a store's handle, made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A swap is done whatever its guard says.
    IgnoresGuard,
    /// A step whose acknowledgement was lost is called undone.
    CallsLostUndone,
}

/// The steps of histories, by record.
pub type Histories = BTreeMap<RecordId, Vec<Operation>>;

/// Numbers of steps in a history that was checked and found in order.
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
    /// The error, if a step failed for good.
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
    let order = AtomicU64::new(0);
    let stamp = Box::new(move || order.fetch_add(1, Ordering::SeqCst));
    let name = format!("history-{seed:016x}-{:08x}", fastrand::u32(..));
    let part = Part { name, seed, process: 0, processes: 1, options, mistake: None };
    let recorder = Recorder { trouble: Trouble::Fails, ..Recorder::new(store, &part, stamp) };
    let failed = |error| Violation { seed, history: Vec::new(), error: Some(error) };
    let histories = recorder.run_all(options.tasks).await.map_err(failed)?;
    check_histories(seed, histories)
}

/// Records the part of this process; `stamp` reads a clock that all processes share.
///
/// A step that certainly did not take effect is not recorded; it is tried again, since a server may be away.
pub async fn record(
    store: Arc<dyn Store>,
    part: &Part,
    stamp: Box<dyn Fn() -> u64 + Send + Sync>,
) -> Result<Histories, StoreError> {
    Recorder::new(store, part, stamp).run_all(part.options.tasks).await
}

/// Checks recorded histories key by key.
pub fn check_histories(seed: u64, histories: Histories) -> Result<HistoryReport, Violation> {
    let mut report = HistoryReport::default();
    for mut history in histories.into_values() {
        history.sort_by_key(|step| step.called_at);
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
    /// The number of the first task: those of other processes have other numbers.
    first_task: u64,
    /// Stamps every call and every return.
    stamp: Box<dyn Fn() -> u64 + Send + Sync>,
    trouble: Trouble,
    mistake: Option<Mistake>,
    histories: Mutex<Histories>,
}

/// Reaction to a step that did not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Nothing was to go wrong.
    Fails,
    /// The store is away for a moment.
    Waits,
}

/// Pause before a task asks a store that is away again.
const AWAY_FOR: Duration = Duration::from_millis(10);
/// A store that is away for a minute does not come back.
const TRIES_MAX: u64 = 6000;

impl Recorder {
    fn new(store: Arc<dyn Store>, part: &Part, stamp: Box<dyn Fn() -> u64 + Send + Sync>) -> Self {
        let tenant: Tenant = sample::tenant(&part.name);
        let options = part.options;
        let requests = (0..options.keys)
            .map(|key| sample::request(&tenant, &sample::key(&format!("k-{key}")), 1))
            .collect();
        // The checker's sets are numbers: keep each key's history well below its limit.
        let steps_max = OPERATIONS_MAX as u64 / (options.tasks * part.processes).max(1);
        Self {
            store,
            requests,
            seed: part.seed,
            steps: options.steps.min(steps_max),
            first_task: part.process * options.tasks,
            stamp,
            trouble: Trouble::Waits,
            mistake: part.mistake,
            histories: Mutex::default(),
        }
    }

    async fn run_all(self, tasks: u64) -> Result<Histories, StoreError> {
        let recorder = Arc::new(self);
        let first = recorder.first_task;
        let tasks: Vec<_> = (first..first + tasks)
            .map(|task| tokio::spawn(Arc::clone(&recorder).run(task)))
            .collect();
        for task in tasks {
            task.await.expect("a recording task does not panic")?;
        }
        Ok(std::mem::take(&mut *recorder.histories()))
    }

    async fn run(self: Arc<Self>, task: u64) -> Result<(), StoreError> {
        let mut rng =
            fastrand::Rng::with_seed(self.seed ^ (task + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // What this task last saw under each key, and which fences it wore itself.
        let mut sights: BTreeMap<RecordId, Record> = BTreeMap::new();
        let (mut done, mut tries) = (0, 0);
        while done < self.steps {
            let request = &self.requests[rng.usize(..self.requests.len())];
            let nonce = (task << 20) | (tries << 4) | 1;
            tries += 1;
            match self.step(request, nonce, sights.get(&request.id), &mut rng).await {
                Ok(Some(record)) => drop(sights.insert(request.id, record)),
                Ok(None) => drop(sights.remove(&request.id)),
                Err(error) if !self.passes(&error) || tries == TRIES_MAX => return Err(error),
                Err(_) => {
                    tokio::time::sleep(AWAY_FOR).await;
                    continue;
                }
            }
            done += 1;
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
            3 if record.state.kind() != StateKind::Completed => Change::MARK_UNCERTAIN,
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
            Err(error) => self.lost(error)?,
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
            Change::Note { .. }
            | Change::Complete { .. }
            | Change::MarkUncertain { .. }
            | Change::Remove => (Duration::ZERO, None),
        };
        let kind = change.clone();
        let told = match self.mistake {
            Some(Mistake::IgnoresGuard) => {
                self.store.get(id).await?.map(|found| found.record.seen())
            }
            Some(Mistake::CallsLostUndone) | None => None,
        };
        let told = told.map_or(guard, Guard::Seen);
        let (lease, answer, sight) = match self.store.swap(id, told, change, None).await {
            Ok(Swapped::Done(now)) => {
                let sight = next.as_ref().map(|draft| Record::from_draft(draft, now));
                (LeaseEnd::Known(now.plus(lease_for)), Answer::Done, sight)
            }
            Ok(Swapped::Moved(found)) => refused(found),
            Err(error) => self.lost(error)?,
        };
        let edit = match kind {
            Change::Renew { .. } => Edit::Renew(lease),
            Change::Complete { .. } => Edit::Complete(nonce),
            // The histories hold no copies.
            Change::Note { .. } | Change::MarkUncertain { .. } => Edit::MarkUncertain,
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

    /// Returns true if the store may do the same later. A doubt of lost history does not pass: nothing was lost.
    fn passes(&self, error: &StoreError) -> bool {
        self.trouble == Trouble::Waits && error.is_retryable()
    }

    fn stamp(&self) -> u64 {
        (self.stamp)()
    }

    fn lost(&self, error: StoreError) -> Result<Ended, StoreError> {
        match error.certainty() {
            Certainty::Indeterminate if self.mistake != Some(Mistake::CallsLostUndone) => {
                Ok((LeaseEnd::Unknown, Answer::Lost, None))
            }
            Certainty::Indeterminate | Certainty::Definite => Err(error),
        }
    }

    fn record(&self, id: RecordId, called_at: u64, call: Call, answer: Answer) {
        let returned_at = if answer == Answer::Lost { u64::MAX } else { self.stamp() };
        let operation = Operation { call, answer, called_at, returned_at };
        self.histories().entry(id).or_default().push(operation);
    }

    fn histories(&self) -> std::sync::MutexGuard<'_, Histories> {
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

fn complete(tag: u64) -> Change {
    Change::Complete {
        outcome: sample::outcome(201, &tag.to_string()),
        retention: Policy::default().record_retention(),
    }
}

/// Reduces a record to the parts that a history compares: the tag of its last writer stands for its content.
fn standing(record: &Record) -> Standing {
    let written_by = match &record.state {
        State::Completed { outcome, .. } => match &outcome.body {
            firstwrite_core::Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            firstwrite_core::Body::Tombstone
            | firstwrite_core::Body::Sealed(_)
            | firstwrite_core::Body::Released => String::new(),
        },
        State::Reserved(_) | State::Uncertain { .. } => record.operation.to_string(),
    };
    Standing {
        fence: record.fence,
        state: record.state.kind(),
        lease: record.state.lease_until().map(LeaseEnd::Known),
        tag: written_by.parse().unwrap_or(u64::MAX),
    }
}
