//! Ground truth of a history, recorded by the world itself: effects, calls, records, answers.
//!
//! Production code never sees it. A promise is checked by comparing it with the store and with the answers to callers.

use std::collections::BTreeMap;
use std::time::Duration;

use firstwrite_core::{Fence, RecordId, StateKind, Timestamp};
use http::StatusCode;
use tokio::time::Instant;

use crate::payments::Payments;

/// The books of one history.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) keys: Vec<KeyBook>,
    pub(crate) effects: Vec<Effect>,
    /// Attempts that owned a record, by fence.
    pub(crate) attempts: BTreeMap<u64, AttemptBook>,
    /// Requests whose callers were told that nothing was run.
    pub(crate) nothing_run: Vec<u64>,
    /// Of what callers were told that a new key is safe.
    pub(crate) new_key_safe: Vec<NewKeySafe>,
    /// Requests for which an upstream was called, in order, and when.
    pub(crate) called: Vec<(u64, Instant)>,
    /// Time at which an outcome was last kept, and its retention.
    pub(crate) last_kept: Option<(Instant, Duration)>,
    /// Times at which the clocks jumped by up to a day.
    pub(crate) jumps: Vec<Instant>,
    /// Keys of which a caller was told 202, by request, and how many attempts had owned the key by then.
    pub(crate) accepted: Vec<(usize, u64, usize)>,
    pub(crate) requests: u64,
    /// Time at which each request reached its process, and that process.
    pub(crate) began: BTreeMap<u64, (Instant, usize)>,
    /// Attempts that ran and freed their key: which, and when.
    pub(crate) released: Vec<(AttemptBook, Instant)>,
    /// Deliveries to the provider, by the message's wire key.
    pub(crate) deliveries: BTreeMap<String, DeliveryBook>,
    /// The provider's own books.
    pub(crate) payments: Payments,
}

/// That a caller was told that a new key is safe: what it wanted, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewKeySafe {
    pub(crate) key: usize,
    pub(crate) variant: u8,
    pub(crate) era: u32,
    pub(crate) request: u64,
    pub(crate) at: Instant,
}

/// The provider's record of one message.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliveryBook {
    pub(crate) effects: u32,
    pub(crate) under_way: u32,
    /// The provider's id for the effect.
    pub(crate) id: Option<String>,
    /// True if it refused the message itself.
    pub(crate) was_refused: bool,
    /// True if it asked for a later delivery.
    pub(crate) was_put_off: bool,
    /// Time at which a reconciliation last said that nothing had happened.
    pub(crate) absent_since: Option<Instant>,
}

/// Facts about one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyBook {
    pub(crate) id: Option<RecordId>,
    /// Grows when retention has ended and the key is free again.
    pub(crate) era: u32,
    /// Answers that were kept, with the era.
    pub(crate) kept: Vec<(u32, Kept)>,
    /// Time until which the last of them is promised, by the store's clock: for the retention that its key was
    /// reserved with, whichever process or language kept it.
    pub(crate) promised_until: Option<Timestamp>,
    /// Fence of the attempt whose outcome is unknown, and the time since which it is.
    pub(crate) doubt: Option<(u64, Instant)>,
    /// True if its record was another one before an older copy was put back.
    pub(crate) has_lost_history: bool,
    /// Actor that freed the key last.
    pub(crate) freed_by: Option<&'static str>,
    /// The attempt of which a reconciliation said that nothing had happened.
    pub(crate) absent: Option<u64>,
    /// Variant of the request, and the body that an upstream that honours keys answers with from now on.
    pub(crate) remembered: Option<(u8, String)>,
}

/// An answer as it is kept and given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) status: StatusCode,
    pub(crate) body: bytes::Bytes,
    pub(crate) is_interim: bool,
}

/// Something that was done, once and for all.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) key: usize,
    pub(crate) variant: u8,
    pub(crate) era: u32,
    pub(crate) request: u64,
}

/// Facts about an attempt that owned a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptBook {
    pub(crate) key: usize,
    pub(crate) era: u32,
    /// Process that reserved it.
    pub(crate) process: usize,
    /// True if anything may have been sent.
    pub(crate) was_called: bool,
    /// True if its process got an answer that ends the key.
    pub(crate) knows_outcome: bool,
    /// Time at which it became the owner of the record.
    pub(crate) since: Instant,
    /// Request for which it called an upstream, and the variant.
    pub(crate) called_for: Option<(u64, u8)>,
    /// Time at which its lease ends, by a clock that does not step.
    pub(crate) lapses_at: Instant,
    /// Time at which its process knew the upstream's answer, or that there is none.
    pub(crate) answered: Option<Instant>,
    /// True if its reservation arrived after its process had given up waiting for it.
    pub(crate) came_late: bool,
}

impl Ledger {
    pub(crate) fn new(key_count: usize) -> Self {
        Self {
            keys: vec![KeyBook::default(); key_count],
            effects: Vec::new(),
            attempts: BTreeMap::new(),
            nothing_run: Vec::new(),
            new_key_safe: Vec::new(),
            called: Vec::new(),
            last_kept: None,
            jumps: Vec::new(),
            accepted: Vec::new(),
            requests: 0,
            began: BTreeMap::new(),
            released: Vec::new(),
            deliveries: BTreeMap::new(),
            payments: Payments::default(),
        }
    }

    pub(crate) fn key_of(&self, id: RecordId) -> Option<usize> {
        self.keys.iter().position(|key| key.id == Some(id))
    }

    /// An attempt owns the key from now on.
    pub(crate) fn reserved(&mut self, key: usize, fence: Fence, process: usize, lease: Duration) {
        let era = self.keys[key].era;
        let book = AttemptBook {
            key,
            era,
            process,
            since: Instant::now(),
            lapses_at: Instant::now() + lease,
            answered: None,
            was_called: false,
            called_for: None,
            knows_outcome: false,
            came_late: false,
        };
        self.attempts.entry(fence.as_u64()).or_insert(book);
        self.keys[key].doubt = None;
    }

    /// Something is done under `fence`; says which promise that breaks, if any.
    pub(crate) fn act(&mut self, effect: Effect) -> Result<usize, String> {
        let Effect { key, era, request, .. } = effect;
        self.effects.push(effect);
        let number = self.effects.len() - 1;
        let earlier = self.effects[..number].iter().find(|one| one.key == key && one.era == era);
        match earlier {
            None => Ok(number),
            Some(first) => Err(format!(
                "two effects under one key, freed by {}: by request {} and by request {request}",
                self.keys[key].freed_by.unwrap_or("nobody"),
                first.request
            )),
        }
    }

    /// An upstream is called for a request. Says which promise that breaks, if any: a request that waited in the same
    /// process for an attempt that was released is answered, and does not run by itself.
    pub(crate) fn call(&mut self, fence: u64, request: u64, variant: u8) -> Result<(), String> {
        let Some(attempt) = self.attempts.get_mut(&fence) else { return Ok(()) };
        attempt.was_called = true;
        attempt.called_for = Some((request, variant));
        let (attempt, Some((began, process))) = (*attempt, self.began.get(&request).copied())
        else {
            return Ok(());
        };
        let waited_for = self.released.iter().find(|(first, at)| {
            first.key == attempt.key
                && first.process == process
                && first.called_for.is_some_and(|(other, of)| other != request && of == variant)
                && first.since <= began
                && began < *at
                && first.answered.is_some_and(|answered| began < answered)
                && *at <= attempt.since
        });
        match waited_for {
            None => Ok(()),
            Some((first, _)) => {
                let first = first.called_for.map_or(0, |(request, _)| request);
                Err(format!(
                    "request {request} waited for request {first}, which was released, and ran by itself"
                ))
            }
        }
    }

    /// Which era an attempt belongs to.
    pub(crate) fn era(&self, key: usize, fence: Option<u64>) -> u32 {
        let attempt = fence.and_then(|fence| self.attempts.get(&fence));
        attempt.map_or(self.keys[key].era, |attempt| attempt.era)
    }

    /// Returns the number of attempts that have owned the key.
    pub(crate) fn attempt_count(&self, key: usize) -> usize {
        self.attempts.values().filter(|attempt| attempt.key == key).count()
    }

    /// Returns the effect under the key in the key's present era, if there is one, with its index.
    pub(crate) fn effect_under(&self, key: usize) -> Option<(usize, &Effect)> {
        let era = self.keys[key].era;
        let mut effects = self.effects.iter().enumerate();
        effects.find(|(_, effect)| effect.key == key && effect.era == era)
    }

    /// Records that a record changed its state. The outcome of an attempt is unknown from the time it is uncertain,
    /// or its lease has lapsed.
    pub(crate) fn moved(&mut self, key: usize, fence: Fence, state: StateKind, now: Instant) {
        let book = &mut self.keys[key];
        match state {
            StateKind::Uncertain => {
                if book.doubt.is_none_or(|(of, _)| of != fence.as_u64()) {
                    book.doubt = Some((fence.as_u64(), now));
                }
            }
            StateKind::Reserved | StateKind::Completed => book.doubt = None,
        }
    }

    fn has_begun(&self, request: u64, by: Instant) -> bool {
        self.began.get(&request).is_some_and(|(began, _)| *began <= by)
    }

    /// Returns true if the request had begun by `at`, with no clock jump since: no request is under way for a day.
    fn is_under_way(&self, request: u64, at: Instant) -> bool {
        let Some((began, _)) = self.began.get(&request) else { return false };
        !self.jumps.iter().any(|jump| (*began..=at).contains(jump))
    }

    /// The claims made to callers that turned out to be false.
    pub(crate) fn false_claims(&self) -> Option<String> {
        for effect in &self.effects {
            if self.nothing_run.contains(&effect.request) {
                return Some(format!(
                    "the caller of request {} was told that nothing was run, and it had its effect",
                    effect.request
                ));
            }
            let told = self.new_key_safe.iter().find(|told| {
                (told.key, told.variant) == (effect.key, effect.variant)
                    && told.era <= effect.era
                    && self.is_under_way(told.request, told.at)
                    && self.called.iter().any(|&(request, at)| {
                        request == effect.request
                            && self.has_begun(request, told.at)
                            && self.is_under_way(request, at)
                    })
            });
            if let Some(told) = told {
                return Some(format!(
                    "the caller of request {} was told that a new key is safe, and request {} had that effect",
                    told.request, effect.request
                ));
            }
        }
        None
    }
}
