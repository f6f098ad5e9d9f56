//! Decides when an absence is a proof. What is proven absent is done again, so an account must first show
//! that it is ours, in our units, with our keys, and that it covers the time in question.
//!
//! An absence acts only
//!
//! 1. in a run in which nothing contradicts the account,
//! 2. between two entries that match ours by name: one before it, and one at least a grace after it, and
//! 3. where every entry of its time has a name: a key, or an id that we know.
//!
//! The times of matches are those of our own books and those of the account, whichever proves less: an export
//! may begin at an entry that was asked for before the absent one and dated after it.

use super::{Class, MatchedBy, Ours, Rules, Sight, Theirs, Verdict};
use crate::Timestamp;

/// A reason why an account proves no absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Contradiction {
    /// It lacks a delivery that certainly arrived.
    MissingThere,
    /// It says something else of an entry that it shares with our books.
    Differs,
    /// It has an entry under a key that is not known to be ours, which could be the absent one.
    ForeignKey,
    /// It gives one id to entries that differ in key or amount, so its ids name no payments.
    SharedId,
    /// It has no entry that matches ours by name.
    NoMatch,
    /// It has no entry before the absent one that matches ours by name.
    NoneBefore,
    /// It has an entry that nothing attributes to ours, neither key nor id, in the time of the absent one.
    Nameless,
}

/// The weight of an absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// It did not happen.
    Proven,
    /// No match is late enough yet, or our books were not read whole.
    TooEarlyToTell,
    /// The account proves no absence.
    Unproven(Contradiction),
}

/// The evidence that a comparison gives for or against the account.
#[derive(Debug)]
pub(super) struct Evidence {
    against: Option<Contradiction>,
    /// The time that the matches cover: what was asked for in it, and has been reported since, is in the
    /// account.
    covered: Option<(Timestamp, Timestamp)>,
}

impl Evidence {
    /// The evidence of `verdicts`, and of the keys that entries bear: `under_keys` is what they have against the
    /// account.
    pub(super) fn of(
        verdicts: &[Verdict],
        (ours, theirs): (&[Ours], &[Theirs]),
        rules: &Rules,
        under_keys: Option<Contradiction>,
    ) -> Self {
        let has = |class: Class| verdicts.iter().any(|verdict| verdict.class == class);
        let against = if has(Class::MissingThere) {
            Some(Contradiction::MissingThere)
        } else if verdicts.iter().any(|verdict| !verdict.differences.is_empty()) {
            // A duplicate whose first effect differs counts too.
            Some(Contradiction::Differs)
        } else {
            under_keys
        };
        let is_witness = |verdict: &&Verdict| {
            let is_named =
                matches!(verdict.matched_by, Some(MatchedBy::Key | MatchedBy::ProviderId));
            verdict.class == Class::Matched && is_named
        };
        let pair =
            |verdict: &Verdict| Some((&ours[verdict.ours?], &theirs[*verdict.theirs.first()?]));
        let witnesses = verdicts.iter().filter(is_witness).filter_map(pair);
        // The absent entry may be dated earlier than its request, by the difference of the clocks.
        let from = |(our, their): (&Ours, &Theirs)| our.until.max(their.at.plus(rules.tolerance));
        let until = |(our, their): (&Ours, &Theirs)| our.at.min(their.at);
        let covered = witnesses.clone().map(from).min().zip(witnesses.map(until).max());
        Self { against, covered }
    }

    /// Weighs the absence of an entry in doubt, of whose time everything was read. `has_nameless`: an entry
    /// without a name lies in that time.
    pub(super) fn absence(
        &self,
        our: &Ours,
        sight: &Sight,
        rules: &Rules,
        has_nameless: bool,
    ) -> Absence {
        // One of ours that was not read may explain an entry, or contradict the account.
        if !sight.is_ours_complete {
            return Absence::TooEarlyToTell;
        }
        if let Some(against) = self.against {
            return Absence::Unproven(against);
        }
        let Some((from, until)) = self.covered else {
            return Absence::Unproven(Contradiction::NoMatch);
        };
        if our.at < from {
            return Absence::Unproven(Contradiction::NoneBefore);
        }
        if has_nameless {
            return Absence::Unproven(Contradiction::Nameless);
        }
        let end = sight.stated_until.unwrap_or(until);
        if end < our.until.plus(rules.grace) {
            return Absence::TooEarlyToTell;
        }
        Absence::Proven
    }
}

impl Contradiction {
    /// The reason, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingThere => "it lacks a delivery that arrived",
            Self::Differs => "it contradicts our books in another entry",
            Self::ForeignKey => {
                "it has an entry that could be this one, under a key that is not known to be ours"
            }
            Self::SharedId => "two entries in it share an id",
            Self::NoMatch => "no entry in it matches ours by key or id",
            Self::NoneBefore => "no entry before this one matches ours by key or id",
            Self::Nameless => {
                "it has an entry of about this time without a key, which could be this one"
            }
        }
    }
}
