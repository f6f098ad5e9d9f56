//! Properties that a destination declares, with safe defaults for those it does not.

use std::time::Duration;

/// Properties that a destination declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time limit of one delivery, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Time for which the destination recognises a wire key and repeats its first answer. Zero means not at
    /// all: a message that may have arrived is then never sent again by itself.
    ///
    /// The time for which the destination really recognises keys must not be longer than a key lives here, the
    /// shortest `retention` of the policies that enqueue messages for it and what `after_retention` adds: the wire
    /// key is the same for ever, so a second order under a key that is free again would be answered with the first
    /// one's payment. Nothing that is given a store alone can compare the two.
    pub dedupe_for: Duration,
    /// True if the destination can be asked whether a message had its effect.
    pub can_be_asked: bool,
    /// True if every refusal of the destination is an answer by key: a key whose first delivery took effect
    /// is never refused while it is recognised, and a key that was refused stays refused. Nothing in front
    /// of the destination (a login, a router, a maintenance page) may refuse either. Needs `dedupe_for`.
    /// Without this, a refusal of a message that may have arrived proves nothing.
    pub answers_refusals_by_key: bool,
    /// Number of deliveries after which a message becomes a dead letter.
    pub delivery_count_max: u32,
    /// Bound from which the first pause is drawn; it doubles with each delivery.
    pub pause_first: Duration,
    /// Upper bound of every pause that is drawn.
    pub pause_max: Duration,
    /// Number of deliveries that may be under way in one worker.
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
    /// After a repair, an operator should not have to wait longer than this to see it work.
    pub const PAUSE_MAX: Duration = Duration::from_hours(1);
    /// More than that at once helps few destinations and hurts many.
    pub const CONCURRENCY_MAX: u32 = 32;
    /// Longest `Retry-After` that is honoured: a wrong clock at the destination must not delay a message
    /// for a year.
    pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
    /// Time added to the time limit of a delivery to make the lease of its claim: the worker must be able
    /// to settle under the lease even when the store is slow.
    pub const LEASE_MARGIN: Duration = Duration::from_secs(15);

    /// Says what contradicts itself in these terms, if anything does.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.answers_refusals_by_key && self.dedupe_for.is_zero() {
            return Err(
                "answers_refusals_by_key: a destination that recognises no key (dedupe_for is \
                        0s) cannot refuse by it; declare dedupe_for, or leave this away",
            );
        }
        Ok(())
    }

    /// Returns how long after its beginning a delivery may still arrive. A delivery that the worker gave up
    /// may be under way for up to another time limit: giving up does not empty buffers and queues on the
    /// way.
    pub fn arrives_within(&self) -> Duration {
        self.timeout.saturating_mul(2)
    }

    /// Returns the length of a claim's lease: enough to ask, to send and to settle. If the destination is
    /// asked after a claim ran out, no delivery of that claim may still be under way, because an earlier
    /// answer would prove nothing.
    pub fn lease_for(&self) -> Duration {
        let asking = if self.can_be_asked { self.timeout } else { Duration::ZERO };
        self.sending().saturating_add(asking).saturating_add(Self::LEASE_MARGIN)
    }

    /// Returns true if a delivery may begin this long after its claim: it must be over well before the
    /// lease is.
    pub fn may_send_after(&self, elapsed: Duration) -> bool {
        elapsed.saturating_add(self.sending()) < self.lease_for()
    }

    /// Returns the part of the lease that a delivery needs.
    fn sending(&self) -> Duration {
        if self.can_be_asked { self.arrives_within() } else { self.timeout }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            timeout: Self::TIMEOUT,
            dedupe_for: Duration::ZERO,
            can_be_asked: false,
            answers_refusals_by_key: false,
            delivery_count_max: Self::DELIVERY_COUNT_MAX,
            pause_first: Self::PAUSE_FIRST,
            pause_max: Self::PAUSE_MAX,
            concurrency_max: Self::CONCURRENCY_MAX,
        }
    }
}
