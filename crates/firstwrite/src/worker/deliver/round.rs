//! The task that claims, starts deliveries and settles.

mod settling;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::outbox::{Claimed, Next, Outbox, Received, Settlement, Turns, Want, Wish};
use firstwrite_core::{BoxFuture, Store, StoreError, StoreErrorKind};
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::settling::Flight;
use super::errand::{Done, Errand};
use super::lane::{Lane, Turned};
use super::{DELIVER_EVERY, Deliver, DeliveredCounts};

pub(super) struct Round {
    store: Arc<dyn Store>,
    lanes: Vec<Lane>,
    turns: Turns,
    claim_max: usize,
    errands: JoinSet<Done>,
    /// Number of the destination whose errand each task runs.
    runners: HashMap<Id, usize>,
    /// Ended, and not yet written down.
    ended: Vec<(Option<Received>, Settlement)>,
    turned: Vec<(usize, Turned)>,
    claiming: Option<BoxFuture<'static, Claiming>>,
    settling: Option<BoxFuture<'static, Flight>>,
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
    granted: Vec<Wish>,
    since: Instant,
    claimed: Result<Claimed, StoreError>,
}

/// A store that is away is asked no less often than this.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Number of store failures in a row after which a worker that is being stopped gives up settling.
const FAREWELL_MAX: u32 = 3;

impl Round {
    pub(super) fn new(deliver: &Deliver) -> Self {
        let lanes: Vec<Lane> = deliver.destinations.iter().cloned().map(Lane::new).collect();
        Self {
            store: Arc::clone(&deliver.store),
            turns: Turns::new(deliver.slot_count, lanes.len()),
            lanes,
            claim_max: deliver.claim_max,
            errands: JoinSet::new(),
            runners: HashMap::new(),
            ended: Vec::new(),
            turned: Vec::new(),
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
        let (mut is_stopped, mut is_nudged) = (false, false);
        while !is_stopped || self.is_busy() {
            self.settle();
            if !is_stopped && self.claiming.is_none() && !self.is_store_away() {
                if is_nudged {
                    self.wake();
                }
                self.claim();
                // Clear the notification only once a claim has started, since that claim sees the new
                // messages. Without a free slot no claim starts, and listening on would return the same
                // notification again and again.
                is_nudged &= self.claiming.is_none();
            }
            let look_at = self.look_at;
            let woken = async {
                let nudged = async {
                    match store.outbox() {
                        Some(outbox) => outbox.nudged().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    _ = stopped.changed(), if !is_stopped => Woken::Stopped,
                    () = sleep_until(look_at) => Woken::Look,
                    () = nudged, if !is_stopped && !is_nudged => Woken::Nudged,
                }
            };
            match self.step(woken).await {
                Some(Woken::Stopped) => {
                    is_stopped = true;
                    tracing::debug!(under_way = self.errands.len(), "deliveries end, none begins");
                }
                Some(Woken::Look) => self.wake(),
                Some(Woken::Nudged) => is_nudged = true,
                None => {}
            }
            if let Some(error) = self.failure.take() {
                self.failure_count = self.failure_count.saturating_add(1);
                tracing::warn!(%error, "a turn failed; a later one tries again");
                if is_stopped && self.failure_count >= FAREWELL_MAX {
                    // Their claims run out, and another worker goes on from there.
                    let unsettled = self.ended.len() + self.errands.len();
                    tracing::warn!(unsettled, "stopped without settling");
                    return;
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.claiming.is_some()
            || self.settling.is_some()
            || !self.errands.is_empty()
            || !self.ended.is_empty()
            || !self.turned.is_empty()
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
            flight = waiting(&mut self.settling) => {
                self.settling = None;
                self.settled(flight);
            }
            Some(ended) = self.errands.join_next_with_id() => self.errand_ended(ended),
            woken = woken => return Some(woken),
        }
        None
    }

    /// Schedules the next search for messages, and lets every destination claim again.
    fn wake(&mut self) {
        self.look_at = Instant::now() + self.pause();
        for lane in &mut self.lanes {
            lane.is_idle = false;
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
        let wishes = self.lanes.iter().enumerate().filter_map(|(number, lane)| {
            let limit = usize::try_from(lane.pace.limit()).unwrap_or(usize::MAX);
            let count_max = limit.saturating_sub(self.turns.held(number)).min(self.claim_max);
            (!lane.is_idle && count_max > 0).then_some(Wish { lane: number, count_max })
        });
        let granted = self.turns.grant(&wishes.collect::<Vec<_>>());
        if granted.is_empty() {
            return;
        }
        let wants: Vec<Want> = granted.iter().map(|wish| self.want(*wish)).collect();
        let store = Arc::clone(&self.store);
        self.claiming = Some(Box::pin(async move {
            let since = Instant::now();
            let claimed = match outbox(&*store) {
                Ok(outbox) => outbox.claim(&wants, fastrand::u64(..)).await,
                Err(error) => Err(error),
            };
            Claiming { granted, since, claimed }
        }));
    }

    fn want(&self, wish: Wish) -> Want {
        let destination = &self.lanes[wish.lane].destination;
        Want {
            destination: destination.name().to_owned(),
            count_max: wish.count_max,
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
                for wish in granted {
                    self.turns.release(wish.lane, wish.count_max, false);
                }
                self.fail(error);
                return;
            }
        };
        let mut taken = vec![0; self.lanes.len()];
        for parcel in claimed.parcels {
            let named = |lane: &Lane| lane.destination.name() == parcel.destination;
            let Some(number) = self.lanes.iter().position(named) else { continue };
            let lane = &mut self.lanes[number];
            taken[number] += 1;
            if !parcel.is_trial {
                lane.seen_in_use();
            }
            let errand = Errand {
                parcel,
                terms: lane.destination.terms.clone(),
                carrier: Arc::clone(&lane.destination.carrier),
                claimed_at: claimed.now,
                since,
            };
            let id = self.errands.spawn(errand.run()).id();
            self.runners.insert(id, number);
        }
        for wish in granted {
            let lane = &mut self.lanes[wish.lane];
            let unused = wish.count_max.saturating_sub(taken[wish.lane]);
            lane.is_idle = unused > 0;
            self.turns.release(wish.lane, unused, unused > 0);
            if claimed.closed.iter().any(|name| name == lane.destination.name()) {
                lane.seen_closed();
            }
        }
    }

    fn errand_ended(&mut self, ended: Result<(Id, Done), tokio::task::JoinError>) {
        let id = ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, _)| *id);
        let Some(number) = self.runners.remove(&id) else { return };
        self.turns.release(number, 1, false);
        let lane = &mut self.lanes[number];
        let done = match ended {
            Ok((_, done)) => done,
            Err(error) => {
                // Its claim runs out, and then it may have been sent.
                let destination = lane.destination.name();
                tracing::error!(%error, destination, "a delivery broke down");
                return;
            }
        };
        if let Some(turned) = lane.learn(&done) {
            self.turned.push((number, turned));
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
    Nudged,
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
