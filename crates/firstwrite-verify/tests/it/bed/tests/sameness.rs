//! Which requests are one.

use super::super::Bed;
use super::super::fingerprint::of_body;
use super::client::Ask;
use super::{Seen, effects, ensure, promises};

promises! {
    another_body_is_refused: [NoBodyComparison, RunsOtherBody, ReplyBeforeRecord];
    another_query_is_refused: [BodyOnlyFingerprint, ReplyBeforeRecord];
    another_path_or_method_gets_nothing_stored: [BodyOnlyFingerprint];
    big_integers_are_told_apart: [FloatFingerprint, NoBodyComparison, RunsOtherBody, ReplyBeforeRecord];
    members_of_one_name_are_told_apart:
        [LastWinsDuplicates, NoBodyComparison, RunsOtherBody, ReplyBeforeRecord];
    another_spelling_is_the_same: [ReplyBeforeRecord];
}

/// The second body is refused after the first.
async fn told_apart(bed: &Bed, first: &str, second: &str) -> Seen {
    Ask::order("apart").body(first).send(bed).await?.has_status(201)?;
    Ask::order("apart").body(second).send(bed).await?.is_refusal(422)?;
    effects(bed, 1)
}

async fn another_body_is_refused(bed: Bed) -> Seen {
    told_apart(&bed, r#"{"amount":100}"#, r#"{"amount":101}"#).await
}

async fn big_integers_are_told_apart(bed: Bed) -> Seen {
    told_apart(&bed, r#"{"amount":9007199254740992}"#, r#"{"amount":9007199254740993}"#).await
}

async fn members_of_one_name_are_told_apart(bed: Bed) -> Seen {
    told_apart(&bed, r#"{"amount":1,"amount":2}"#, r#"{"amount":2}"#).await
}

async fn another_query_is_refused(bed: Bed) -> Seen {
    Ask::order("apart").send(&bed).await?.has_status(201)?;
    Ask::order("apart").at("POST", "/orders?x=1").send(&bed).await?.is_refusal(422)?;
    effects(&bed, 1)
}

async fn another_path_or_method_gets_nothing_stored(bed: Bed) -> Seen {
    Ask::order("apart").send(&bed).await?.has_status(201)?;
    for (method, target, status) in [("POST", "/other", 404), ("PUT", "/orders", 405)] {
        let reply = Ask::order("apart").at(method, target).send(&bed).await?;
        reply.is_refusal(status)?;
        ensure(!reply.is_replay(), || format!("{method} {target} is a replay"))?;
    }
    effects(&bed, 1)
}

async fn another_spelling_is_the_same(bed: Bed) -> Seen {
    let first = Ask::order("same").body(r#"{"amount":100,"note":"a/b"}"#).send(&bed).await?;
    let again = Ask::order("same").body("{ \"note\" : \"a\\/\\u0062\",\n\"amount\" : 1e2 }");
    let again = again.send(&bed).await?;
    let kinds = [&first, &again].map(|reply| reply.header("X-Order-Kind"));
    ensure(kinds == [Some("standard"); 2], || format!("refused: {again:?}"))?;
    effects(&bed, 1)
}

#[test]
fn bodies_are_compared_by_what_they_say() {
    let are_one = |a: &str, b: &str| of_body(a.as_bytes(), None) == of_body(b.as_bytes(), None);
    for (a, b) in [
        ("100", "1e2"),
        ("100", "100.0"),
        ("0.5", "5E-1"),
        ("-0", "0.0e7"),
        ("123456789012345678901234567890", "12345678901234567890123456789e1"),
        ("[1, 2]", "[1.0,2]"),
        (r#"{"a":1,"b":[]}"#, r#" { "b" : [ ] , "a" : 10e-1 } "#),
        (r#""\u00e9""#, "\"\u{e9}\""),
        ("1e99999999999999999999", "1e99999999999999999999"),
    ] {
        assert!(are_one(a, b), "{a} is {b}");
    }
    for (a, b) in [
        ("1", "-1"),
        ("1", "10"),
        ("1", "\"1\""),
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.10000000000000000000001"),
        ("[1,2]", "[2,1]"),
        ("[12]", "[1,2]"),
        ("null", "\"null\""),
        (r#"{"a":1,"a":1}"#, r#"{"a":1}"#),
        (r#"{"a":1,"b":{"c":1,"c":2}}"#, r#"{"b":{"c":1,"c":2},"a":1}"#),
        ("no json", "no  json"),
        ("01", "1"),
        ("1.", "1"),
        ("1e99999999999999999999", "1E99999999999999999999"),
        ("", " "),
    ] {
        assert!(!are_one(a, b), "{a} is not {b}");
    }
}
