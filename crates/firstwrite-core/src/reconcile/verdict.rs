//! Verdicts of a comparison, and the actions that follow from them.

use std::fmt::Write as _;

use super::{Contradiction, Ours, Subject, Theirs};
use crate::findings::{FindingKind, NewFinding};

/// Verdict on an entry, or on a pair of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Class of the entry or pair.
    pub class: Class,
    /// The entry of ours, by its place among those compared.
    pub ours: Option<usize>,
    /// The entries of theirs, by their places; the counterpart first.
    pub theirs: Vec<usize>,
    /// Property by which the two were matched.
    pub matched_by: Option<MatchedBy>,
    /// Properties in which they differ.
    pub differences: Vec<Difference>,
    /// The reason why its absence proves nothing.
    pub contradiction: Option<Contradiction>,
    /// Action to take.
    pub action: Action,
}

/// See the module's own list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Both have it, and agree.
    Matched,
    /// Both have it, and do not agree.
    Differs,
    /// The provider did more than once what was asked for once.
    Duplicate,
    /// It was not asked for here.
    MissingHere,
    /// It arrived, and is not there.
    MissingThere,
    /// It is unknown whether it arrived, and something like it is there.
    Likely,
    /// It is not there, and is not expected to be.
    Absent,
    /// It is not there, and the account proves no absence.
    Unproven,
    /// It is too early to tell.
    Late,
}

/// Property by which two entries were matched. Only the first two are proof by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MatchedBy {
    /// The wire key.
    Key,
    /// The provider's id.
    ProviderId,
    /// Amount, currency and time, where only these two could be meant.
    Amount,
}

/// Property in which two matched entries differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Difference {
    /// The amount.
    Amount,
    /// The currency.
    Currency,
    /// We were told another id.
    ProviderId,
    /// It was made under another key.
    Key,
    /// It is there, and is not expected to be.
    Standing,
    /// It is older than the request: a payment of an earlier life of the key.
    Older,
    /// It stands for more than one request.
    Shared,
}

/// Action that follows from a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// It is proven to have arrived: the message is delivered, the record's outcome is known.
    Arrived,
    /// It is proven not to have arrived: the message is sent again under its key, the record's key is
    /// free.
    NotArrived,
    /// A person must look.
    Find(FindingKind),
}

/// A duplicate names so many of its effects.
const NAMED_MAX: usize = 10;

/// The finding that follows from `verdict`, if one does.
pub fn finding(verdict: &Verdict, ours: &[Ours], theirs: &[Theirs]) -> Option<NewFinding> {
    let Action::Find(kind) = verdict.action else { return None };
    let our = verdict.ours.and_then(|index| ours.get(index));
    let mut named = verdict.theirs.iter().filter_map(|index| theirs.get(*index));
    let their = named.clone().next();
    let subject = match (our, their) {
        (Some(our), _) => our.subject.to_string(),
        (None, Some(their)) => format!("payment {}", their.provider_id),
        (None, None) => return None,
    };
    let detail = match kind {
        FindingKind::Differs => differences(verdict, our?, their?),
        FindingKind::Duplicate => {
            let mut ids: Vec<&str> = named.by_ref().map(|their| &*their.provider_id).collect();
            let count = ids.len();
            ids.truncate(NAMED_MAX);
            let more = if count > NAMED_MAX { " and more" } else { "" };
            format!("asked for once, done {count} times: {}{more}", ids.join(", "))
        }
        FindingKind::MissingHere => {
            let sum = their.map(sum_of).unwrap_or_default();
            format!("the provider has it{sum}, and nobody here asked for it")
        }
        FindingKind::MissingThere => {
            "it was delivered, and the provider does not have it".to_owned()
        }
        FindingKind::Likely => match their {
            Some(their) => {
                let sum = sum_of(their);
                format!("the provider has one like it{sum}, without a name that proves it")
            }
            None => "the provider has several that it could be, without a name".to_owned(),
        },
        FindingKind::Unproven => {
            let why = verdict.contradiction.map(Contradiction::as_str).unwrap_or_default();
            format!("the provider's account does not have it, which proves nothing: {why}")
        }
    };
    let (message, record) = match our.map(|our| our.subject) {
        Some(Subject::Message(number)) => (Some(number), our.map(|our| our.record)),
        Some(Subject::Record(id)) => (None, Some(id)),
        None => (None, None),
    };
    let provider_id = their.map(|their| their.provider_id.clone());
    Some(NewFinding { kind, subject, detail, record, message, provider_id }.within_limits())
}

fn differences(verdict: &Verdict, our: &Ours, their: &Theirs) -> String {
    let mut text = String::new();
    for difference in &verdict.differences {
        let none = || "none".to_owned();
        let comma = if text.is_empty() { "" } else { "; " };
        let (name, here, there) = match difference {
            Difference::Amount => {
                let tell = |amount: &Option<super::Amount>| {
                    amount.as_ref().map_or_else(none, ToString::to_string)
                };
                ("amount", tell(&our.amount), tell(&their.amount))
            }
            Difference::Currency => {
                let tell = |currency: &Option<String>| currency.clone().unwrap_or_else(none);
                ("currency", tell(&our.currency), tell(&their.currency))
            }
            Difference::ProviderId => {
                let here = our.provider_id.clone().unwrap_or_else(none);
                ("id", here, their.provider_id.clone())
            }
            // Readers of findings must not see keys.
            Difference::Key => ("key", "another".to_owned(), "one".to_owned()),
            Difference::Standing => {
                ("standing", our.standing.as_str().to_owned(), "arrived".to_owned())
            }
            Difference::Older => {
                text.push_str(comma);
                text.push_str("the provider made it before it was asked for here");
                continue;
            }
            Difference::Shared => {
                text.push_str(comma);
                text.push_str("the provider made one, and more than one was asked for");
                continue;
            }
        };
        write!(text, "{comma}{name}: {here} here, {there} there").expect("a string takes any text");
    }
    text
}

fn sum_of(their: &Theirs) -> String {
    match (&their.amount, &their.currency) {
        (Some(amount), Some(currency)) => format!(" ({amount} {currency})"),
        (Some(amount), None) => format!(" ({amount})"),
        (None, _) => String::new(),
    }
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 9] = [
        Self::Matched,
        Self::Differs,
        Self::Duplicate,
        Self::MissingHere,
        Self::MissingThere,
        Self::Likely,
        Self::Absent,
        Self::Unproven,
        Self::Late,
    ];

    /// The word used in reports and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::Differs => "differs",
            Self::Duplicate => "duplicate",
            Self::MissingHere => "missing_here",
            Self::MissingThere => "missing_there",
            Self::Likely => "likely",
            Self::Absent => "absent",
            Self::Unproven => "unproven",
            Self::Late => "late",
        }
    }
}
