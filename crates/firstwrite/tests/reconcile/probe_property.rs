//! Over seeded ledgers and accounts: a probe's list, whether or not the API knows the filter, never makes a payment
//! of another request this one's, and never denies one that was made. Each rule, taken back, is caught.

use std::borrow::Cow;
use std::collections::BTreeSet;

use axum::http::HeaderMap;
use firstwrite::ProbeForm;
use firstwrite::reconcile::{Made, TimeForm};
use firstwrite_core::reconcile::Ours;
use firstwrite_testkit::accounts::{Account, Asked, Entry};
use serde_json::Value;

use crate::property::{Truth, World};

const SEEDS: u64 = 150;

/// A rule that is planted wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Plant {
    /// The first entry of the list is the one that was asked for.
    ProbeBelievesFirst,
    /// An empty list means *no*, whoever's it is.
    EmptyIsNo,
    /// Whatever is listed was made.
    FailedIsMade,
    /// An entry of an earlier life of the key is proof.
    OlderIsProof,
}

impl Plant {
    const ALL: [Self; 4] =
        [Self::ProbeBelievesFirst, Self::EmptyIsNo, Self::FailedIsMade, Self::OlderIsProof];
}

fn form(plant: Option<Plant>) -> ProbeForm {
    let at = |text: &str| text.parse().unwrap();
    let is_planted = |other| plant == Some(other);
    ProbeForm {
        list: Some(at("/data")),
        key: Some(at("/key")),
        made: if is_planted(Plant::FailedIsMade) {
            Made::All
        } else {
            Made::by_status(at("/status"), &["paid"], &["failed"])
        },
        at: (!is_planted(Plant::OlderIsProof)).then(|| at("/at")),
        times: TimeForm::UnixMillis,
        empty_is_absent: is_planted(Plant::EmptyIsNo),
        ..ProbeForm::default()
    }
}

/// Returns the id of the payment that a probe tells, or none if it says that there is none; fails if it is silent.
fn said(
    document: &Value,
    our: &Ours,
    plant: Option<Plant>,
) -> Result<Option<String>, Cow<'static, str>> {
    let id = |entry: &Value| entry["id"].as_str().unwrap().to_owned();
    if plant == Some(Plant::ProbeBelievesFirst)
        && let Some(first) = document["data"].get(0)
    {
        return Ok(Some(id(first)));
    }
    let found = form(plant).find(&HeaderMap::new(), document, &our.wire_key, our.at);
    found.map(|entry| entry.map(id))
}

/// Returns true if what was said is wrong.
fn is_wrong(said: Option<&str>, our: &Ours, truth: Truth, ledger: &[Entry]) -> bool {
    match said {
        None => truth != Truth::NotPaid,
        Some(id) => {
            let is_ours = |entry: &Entry| entry.id == id && entry.key == our.wire_key;
            truth != Truth::Paid || !ledger.iter().any(is_ours)
        }
    }
}

#[test]
fn no_list_of_a_probe_causes_a_wrong_and_every_planted_rule_is_caught() {
    // These misreport the very entry that is asked for: a probe believes keys, ids and dates.
    let lies = [Account::MisfiledKeys, Account::SharedIds, Account::FutureTimes];
    let (mut caught, mut right) = (BTreeSet::new(), 0);
    for account in Account::ALL.into_iter().filter(|account| !lies.contains(account)) {
        for seed in 0..SEEDS {
            let world = World::new(seed);
            for (our, truth) in world.ours.iter().zip(&world.truths) {
                // A key is used twice within minutes by none who lets it live for an hour.
                if world.shares_key(our) {
                    continue;
                }
                for knows_filter in [true, false] {
                    let listed = |entry: &&Entry| !knows_filter || entry.key == our.wire_key;
                    let ledger: Vec<Entry> = world.ledger.iter().filter(listed).cloned().collect();
                    let (from, until) = (our.at.minus(World::AGE_MAX), world.now);
                    let asked = Asked { from, until, cursor: None, now: world.now };
                    let document = serde_json::from_str(&account.page(&ledger, &asked)).unwrap();
                    if let Ok(said) = said(&document, our, None) {
                        let is_wrong = is_wrong(said.as_deref(), our, *truth, &world.ledger);
                        assert!(!is_wrong, "{account:?}, seed {seed}: {said:?} of {our:?}");
                        right += 1;
                    }
                    for plant in Plant::ALL {
                        let said = said(&document, our, Some(plant));
                        if said
                            .is_ok_and(|said| is_wrong(said.as_deref(), our, *truth, &world.ledger))
                        {
                            caught.insert(plant);
                        }
                    }
                }
            }
        }
    }
    assert!(right > 1000, "what is there is found: {right}");
    let missed: Vec<_> = Plant::ALL.iter().filter(|plant| !caught.contains(plant)).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
