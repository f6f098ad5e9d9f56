//! The comparison itself: matching first, then judging. The order of entries does not matter.

mod matching;

use matching::Matching;

use super::evidence::{Absence, Contradiction, Evidence};
use super::{Action, Class, Difference, MatchedBy, Ours, Rules, Sight, Standing, Theirs, Verdict};
use crate::Timestamp;
use crate::findings::FindingKind;

/// The verdicts of a comparison, and what it found against the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The verdicts, in the order of ours and then of theirs.
    pub verdicts: Vec<Verdict>,
    /// The reasons why no absence of this run is a proof. None, if there was no absence to prove.
    pub contradictions: Vec<Contradiction>,
}

/// Compares our entries with theirs.
///
/// The only place where a reconciliation is decided. Entries of ours that lie too early for the window
/// and are not in doubt get no verdict: an earlier window was theirs.
pub fn compare(ours: &[Ours], theirs: &[Theirs], sight: &Sight, rules: &Rules) -> Comparison {
    let matching = Matching::of(ours, theirs, rules);
    let mut verdicts = Vec::with_capacity(ours.len());
    for (index, our) in ours.iter().enumerate().filter(|(index, _)| matching.is_judged(*index)) {
        let Some((place, by)) = matching.counterpart(index) else {
            let could_be_there =
                our.standing == Standing::InDoubt && matching.has_possible(our, rules);
            if let Some((class, action)) = unpaired(our, sight, rules, could_be_there) {
                verdicts.push(Verdict { ours: Some(index), ..alone(class, action) });
            }
            continue;
        };
        let is_shared = matching.is_shared(index);
        // Its id would be the wrong answer.
        let is_named = by != MatchedBy::Amount || rules.is_amount_proof;
        let is_proof = is_named && !matching.has_shared_id(place);
        let mut verdict = paired(our, &theirs[place], (by, is_proof, is_shared), rules);
        (verdict.ours, verdict.theirs) = (Some(index), vec![place]);
        let further = matching.further(index);
        if !further.is_empty() {
            verdict.theirs.extend_from_slice(further);
            verdict.class = Class::Duplicate;
            verdict.action = Action::Find(FindingKind::Duplicate);
        }
        verdicts.push(verdict);
    }
    for place in matching.left_over() {
        if let Some((class, action)) = unasked(&theirs[place], sight, rules) {
            verdicts.push(Verdict { theirs: vec![place], ..alone(class, action) });
        }
    }
    let contradictions = weigh_absences(&mut verdicts, (ours, theirs), sight, rules, &matching);
    Comparison { verdicts, contradictions }
}

/// Lets an absence act only where the whole comparison proves it.
fn weigh_absences(
    verdicts: &mut [Verdict],
    (ours, theirs): (&[Ours], &[Theirs]),
    sight: &Sight,
    rules: &Rules,
    matching: &Matching<'_>,
) -> Vec<Contradiction> {
    let evidence = Evidence::of(verdicts, (ours, theirs), rules, matching.contradiction(rules));
    let mut contradictions = Vec::new();
    for verdict in verdicts.iter_mut().filter(|verdict| verdict.action == Action::NotArrived) {
        let Some(our) = verdict.ours.map(|index| &ours[index]) else { continue };
        let has_nameless = matching.has_nameless_in_time_of(our, rules);
        match evidence.absence(our, sight, rules, has_nameless) {
            Absence::Proven => {}
            Absence::TooEarlyToTell => {
                (verdict.class, verdict.action) = (Class::Late, Action::Nothing);
            }
            Absence::Unproven(why) => {
                let found = Action::Find(FindingKind::Unproven);
                (verdict.class, verdict.action) = (Class::Unproven, found);
                verdict.contradiction = Some(why);
                if !contradictions.contains(&why) {
                    contradictions.push(why);
                }
            }
        }
    }
    contradictions
}

fn alone(class: Class, action: Action) -> Verdict {
    let (theirs, differences) = (Vec::new(), Vec::new());
    let (matched_by, contradiction) = (None, None);
    Verdict { class, ours: None, theirs, matched_by, differences, contradiction, action }
}

/// Returns the verdict on two matched entries.
fn paired(
    our: &Ours,
    their: &Theirs,
    (by, is_proof, is_shared): (MatchedBy, bool, bool),
    rules: &Rules,
) -> Verdict {
    if !their.is_made {
        return Verdict { matched_by: Some(by), ..alone(Class::Late, Action::Nothing) };
    }
    let mut differences = differences(our, their, rules);
    if is_shared {
        differences.push(Difference::Shared);
    }
    let (class, action) = match our.standing {
        _ if !differences.is_empty() => (Class::Differs, Action::Find(FindingKind::Differs)),
        Standing::Arrived | Standing::Sending | Standing::Closed => {
            (Class::Matched, Action::Nothing)
        }
        // Sending it again could only harm.
        Standing::Waiting | Standing::InDoubt | Standing::GivenUp if is_proof => {
            (Class::Matched, Action::Arrived)
        }
        Standing::InDoubt | Standing::GivenUp => (Class::Likely, Action::Find(FindingKind::Likely)),
        Standing::Waiting => (Class::Late, Action::Nothing),
    };
    Verdict { matched_by: Some(by), differences, ..alone(class, action) }
}

/// Returns the properties in which two entries differ. A value that one of them lacks is not compared.
fn differences(our: &Ours, their: &Theirs, rules: &Rules) -> Vec<Difference> {
    let mut differences = sum_differences(our, their);
    if our.provider_id.as_ref().is_some_and(|id| *id != their.provider_id) {
        differences.push(Difference::ProviderId);
    }
    if their.key.as_ref().is_some_and(|key| *key != our.wire_key) {
        differences.push(Difference::Key);
    }
    if our.standing == Standing::Closed {
        differences.push(Difference::Standing);
    }
    if is_older(their, our, rules) {
        differences.push(Difference::Older);
    }
    differences
}

/// The differences in amount and currency.
fn sum_differences(our: &Ours, their: &Theirs) -> Vec<Difference> {
    let mut differences = Vec::new();
    if let (Some(here), Some(there)) = (&our.amount, &their.amount)
        && here != there
    {
        differences.push(Difference::Amount);
    }
    if let (Some(here), Some(there)) = (&our.currency, &their.currency)
        && !here.eq_ignore_ascii_case(there)
    {
        differences.push(Difference::Currency);
    }
    differences
}

/// An entry that was made before the request belongs to an earlier life of its key.
fn is_older(their: &Theirs, our: &Ours, rules: &Rules) -> bool {
    their.at.plus(rules.tolerance) < our.at
}

/// Returns the verdict on an entry of ours without a counterpart.
fn unpaired(
    our: &Ours,
    sight: &Sight,
    rules: &Rules,
    could_be_there: bool,
) -> Option<(Class, Action)> {
    match (our.standing, seen(our, sight, rules)) {
        // Its time is not over: another run must see it, whatever it takes.
        (Standing::Waiting | Standing::Sending, _)
        | (Standing::InDoubt, Seen::TooEarly | Seen::TooLate)
        | (Standing::Arrived, Seen::TooLate) => Some((Class::Late, Action::Nothing)),
        (Standing::Arrived, Seen::Wholly) => {
            Some((Class::MissingThere, Action::Find(FindingKind::MissingThere)))
        }
        (Standing::InDoubt, Seen::Wholly) if could_be_there => {
            Some((Class::Likely, Action::Find(FindingKind::Likely)))
        }
        (Standing::InDoubt, Seen::Wholly) => Some((Class::Absent, Action::NotArrived)),
        (Standing::GivenUp | Standing::Closed, Seen::Wholly | Seen::TooLate) => {
            Some((Class::Absent, Action::Nothing))
        }
        (Standing::Arrived | Standing::GivenUp | Standing::Closed, Seen::TooEarly) => None,
    }
}

/// Returns the verdict on an entry of theirs that was not asked for here, if any.
fn unasked(their: &Theirs, sight: &Sight, rules: &Rules) -> Option<(Class, Action)> {
    // Our books are read for as long after the window.
    let is_after = sight.window.until.plus(rules.grace) <= their.at;
    if their.at < sight.window.from || is_after || !their.is_made {
        return None;
    }
    if !sight.is_ours_complete || sight.now < their.at.plus(rules.grace) {
        return Some((Class::Late, Action::Nothing));
    }
    Some((Class::MissingHere, Action::Find(FindingKind::MissingHere)))
}

/// Part that was seen of the time in which something could have happened.
enum Seen {
    /// All of it: what was not seen is not there.
    Wholly,
    /// It lies, in part, before the window.
    TooEarly,
    /// It is not over yet, or not everything of it was read.
    TooLate,
}

fn seen(our: &Ours, sight: &Sight, rules: &Rules) -> Seen {
    let end: Timestamp = sight.window.until.min(sight.now);
    if our.at < sight.window.from.plus(rules.grace) {
        Seen::TooEarly
    } else if sight.is_theirs_complete && our.until.plus(rules.grace) <= end {
        Seen::Wholly
    } else {
        Seen::TooLate
    }
}

#[cfg(test)]
mod tests;
