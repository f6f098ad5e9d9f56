//! What counts as a key.

use super::super::Bed;
use super::client::Ask;
use super::{Seen, effects, ensure, promises};

promises! {
    a_request_without_a_key_is_refused: [MissingKeyRuns, MissingKey500];
    an_empty_key_is_refused: [EmptyKeyAccepted];
    two_keys_are_refused: [FirstHeaderWins];
    control_characters_are_refused: [ControlCharacters500];
    what_is_no_key_is_refused: [];
    a_key_may_have_255_characters: [Refused255];
    a_longer_key_is_refused: [TruncatedKeys];
    every_character_counts: [TruncatedKeys, Refused255];
    quotes_are_no_part_of_a_key: [QuotedDiffers, ReplyBeforeRecord];
}

/// Every one of these is refused with 400, and nothing is done.
async fn refused(bed: &Bed, keys: &[&[u8]]) -> Seen {
    for key in keys {
        let ask = Ask::order("").without("Idempotency-Key").and("Idempotency-Key", *key);
        let reply = ask.send(bed).await?;
        let spelt = key.escape_ascii();
        reply.is_refusal(400).map_err(|seen| format!("{spelt}: {seen}"))?;
    }
    effects(bed, 0)
}

async fn a_request_without_a_key_is_refused(bed: Bed) -> Seen {
    Ask::order("").without("Idempotency-Key").send(&bed).await?.is_refusal(400)?;
    effects(&bed, 0)
}

async fn an_empty_key_is_refused(bed: Bed) -> Seen {
    refused(&bed, &[b"", b"  ", br#""""#]).await
}

async fn two_keys_are_refused(bed: Bed) -> Seen {
    for second in ["one", "other"] {
        let ask = Ask::order("one").and("Idempotency-Key", second);
        ask.send(&bed).await?.is_refusal(400)?;
    }
    effects(&bed, 0)
}

async fn control_characters_are_refused(bed: Bed) -> Seen {
    refused(&bed, &[b"a\x01b", b"a\tb", b"a\x7fb", b"\"a\x1fb\""]).await
}

async fn what_is_no_key_is_refused(bed: Bed) -> Seen {
    refused(
        &bed,
        &[b"a\x80b", "schl\u{fc}ssel".as_bytes(), br#""abc"#, br#"""#, br#""a"b"#, br#""a\b""#],
    )
    .await
}

async fn a_key_may_have_255_characters(bed: Bed) -> Seen {
    Ask::order(&"k".repeat(255)).send(&bed).await?.has_status(201)?;
    Ask::order(&format!("\"{}\"", "q".repeat(255))).send(&bed).await?.has_status(201)
}

async fn a_longer_key_is_refused(bed: Bed) -> Seen {
    refused(&bed, &["k".repeat(256).as_bytes(), "k".repeat(1000).as_bytes()]).await
}

async fn every_character_counts(bed: Bed) -> Seen {
    for end in ["a", "b"] {
        let reply = Ask::order(&("k".repeat(254) + end)).send(&bed).await?;
        reply.has_status(201)?;
        ensure(!reply.is_replay(), || "two keys are one".to_owned())?;
    }
    effects(&bed, 2)
}

async fn quotes_are_no_part_of_a_key(bed: Bed) -> Seen {
    Ask::order("same").send(&bed).await?.has_status(201)?;
    Ask::order(r#""same""#).send(&bed).await?;
    effects(&bed, 1)?;
    Ask::order(r#""sa\"me""#).send(&bed).await?.has_status(201)?;
    Ask::order(r#"sa"me"#).send(&bed).await?;
    effects(&bed, 2)
}
