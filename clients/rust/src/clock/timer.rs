//! Waiting without a runtime: a thread and a heap of deadlines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use crate::BoxFuture;

/// Longer than any process lives, and within the range of every clock.
const TIME_MAX: Duration = Duration::from_hours(24 * 365 * 100);

/// Wakes those who wait. Its thread starts with the first of them.
#[derive(Debug, Default)]
pub(super) struct Timer {
    waiting: Mutex<Option<Sender<Sleeper>>>,
}

/// Somebody who waits. Dropping it wakes them, which is how they are told.
#[derive(Debug)]
struct Sleeper {
    until: Instant,
    _told: oneshot::Sender<()>,
}

impl Timer {
    #[expect(
        clippy::disallowed_methods,
        reason = "waiting begins now, whatever a test's clock says"
    )]
    pub(super) fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        if time.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        let (told, telling) = oneshot::channel();
        let sleeper = Sleeper { until: Instant::now() + time.min(TIME_MAX), _told: told };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.get_or_insert_with(start).send(sleeper).is_err() {
            // There is no room for another thread, so this one waits: coming back at once would be worse.
            return Box::pin(async move { std::thread::sleep(time) });
        }
        Box::pin(async move {
            // The sender is dropped when time is up, which is how it tells.
            telling.await.unwrap_or(());
        })
    }
}

fn start() -> Sender<Sleeper> {
    let (sender, receiver) = channel();
    let name = "firstwrite-client-timer".to_owned();
    drop(Builder::new().name(name).spawn(move || serve(&receiver)));
    sender
}

/// Runs until the timer is dropped.
#[expect(clippy::disallowed_methods, reason = "the thread waits for the machine's own time")]
fn serve(arriving: &Receiver<Sleeper>) {
    let mut asleep: BinaryHeap<Reverse<ByTime>> = BinaryHeap::new();
    loop {
        let now = Instant::now();
        while asleep.peek().is_some_and(|Reverse(next)| next.0.until <= now) {
            drop(asleep.pop());
        }
        let arrived = match asleep.peek() {
            None => arriving.recv().map_err(RecvTimeoutError::from),
            Some(Reverse(next)) => arriving.recv_timeout(next.0.until - now),
        };
        match arrived {
            Ok(sleeper) => asleep.push(Reverse(ByTime(sleeper))),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Sleepers in the order of their deadlines.
struct ByTime(Sleeper);

impl PartialEq for ByTime {
    fn eq(&self, other: &Self) -> bool {
        self.0.until == other.0.until
    }
}

impl Eq for ByTime {}

impl PartialOrd for ByTime {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByTime {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.until.cmp(&other.0.until)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{Either, select};

    use super::*;

    #[tokio::test]
    async fn a_short_wait_ends_after_its_time_and_before_a_long_one() {
        let timer = Timer::default();
        let long = timer.wait(Duration::from_hours(1));
        let short = timer.wait(Duration::from_millis(5));
        #[expect(
            clippy::disallowed_methods,
            reason = "the thread waits for the machine's own time"
        )]
        let started = Instant::now();
        let Either::Right(_) = select(long, short).await else { panic!("the long one was first") };
        assert!(started.elapsed() >= Duration::from_millis(4), "{:?}", started.elapsed());
        timer.wait(Duration::ZERO).await;
    }

    #[tokio::test]
    async fn a_wait_beyond_the_clock_does_not_end() {
        let timer = Timer::default();
        let for_ever = timer.wait(Duration::MAX);
        let short = timer.wait(Duration::from_millis(1));
        let Either::Right(_) = select(for_ever, short).await else { panic!("for ever is over") };
    }
}
