//! Accounts that lack an entry in doubt: each rule that keeps its absence from acting, and none that
//! keeps it from acting where nothing speaks against it.

use super::super::super::Contradiction;
use super::*;

/// A match before the doubt of minute 500, and one long after it.
const BEFORE: (&str, &str) = ("901 k901 - 9EUR 100 arrived", "p901 k901 9EUR 100");
const AFTER: (&str, &str) = ("902 k902 - 9EUR 9000 arrived", "p902 k902 9EUR 9000");
const DOUBT: &str = "1 k1 - 5EUR 500 doubt";

/// Returns the verdict on the doubt, and the account's contradictions.
fn weighed(here: &[&str], there: &[&str], sight: &Sight) -> (String, Vec<Contradiction>) {
    let here: Vec<Ours> = [DOUBT].iter().chain(here).map(|text| ours(text)).collect();
    let there: Vec<Theirs> = there.iter().map(|text| theirs(text)).collect();
    let comparison = compare(&here, &there, sight, &rules());
    let doubt = comparison.verdicts.iter().find(|verdict| verdict.ours == Some(0)).unwrap();
    (tell(doubt), comparison.contradictions)
}

#[test]
fn an_absence_acts_between_two_matches() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let said = weighed(&[b1, a1], &[b2, a2], &sight());
    assert_eq!(said, ("absent, not arrived".to_owned(), vec![]));
    // Entries that agree, in any standing, and entries that were not asked for contradict nothing.
    let more = weighed(
        &[b1, a1, "3 k3 - 7EUR 600 closed", "4 k4 - 7EUR 600 doubt"],
        &[b2, a2, "p4 k4 7EUR 600", "p7 - 8EUR 2500", "p8 x8 8EUR 700"],
        &sight(),
    );
    assert_eq!(more, ("absent, not arrived".to_owned(), vec![]));
}

#[test]
fn an_absence_proves_nothing_where_something_contradicts_the_account() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    for (here, there, why) in [
        // The token of another merchant; an empty list.
        (&[][..], &[][..], Contradiction::NoMatch),
        (&[], &["p7 k7 8EUR 600"], Contradiction::NoMatch),
        // A match by amount proves nothing of whose account it is.
        (&["3 k3 - 7EUR 600 arrived"], &["p3 - 7EUR 600"], Contradiction::NoMatch),
        // A page of a longer list; an account that begins later.
        (&[b1, a1], &[a2], Contradiction::MissingThere),
        (&[a1], &[a2], Contradiction::NoneBefore),
        // Another unit.
        (&[b1, a1], &[b2, "p902 k902 0.09EUR 9000"], Contradiction::Differs),
        // An id that is none.
        (&[b1, a1], &[b2, a2, "p7 k7 8EUR 600", "p7 k8 8EUR 600"], Contradiction::SharedId),
        (&[b1, a1], &[b2, a2, "p7 k7 8EUR 600", "p7 k7 9EUR 600"], Contradiction::SharedId),
        (&[b1, a1], &[b2, a2, "p7 k7 8EUR 600", "p7 k7 8CHF 600"], Contradiction::SharedId),
        // What was refused here was made there.
        (&[b1, a1, "3 k3 - 7EUR 600 closed"], &[b2, a2, "p3 k3 7EUR 600"], Contradiction::Differs),
    ] {
        let said = weighed(here, there, &sight());
        assert_eq!(said, ("unproven, found".to_owned(), vec![why]), "{here:?} {there:?}");
    }
}

/// An entry of theirs can be that of one of ours that was not read.
#[test]
fn an_absence_proves_nothing_beside_books_that_were_not_read_whole() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let sight = Sight { is_ours_complete: false, ..sight() };
    let said = weighed(&[b1, a1], &[b2, a2], &sight);
    assert_eq!(said, ("late".to_owned(), vec![]));
}

/// Two effects under one key are a duplicate. A second one of another amount is a stranger there, and so may be the
/// absent one; one of the same amount can be the absent one where the sums are equal.
#[test]
fn a_second_effect_under_another_key_is_not_overlooked() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let differs = ("unproven, found".to_owned(), vec![Contradiction::Differs]);
    let likely = ("likely, found".to_owned(), vec![]);
    let (third, fourth) = ("3 k3 - 7EUR 300 arrived", "p3 k3 7EUR 300");
    for (entry, said) in [
        ("p4 k3 5EUR 500", &likely),
        ("p4 k3 5EUR 9000", &likely),
        ("p4 k3 4.85EUR 500", &differs),
        ("p4 k3 7USD 500", &differs),
        // A second effect that cannot be the absent one is the provider's own mistake.
        ("p4 k3 7EUR 500", &("absent, not arrived".to_owned(), vec![])),
    ] {
        assert_eq!(weighed(&[b1, a1, third], &[b2, a2, fourth, entry], &sight()), *said, "{entry}");
    }
    let (third, fourth) = ("3 k3 - 5EUR 300 arrived", "p3 k3 5EUR 300");
    let said = weighed(&[b1, a1, third], &[b2, a2, fourth, "p4 k3 5EUR 500"], &sight());
    assert_eq!(said, likely);
}

/// An entry under the beginning of a key belongs to that key, whatever its amount and time.
#[test]
fn the_beginning_of_a_key_is_not_overlooked() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let whole = name("k1");
    let cut = [&whole[..20], &whole[..4], &whole[..whole.len() - 1]];
    for entry in cut.map(|key| format!("p1 {key} 4.85EUR 100")) {
        let mut there = vec![theirs(b2), theirs(a2), theirs(&entry)];
        // As it stands: `theirs` completes a key that begins like ours.
        there[2].key = entry.split_whitespace().nth(1).map(str::to_owned);
        let here: Vec<Ours> = [DOUBT, b1, a1].iter().map(|text| ours(text)).collect();
        let comparison = compare(&here, &there, &sight(), &rules());
        assert_eq!(tell(&comparison.verdicts[0]), "likely, found", "{entry}");
    }
}

/// So is one that has the whole key in it: as a spreadsheet, an address or a provider with several accounts writes it.
#[test]
fn a_key_within_other_text_is_not_overlooked() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let whole = name("k1");
    let escaped = whole.replace(':', "%3A");
    for (id, key, expected) in [
        ("p1", format!("\"{whole}\""), "likely, found"),
        ("p1", format!("=\"{whole}\""), "likely, found"),
        ("p1", format!("acct_1/{whole}"), "likely, found"),
        ("p1", escaped, "likely, found"),
        (&*whole, "-".to_owned(), "likely, found"),
        // Another step of the same request.
        ("p1", whole.replace("charge", "refund"), "absent, not arrived"),
    ] {
        let entry = format!("{id} {key} 4.85EUR 4000");
        let mut there = vec![theirs(b2), theirs(a2), theirs(&entry)];
        there[2].key = (key != "-").then(|| key.clone());
        let here: Vec<Ours> = [DOUBT, b1, a1].iter().map(|text| ours(text)).collect();
        let comparison = compare(&here, &there, &sight(), &rules());
        assert_eq!(tell(&comparison.verdicts[0]), expected, "{entry}");
    }
}

/// Mangled on its way to the provider or back, a key may keep its end, and with it the form of a wire key.
#[test]
fn a_mangled_key_that_keeps_its_end_is_not_overlooked() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let customers = "long-customer-0123456789-order-7";
    for (key, mangle) in [
        ("shop&7", (|key| key.replace('&', "&amp;")) as fn(&str) -> String),
        ("order\"7", |key| key.replace('"', "\\\"")),
        ("order\"7", |key| key.replace('"', "\"\"")),
        ("order\\7", |key| key.replace('\\', "\\\\")),
        ("order+7", |key| key.replace('+', " ")),
        ("order+7", |key| key.replace('+', "\\u002b")),
        ("order-7", |key| key.to_ascii_uppercase()),
        ("order-7", |key| format!("x{key}")),
        ("order-7", |key| key.replace([':', '-'], "")),
        (customers, |key| key[key.len() - 40..].to_owned()),
        (customers, |key| key[1..].to_owned()),
        (customers, |key| key[5..20].to_owned()),
    ] {
        let record = record_of(key);
        let whole = wire_key(&format!("{key}:charge"), record);
        let mangled = mangle(&whole);
        assert_ne!(mangled, whole);
        // Whatever its amount and time.
        for entry in ["p1 - 5EUR 501", "p1 - 4.85EUR 400"] {
            let doubt = Ours { record, wire_key: whole.clone(), ..ours(DOUBT) };
            let here = [doubt, ours(b1), ours(a1)];
            let there =
                [theirs(b2), theirs(a2), Theirs { key: Some(mangled.clone()), ..theirs(entry) }];
            let comparison = compare(&here, &there, &sight(), &rules());
            assert_eq!(tell(&comparison.verdicts[0]), "likely, found", "{mangled} {entry}");
        }
    }
}

/// The mark of a key depends on its tenant and its head, so a key with another head and a mark that does not fit is
/// none of ours, although it has the form of one.
#[test]
fn a_key_of_our_form_is_ours_only_with_its_own_mark() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let forged = "k7:charge:0123456789abcdef".to_owned();
    let id_form = |id: RecordId| format!("{id}:charge");
    for (key, amount, expected) in [
        (name("k7"), "5EUR", "absent, not arrived"),
        (name("k901").replace("charge", "refund"), "5EUR", "absent, not arrived"),
        (id_form(record_of("k901")), "5EUR", "absent, not arrived"),
        (forged.clone(), "5EUR", "likely, found"),
        (forged, "4.85EUR", "absent, not arrived"),
        (id_form(RecordId::from_bytes([9; 16])), "5EUR", "likely, found"),
    ] {
        let there = Theirs { key: Some(key.clone()), ..theirs(&format!("p7 - {amount} 501")) };
        let here = [ours(DOUBT), ours(b1), ours(a1)];
        let comparison = compare(&here, &[theirs(b2), theirs(a2), there], &sight(), &rules());
        assert_eq!(tell(&comparison.verdicts[0]), expected, "{key} {amount}");
    }
}

/// An export may begin at an entry that was asked for before the absent one, and end at one that was asked for after it:
/// it is cut by its own dates.
#[test]
fn an_account_covers_the_time_between_the_dates_of_its_matches() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let acts = "absent, not arrived";
    for (first, last, expected) in [
        (b2, a2, acts),
        ("p901 k901 9EUR 495", a2, acts),
        // The absent one may be dated five minutes before its request, and so before all of these.
        ("p901 k901 9EUR 496", a2, "unproven, found"),
        ("p901 k901 9EUR 700", a2, "unproven, found"),
        (b2, "p903 k903 9EUR 560", acts),
        (b2, "p903 k903 9EUR 557", "late"),
    ] {
        let late = if last == a2 { a1 } else { "903 k903 - 9EUR 560 arrived" };
        let said = weighed(&[b1, late], &[first, last], &sight());
        assert_eq!(said.0, expected, "{first}, {last}");
    }
}

/// An account may date its entries in another time zone.
#[test]
fn a_nameless_entry_of_the_same_amount_is_in_the_way_although_it_is_dated_hours_before() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let said = weighed(&[b1, a1], &[b2, a2, "p7 - 5EUR 200"], &sight());
    assert_eq!(said.0, "likely, found");
}

/// Fees, units and exponents change an amount: an entry without a name can be any that is absent at its time.
#[test]
fn a_nameless_entry_of_another_amount_speaks_against_the_absences_of_its_time() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let acts = "absent, not arrived";
    let unproven = "unproven, found";
    // The doubt is of minute 5000; its grace is an hour, and a time zone is less than a day away.
    for (their, expected) in [
        ("p7 - 4.85EUR 5000", unproven),
        ("p7 - 500EUR 5000", unproven),
        ("p7 - 5.15CHF 5000", unproven),
        ("p7 - 4.85EUR 3560", unproven),
        ("p7 - 4.85EUR 3559", acts),
        ("p7 - 4.85EUR 6500", unproven),
        ("p7 - 4.85EUR 6501", acts),
        // A name of another system, or of another record.
        ("p7 x7 4.85EUR 5000", acts),
        ("p7 k7 4.85EUR 5000", acts),
    ] {
        let here = ["1 k1 - 5EUR 5000 doubt", "2 k2 - 6EUR 1000 doubt", b1, a1];
        let here: Vec<Ours> = here.iter().map(|text| ours(text)).collect();
        let there: Vec<Theirs> = [b2, a2, their].iter().map(|text| theirs(text)).collect();
        let said = compare(&here, &there, &sight(), &rules());
        assert_eq!(tell(&said.verdicts[0]), expected, "{their}");
        assert_eq!(tell(&said.verdicts[1]), acts, "{their}: another time");
        let why = if expected == acts { vec![] } else { vec![Contradiction::Nameless] };
        assert_eq!(said.contradictions, why, "{their}");
    }
}

/// An amount is a guess, so it attributes nothing unless it is said to.
#[test]
fn an_entry_that_only_its_amount_attributes_is_nameless() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let here = [DOUBT, b1, a1, "3 k3 - 7EUR 600 arrived", "4 k4 p4 7EUR 700 arrived"];
    let here: Vec<Ours> = here.iter().map(|text| ours(text)).collect();
    let there = [b2, a2, "p3 - 7EUR 600", "p4 - 7EUR 700"];
    let there: Vec<Theirs> = there.iter().map(|text| theirs(text)).collect();
    let said = |there: &[Theirs], is_amount_proof| {
        let rules = Rules { is_amount_proof, ..rules() };
        tell(&compare(&here, there, &sight(), &rules).verdicts[0])
    };
    assert_eq!(said(&there, false), "unproven, found");
    assert_eq!(said(&there, true), "absent, not arrived");
    // An id that we were told is a name.
    let here: Vec<Ours> = here.iter().filter(|our| our.wire_key != name("k3")).cloned().collect();
    let there: Vec<Theirs> =
        there.iter().filter(|their| their.provider_id != "p3").cloned().collect();
    let said = compare(&here, &there, &sight(), &rules());
    assert_eq!(tell(&said.verdicts[0]), "absent, not arrived");
}

/// One key that cannot be ours, on an entry that could be a doubt, speaks against every absence.
#[test]
fn a_key_column_that_is_cut_proves_no_absence() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    let other = "2 k2 - 6EUR 500 doubt";
    for (cut, expected) in [
        ("p2 k2:cha 6EUR 501", "absent, not arrived"),
        ("p2 x2 6EUR 501", "unproven, found"),
        ("p2 x2 - 501", "likely, found"),
        ("p2 x2 7EUR 501", "absent, not arrived"),
        ("p2 x2 6EUR 400", "unproven, found"),
    ] {
        // `name` completes keys that begin with k; this one is cut.
        let mut there: Vec<Theirs> = [b2, a2, cut].iter().map(|text| theirs(text)).collect();
        let is_cut = cut.contains(":cha");
        if is_cut {
            there[2].key = Some("k2:charge:0123".to_owned());
        }
        let here: Vec<Ours> = [DOUBT, b1, a1, other].iter().map(|text| ours(text)).collect();
        let comparison = compare(&here, &there, &sight(), &rules());
        let expected = if is_cut { "unproven, found" } else { expected };
        assert_eq!(tell(&comparison.verdicts[0]), expected, "{cut}");
    }
}

#[test]
fn an_account_reaches_to_its_newest_match_or_to_what_is_stated() {
    let (b1, b2) = BEFORE;
    let late = ("late".to_owned(), vec![]);
    let proven = ("absent, not arrived".to_owned(), vec![]);
    // An export of before the doubt, and of less than a grace after it.
    assert_eq!(weighed(&[b1], &[b2], &sight()), late);
    assert_eq!(weighed(&[b1, "3 k3 - 7EUR 559 arrived"], &[b2, "p3 k3 7EUR 559"], &sight()), late);
    assert_eq!(
        weighed(&[b1, "3 k3 - 7EUR 560 arrived"], &[b2, "p3 k3 7EUR 560"], &sight()),
        proven
    );
    let stated = |minute| Sight { stated_until: Some(at(minute)), ..sight() };
    assert_eq!(weighed(&[b1], &[b2], &stated(559)), late);
    assert_eq!(weighed(&[b1], &[b2], &stated(560)), proven);
    // A statement is no match.
    let said = weighed(&[], &[], &stated(NOW));
    assert_eq!(said.1, [Contradiction::NoMatch]);
}

/// The times of an account may be those of another time zone.
#[test]
fn a_reach_is_counted_by_our_own_times() {
    let (b1, b2) = BEFORE;
    // Asked for here at minute 300, dated there eight hours later.
    let said = weighed(&[b1, "3 k3 - 7EUR 300 arrived"], &[b2, "p3 k3 7EUR 780"], &sight());
    assert_eq!(said.0, "late");
}

#[test]
fn an_entry_that_is_not_decided_proves_nothing() {
    let ((b1, b2), (a1, a2)) = (BEFORE, AFTER);
    for standing in ["doubt", "arrived", "waiting", "given-up"] {
        let here = [b1, a1, &format!("1 k1 - 5EUR 500 {standing}")];
        let here: Vec<Ours> = here.iter().map(|text| ours(text)).collect();
        let mut there: Vec<Theirs> =
            [b2, a2, "p1 k1 5EUR 500"].iter().map(|text| theirs(text)).collect();
        there[2].is_made = false;
        let verdicts = compare(&here, &there, &sight(), &rules()).verdicts;
        assert_eq!(tell(&verdicts[2]), "late by key", "{standing}");
        // Beside one that was made, it says nothing.
        there.push(theirs("p2 k1 5EUR 500"));
        let verdicts = compare(&here, &there, &sight(), &rules()).verdicts;
        assert_eq!(verdicts[2].class, Class::Matched, "{standing}");
    }
    let mut pending = theirs("p1 k1 5EUR 500");
    pending.is_made = false;
    assert_eq!(compare(&[], &[pending], &sight(), &rules()).verdicts, []);
}

/// A date in the future is wrong, and it is the date that tells the lives of a key apart.
#[test]
fn an_entry_of_the_future_is_not_decided() {
    let mut there: Vec<Theirs> = ["p1 k1 5EUR 505", "p2 k1 5EUR 506", "p3 - 5EUR 90000"]
        .iter()
        .map(|text| theirs(text))
        .collect();
    let places = super::super::super::distrust_future(&mut there, at(500), &rules());
    assert_eq!(places, [1, 2]);
    let is_made: Vec<bool> = there.iter().map(|their| their.is_made).collect();
    assert_eq!(is_made, [true, false, false]);
}

/// A source may give entries of after the window. Ours are not read that far.
#[test]
fn an_entry_after_the_window_is_not_missing_here() {
    let sight = Sight { window: Window { from: at(0), until: at(1000) }, ..sight() };
    for (their, class) in [("p1 k1 5EUR 1059", Some(Class::MissingHere)), ("p1 k1 5EUR 1060", None)]
    {
        let verdicts = compare(&[], &[theirs(their)], &sight, &rules()).verdicts;
        assert_eq!(verdicts.first().map(|verdict| verdict.class), class, "{their}");
    }
}
