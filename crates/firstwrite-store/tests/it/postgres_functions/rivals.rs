//! Two connections on one key: nobody waits for a rival's handler, and one of two writers wins.

use std::time::Duration;

use super::{Schema, Session, code_of, completing, in_schema, reserving};

/// Far more looks than it takes a statement to get stuck.
const LOOKS_MAX: usize = 20_000;
pub(super) const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// Waits until somebody waits for a lock in this schema's statements.
pub(super) async fn until_blocked(watcher: &Session) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'",
        watcher.schema
    );
    for _ in 0..LOOKS_MAX {
        if watcher.value(&sql).await != "0" {
            return;
        }
    }
    panic!("nobody waits");
}

#[tokio::test]
async fn a_rival_of_an_open_reservation_is_told_at_once() {
    in_schema(async |schema| {
        let (first, rival) = (schema.connect().await, schema.connect().await);
        rival.run("SET lock_timeout = '10ms'").await;
        first.reserve("other").await;
        for (end, expected) in [("ROLLBACK", "fresh"), ("COMMIT", "in progress")] {
            let key = end.to_lowercase();
            first.run("BEGIN").await;
            first.reserve(&key).await;
            let row = rival.row(&reserving(&key)).await;
            assert_eq!(row[..3], [Some("in progress".to_owned()), None, None]);
            first.run(end).await;
            assert_eq!(rival.verdict(&key).await, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_holds_the_records_lock_is_not_robbed_of_its_key() {
    in_schema(async |schema| {
        let (handler, rival) = (schema.connect().await, schema.connect().await);
        handler
            .run(
                "BEGIN; SELECT pg_advisory_xact_lock(
                      firstwrite.lock_number(firstwrite.record_id('acme', 'k')))",
            )
            .await;
        assert_eq!(rival.verdict("k").await, "in progress");
        handler.run("ROLLBACK").await;
        assert_eq!(rival.verdict("k").await, "fresh");
    })
    .await;
}

/// A late owner has completed and not committed; a rival wants to take over, waits, and then sees how
/// it ended.
async fn take_over_against_a_late_owner(schema: &Schema, end: &str) -> String {
    let (owner, rival, watcher) =
        (schema.connect().await, schema.connect().await, schema.connect().await);
    let fence = owner.reserve(end).await;
    watcher.pass(Duration::from_secs(30)).await;
    owner.run("BEGIN").await;
    owner.run(&completing(end, fence, "late but first")).await;
    let (verdict, ()) = tokio::join!(rival.verdict(end), async {
        until_blocked(&watcher).await;
        owner.run(end).await;
    });
    verdict
}

#[tokio::test]
async fn a_late_owner_that_completes_first_wins_over_the_take_over() {
    in_schema(async |schema| {
        assert_eq!(take_over_against_a_late_owner(schema, "COMMIT").await, "replay");
        assert_eq!(take_over_against_a_late_owner(schema, "ROLLBACK").await, "take over");
    })
    .await;
}

#[tokio::test]
async fn a_take_over_that_comes_first_shuts_the_late_owner_out() {
    in_schema(async |schema| {
        let (owner, rival, watcher) =
            (schema.connect().await, schema.connect().await, schema.connect().await);
        let fence = owner.reserve("k").await;
        watcher.pass(Duration::from_secs(30)).await;
        rival.run("BEGIN").await;
        assert_eq!(rival.verdict("k").await, "take over");
        let complete = completing("k", fence, "late");
        let (code, ()) = tokio::join!(owner.code(&complete), async {
            until_blocked(&watcher).await;
            rival.run("COMMIT").await;
        });
        assert_eq!(code, "FW001");
    })
    .await;
}

#[tokio::test]
async fn a_renewal_in_between_saves_the_attempt_from_the_take_over() {
    in_schema(async |schema| {
        let (owner, rival, watcher) =
            (schema.connect().await, schema.connect().await, schema.connect().await);
        let fence = owner.reserve("k").await;
        watcher.pass(Duration::from_secs(30)).await;
        owner.run("BEGIN").await;
        owner.run(&format!("SELECT firstwrite.renew('acme', 'k', {fence})")).await;
        let (verdict, ()) = tokio::join!(rival.verdict("k"), async {
            until_blocked(&watcher).await;
            owner.run("COMMIT").await;
        });
        assert_eq!(verdict, "in progress");
        owner.run(&completing("k", fence, "first")).await;
        assert_eq!(rival.verdict("k").await, "replay");
    })
    .await;
}

#[tokio::test]
async fn an_old_snapshot_never_completes_a_key_that_was_taken_over() {
    in_schema(async |schema| {
        let (owner, rival) = (schema.connect().await, schema.connect().await);
        for (number, level) in LEVELS.into_iter().enumerate() {
            let key = format!("k-{number}");
            let fence = owner.reserve(&key).await;
            owner.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
            owner.run("INSERT INTO firstwrite.orders (item) VALUES ('late')").await;
            rival.pass(Duration::from_secs(30)).await;
            let taken = rival.reserve(&key).await;
            let error = owner.ask(&completing(&key, fence, "late")).await.unwrap_err();
            assert!(["FW001", "40001"].contains(&code_of(&error).as_str()), "{level}: {error:?}");
            owner.run("COMMIT").await;
            assert_eq!(rival.value("SELECT count(*) FROM firstwrite.orders").await, "0", "{level}");
            rival.run(&completing(&key, taken, "second")).await;
        }
    })
    .await;
}

#[tokio::test]
async fn of_two_that_take_over_at_once_one_runs_at_every_isolation_level() {
    in_schema(async |schema| {
        let (a, b) = (schema.connect().await, schema.connect().await);
        for (number, level) in LEVELS.into_iter().enumerate() {
            let key = format!("k-{number}");
            a.reserve(&key).await;
            a.pass(Duration::from_secs(30)).await;
            for session in [&a, &b] {
                session
                    .run(&format!(
                        "BEGIN ISOLATION LEVEL {level}; SELECT 1 FROM firstwrite.records"
                    ))
                    .await;
            }
            assert_eq!(a.verdict(&key).await, "take over", "{level}");
            assert_eq!(b.verdict(&key).await, "in progress", "{level}");
            a.run("COMMIT").await;
            // An old snapshot cannot be told what stands now, and is told to try again.
            match b.ask(&reserving(&key)).await {
                Ok(rows) => assert_eq!(rows[0][0].as_deref(), Some("in progress"), "{level}"),
                Err(error) => assert_eq!(code_of(&error), "40001", "{level}"),
            }
            b.run("ROLLBACK").await;
            let count = format!("SELECT fence >> 40 FROM firstwrite.status('acme', '{key}')");
            assert_eq!(a.value(&count).await, "2", "{level}");
        }
    })
    .await;
}
