//! One key in several lives: its wire key stays the same, so times tell whose effect it is.

use super::*;

#[test]
fn an_entry_older_than_the_request_is_no_proof_of_it() {
    for (standing, expected) in [
        ("doubt", "differs by key, found"),
        ("arrived", "differs by key, found"),
        ("waiting", "late"),
        ("sending", "late"),
        ("given-up", "absent"),
        ("closed", "absent"),
    ] {
        let our = format!("1 k1 - 5EUR 500 {standing}");
        let told = told(&[&our], &["p1 k1 5EUR 494"], &sight(), &rules());
        assert_eq!(told[0], expected, "{standing}");
    }
    // The clocks may differ by the tolerance.
    check(&["1 k1 - 5EUR 500 doubt"], &["p1 k1 5EUR 495"], &["matched by key, arrived"]);
    check(&["1 k1 p1 5EUR 500 arrived"], &["p1 - 5EUR 400"], &["differs by id, found"]);
}

#[test]
fn an_effect_of_an_earlier_life_is_no_duplicate_of_this_one() {
    check(
        &["1 k1 - 5EUR 500 doubt"],
        &["p1 k1 5EUR 100", "p2 k1 5EUR 500"],
        &["matched by key, arrived", "missing_here, found"],
    );
    check(
        &["1 k1 - 5EUR 100 arrived", "2 k1 - 5EUR 500 doubt"],
        &["p1 k1 5EUR 100", "p2 k1 5EUR 500"],
        &["matched by key", "matched by key, arrived"],
    );
}

#[test]
fn one_effect_for_two_requests_is_found() {
    // The provider recognised the key, and gave the new order the old payment.
    check(
        &["1 k1 p1 5EUR 500 arrived", "2 k1 p1 5EUR 600 arrived"],
        &["p1 k1 5EUR 500"],
        &["matched by key", "differs by key, found"],
    );
    check(
        &["1 k1 p1 5EUR 500 arrived", "2 k1 - 5EUR 600 doubt"],
        &["p1 k1 5EUR 500"],
        &["matched by key", "differs by key, found"],
    );
    // An effect after both could be either's.
    check(
        &["1 k1 - 5EUR 500 doubt", "2 k1 - 5EUR 600 doubt"],
        &["p1 k1 5EUR 700"],
        &["differs by key, found", "differs by key, found"],
    );
    check(
        &["1 k1 - 5EUR 500 doubt", "2 k1 p1 5EUR 600 arrived"],
        &["p1 k1 5EUR 700"],
        &["differs by key, found", "matched by key"],
    );
    // So is one that only its id names, and one that stands under the key of another request.
    check(
        &["1 k1 p1 5EUR 500 arrived", "2 k2 p1 5EUR 501 doubt"],
        &["p1 - 5EUR 502"],
        &["differs by id, found", "differs by id, found"],
    );
    check(
        &["1 k1 - 5EUR 500 arrived", "2 k2 p1 5EUR 501 doubt"],
        &["p1 k1 5EUR 502"],
        &["matched by key", "differs by id, found"],
    );
}
