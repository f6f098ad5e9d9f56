//! Words that stand in labels, and how many there can be.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// Label of all tenants and operations without one of their own.
pub(super) const OTHER: &str = "other";
/// Label of a request that was refused before its tenant was known.
pub(super) const UNKNOWN: &str = "unknown";

/// Result and tenant of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) how: &'static str,
    pub(super) operation: Word,
    pub(super) tenant: Word,
}

/// The value of a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Fixed(&'static str),
    Shared(Arc<str>),
}

/// Names that were set beforehand.
#[derive(Debug, Default)]
pub(super) struct Known(RwLock<HashSet<Arc<str>>>);

/// Names that come with requests: so many get a label, first come, first served.
#[derive(Debug)]
pub(super) struct Slots {
    taken: RwLock<HashSet<Arc<str>>>,
    max: usize,
}

impl Known {
    pub(super) fn set<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let names = names.map(Arc::from).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub(super) fn label(&self, name: &str) -> Word {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).map_or(Word::Fixed(OTHER), |name| Word::Shared(Arc::clone(name)))
    }
}

impl Slots {
    pub(super) fn new(max: usize) -> Self {
        Self { taken: RwLock::default(), max }
    }

    /// The label of `name`. It takes a place if it `may_take` one and there is one.
    pub(super) fn label(&self, name: &str, may_take: bool) -> Word {
        let taken = self.taken.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = taken.get(name) {
            return Word::Shared(Arc::clone(name));
        }
        if !may_take || taken.len() >= self.max {
            return Word::Fixed(OTHER);
        }
        drop(taken);
        let mut taken = self.taken.write().unwrap_or_else(PoisonError::into_inner);
        if taken.len() >= self.max && !taken.contains(name) {
            return Word::Fixed(OTHER);
        }
        let name: Arc<str> = Arc::from(name);
        taken.insert(Arc::clone(&name));
        Word::Shared(name)
    }
}

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Fixed(word) => word.encode(encoder),
            Self::Shared(word) => (&**word).encode(encoder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(word: &Word) -> bool {
        matches!(word, Word::Fixed(OTHER))
    }

    #[test]
    fn only_names_that_were_set_are_labels() {
        let known = Known::default();
        assert!(fixed(&known.label("POST /pay")));
        known.set(["POST /pay"].into_iter());
        assert!(!fixed(&known.label("POST /pay")));
        assert!(fixed(&known.label("POST /4242424242424242")));
        known.set(std::iter::empty());
        assert!(fixed(&known.label("POST /pay")), "a reload forgets");
    }

    #[test]
    fn places_are_for_those_who_may_and_end() {
        let slots = Slots::new(2);
        assert!(fixed(&slots.label("a", false)));
        assert!(!fixed(&slots.label("a", true)));
        assert!(!fixed(&slots.label("a", false)), "who has one keeps it");
        assert!(!fixed(&slots.label("b", true)));
        assert!(fixed(&slots.label("c", true)));
        assert!(!fixed(&slots.label("b", true)));
    }
}
