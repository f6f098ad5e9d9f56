//! The task that claims, starts deliveries and settles.

mod settling;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::{
    ClaimRequest, Claimed, FairShare, Next, Outbox, Received, Settlement, SlotRequest,
};
use firstwrite_core::{BoxFuture, Store, StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::settling::SettleBatch;
use super::delivery_task::{DeliveryTask, Done};
use super::destination_state::{BreakerChange, DestinationState};
use super::{DELIVER_EVERY, Deliver, DeliveredCounts};

pub(super) struct Dispatcher {
    store: Arc<dyn Store>,
    destinations: Vec<DestinationState>,
    fair_share: FairShare,
    claim_max: usize,
    tasks: JoinSet<Done>,
    /// Number of the destination whose task each task runs.
    runners: HashMap<Id, usize>,
    /// Ended, and not yet written down.
    ended: Vec<(Option<Received>, Settlement)>,
    breaker_changes: Vec<(usize, BreakerChange)>,
    claiming: Option<BoxFuture<'static, Claiming>>,
    settling: Option<BoxFuture<'static, SettleBatch>>,
    counts: DeliveredCounts,
    /// Time of the next search for messages if no notification arrives.
    look_at: Instant,
    failure_count: u32,
    failure: Option<StoreError>,
    /// The store was of no help, and is left alone until then.
    away_until: Option<Instant>,
}

/// A claim that came back.
struct Claiming {
    granted: Vec<SlotRequest>,
    since: Instant,
    claimed: Result<Claimed, StoreError>,
}

/// A store that is away is asked no less often than this.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Number of store failures in a row after which a worker that is being stopped gives up settling.
const FAREWELL_MAX: u32 = 3;

impl Dispatcher {
    pub(super) fn new(deliver: &Deliver) -> Self {
        let destinations: Vec<DestinationState> =
            deliver.destinations.iter().cloned().map(DestinationState::new).collect();
        Self {
            store: Arc::clone(&deliver.store),
            fair_share: FairShare::new(deliver.slot_count, destinations.len()),
            destinations,
            claim_max: deliver.claim_max,
            tasks: JoinSet::new(),
            runners: HashMap::new(),
            ended: Vec::new(),
            breaker_changes: Vec::new(),
            claiming: None,
            settling: None,
            counts: DeliveredCounts::default(),
            look_at: Instant::now(),
            failure_count: 0,
            failure: None,
            away_until: None,
        }
    }

    /// One claim, and everything that follows from it.
    pub(super) async fn once(&mut self) -> Result<DeliveredCounts, StoreError> {
        self.counts = DeliveredCounts::default();
        self.wake();
        self.claim();
        while self.is_busy() {
            self.step(std::future::pending::<()>()).await;
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            self.settle();
        }
        Ok(self.counts)
    }

    /// Claims and settles until all stop senders are dropped, then only settles.
    pub(super) async fn until(&mut self, mut stopped: watch::Receiver<()>) {
        let store = Arc::clone(&self.store);
        let (mut is_stopped, mut has_work) = (false, false);
        while !is_stopped || self.is_busy() {
            self.settle();
            if !is_stopped && self.claiming.is_none() && !self.is_store_away() {
                if has_work {
                    self.wake();
                }
                self.claim();
                // Clear the notification only once a claim has started, since that claim sees the new
                // messages. Without a free slot no claim starts, and listening on would return the same
                // notification again and again.
                has_work &= self.claiming.is_none();
            }
            let look_at = self.look_at;
            let woken = async {
                let wait_for_work = async {
                    match store.outbox() {
                        Some(outbox) => outbox.wait_for_work().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    _ = stopped.changed(), if !is_stopped => Woken::Stopped,
                    () = sleep_until(look_at) => Woken::Look,
                    () = wait_for_work, if !is_stopped && !has_work => Woken::WorkArrived,
                }
            };
            match self.step(woken).await {
                Some(Woken::Stopped) => {
                    is_stopped = true;
                    tracing::debug!(under_way = self.tasks.len(), "deliveries end, none begins");
                }
                Some(Woken::Look) => self.wake(),
                Some(Woken::WorkArrived) => has_work = true,
                None => {}
            }
            if let Some(error) = self.failure.take() {
                self.failure_count = self.failure_count.saturating_add(1);
                tracing::warn!(%error, "a turn failed; a later one tries again");
                if is_stopped && self.failure_count >= FAREWELL_MAX {
                    // Their claims run out, and another worker goes on from there.
                    let unsettled = self.ended.len() + self.tasks.len();
                    tracing::warn!(unsettled, "stopped without settling");
                    return;
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.claiming.is_some()
            || self.settling.is_some()
            || !self.tasks.is_empty()
            || !self.ended.is_empty()
            || !self.breaker_changes.is_empty()
    }

    /// Waits for one thing to happen, and takes it in.
    async fn step<W>(&mut self, woken: impl Future<Output = W>) -> Option<W> {
        // In a fixed order: a simulation repeats its history, and whatever is ready gets its turn.
        tokio::select! {
            biased;
            claimed = waiting(&mut self.claiming) => {
                self.claiming = None;
                self.claimed(claimed);
            }
            batch = waiting(&mut self.settling) => {
                self.settling = None;
                self.settled(batch);
            }
            Some(ended) = self.tasks.join_next_with_id() => self.task_ended(ended),
            woken = woken => return Some(woken),
        }
        None
    }

    /// Schedules the next search for messages, and lets every destination claim again.
    fn wake(&mut self) {
        self.look_at = Instant::now() + self.pause();
        for state in &mut self.destinations {
            state.is_idle = false;
        }
    }

    /// Between half and one and a half: workers that were started together drift apart.
    fn pause(&self) -> Duration {
        let doubled = DELIVER_EVERY.saturating_mul(2u32.saturating_pow(self.failure_count.min(16)));
        doubled.min(PAUSE_MAX).mul_f64(0.5 + fastrand::f64())
    }

    /// Begins a claim, unless one is under way, no destination can use a slot, or the store is away so that
    /// ended deliveries cannot be settled.
    fn claim(&mut self) {
        if self.claiming.is_some() || self.is_store_away() {
            return;
        }
        let slot_requests = self.destinations.iter().enumerate().filter_map(|(number, state)| {
            let limit = usize::try_from(state.limit.limit()).unwrap_or(usize::MAX);
            let count_max =
                limit.saturating_sub(self.fair_share.slots_of(number)).min(self.claim_max);
            (!state.is_idle && count_max > 0)
                .then_some(SlotRequest { destination: number, count_max })
        });
        let granted = self.fair_share.grant(&slot_requests.collect::<Vec<_>>());
        if granted.is_empty() {
            return;
        }
        let requests: Vec<ClaimRequest> =
            granted.iter().map(|request| self.request(*request)).collect();
        let store = Arc::clone(&self.store);
        self.claiming = Some(Box::pin(async move {
            let since = Instant::now();
            let claimed = match outbox(&*store) {
                Ok(outbox) => outbox.claim(&requests, fastrand::u64(..)).await,
                Err(error) => Err(error),
            };
            Claiming { granted, since, claimed }
        }));
    }

    fn request(&self, request: SlotRequest) -> ClaimRequest {
        let destination = &self.destinations[request.destination].destination;
        ClaimRequest {
            destination: destination.name().to_owned(),
            count_max: request.count_max,
            lease_for: destination.terms().lease_for(),
        }
    }

    fn claimed(&mut self, Claiming { granted, since, claimed }: Claiming) {
        let claimed = match claimed {
            Ok(claimed) => {
                self.helped();
                claimed
            }
            Err(error) => {
                for request in granted {
                    self.fair_share.release(request.destination, request.count_max, false);
                }
                self.fail(error);
                return;
            }
        };
        let mut taken = vec![0; self.destinations.len()];
        for message in claimed.messages {
            let named = |state: &DestinationState| state.destination.name() == message.destination;
            let Some(number) = self.destinations.iter().position(named) else { continue };
            let state = &mut self.destinations[number];
            taken[number] += 1;
            if !message.is_trial {
                state.seen_in_use();
            }
            let task = DeliveryTask {
                store: Arc::clone(&self.store),
                message,
                terms: state.destination.terms.clone(),
                carrier: Arc::clone(&state.destination.carrier),
                claimed_at: claimed.now,
                since,
            };
            let id = self.tasks.spawn(task.run()).id();
            self.runners.insert(id, number);
        }
        for request in granted {
            let state = &mut self.destinations[request.destination];
            let unused = request.count_max.saturating_sub(taken[request.destination]);
            state.is_idle = unused > 0;
            self.fair_share.release(request.destination, unused, unused > 0);
            if claimed.closed.iter().any(|name| name == state.destination.name()) {
                state.seen_closed();
            }
        }
    }

    fn task_ended(&mut self, ended: Result<(Id, Done), tokio::task::JoinError>) {
        let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, _)| *id);
        let Some(number) = self.runners.remove(&id) else { return };
        self.fair_share.release(number, 1, false);
        let state = &mut self.destinations[number];
        let done = match ended {
            Ok((_, done)) => done,
            Err(error) => {
                // Its claim runs out, and then it may have been sent.
                let destination = state.destination.name();
                tracing::error!(%error, destination, "a delivery broke down");
                return;
            }
        };
        if let Some(breaker_changes) = state.learn(&done) {
            self.breaker_changes.push((number, breaker_changes));
        }
        if let Next::Waiting { pause, .. } = done.settlement.next {
            self.look_at = self.look_at.min(Instant::now() + pause);
        }
        self.ended.push((done.received, done.settlement));
    }

    fn fail(&mut self, error: StoreError) {
        self.look_at = Instant::now() + self.pause();
        self.away_until = Some(self.look_at);
        self.failure = Some(error);
    }

    fn helped(&mut self) {
        self.failure_count = 0;
        self.away_until = None;
    }

    fn is_store_away(&self) -> bool {
        self.away_until.is_some_and(|until| Instant::now() < until)
    }
}

enum Woken {
    Stopped,
    Look,
    WorkArrived,
}

/// The result of what is under way; never, if nothing is.
async fn waiting<T>(under_way: &mut Option<BoxFuture<'static, T>>) -> T {
    match under_way {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn outbox(store: &dyn Store) -> Result<&dyn Outbox, StoreError> {
    let missing = || StoreError::definite(StoreErrorKind::Unsupported, "delivering messages");
    store.outbox().ok_or_else(missing)
}
