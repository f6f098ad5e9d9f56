//! Business rows, messages and the record in one commit: all or nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::protocol::Atomic;
use firstwrite_core::{Fence, Message, OnLostAnswer, Policy, State, StoreErrorKind, Verdict};

use super::{Case, Failure, Harness, OUTBOX, TRANSACTIONS, TestResult, case, expect, expect_equal};
use crate::{Ending, Script, ScriptReport, sample};

pub(super) const CASES: &[Case] = &[
    case!("transaction", TRANSACTIONS, rows_and_record_are_committed_together),
    case!("transaction", TRANSACTIONS, a_duplicate_is_replayed_and_does_not_run),
    case!("transaction", TRANSACTIONS, a_client_error_keeps_the_record_and_not_the_rows),
    case!("transaction", TRANSACTIONS, a_server_error_keeps_nothing),
    case!("transaction", TRANSACTIONS, a_failing_handler_keeps_nothing),
    case!("transaction", TRANSACTIONS, a_panicking_handler_keeps_nothing_and_the_store_goes_on),
    case!("transaction", TRANSACTIONS, another_request_under_a_used_key_does_not_run),
    case!("transaction", TRANSACTIONS, an_attempt_in_progress_refuses_it),
    case!("transaction", TRANSACTIONS, a_lapsed_attempt_that_is_safe_to_repeat_is_taken_over),
    case!("transaction", TRANSACTIONS, a_lapsed_attempt_that_is_not_safe_refuses_it),
    case!("transaction", TRANSACTIONS, an_expired_outcome_is_taken_over),
    case!("transaction", TRANSACTIONS, of_many_at_once_one_is_kept),
    case!("transaction", TRANSACTIONS, an_answer_over_the_cap_leaves_a_tombstone_and_the_rows),
    case!("transaction", OUTBOX, messages_are_committed_with_the_rows),
    case!("transaction", OUTBOX, messages_of_what_was_rolled_back_are_gone),
];

async fn rows_and_record_are_committed_together(harness: Harness) -> TestResult {
    let report = run(&harness, 1, answer(201)).await?;
    expect(report.ran, "the handler ran")?;
    let Atomic::Kept { response, retained_until } = report.ended else {
        return Err(Failure::new("a 201 is kept"));
    };
    expect_equal("the handler's own answer", &response.status().as_u16(), &201)?;
    expect_equal("the row", &row(&harness, 1).await, &Some("paid".to_owned()))?;
    let record = harness.record(harness.request("k").id).await?;
    let policy = Policy::default();
    let now = harness.store().now().await?;
    let wanted = State::completed(sample::outcome(201, "answer 1"), policy.record_retention(), now);
    expect_equal("the record", &record.state, &wanted)?;
    expect_equal("how long it is kept", &retained_until, &now.plus(policy.retention))?;
    expect_equal("the attempt's fence", &record.fence, &Fence::first(1))
}

async fn a_duplicate_is_replayed_and_does_not_run(harness: Harness) -> TestResult {
    run(&harness, 1, answer(201)).await?;
    harness.advance(Duration::from_hours(1)).await;
    let report = run(&harness, 2, answer(201)).await?;
    expect(!report.ran, "the handler does not run again")?;
    replayed(&report, "answer 1")?;
    expect(row(&harness, 2).await.is_none(), "a duplicate writes no row")
}

async fn a_client_error_keeps_the_record_and_not_the_rows(harness: Harness) -> TestResult {
    let report = run(&harness, 1, answer(402)).await?;
    expect(matches!(report.ended, Atomic::Kept { .. }), "a 402 is kept")?;
    expect(row(&harness, 1).await.is_none(), "the rows of a 4xx are rolled back")?;
    let report = run(&harness, 2, answer(201)).await?;
    expect(!report.ran, "the handler does not run again")?;
    replayed(&report, "answer 1")
}

async fn a_server_error_keeps_nothing(harness: Harness) -> TestResult {
    let report = run(&harness, 1, answer(503)).await?;
    expect(matches!(report.ended, Atomic::RolledBack(_)), "a 5xx is not kept")?;
    nothing_is_left_and_a_retry_runs(&harness).await
}

async fn a_failing_handler_keeps_nothing(harness: Harness) -> TestResult {
    let report = run(&harness, 1, Ending::Fail).await?;
    expect(matches!(report.ended, Atomic::Failed(_)), "the handler's error is handed on")?;
    nothing_is_left_and_a_retry_runs(&harness).await
}

async fn a_panicking_handler_keeps_nothing_and_the_store_goes_on(harness: Harness) -> TestResult {
    let script = script(&harness, 1, Ending::Panic);
    match harness.subject().transact(script).await {
        Err(error) => expect_equal("the error's kind", &error.kind(), &StoreErrorKind::Panicked)?,
        Ok(_) => return Err(Failure::new("a panic is told as an error")),
    }
    nothing_is_left_and_a_retry_runs(&harness).await
}

async fn another_request_under_a_used_key_does_not_run(harness: Harness) -> TestResult {
    run(&harness, 1, answer(201)).await?;
    let request = Arc::new(sample::request(harness.tenant(), &sample::key("k"), 2));
    let script = Script { request, ..script(&harness, 2, answer(201)) };
    let report = harness.subject().transact(script).await?;
    refused(&report, &Verdict::Mismatch)?;
    expect(row(&harness, 2).await.is_none(), "another request writes no row")
}

async fn an_attempt_in_progress_refuses_it(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(9), OnLostAnswer::Resend).await?;
    let before = harness.record(id).await?;
    let report = run(&harness, 1, answer(201)).await?;
    refused(&report, &Verdict::InProgress { remaining: Policy::LEASE_DEFAULT })?;
    expect(row(&harness, 1).await.is_none(), "no row is written")?;
    expect_equal("the other attempt's record", &harness.record(id).await?, &before)
}

async fn a_lapsed_attempt_that_is_safe_to_repeat_is_taken_over(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(9), OnLostAnswer::Resend).await?;
    harness.advance(Policy::LEASE_DEFAULT).await;
    let report = run(&harness, 1, answer(201)).await?;
    expect(matches!(report.ended, Atomic::Kept { .. }), "the lapsed attempt is taken over")?;
    expect_equal("the row", &row(&harness, 1).await, &Some("paid".to_owned()))?;
    let fence = harness.record(id).await?.fence;
    expect_equal("the fence of a take-over", &fence, &Fence::first(9).next(1))
}

async fn a_lapsed_attempt_that_is_not_safe_refuses_it(harness: Harness) -> TestResult {
    harness.put_reserved("k", Fence::first(9), OnLostAnswer::Uncertain).await?;
    harness.advance(Policy::LEASE_DEFAULT).await;
    let report = run(&harness, 1, answer(201)).await?;
    refused(&report, &Verdict::Uncertain)
}

async fn an_expired_outcome_is_taken_over(harness: Harness) -> TestResult {
    run(&harness, 1, answer(201)).await?;
    harness.advance(Policy::RETENTION_DEFAULT).await;
    let report = run(&harness, 2, answer(201)).await?;
    expect(matches!(report.ended, Atomic::Kept { .. }), "the key is free after retention")?;
    let record = harness.record(harness.request("k").id).await?;
    expect_equal("the fence of a take-over", &record.fence, &Fence::first(1).next(2))?;
    replayed(&run(&harness, 3, answer(201)).await?, "answer 2")
}

async fn of_many_at_once_one_is_kept(harness: Harness) -> TestResult {
    const RIVALS: u64 = 8;
    let attempts: Vec<_> = (1..=RIVALS)
        .map(|nonce| {
            let (harness, script) = (harness.clone(), script(&harness, nonce, answer(201)));
            tokio::spawn(async move { harness.subject().transact(script).await })
        })
        .collect();
    let mut kept = 0;
    for attempt in attempts {
        // A contended attempt may give up; it must not leave anything.
        if let Ok(report) = attempt.await.map_err(Failure::panicked)? {
            kept += usize::from(matches!(report.ended, Atomic::Kept { .. }));
        }
    }
    expect_equal("of eight attempts at once, kept", &kept, &1)?;
    let mut rows = 0;
    for nonce in 1..=RIVALS {
        rows += usize::from(row(&harness, nonce).await.is_some());
    }
    expect_equal("rows of the kept attempt only", &rows, &1)
}

async fn an_answer_over_the_cap_leaves_a_tombstone_and_the_rows(harness: Harness) -> TestResult {
    let policy = Arc::new(Policy::default().response_bytes_max(3));
    let script = Script { policy, ..script(&harness, 1, answer(200)) };
    let report = harness.subject().transact(script).await?;
    let Atomic::Kept { response, .. } = report.ended else {
        return Err(Failure::new("a large answer ends the key all the same"));
    };
    expect_equal("the answer is passed on whole", &response.body().len(), &"answer 1".len())?;
    expect(row(&harness, 1).await.is_some(), "its rows are committed")?;
    match harness.record(harness.request("k").id).await?.state {
        State::Completed { outcome, .. } => {
            expect_equal("the kept body", &outcome.body, &firstwrite_core::Body::Tombstone)
        }
        State::Reserved(_) | State::Uncertain { .. } => Err(Failure::new("a completed record")),
    }
}

async fn messages_are_committed_with_the_rows(harness: Harness) -> TestResult {
    run(&harness, 1, answer(201)).await?;
    run(&harness, 2, answer(201)).await?;
    expect_equal("one message, of the attempt that was kept", &messages(&harness).await, &1)
}

async fn messages_of_what_was_rolled_back_are_gone(harness: Harness) -> TestResult {
    run(&harness, 1, answer(500)).await?;
    run(&harness, 2, Ending::Fail).await?;
    let panicked = harness.subject().transact(script(&harness, 3, Ending::Panic)).await;
    expect(panicked.is_err(), "a panic is told as an error")?;
    run(&harness, 4, answer(404)).await?;
    expect_equal("messages of rolled-back work", &messages(&harness).await, &0)
}

async fn nothing_is_left_and_a_retry_runs(harness: &Harness) -> TestResult {
    expect(row(harness, 1).await.is_none(), "the rows are rolled back")?;
    let found = harness.store().get(harness.request("k").id).await?;
    expect(found.is_none(), "nothing stands under the key")?;
    let report = run(harness, 2, answer(201)).await?;
    expect(report.ran, "a retry runs afresh")?;
    expect_equal("the retry's row", &row(harness, 2).await, &Some("paid".to_owned()))
}

fn answer(status: u16) -> Ending {
    Ending::Answer(status, Bytes::new())
}

/// A handler that pays under the key `k`; rows are named after the tenant and the attempt.
fn script(harness: &Harness, nonce: u64, ending: Ending) -> Script {
    let request = harness.request("k");
    let step = format!("receipt-{}", harness.tenant().as_str().len());
    let message =
        Message::new(&request.tenant, &request.key, &step, "mailer", Bytes::from_static(b"{}"))
            .expect("a short step and destination");
    let ending = match ending {
        Ending::Answer(status, _) => Ending::Answer(status, format!("answer {nonce}").into()),
        ending @ (Ending::Interim(_) | Ending::Fail | Ending::Panic) => ending,
    };
    Script {
        request: Arc::new(request),
        policy: Arc::new(Policy::default()),
        nonce,
        rows: vec![(row_name(harness, nonce), "paid".to_owned())],
        messages: vec![message],
        ending,
    }
}

async fn run(harness: &Harness, nonce: u64, ending: Ending) -> Result<ScriptReport, Failure> {
    Ok(harness.subject().transact(script(harness, nonce, ending)).await?)
}

fn row_name(harness: &Harness, nonce: u64) -> String {
    format!("{}/{nonce}", harness.tenant())
}

async fn row(harness: &Harness, nonce: u64) -> Option<String> {
    harness.subject().row(&row_name(harness, nonce)).await
}

/// Returns the number of committed messages of this case.
async fn messages(harness: &Harness) -> usize {
    harness
        .subject()
        .message_keys()
        .await
        .iter()
        .filter(|key| key.starts_with("k:receipt-"))
        .count()
}

fn refused(report: &ScriptReport, wanted: &Verdict) -> TestResult {
    expect(!report.ran, "the handler does not run")?;
    match &report.ended {
        Atomic::Refused(verdict, _) => expect_equal("the verdict", verdict, wanted),
        Atomic::Kept { .. } | Atomic::RolledBack(_) | Atomic::Failed(_) => {
            Err(Failure::new(&format!("a refusal as {wanted:?}")))
        }
    }
}

fn replayed(report: &ScriptReport, text: &str) -> TestResult {
    let Atomic::Refused(Verdict::Replay { outcome, .. }, _) = &report.ended else {
        return Err(Failure::new(&format!("a replay instead of {:?}", report.ended)));
    };
    let wanted = firstwrite_core::Body::Bytes(Bytes::copy_from_slice(text.as_bytes()));
    expect(outcome.body == wanted, "the replay is the first answer, byte for byte")
}
