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
    /// Whether every refusal of the destination is an answer by key: a key whose first delivery took
    /// effect is never refused while it is recognised, and a key that was refused stays refused. Nothing
    /// in front of the destination (a login, a router, a maintenance page) may refuse either. Needs
    /// `dedupe_for`. Without it, a refusal of a message that may have arrived proves nothing.
    pub answers_refusals_by_key: bool,
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

    /// How long after its beginning a delivery may still arrive. What is given up is under way for up to
    /// a time limit more: buffers and queues on the way are not emptied by it.
    pub fn arrives_within(&self) -> Duration {
        self.timeout.saturating_mul(2)
    }

    /// How long a claim stands: enough to ask, to send, and to write down how it ended. Where the
    /// destination is asked after a claim that ran out, nothing that was sent under it may still be
    /// under way then: an answer before would prove nothing.
    pub fn lease_for(&self) -> Duration {
        let asking = if self.can_be_asked { self.timeout } else { Duration::ZERO };
        self.sending().saturating_add(asking).saturating_add(Self::LEASE_MARGIN)
    }

    /// Whether a delivery may begin this long after its claim: it must be over well before the lease is.
    pub fn may_send_after(&self, elapsed: Duration) -> bool {
        elapsed.saturating_add(self.sending()) < self.lease_for()
    }

    /// What a delivery needs of the lease.
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
