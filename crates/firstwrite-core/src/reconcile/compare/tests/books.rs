//! Whole books that agree, with discrepancies planted in them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Fault planted in entries that otherwise agree; each has an entry of its own.
#[derive(Clone, Copy, Debug)]
enum Plant {
    /// They do not have it.
    Removed,
    /// They did it again.
    Doubled,
    /// They did it for another amount.
    Changed,
    /// They did something else besides.
    Foreign,
}

/// Way in which the provider identifies an entry.
#[derive(Clone, Copy, Debug)]
enum Name {
    Key,
    Id,
    /// Not at all: it is recognized by its amount and its time.
    None,
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![Just(Name::Key), Just(Name::Id), Just(Name::None)]
}

fn plant() -> impl Strategy<Value = Option<Plant>> {
    prop_oneof![
        4 => Just(None),
        1 => Just(Some(Plant::Removed)),
        1 => Just(Some(Plant::Doubled)),
        1 => Just(Some(Plant::Changed)),
        1 => Just(Some(Plant::Foreign)),
    ]
}

/// An entry of ours and its counterpart. Amounts and times of two entries differ, so that the nameless
/// can be told.
fn agreed(number: i64, name: Name) -> (Ours, Theirs) {
    let minute = 100 + number * 20;
    let our_id = if matches!(name, Name::Id) { format!("p{number}") } else { "-".to_owned() };
    let their_key = if matches!(name, Name::Key) { format!("k{number}") } else { "-".to_owned() };
    (
        ours(&format!("{number} k{number} {our_id} {}EUR {minute} arrived", 1000 + number)),
        theirs(&format!("p{number} {their_key} {}.0EUR {}", 1000 + number, minute + 3)),
    )
}

/// Kind and subject of what a person must look at.
type Found = BTreeSet<(FindingKind, String)>;

fn found(here: &[Ours], there: &[Theirs]) -> Found {
    let verdicts = compare(here, there, &sight(), &rules()).verdicts;
    let findings = verdicts.iter().filter_map(|verdict| finding(verdict, here, there));
    let list: Vec<_> = findings.map(|found| (found.kind, found.subject)).collect();
    let set: Found = list.iter().cloned().collect();
    assert_eq!(set.len(), list.len(), "nothing is found twice");
    set
}

proptest! {
    #[test]
    fn what_was_planted_is_found_and_nothing_else_in_any_order(
        entries in prop::collection::vec((name(), plant()), 0..60),
        swaps in prop::collection::vec((any::<Index>(), any::<Index>()), 0..40),
        repeated in prop::collection::vec(any::<Index>(), 0..5),
    ) {
        let (mut here, mut there, mut expected) = (Vec::new(), Vec::new(), Found::new());
        for (number, (name, plant)) in entries.into_iter().enumerate() {
            let number = i64::try_from(number).unwrap();
            // Only what has a name can be told to be doubled, or to be the same in spite of its amount.
            let name = match plant {
                Some(Plant::Doubled) => Name::Key,
                Some(Plant::Changed) if matches!(name, Name::None) => Name::Id,
                _ => name,
            };
            let (our, mut their) = agreed(number, name);
            let subject = our.subject.to_string();
            here.push(our);
            match plant {
                None => there.push(their),
                Some(Plant::Removed) => {
                    expected.insert((FindingKind::MissingThere, subject));
                }
                Some(Plant::Doubled) => {
                    let twin = Theirs { provider_id: format!("twin{number}"), at: at(90_000), ..their.clone() };
                    there.extend([their, twin]);
                    expected.insert((FindingKind::Duplicate, subject));
                }
                Some(Plant::Changed) => {
                    their.amount = Some("0.01".parse().unwrap());
                    there.push(their);
                    expected.insert((FindingKind::Differs, subject));
                }
                Some(Plant::Foreign) => {
                    there.extend([their, theirs(&format!("f{number} - 7EUR {}", 5_000 + number))]);
                    expected.insert((FindingKind::MissingHere, format!("payment f{number}")));
                }
            }
        }
        prop_assert_eq!(found(&here, &there), expected.clone());
        // Pages come in any order, and a list that moves gives some twice.
        for index in repeated {
            if !there.is_empty() {
                there.push(index.get(&there).clone());
            }
        }
        for (one, other) in swaps {
            if !there.is_empty() {
                let (one, other) = (one.index(there.len()), other.index(there.len()));
                there.swap(one, other);
            }
            if !here.is_empty() {
                let (one, other) = (one.index(here.len()), other.index(here.len()));
                here.swap(one, other);
            }
        }
        prop_assert_eq!(found(&here, &there), expected);
    }

    #[test]
    fn nothing_is_settled_without_a_name_or_a_complete_account(
        standings in prop::collection::vec(0..6_usize, 1..30),
        is_theirs_complete: bool,
        listed in prop::collection::vec((0..40_i64, name(), 1..4_i64), 0..30),
    ) {
        let words = ["arrived", "waiting", "sending", "doubt", "given-up", "closed"];
        let here: Vec<Ours> = standings
            .iter()
            .enumerate()
            .map(|(number, word)| ours(&format!("{number} k{number} - 5EUR {} {}", 100 + number * 20, words[*word])))
            .collect();
        let there: Vec<Theirs> = listed
            .iter()
            .enumerate()
            .map(|(place, (number, name, amount))| {
                let key = if matches!(name, Name::Key) { format!("k{number}") } else { "-".to_owned() };
                theirs(&format!("p{place} {key} {}EUR {}", 3 + amount, 100 + number * 20))
            })
            .collect();
        let sight = Sight { is_theirs_complete, ..sight() };
        for verdict in compare(&here, &there, &sight, &rules()).verdicts {
            match verdict.action {
                Action::Arrived => {
                    let (our, their) = (&here[verdict.ours.unwrap()], &there[verdict.theirs[0]]);
                    prop_assert_eq!(their.key.as_ref(), Some(&our.wire_key));
                    prop_assert_eq!(&our.amount, &their.amount);
                    let twins = there.iter().filter(|each| each.key == their.key).count();
                    prop_assert_eq!(twins, 1, "a duplicate settles nothing");
                }
                Action::NotArrived => {
                    let our = &here[verdict.ours.unwrap()];
                    prop_assert_eq!(our.standing, Standing::InDoubt);
                    prop_assert!(is_theirs_complete);
                    prop_assert!(there.iter().all(|each| each.key.as_ref() != Some(&our.wire_key)));
                }
                Action::Nothing | Action::Find(_) => {}
            }
        }
    }
}
