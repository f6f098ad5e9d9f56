//! Transactions that an application repeats, or runs twice at once, under one fence: their rows and messages
//! are committed once.

use std::time::Duration;

use super::rivals::{LEVELS, until_blocked};
use super::{Schema, Session, code_of, completing, enqueuing, in_schema};

/// How the application ends its attempt: with or without a message before the outcome.
const WAYS: [&[Step]; 2] = [&[Step::Enqueue, Step::Complete], &[Step::Complete]];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Enqueue,
    Complete,
}

impl Step {
    fn sql(self, key: &str, fence: i64) -> String {
        match self {
            Self::Enqueue => enqueuing(key, fence),
            Self::Complete => completing(key, fence, "ok"),
        }
    }
}

/// Writes a business row and takes all steps but does not commit; the error's code if a step is refused.
async fn run(session: &Session, way: &[Step], key: &str, fence: i64) -> Result<(), String> {
    let order = format!("INSERT INTO firstwrite.orders (item) VALUES ('{key}')");
    session.run(&order).await;
    for step in way {
        session.ask(&step.sql(key, fence)).await.map_err(|error| code_of(&error))?;
    }
    Ok(())
}

/// How many orders, messages and outcomes were committed under a key.
async fn counts(session: &Session, key: &str) -> [String; 3] {
    let row = session
        .row(&format!(
            "SELECT (SELECT count(*) FROM firstwrite.orders WHERE item = '{key}'),
                    (SELECT count(*) FROM firstwrite.messages WHERE derived_key = '{key}:pack'),
                    (SELECT count(*) FROM firstwrite.endings
                      WHERE id = firstwrite.record_id('acme', '{key}') AND outcome IS NOT NULL)"
        ))
        .await;
    [0, 1, 2].map(|place: usize| row[place].clone().unwrap())
}

/// What [`counts`] says of one run of `way`.
fn once(way: &[Step]) -> [String; 3] {
    let message_count = usize::from(way.contains(&Step::Enqueue));
    ["1".to_owned(), message_count.to_string(), "1".to_owned()]
}

#[tokio::test]
async fn a_transaction_repeated_after_its_commit_was_not_acknowledged_commits_nothing() {
    in_schema(async |schema| {
        let (first, again) = (schema.connect().await, schema.connect().await);
        for (number, way) in WAYS.into_iter().enumerate() {
            for level in LEVELS {
                let key = format!("k-{number}-{}", level.len());
                let fence = first.reserve(&key).await;
                first.run("BEGIN").await;
                run(&first, way, &key, fence).await.unwrap();
                // Its acknowledgement does not reach the application.
                first.run("COMMIT").await;
                again.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
                let refused = run(&again, way, &key, fence).await;
                assert_eq!(refused, Err("FW002".to_owned()), "{way:?} {level}");
                again.run("COMMIT").await;
                assert_eq!(counts(&first, &key).await, once(way), "{way:?} {level}");
                let body = format!("SELECT body FROM firstwrite.status('acme', '{key}')");
                assert_eq!(again.value(&body).await, "\\x6f6b", "the next step answers");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_refusal_of_a_repeated_transaction_names_the_next_step() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("secret-key").await;
        session.run(&enqueuing("secret-key", fence)).await;
        let step = session.ask(&enqueuing("secret-key", fence)).await.unwrap_err();
        session.run(&completing("secret-key", fence, "ok")).await;
        let complete = session.ask(&completing("secret-key", fence, "ok")).await.unwrap_err();
        let enqueue = session.ask(&enqueuing("secret-key", fence)).await.unwrap_err();
        for (error, code) in [(step, "FW006"), (complete, "FW002"), (enqueue, "FW002")] {
            assert_eq!(code_of(&error), code);
            let error = error.as_db_error().unwrap();
            let hint = error.hint().unwrap();
            assert!(hint.contains("Roll back") && hint.contains(".status"), "{hint}");
            let said = format!("{} {:?} {hint}", error.message(), error.detail());
            assert!(!said.contains("secret-key"), "{said}");
        }
    })
    .await;
}

/// Two transactions at work under one fence: the first has taken its steps, the second waits for it.
/// Returns what the second was told once the first ended with `end`.
async fn two_at_once(
    schema: &Schema,
    (way, level, end): (&[Step], &str, &str),
    key: &str,
) -> Result<(), String> {
    let (first, second, watcher) =
        (schema.connect().await, schema.connect().await, schema.connect().await);
    let fence = watcher.reserve(key).await;
    for session in [&second, &first] {
        // Its snapshot, where it has one, is older than what the other commits.
        session.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT FROM firstwrite.orders")).await;
    }
    run(&first, way, key, fence).await.unwrap();
    let (ran, ()) = tokio::join!(run(&second, way, key, fence), async {
        until_blocked(&watcher).await;
        first.run(end).await;
    });
    second.run("COMMIT").await;
    assert_eq!(counts(&watcher, key).await, once(way), "{way:?} {level} {end}");
    ran
}

#[tokio::test]
async fn of_two_transactions_under_one_fence_one_commits_at_every_isolation_level() {
    in_schema(async |schema| {
        for (number, way) in WAYS.into_iter().enumerate() {
            for level in LEVELS {
                let key = |end: &str| format!("k-{number}-{}-{end}", level.len());
                let ran = two_at_once(schema, (way, level, "COMMIT"), &key("COMMIT")).await;
                let code = if level == "READ COMMITTED" { "FW002" } else { "40001" };
                assert_eq!(ran, Err(code.to_owned()), "{way:?} {level}");
                let ran = two_at_once(schema, (way, level, "ROLLBACK"), &key("ROLLBACK")).await;
                assert_eq!(ran, Ok(()), "{way:?} {level}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn who_enqueued_before_a_rival_completed_cannot_commit_a_second_message() {
    in_schema(async |schema| {
        for level in LEVELS {
            let key = format!("k-{}", level.len());
            let (first, second) = (schema.connect().await, schema.connect().await);
            let fence = first.reserve(&key).await;
            for session in [&first, &second] {
                session.run(&format!("BEGIN ISOLATION LEVEL {level}")).await;
            }
            first.run(&enqueuing(&key, fence)).await;
            run(&second, &[Step::Complete], &key, fence).await.unwrap();
            second.run("COMMIT").await;
            let ended = first.ask(&completing(&key, fence, "ok")).await.unwrap_err();
            assert!(["FW002", "40001"].contains(&code_of(&ended).as_str()), "{level}: {ended:?}");
            first.run("COMMIT").await;
            assert_eq!(counts(&second, &key).await, once(&[Step::Complete]), "{level}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_transaction_may_complete_again_what_it_completed_itself() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let (way, fence) = (WAYS[0], session.reserve("k").await);
        session.run("BEGIN; SAVEPOINT undone").await;
        run(&session, way, "k", fence).await.unwrap();
        session.run("ROLLBACK TO undone; SAVEPOINT kept").await;
        run(&session, way, "k", fence).await.unwrap();
        session.run("RELEASE kept").await;
        let until = session.value(&completing("k", fence, "ok")).await;
        session.pass(Duration::from_secs(5)).await;
        session.run("SAVEPOINT again").await;
        assert_eq!(session.value(&completing("k", fence, "ok")).await, until);
        session.run("ROLLBACK TO again").await;
        assert_eq!(session.value(&completing("k", fence, "ok")).await, until);
        session.run("SAVEPOINT other").await;
        assert_eq!(session.code(&completing("k", fence, "other")).await, "FW003");
        session.run("ROLLBACK TO other; COMMIT").await;
        assert_eq!(counts(&session, "k").await, once(way));
    })
    .await;
}

#[tokio::test]
async fn a_step_is_enqueued_once_in_an_attempt_and_again_in_a_later_one() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let messages = "SELECT count(*) FROM firstwrite.messages";
        let taken_over = session.reserve("k").await;
        session.run(&enqueuing("k", taken_over)).await;
        assert_eq!(session.code(&enqueuing("k", taken_over)).await, "FW006");
        session.run(&enqueuing("k", taken_over).replace("'pack'", "'bill'")).await;
        assert_eq!(session.value(messages).await, "2");
        session.pass(Duration::from_secs(30)).await;
        let fence = session.reserve("k").await;
        session.run(&enqueuing("k", fence)).await;
        session.run(&completing("k", fence, "ok")).await;
        assert_eq!(session.value(messages).await, "3");
        // The next life of the key.
        session.pass(Duration::from_hours(26)).await;
        let fence = session.reserve("k").await;
        session.run("BEGIN").await;
        session.run(&completing("k", fence, "ok")).await;
        session.run(&enqueuing("k", fence)).await;
        session.run("COMMIT").await;
        assert_eq!(session.value(messages).await, "4");
    })
    .await;
}

#[tokio::test]
async fn what_the_gateway_completed_is_enqueued_for_and_completed_no_more() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("k").await;
        session
            .run(&format!(
                "INSERT INTO firstwrite.endings (id, fence, ended_at, retained_until, kept_until, outcome)
                 SELECT firstwrite.record_id('acme', 'k'), {fence}, n, n + interval '1 day',
                        n + interval '1 day', firstwrite.outcome_bytes(201, '[]', 'ok')
                   FROM firstwrite.now() AS n"
            ))
            .await;
        assert_eq!(session.code(&enqueuing("k", fence)).await, "FW002");
        assert_eq!(session.code(&completing("k", fence, "ok")).await, "FW002");
        assert_eq!(counts(&session, "k").await, ["0", "0", "1"].map(str::to_owned));
    })
    .await;
}
