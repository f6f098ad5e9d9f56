//! Who may end an attempt, and what happens to the rows of one that may not.

use std::time::Duration;

use firstwrite_core::Outcome;
use http::StatusCode;

use super::encoding::rust_bytes;
use super::{completing, enqueuing, in_schema, releasing};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn an_outcome_stands_as_the_first_transaction_wrote_it() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("k").await;
        let until = session.value(&completing("k", fence, "first")).await;
        session.pass(Duration::from_secs(5)).await;
        for body in ["first", "second"] {
            assert_eq!(session.code(&completing("k", fence, body)).await, "FW002", "{body}");
        }
        let row = session
            .row("SELECT state, fence, status, headers, body, retained_until FROM firstwrite.status('acme', 'k')")
            .await;
        let fence = fence.to_string();
        let expected =
            ["completed", &fence, "201", r#"[["location", "/orders/1"]]"#, "\\x6669727374", &until];
        assert_eq!(row, expected.map(|value| Some(value.to_owned())));
    })
    .await;
}

#[tokio::test]
async fn what_reserve_was_told_of_retention_counts_from_completion_in_hours_not_in_calendar_days() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        for spans in ["retention => '0 s'", "retention => null", "refuse_spent_for => '-1 s'"] {
            let refused = format!("SELECT firstwrite.reserve('acme', 'k', sha256('a'), {spans})");
            assert_eq!(session.code(&refused).await, "FW003", "{spans}");
        }
        let reserve = "SELECT fence FROM firstwrite.reserve(
            'acme', 'k', sha256('a'), retention => '1 day', refuse_spent_for => '2 days')";
        let fence = session.value(reserve).await;
        session.pass(Duration::from_secs(5)).await;
        // The night to 8 March 2027 is an hour short there.
        session
            .run(
                "SET timezone = 'America/New_York'; UPDATE firstwrite.test_clock SET millis =
                  extract(epoch FROM timestamptz '2027-03-13 12:00 America/New_York') * 1000",
            )
            .await;
        session.run(&format!("SELECT firstwrite.complete('acme', 'k', {fence}, 200)")).await;
        let row = session
            .row(
                "SELECT extract(epoch FROM retained_until - firstwrite.now())::int,
                         extract(epoch FROM kept_until - retained_until)::int FROM firstwrite.keys",
            )
            .await;
        assert_eq!(row, [Some("86400".to_owned()), Some("172800".to_owned())]);
        session.pass(Duration::from_hours(24)).await;
        assert_eq!(session.verdict("k").await, "expired");
    })
    .await;
}

#[tokio::test]
async fn an_attempt_that_lost_its_key_cannot_complete_and_its_rows_are_rolled_back() {
    in_schema(async |schema| {
        let (late, session) = (schema.connect().await, schema.connect().await);
        for way in ["taken over", "released", "released and reserved again"] {
            let fence = session.reserve(way.split(' ').next().unwrap()).await;
            let key = way.split(' ').next().unwrap();
            if way == "taken over" {
                session.pass(LEASE).await;
                assert!(session.reserve(key).await > fence);
            } else {
                let release = releasing(key, fence);
                assert_eq!(session.value(&release).await, "t");
                assert_eq!(session.value(&release).await, "f", "{way}");
            }
            if way == "released and reserved again" {
                assert_ne!(session.reserve(key).await, fence);
            }
            late.run("BEGIN; INSERT INTO firstwrite.orders (item) VALUES ('late')").await;
            assert_eq!(late.code(&completing(key, fence, "late")).await, "FW001", "{way}");
            late.run("COMMIT").await;
            assert_eq!(session.code(&enqueuing(key, fence)).await, "FW001", "{way}");
            assert_eq!(session.value("SELECT count(*) FROM firstwrite.orders").await, "0", "{way}");
            let renew = format!("SELECT firstwrite.renew('acme', '{key}', {fence})");
            assert_eq!(session.row(&renew).await, [None], "{way}");
            let uncertain = format!("SELECT firstwrite.mark_uncertain('acme', '{key}', {fence})");
            assert_eq!(session.value(&uncertain).await, "f", "{way}");
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_polls_learns_of_a_released_attempt_for_an_hour_unless_the_key_is_used_again() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        for (status, code) in [("", 500), (", 429", 429), (", 409", 409)] {
            let fence = session.reserve("k").await;
            let release = format!("SELECT firstwrite.release('acme', 'k', {fence}{status})");
            assert_eq!(session.value(&release).await, "t");
            let told = "SELECT state, fence, status, headers, body FROM firstwrite.status('acme', 'k')";
            let text = |text: &str| Some(text.to_owned());
            let expected = [text("released"), text(&fence.to_string()), text(&code.to_string())];
            assert_eq!(session.row(told).await[..3], expected);
            let kept = session
                .row(
                    "SELECT encode(outcome, 'hex'), extract(epoch FROM retained_until - firstwrite.now())::int,
                            extract(epoch FROM kept_until - firstwrite.now())::int FROM firstwrite.standing",
                )
                .await;
            let note = rust_bytes(Outcome::released(StatusCode::from_u16(code).unwrap())).await;
            assert_eq!(kept, [Some(note), text("0"), text("3600")], "as the library's own");
        }
        assert_eq!(session.verdict("k").await, "take over");
        assert_eq!(session.value("SELECT state FROM firstwrite.keys").await, "reserved");
        for status in ["null", "99", "1000"] {
            let refused = format!("SELECT firstwrite.release('acme', 'k', 1, {status})");
            assert_eq!(session.code(&refused).await, "FW003", "{status}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_completion_that_an_operator_took_back_is_freed_by_its_owner() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("k").await;
        // As the store leaves it: the ending goes on to block the owner.
        session
            .run(
                "INSERT INTO firstwrite.endings SELECT id, fence, now(), now(), now() FROM firstwrite.records;
                 UPDATE firstwrite.records SET lease_until = firstwrite.uncertain(firstwrite.now())",
            )
            .await;
        assert_eq!(session.value(&releasing("k", fence)).await, "t");
        assert_eq!(session.verdict("k").await, "fresh");
    })
    .await;
}

#[tokio::test]
async fn a_key_freed_long_ago_is_not_completed_by_its_former_owner() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("k").await;
        session.run(&releasing("k", fence)).await;
        // Its note is reaped, and so is what blocked it.
        session.run("DELETE FROM firstwrite.records; DELETE FROM firstwrite.endings").await;
        assert_eq!(session.code(&completing("k", fence, "late")).await, "FW001");
        session.reserve("k").await;
        assert_eq!(session.code(&completing("k", fence, "late")).await, "FW001");
    })
    .await;
}

#[tokio::test]
async fn an_uncertain_key_is_settled_by_its_owner_and_revived_by_nobody() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        for key in ["completes", "releases"] {
            let fence = session.reserve(key).await;
            let mark = format!("SELECT firstwrite.mark_uncertain('acme', '{key}', {fence})");
            assert_eq!(session.value(&mark).await, "t");
            session.pass(LEASE * 100).await;
            assert_eq!(session.verdict(key).await, "uncertain");
            let renew = format!("SELECT firstwrite.renew('acme', '{key}', {fence})");
            assert_eq!(session.row(&renew).await, [None]);
            if key == "completes" {
                session.run(&completing(key, fence, "settled")).await;
                assert_eq!(session.verdict(key).await, "replay");
                assert_eq!(session.value(&mark).await, "f", "completed is for good");
                assert_eq!(
                    session.value(&releasing(key, fence)).await,
                    "f",
                    "completed is for good"
                );
                assert_eq!(session.verdict(key).await, "replay");
            } else {
                session.run(&releasing(key, fence)).await;
                assert_eq!(session.verdict(key).await, "take over");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_renewed_lease_holds_and_one_that_is_not_renewed_does_not() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("k").await;
        session.pass(Duration::from_secs(29)).await;
        session.run(&format!("SELECT firstwrite.renew('acme', 'k', {fence}, '60 s')")).await;
        session.pass(Duration::from_millis(59_999)).await;
        assert_eq!(session.verdict("k").await, "in progress");
        session.pass(Duration::from_millis(1)).await;
        assert_eq!(session.verdict("k").await, "take over");
    })
    .await;
}

#[tokio::test]
async fn a_late_attempt_enqueues_nothing() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let late = session.reserve("k").await;
        session.pass(Duration::from_secs(31)).await;
        let fence = session.reserve("k").await;
        assert_eq!(session.code(&enqueuing("k", late)).await, "FW001");
        assert_eq!(session.code(&enqueuing("other", fence)).await, "FW001");
        session.run(&enqueuing("k", fence)).await;
        session.run(&completing("k", fence, "first")).await;
        assert_eq!(session.value("SELECT count(*) FROM firstwrite.messages").await, "1");
    })
    .await;
}

#[tokio::test]
async fn rows_messages_and_outcome_are_committed_together_or_not_at_all() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let counts = "SELECT (SELECT count(*) FROM firstwrite.orders),
                             (SELECT count(*) FROM firstwrite.messages),
                             (SELECT count(*) FROM firstwrite.endings WHERE outcome IS NOT NULL)";
        let fence = session.reserve("k").await;
        for (end, expected) in [("ROLLBACK", "0"), ("COMMIT", "1")] {
            session.run("BEGIN; INSERT INTO firstwrite.orders (item) VALUES ('book')").await;
            session.run(&enqueuing("k", fence)).await;
            session.run(&completing("k", fence, "first")).await;
            session.run(end).await;
            assert_eq!(session.row(counts).await, vec![Some(expected.to_owned()); 3], "{end}");
        }
    })
    .await;
}
