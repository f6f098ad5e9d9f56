//! Disturbances between the processes and the server: answers that are lost, connections that are cut, partitions,
//! processes that stand still.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use firstwrite_testkit::{Network, Proxy};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Disturbs processes until it is told to stop.
pub(crate) struct Disturbance {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Disturbed>,
    ended: Arc<AtomicUsize>,
}

/// How often which thing went wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disturbed {
    lost: u32,
    cut: u32,
    /// Partitions, and those of them that lasted longer than a store waits for an answer.
    partitioned: (u32, u32),
    paused: u32,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    AnswersLost,
    Cut,
    /// Longer than the stores wait: their callers are told that the acknowledgement is lost, and what they had sent
    /// arrives later.
    LongPartition,
    Partition,
    Pause,
}

/// Between two disturbances, in milliseconds: long enough to connect again and do a few steps.
const CALM: std::ops::Range<u64> = 100..1500;
/// How long one lasts.
const TROUBLED: std::ops::Range<u64> = 5..200;
/// Length of a partition, and by how much a long one outlasts the stores' patience.
const PARTITIONED: std::ops::Range<u64> = 200..2500;
const OUTLASTS: std::ops::Range<u64> = 200..1500;

/// Each of them happens in every run.
const KINDS: [Kind; 5] =
    [Kind::AnswersLost, Kind::Cut, Kind::LongPartition, Kind::Partition, Kind::Pause];
/// Of this many, one is a long partition and two are shorter ones: a process does nothing in the meantime.
const PARTITION_ONCE_IN: u8 = 30;

impl Disturbance {
    /// Disturbs `victims`, whose stores wait for an answer for as long as `patience`.
    pub(crate) fn begin(victims: Vec<(u32, Proxy)>, patience: Duration, seed: u64) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut disturbed = Disturbed::default();
            let mut first = KINDS;
            rng.shuffle(&mut first);
            let mut first = first.into_iter();
            while !victims.is_empty() {
                tokio::select! {
                    _ = &mut stopped => break,
                    () = sleep(Duration::from_millis(rng.u64(CALM))) => {}
                }
                let kind = first.next().unwrap_or_else(|| kind(&mut rng));
                // Once begun, it is ended: nobody is left paused or cut off.
                let victim = &victims[rng.usize(..victims.len())];
                disturb(victim, (kind, patience), &mut rng, &mut disturbed).await;
                count.fetch_add(1, Ordering::SeqCst);
            }
            disturbed
        });
        Self { stop, task, ended }
    }

    /// Returns true once each kind has happened.
    pub(crate) fn has_tried_all(&self) -> bool {
        self.ended.load(Ordering::SeqCst) >= KINDS.len()
    }

    pub(crate) async fn end(self) -> Disturbed {
        drop(self.stop);
        self.task.await.unwrap_or_default()
    }
}

fn kind(rng: &mut fastrand::Rng) -> Kind {
    match rng.u8(..PARTITION_ONCE_IN) {
        0 => Kind::LongPartition,
        1 | 2 => Kind::Partition,
        number if number % 3 == 0 => Kind::AnswersLost,
        number if number % 3 == 1 => Kind::Cut,
        _ => Kind::Pause,
    }
}

async fn disturb(
    (pid, proxy): &(u32, Proxy),
    (kind, patience): (Kind, Duration),
    rng: &mut fastrand::Rng,
    disturbed: &mut Disturbed,
) {
    let for_a_while = Duration::from_millis(rng.u64(TROUBLED));
    match kind {
        Kind::AnswersLost => {
            disturbed.lost += 1;
            proxy.set(Network::AnswersLost);
            sleep(for_a_while).await;
            // Bytes are missing: no connection can go on.
            cut(proxy).await;
        }
        Kind::Cut => {
            disturbed.cut += 1;
            cut(proxy).await;
        }
        Kind::LongPartition => {
            disturbed.partitioned.0 += 1;
            disturbed.partitioned.1 += 1;
            let longer = Duration::from_millis(rng.u64(OUTLASTS));
            partition(proxy, patience + longer).await;
        }
        Kind::Partition => {
            let time = Duration::from_millis(rng.u64(PARTITIONED));
            disturbed.partitioned.0 += 1;
            disturbed.partitioned.1 += u32::from(time > patience);
            partition(proxy, time).await;
        }
        Kind::Pause => {
            disturbed.paused += 1;
            signal(*pid, Signal::STOP);
            sleep(for_a_while).await;
            signal(*pid, Signal::CONT);
        }
    }
}

async fn cut(proxy: &Proxy) {
    proxy.set(Network::Down);
    while proxy.open() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    proxy.set(Network::Up);
}

/// Nothing is missing afterwards: connections that are still wanted go on.
async fn partition(proxy: &Proxy, time: Duration) {
    proxy.set(Network::Partitioned);
    sleep(time).await;
    proxy.set(Network::Up);
}

fn signal(pid: u32, signal: Signal) {
    // A process that has ended is noticed by whoever reads from it.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
        eprintln!("a process cannot be paused: {error}");
    }
}

impl fmt::Display for Disturbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, cut, partitioned: (partitioned, long), paused } = self;
        write!(
            f,
            "answers lost {lost} times, connections cut {cut} times, processes cut off from the server {partitioned} \
             times ({long} of them for longer than a store waits), paused {paused} times"
        )
    }
}
