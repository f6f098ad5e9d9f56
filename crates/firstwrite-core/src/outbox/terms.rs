//! What a destination declares of itself, with the values that are right where nothing is declared.

use std::time::Duration;

/// What a destination declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long one delivery may take, connecting and the answer included.
    pub timeout: Duration,
    /// How long the destination recognises a wire key and repeats its first answer. Zero: not at
    /// all, so nothing that may have arrived is ever sent again by itself.
    pub dedupe_for: Duration,
    /// Whether it can be asked if a message had its effect.
    pub can_be_asked: bool,
    /// How many deliveries are made before a message becomes a dead letter.
    pub delivery_count_max: u32,
    /// What the first pause is drawn from; it doubles with each delivery.
    pub pause_first: Duration,
    /// What no pause is drawn beyond.
    pub pause_max: Duration,
    /// How many deliveries may be under way in one worker.
    pub concurrency_max: u32,
}

impl Terms {
    /// Long enough for a slow card network, short enough that a dead connection is noticed.
    pub const TIMEOUT: Duration = Duration::from_secs(30);
    /// With the pauses below, about seven hours in which the destination is up and does not take the
    /// message. While it is down, nothing counts.
    pub const DELIVERY_COUNT_MAX: u32 = 25;
    /// A hiccup is over in a second.
    pub const PAUSE_FIRST: Duration = Duration::from_secs(1);
    /// Nobody who repaired something should wait longer than this to see it work.
    pub const PAUSE_MAX: Duration = Duration::from_hours(1);
    /// More than that at once helps few destinations and hurts many.
    pub const CONCURRENCY_MAX: u32 = 32;
    /// What a destination asks for with `Retry-After` is granted up to here: a mistake of its clock
    /// must not put a message off for a year.
    pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
    /// What is added to the time limit of a delivery to make the lease of its claim: the answer must
    /// be written down under it, on a bad day too.
    pub const LEASE_MARGIN: Duration = Duration::from_secs(15);

    /// How long a claim stands: enough to ask, to send, and to write down how it ended.
    pub fn lease_for(&self) -> Duration {
        let asking = if self.can_be_asked { self.timeout } else { Duration::ZERO };
        self.timeout.saturating_add(asking).saturating_add(Self::LEASE_MARGIN)
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            timeout: Self::TIMEOUT,
            dedupe_for: Duration::ZERO,
            can_be_asked: false,
            delivery_count_max: Self::DELIVERY_COUNT_MAX,
            pause_first: Self::PAUSE_FIRST,
            pause_max: Self::PAUSE_MAX,
            concurrency_max: Self::CONCURRENCY_MAX,
        }
    }
}
