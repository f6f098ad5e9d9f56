//! Reservations under which nothing was run, and which may stand all the same: their write was not
//! acknowledged, or their release failed. They are freed in the background when the store is back.

use std::time::Duration;

use firstwrite_core::{Fence, Policy, RecordId, Store, StoreError, Swapped, protocol};
use http::StatusCode;
use tokio::time::{Instant, sleep};

/// A store that failed once may be back in a moment …
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// … and is asked about once a second for a while …
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// … and after that so rarely that many waiting keys do not crowd a store that is coming back.
const PAUSE_LATE: Duration = Duration::from_secs(30);
/// Time after which pauses grow beyond [`PAUSE_MAX`].
const LATE_AFTER: Duration = Duration::from_mins(1);

/// Time for which the background task retries writes that a store did not take. A fail-over takes minutes;
/// after an hour an operator has been called.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_hours(1);

/// Pauses between attempts to reach a store that is away: growing, and drawn apart so that waiting
/// attempts do not come back together.
#[derive(Debug)]
pub(crate) struct Pauses {
    began: Instant,
    next: Duration,
}

/// A reservation to take back.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    pub(crate) id: RecordId,
    /// Every fence under which it may stand.
    pub(crate) fences: Vec<Fence>,
    /// Those of them of which a write may still be on its way, also when another one was taken back.
    pub(crate) strays: Vec<Fence>,
    pub(crate) note: Note,
}

/// Note that a freed key keeps for clients that were told to poll for its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    /// Status with which the attempt ended.
    status: StatusCode,
    kept_for: Duration,
    /// This attempt was answered with 202 before it ended.
    is_owed: bool,
}

impl Note {
    pub(crate) fn new(status: StatusCode, is_owed: bool, policy: &Policy) -> Self {
        // A note is no outcome: whoever was told to poll learns of it for an hour, whatever becomes of outcomes.
        Self { status, kept_for: policy.slack.max(Policy::SLACK_DEFAULT), is_owed }
    }

    /// Frees the key that is held under `fence`.
    ///
    /// A successor may have taken over a note that others still ask for, so it leaves one too.
    pub(crate) async fn free(
        self,
        store: &dyn Store,
        id: RecordId,
        fence: Fence,
    ) -> Result<Swapped, StoreError> {
        if self.is_owed || fence.count() > 1 {
            protocol::release_noted(store, (id, fence), self.status, self.kept_for).await
        } else {
            protocol::withdraw(store, id, fence).await
        }
    }
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), next: PAUSE_MIN }
    }

    /// The next pause; none once it is time to give up.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        let elapsed = self.began.elapsed();
        if elapsed >= GIVE_UP_AFTER {
            return None;
        }
        let pause = self.next;
        let most = if elapsed < LATE_AFTER { PAUSE_MAX } else { PAUSE_LATE };
        self.next = (pause * 2).min(most);
        Some(pause.mul_f64(0.75 + fastrand::f64() / 4.0))
    }
}

impl Withdrawal {
    /// Makes the withdrawal of writes whose acknowledgements were lost and under which nothing runs.
    pub(crate) fn unbegun(id: RecordId, strays: Vec<Fence>, policy: &Policy) -> Self {
        let note = Note::new(StatusCode::SERVICE_UNAVAILABLE, false, policy);
        Self { id, fences: strays.clone(), strays, note }
    }

    /// Frees the key when the store is back: the caller was told to try again. Goes on when the caller has
    /// its answer, and after the lease has ended, since nothing was run that a sweep could be unsure of.
    ///
    /// A write whose acknowledgement was lost may still be on its way, also to a store that stands still: it carries
    /// out what it was sent when it goes on. Where nothing was found, and under strays always, the store is therefore
    /// asked again until it has answered for as long as the lease of such a write, `lease`. Returns false if it gave
    /// up before.
    pub(crate) async fn run(mut self, store: &dyn Store, lease: Duration) -> bool {
        let record_id = self.id;
        // Counted from the first answer: between the last failure and that answer the store may have stood still.
        let mut answers_since: Option<Instant> = None;
        let mut pauses = Pauses::new();
        while let Some(pause) = pauses.next() {
            sleep(pause).await;
            // From before the store is asked: what arrives behind its answer was not seen.
            let is_last = answers_since.is_some_and(|since| since.elapsed() >= lease);
            let mut failed = false;
            let mut left = Vec::new();
            for fence in self.fences {
                match self.note.free(store, record_id, fence).await {
                    Ok(Swapped::Done(_)) if !self.strays.contains(&fence) => {}
                    Ok(Swapped::Done(_) | Swapped::Moved(_)) => left.push(fence),
                    Err(error) => {
                        tracing::debug!(%error, %record_id, "a key is still not free");
                        failed = true;
                        left.push(fence);
                    }
                }
            }
            if failed {
                answers_since = None;
            } else if left.is_empty() || is_last {
                return true;
            } else {
                answers_since.get_or_insert_with(Instant::now);
            }
            self.fences = left;
        }
        false
    }
}
