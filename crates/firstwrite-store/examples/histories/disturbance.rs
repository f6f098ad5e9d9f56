//! What goes wrong between the processes and the server: answers that are lost, connections that are cut, processes
//! that stand still.

use std::fmt;
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
}

/// How often which thing went wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disturbed {
    lost: u32,
    cut: u32,
    paused: u32,
}

/// Between two disturbances, in milliseconds: long enough to connect again and do a few steps.
const CALM: std::ops::Range<u64> = 100..1500;
/// How long one lasts.
const TROUBLED: std::ops::Range<u64> = 5..200;

impl Disturbance {
    pub(crate) fn begin(victims: Vec<(u32, Proxy)>, seed: u64) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut disturbed = Disturbed::default();
            while !victims.is_empty() {
                tokio::select! {
                    _ = &mut stopped => break,
                    () = sleep(Duration::from_millis(rng.u64(CALM))) => {}
                }
                // Once begun, it is ended: nobody is left paused or cut off.
                disturb(&victims[rng.usize(..victims.len())], &mut rng, &mut disturbed).await;
            }
            disturbed
        });
        Self { stop, task }
    }

    pub(crate) async fn end(self) -> Disturbed {
        drop(self.stop);
        self.task.await.unwrap_or_default()
    }
}

async fn disturb((pid, proxy): &(u32, Proxy), rng: &mut fastrand::Rng, disturbed: &mut Disturbed) {
    let for_a_while = Duration::from_millis(rng.u64(TROUBLED));
    match rng.u8(..3) {
        0 => {
            disturbed.lost += 1;
            proxy.set(Network::AnswersLost);
            sleep(for_a_while).await;
            // Bytes are missing: no connection can go on.
            cut(proxy).await;
        }
        1 => {
            disturbed.cut += 1;
            cut(proxy).await;
        }
        _ => {
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

fn signal(pid: u32, signal: Signal) {
    // A process that has ended is noticed by whoever reads from it.
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
        eprintln!("a process cannot be paused: {error}");
    }
}

impl fmt::Display for Disturbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, cut, paused } = self;
        write!(
            f,
            "answers lost {lost} times, connections cut {cut} times, processes paused {paused} times"
        )
    }
}
