//! The destination of the model: what it declares, what it does, and its ledger.

use std::time::Duration;

use firstwrite_core::outbox::Terms;

use super::time::{TICK, TIMEOUT, ticks};

/// Properties that a destination declares. What it declares is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It recognises no key and cannot be asked.
    Forgetful,
    /// It recognises keys for a while. What stands in front of it refuses whatever it likes.
    RecognisesKeys,
    /// It recognises keys for a while, and every refusal is its answer by key.
    RefusesByKey,
    /// It recognises no key, and can be asked.
    CanBeAsked,
    /// It recognises keys for a while, and can be asked.
    RecognisesAndCanBeAsked,
}

/// State of the destination: its effects, its memory, and the deliveries on the way to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Destination {
    /// The ledger: how often the effect took place.
    pub(super) effects: u8,
    /// Its memory of the key.
    pub(super) memory: Option<Memory>,
    /// Deliveries that were given up and have not arrived, each as the time from which it never will.
    pub(super) strays: [Option<u16>; 2],
}

/// The first answer under the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    since: u16,
    reply: Reply,
}

/// Action of the destination on a delivery that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    /// It carries it out.
    Act,
    /// It, or what stands in front of it, refuses it.
    Refuse,
    /// It says "not now".
    PutOff,
    /// It is not there: something else answers in its place.
    Miss,
    /// It repeats its first answer under the key.
    Repeat,
}

/// Answer of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Done,
    Refused,
    PutOff,
    NotThere,
}

/// Time for which it recognises a key: long enough to send again after a claim that ran out.
const WINDOW: Duration = TICK.saturating_mul(9);

impl Kind {
    pub(super) fn terms(self, delivery_count_max: u32) -> Terms {
        Terms {
            timeout: TIMEOUT,
            dedupe_for: if self.recognises_keys() { WINDOW } else { Duration::ZERO },
            can_be_asked: matches!(self, Self::CanBeAsked | Self::RecognisesAndCanBeAsked),
            answers_refusals_by_key: self == Self::RefusesByKey,
            delivery_count_max,
            ..Terms::default()
        }
    }

    fn recognises_keys(self) -> bool {
        matches!(self, Self::RecognisesKeys | Self::RefusesByKey | Self::RecognisesAndCanBeAsked)
    }
}

impl Destination {
    /// Returns the possible actions of the destination on a delivery that arrives at `now`.
    pub(super) fn deeds(&self, kind: Kind, now: u16) -> &'static [Deed] {
        match (self.remembered(kind, now), kind) {
            (Some(_), Kind::RefusesByKey) => &[Deed::Repeat, Deed::Miss],
            (Some(_), _) => &[Deed::Repeat, Deed::Refuse, Deed::Miss],
            (None, _) => &[Deed::Act, Deed::Refuse, Deed::PutOff, Deed::Miss],
        }
    }

    /// A delivery arrives.
    pub(super) fn arrive(&mut self, kind: Kind, deed: Deed, now: u16) -> Reply {
        let reply = match deed {
            Deed::Act => {
                self.effects = self.effects.saturating_add(1);
                Reply::Done
            }
            Deed::Refuse => Reply::Refused,
            Deed::PutOff => Reply::PutOff,
            Deed::Miss => Reply::NotThere,
            Deed::Repeat => self.remembered(kind, now).unwrap_or(Reply::PutOff),
        };
        let is_kept = match deed {
            Deed::Act => kind.recognises_keys(),
            Deed::Refuse => kind == Kind::RefusesByKey,
            Deed::PutOff | Deed::Miss | Deed::Repeat => false,
        };
        if is_kept {
            self.memory = Some(Memory { since: now, reply });
        }
        reply
    }

    /// A delivery that began at `began` is given up at `now`, before it has arrived. `false` if there is
    /// no room for one more.
    pub(super) fn stray(&mut self, began: u16, now: u16) -> bool {
        let ends = arrives_before(began).min(now + ticks(TIMEOUT));
        if ends <= now {
            return true;
        }
        let Some(free) = self.strays.iter_mut().find(|stray| stray.is_none()) else { return false };
        *free = Some(ends);
        self.strays.sort_unstable();
        true
    }

    /// Takes a stray off the way.
    pub(super) fn take_stray(&mut self, number: usize) {
        self.strays[number] = None;
        self.strays.sort_unstable();
    }

    /// Time has passed: what has not arrived by now never will.
    pub(super) fn pass(&mut self, now: u16) {
        for stray in &mut self.strays {
            *stray = stray.filter(|ends| now < *ends);
        }
        self.strays.sort_unstable();
        // Nothing depends on what is forgotten.
        self.memory = self.memory.filter(|memory| now < memory.since + ticks(WINDOW));
    }

    fn remembered(&self, kind: Kind, now: u16) -> Option<Reply> {
        let memory = self.memory.filter(|memory| now < memory.since + ticks(WINDOW));
        memory.filter(|_| kind.recognises_keys()).map(|memory| memory.reply)
    }
}

/// From when on a delivery that began at `began` never arrives, as [`Terms::arrives_within`] has it.
pub(super) fn arrives_before(began: u16) -> u16 {
    let terms = Terms { timeout: TIMEOUT, ..Terms::default() };
    began + ticks(terms.arrives_within())
}
