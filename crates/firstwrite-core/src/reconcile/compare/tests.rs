//! Tables over single entries; whole books are in `books`.

mod books;
mod evidence;
mod lives;

use std::time::Duration;

use bytes::Bytes;

use super::super::{Amount, Subject, Window, finding};
use super::*;
use crate::outbox::{MessageNumber, wire_key};
use crate::{Key, RecordId, Tenant};

const NOW: i64 = 100_000;

/// Minutes as the tests count them.
fn at(minute: i64) -> Timestamp {
    Timestamp::from_millis(minute * 60_000)
}

fn rules() -> Rules {
    Rules {
        grace: Duration::from_hours(1),
        tolerance: Duration::from_mins(5),
        is_amount_proof: false,
    }
}

/// Everything from minute 0 to now.
fn sight() -> Sight {
    Sight {
        window: Window { from: at(0), until: at(NOW) },
        stated_until: None,
        is_theirs_complete: true,
        is_ours_complete: true,
        now: at(NOW),
    }
}

/// `number key id amount minute standing`; `-` for what is not known. Keys that begin with k have the form
/// of wire keys; all others are a provider's own.
fn ours(text: &str) -> Ours {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [number, key, id, amount, minute, standing] = words[..] else { panic!("{text}") };
    let (amount, currency) = sum(amount);
    let minute: i64 = minute.parse().unwrap();
    Ours {
        subject: Subject::Message(MessageNumber(number.parse().unwrap())),
        record: record_of(key),
        tenant: tenant(),
        wire_key: name(key),
        provider_id: known(id),
        amount,
        currency,
        at: at(minute),
        until: at(minute),
        standing: match standing {
            "arrived" => Standing::Arrived,
            "waiting" => Standing::Waiting,
            "sending" => Standing::Sending,
            "doubt" => Standing::InDoubt,
            "given-up" => Standing::GivenUp,
            "closed" => Standing::Closed,
            other => panic!("{other}"),
        },
    }
}

/// `id key amount minute`.
fn theirs(text: &str) -> Theirs {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [id, key, amount, minute] = words[..] else { panic!("{text}") };
    let (amount, currency) = sum(amount);
    Theirs {
        provider_id: id.to_owned(),
        key: known(key).as_deref().map(name),
        amount,
        currency,
        at: at(minute.parse().unwrap()),
        is_made: true,
        raw: Bytes::new(),
    }
}

fn name(key: &str) -> String {
    if key.starts_with('k') {
        wire_key(&format!("{key}:charge"), record_of(key))
    } else {
        key.to_owned()
    }
}

fn tenant() -> Tenant {
    Tenant::new("acme").unwrap()
}

fn record_of(key: &str) -> RecordId {
    RecordId::of(&tenant(), &Key::new(key).unwrap())
}

fn known(text: &str) -> Option<String> {
    (text != "-").then(|| text.to_owned())
}

/// `12.50EUR`, `12.50` or `-`.
fn sum(text: &str) -> (Option<Amount>, Option<String>) {
    let split = text.find(|each: char| each.is_ascii_uppercase()).unwrap_or(text.len());
    let (amount, currency) = text.split_at(split);
    (
        known(amount).map(|amount| amount.parse().unwrap()),
        (!currency.is_empty()).then(|| currency.to_owned()),
    )
}

/// Two matches between which an absence can be proven.
fn with_witnesses(here: &[&str], there: &[&str]) -> (Vec<Ours>, Vec<Theirs>) {
    let mut here: Vec<Ours> = here.iter().map(|text| ours(text)).collect();
    let mut there: Vec<Theirs> = there.iter().map(|text| theirs(text)).collect();
    for (number, minute) in [(901, 0), (902, NOW)] {
        here.push(ours(&format!("{number} k{number} - - {minute} arrived")));
        there.push(theirs(&format!("p{number} k{number} - {minute}")));
    }
    (here, there)
}

/// Compares entries beside two matches and returns the class and action of each, ours first and then
/// theirs.
fn told(here: &[&str], there: &[&str], sight: &Sight, rules: &Rules) -> Vec<String> {
    let judged = 0..here.len();
    let (here, there) = with_witnesses(here, there);
    let verdicts = compare(&here, &there, sight, rules).verdicts;
    let is_asked = |verdict: &&Verdict| verdict.ours.is_none_or(|index| judged.contains(&index));
    verdicts.iter().filter(is_asked).map(tell).collect()
}

fn tell(verdict: &Verdict) -> String {
    let action = match verdict.action {
        Action::Nothing => "",
        Action::Arrived => ", arrived",
        Action::NotArrived => ", not arrived",
        Action::Find(_) => ", found",
    };
    let by = match verdict.matched_by {
        None => "",
        Some(MatchedBy::Key) => " by key",
        Some(MatchedBy::ProviderId) => " by id",
        Some(MatchedBy::Amount) => " by amount",
    };
    format!("{}{by}{action}", verdict.class.as_str())
}

fn check(here: &[&str], there: &[&str], expected: &[&str]) {
    assert_eq!(told(here, there, &sight(), &rules()), expected, "{here:?} {there:?}");
}

#[test]
fn a_pair_is_judged_by_what_is_believed_here() {
    for (standing, expected) in [
        ("arrived", "matched by key"),
        ("sending", "matched by key"),
        ("waiting", "matched by key, arrived"),
        ("doubt", "matched by key, arrived"),
        ("given-up", "matched by key, arrived"),
        ("closed", "differs by key, found"),
    ] {
        check(&[&format!("1 k1 - 5EUR 500 {standing}")], &["p1 k1 5EUR 500"], &[expected]);
    }
}

#[test]
fn an_entry_they_do_not_have_is_judged_by_what_is_believed_here() {
    for (standing, expected) in [
        ("arrived", "missing_there, found"),
        ("sending", "late"),
        ("waiting", "late"),
        ("doubt", "absent, not arrived"),
        ("given-up", "absent"),
        ("closed", "absent"),
    ] {
        check(&[&format!("1 k1 - 5EUR 500 {standing}")], &[], &[expected]);
    }
}

#[test]
fn entries_match_by_key_then_by_id_then_by_amount() {
    for (our, their, expected) in [
        ("1 k1 p1 5EUR 500 arrived", "p1 k1 5EUR 9000", "matched by key"),
        ("1 k1 p1 5EUR 500 arrived", "p1 - 5EUR 9000", "matched by id"),
        ("1 k1 - 5EUR 500 arrived", "p1 - 5.00EUR 505", "matched by amount"),
        ("1 k1 - 5EUR 500 arrived", "p1 - 5 505", "matched by amount"),
        ("1 k1 - 5EUR 500 arrived", "p1 - 5EUR 495", "matched by amount"),
    ] {
        check(&[our], &[their], &[expected]);
    }
}

#[test]
fn by_amount_only_what_has_no_name_and_could_be_nothing_else() {
    let both = &["missing_there, found", "missing_here, found"][..];
    // Another name, another amount, another currency, another time.
    for their in
        ["p1 k9 5EUR 500", "p1 - 6EUR 500", "p1 - 5CHF 500", "p1 - 5EUR 506", "p1 - 5EUR 494"]
    {
        check(&["1 k1 - 5EUR 500 arrived"], &[their], both);
    }
    // It was given another id.
    check(&["1 k1 p7 5EUR 500 arrived"], &["p1 - 5EUR 500"], both);
    // Two that it could be, and two that could be it.
    let three = &["missing_there, found", "missing_here, found", "missing_here, found"];
    check(&["1 k1 - 5EUR 500 arrived"], &["p1 - 5EUR 500", "p2 - 5EUR 501"], three);
    let three = &["missing_there, found", "missing_there, found", "missing_here, found"];
    check(&["1 k1 - 5EUR 500 arrived", "2 k2 - 5EUR 501 arrived"], &["p1 - 5EUR 500"], three);
    // Far enough apart, each is the only one.
    check(
        &["1 k1 - 5EUR 500 arrived", "2 k2 - 5EUR 511 arrived"],
        &["p2 - 5EUR 511", "p1 - 5EUR 500"],
        &["matched by amount", "matched by amount"],
    );
}

#[test]
fn an_amount_proves_nothing_unless_it_is_said_to() {
    let (here, there) = (&["1 k1 - 5EUR 500 doubt"][..], &["p1 - 5EUR 500"][..]);
    check(here, there, &["likely by amount, found"]);
    let rules = Rules { is_amount_proof: true, ..rules() };
    assert_eq!(told(here, there, &sight(), &rules), ["matched by amount, arrived"]);
}

#[test]
fn nothing_is_absent_while_something_nameless_could_be_it() {
    for (their, expected) in [
        // Two alike, or one of which the amount is not known, or long after it was sent, or before it, by the
        // clock of another time zone.
        (&["p1 - 5EUR 500", "p2 - 5EUR 501"][..], "likely, found"),
        (&["p1 - - 500"], "likely, found"),
        (&["p1 - 5EUR 900"], "likely, found"),
        (&["p1 - 5EUR 490"], "likely, found"),
        // Another amount: net of a fee, or in another unit.
        (&["p1 - 6EUR 500"], "unproven, found"),
        // Another request's, by its name.
        (&["p1 k9 5EUR 500"], "absent, not arrived"),
        (&["p1 x9 6EUR 500"], "absent, not arrived"),
        // Under a key that cannot be ours, or is ours in other letters.
        (&["p1 x9 5EUR 500"], "likely, found"),
        (&[&format!("p1 {} 6EUR 500", name("k1").to_ascii_uppercase())], "likely, found"),
    ] {
        let told = told(&["1 k1 - 5EUR 500 doubt"], their, &sight(), &rules());
        assert_eq!(told[0], expected, "{their:?}");
    }
    // Of a message that does not say how much, anything could be it.
    assert_eq!(
        told(&["1 k1 - - 500 doubt"], &["p1 - 6EUR 500"], &sight(), &rules())[0],
        "likely, found"
    );
}

#[test]
fn differences_are_found_and_nothing_is_settled() {
    for (our, their, differences) in [
        ("1 k1 - 5EUR 500 doubt", "p1 k1 6EUR 500", &[Difference::Amount][..]),
        ("1 k1 - 5EUR 500 doubt", "p1 k1 5CHF 500", &[Difference::Currency]),
        ("1 k1 p9 5EUR 500 arrived", "p1 k1 5EUR 500", &[Difference::ProviderId]),
        ("1 k1 p1 5EUR 500 arrived", "p1 k2 5EUR 500", &[Difference::Key]),
        (
            "1 k1 - 5EUR 500 closed",
            "p1 k1 6CHF 500",
            &[Difference::Amount, Difference::Currency, Difference::Standing],
        ),
        // What one side does not say is not compared.
        ("1 k1 - - 500 arrived", "p1 k1 6CHF 500", &[]),
        ("1 k1 - 5EUR 500 arrived", "p1 k1 - 500", &[]),
        ("1 k1 - 5 500 arrived", "p1 k1 5.0CHF 500", &[]),
    ] {
        let verdicts = compare(&[ours(our)], &[theirs(their)], &sight(), &rules()).verdicts;
        assert_eq!(verdicts[0].differences, differences, "{our} {their}");
        let is_found = verdicts[0].action == Action::Find(FindingKind::Differs);
        assert_eq!(is_found, !differences.is_empty(), "{our} {their}");
        assert_eq!(verdicts.len(), 1);
    }
}

#[test]
fn a_second_effect_under_one_key_is_a_duplicate_and_settles_nothing() {
    for standing in ["arrived", "doubt", "waiting", "given-up", "closed"] {
        let our = format!("1 k1 - 5EUR 500 {standing}");
        check(&[&our], &["p1 k1 5EUR 500", "p2 k1 5EUR 600"], &["duplicate by key, found"]);
    }
    // As many effects as messages.
    check(
        &["1 k1 p2 5EUR 500 arrived", "2 k1 p1 5EUR 500 arrived"],
        &["p1 k1 5EUR 500", "p2 k1 5EUR 600"],
        &["matched by key", "matched by key"],
    );
}

#[test]
fn one_entry_given_twice_is_one_entry() {
    check(
        &["1 k1 p1 5EUR 500 arrived"],
        &["p1 k1 5EUR 500", "p1 k1 5EUR 500"],
        &["matched by key"],
    );
    check(
        &["1 k1 - 5EUR 500 arrived", "1 k1 - 5EUR 500 arrived"],
        &["p1 k1 5EUR 500"],
        &["matched by key"],
    );
    check(&[], &["p1 - 5EUR 500", "p1 - 5EUR 500"], &["missing_here, found"]);
    // Its date may have moved between two pages; the date alone names an entry without a key.
    check(
        &["1 k1 - 5EUR 500 doubt"],
        &["p1 k1 5EUR 500", "p1 k1 5EUR 501"],
        &["matched by key, arrived"],
    );
    check(&[], &["p1 - 5EUR 500", "p1 - 5EUR 501"], &["missing_here, found"; 2]);
}

/// A list may have another number where its ids are looked for: an order's, a batch's.
#[test]
fn entries_that_share_an_id_are_all_there_and_prove_nothing() {
    // The one that would be left out if an id were enough is the one in doubt.
    for (first, second) in [("500", "501"), ("501", "500")] {
        let there = [&*format!("p1 k1 5EUR {first}"), &*format!("p1 k2 5EUR {second}")];
        let here = ["1 k1 - 5EUR 500 doubt", "2 k2 - 5EUR 500 arrived"];
        check(&here, &there, &["likely by key, found", "matched by key"]);
    }
    check(
        &["1 k1 - 5EUR 500 doubt"],
        &["p1 k1 5EUR 500", "p1 k1 6EUR 500"],
        &["duplicate by key, found"],
    );
    // Which of them we were told of is unknown.
    for amounts in [["5EUR", "6EUR"], ["6EUR", "5EUR"]] {
        let there = amounts.map(|amount| format!("p1 - {amount} 500"));
        let there = [&*there[0], &*there[1]];
        check(&["1 k1 p1 5EUR 500 doubt"], &there, &["duplicate by id, found"]);
    }
}

#[test]
fn absence_is_proven_by_a_complete_account_of_the_whole_time_alone() {
    let doubt = |minute: i64| format!("1 k1 - 5EUR {minute} doubt");
    let arrived = |minute: i64| format!("1 k1 - 5EUR {minute} arrived");
    let check = |our: &str, sight: &Sight, expected: &[&str]| {
        assert_eq!(told(&[our], &[], sight, &rules()), expected, "{our} {sight:?}");
    };
    let whole = sight();
    // The grace before and after it belongs to the window.
    check(&doubt(60), &whole, &["absent, not arrived"]);
    check(&doubt(59), &whole, &["late"]);
    check(&doubt(NOW - 60), &whole, &["absent, not arrived"]);
    check(&doubt(NOW - 59), &whole, &["late"]);
    check(&arrived(60), &whole, &["missing_there, found"]);
    check(&arrived(59), &whole, &[]);
    check(&arrived(NOW - 60), &whole, &["missing_there, found"]);
    check(&arrived(NOW - 59), &whole, &["late"]);
    // A window that ends in the future is not over.
    let ahead = Sight { window: Window { until: at(NOW + 500), ..whole.window }, ..whole };
    check(&doubt(NOW - 59), &ahead, &["late"]);
    let incomplete = Sight { is_theirs_complete: false, ..whole };
    check(&doubt(500), &incomplete, &["late"]);
    check(&arrived(500), &incomplete, &["late"]);
    // It may have been sent long after it was written.
    let our = Ours { until: at(NOW - 59), ..ours(&doubt(500)) };
    assert_eq!(compare(&[our], &[], &whole, &rules()).verdicts[0].class, Class::Late);
}

#[test]
fn an_entry_of_theirs_is_missing_here_once_its_grace_is_over() {
    let check = |their: &str, sight: &Sight, expected: &[&str]| {
        assert_eq!(told(&[], &[their], sight, &rules()), expected, "{their}");
    };
    let whole = sight();
    check("p1 k1 5EUR 500", &whole, &["missing_here, found"]);
    check("p1 - - 500", &whole, &["missing_here, found"]);
    check(&format!("p1 k1 5EUR {}", NOW - 60), &whole, &["missing_here, found"]);
    check(&format!("p1 k1 5EUR {}", NOW - 59), &whole, &["late"]);
    // Theirs of an incomplete account is there all the same; ours may not have been read.
    check(
        "p1 k1 5EUR 500",
        &Sight { is_theirs_complete: false, ..whole },
        &["missing_here, found"],
    );
    check("p1 k1 5EUR 500", &Sight { is_ours_complete: false, ..whole }, &["late"]);
    check(
        "p1 k1 5EUR 500",
        &Sight { window: Window { from: at(501), until: at(NOW) }, ..whole },
        &[],
    );
}

#[test]
fn what_is_believed_of_a_message_follows_from_its_state() {
    use crate::outbox::MessageState;
    for (state, was_refused, standing) in [
        (MessageState::Waiting, false, Standing::Waiting),
        (MessageState::Sending, false, Standing::Sending),
        (MessageState::Unknown, false, Standing::InDoubt),
        (MessageState::Dead, false, Standing::GivenUp),
        (MessageState::Dead, true, Standing::Closed),
        (MessageState::Delivered, false, Standing::Arrived),
        (MessageState::Refused, true, Standing::Closed),
        (MessageState::Dropped, false, Standing::Closed),
    ] {
        assert_eq!(Standing::of_message(state, was_refused), standing);
    }
}

#[test]
fn a_finding_says_what_it_is_about() {
    for (here, there, subject, detail) in [
        (
            &["1 k1 - 5EUR 500 arrived"][..],
            &["p1 k1 6CHF 500"][..],
            "message 1",
            "amount: 5 here, 6 there; currency: EUR here, CHF there",
        ),
        (
            &["1 k1 - 5 500 arrived"],
            &["p1 k1 5 500", "p2 k1 5 501"],
            "message 1",
            "asked for once, done 2 times: p1, p2",
        ),
        (
            &[],
            &["p1 k1 5EUR 500"],
            "payment p1",
            "the provider has it (5 EUR), and nobody here asked for it",
        ),
        (
            &["1 k1 - 5 500 arrived"],
            &[],
            "message 1",
            "it was delivered, and the provider does not have it",
        ),
        (
            &["1 k1 - 5 500 doubt"],
            &["p1 - 5 500"],
            "message 1",
            "the provider has one like it (5), without a name that proves it",
        ),
        (
            &["1 k1 - 5 500 closed"],
            &["p1 k1 5 500"],
            "message 1",
            "standing: refused or dropped here, arrived there",
        ),
        (
            &["1 k1 - 5 500 doubt"],
            &[],
            "message 1",
            "the provider's account does not have it, which proves nothing: no entry in it matches \
             ours by key or id",
        ),
        (
            &["1 k1 - 5 500 doubt"],
            &["p1 k1 5 400"],
            "message 1",
            "the provider made it before it was asked for here",
        ),
    ] {
        let here: Vec<Ours> = here.iter().map(|text| ours(text)).collect();
        let there: Vec<Theirs> = there.iter().map(|text| theirs(text)).collect();
        let verdicts = compare(&here, &there, &sight(), &rules()).verdicts;
        let found = finding(&verdicts[0], &here, &there).unwrap();
        assert_eq!((found.subject.as_str(), found.detail.as_str()), (subject, detail));
        assert!(!found.detail.contains("k1"), "a key is nobody's to read: {}", found.detail);
    }
}
