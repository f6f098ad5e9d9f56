//! Acknowledged writes survive the end of the process.

use bytes::Bytes;
use firstwrite_core::{
    Change, Fence, Guard, OnLostAnswer, Policy, Record, StateKind, judge_orphan,
};

use super::{
    Case, DURABLE, DURABLE_TRANSACTIONS, Failure, Harness, TestResult, case, expect, expect_equal,
    is_note,
};
use crate::{Ending, Script, sample};

pub(super) const CASES: &[Case] = &[
    case!("durable", DURABLE, every_state_survives),
    case!("durable", DURABLE, the_last_acknowledged_write_survives),
    case!("durable", DURABLE, audit_entries_survive),
    case!("durable", DURABLE_TRANSACTIONS, a_committed_transaction_survives),
];

async fn every_state_survives(harness: Harness) -> TestResult {
    let reserved = harness.put_reserved("r", Fence::first(1), OnLostAnswer::Resend).await?;
    let uncertain = harness.put_reserved("u", Fence::first(2), OnLostAnswer::Uncertain).await?;
    let guard = Guard::Owner(Fence::first(2));
    harness.store().swap(uncertain, guard, Change::MARK_UNCERTAIN, None).await?;
    let completed = harness.put_completed("c", Fence::first(3)).await?;
    let lost = harness.put_reserved("l", Fence::first(4), OnLostAnswer::Uncertain).await?;
    let mut before: Vec<Record> = Vec::new();
    for id in [reserved, lost, uncertain, completed] {
        before.push(harness.record(id).await?);
    }
    reopen(&harness).await?;
    for wanted in &before {
        let found = harness.store().get(wanted.id).await?.map(|found| found.record);
        let is_there = found.as_ref() == Some(wanted) || is_swept(wanted, found.as_ref());
        expect(is_there, "every record is as it was, or an orphan that was swept")?;
    }
    Ok(())
}

/// Returns true if a reservation became what the rule for orphans demands: a store with a single writer process
/// knows on opening that the owners of an earlier process are gone.
fn is_swept(before: &Record, found: Option<&Record>) -> bool {
    match (judge_orphan(before), found) {
        (Some(change), Some(record)) => {
            let is_done = if change.frees() {
                is_note(record)
            } else {
                record.state.kind() == StateKind::Uncertain
            };
            is_done && record.fence == before.fence
        }
        (Some(_), None) | (None, _) => false,
    }
}

async fn the_last_acknowledged_write_survives(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    reopen(&harness).await?;
    harness.record(id).await?;
    let change = Change::Complete {
        outcome: sample::outcome(201, "done"),
        retention: Policy::default().record_retention(),
    };
    harness.store().swap(id, Guard::Owner(Fence::first(1)), change, None).await?;
    let wanted = harness.record(id).await?;
    reopen(&harness).await?;
    expect_equal("an acknowledged completion", &harness.record(id).await?, &wanted)
}

async fn audit_entries_survive(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let entry = sample::audit("proof");
    let guard = Guard::Owner(Fence::first(1));
    harness.store().swap(id, guard, Change::Remove, Some(&entry)).await?;
    reopen(&harness).await?;
    let audits = harness.store().audits(id).await?;
    expect_equal("audit entries", &audits.len(), &1)?;
    expect_equal("what was done", &audits[0].entry, &entry)
}

async fn a_committed_transaction_survives(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let name = format!("{}/row", harness.tenant());
    let script = Script {
        request: std::sync::Arc::new(request.clone()),
        policy: std::sync::Arc::new(Policy::default()),
        nonce: 1,
        rows: vec![(name.clone(), "paid".to_owned())],
        messages: Vec::new(),
        ending: Ending::Answer(201, Bytes::from_static(b"done")),
    };
    harness.subject().transact(script).await?;
    reopen(&harness).await?;
    harness.record(request.id).await?;
    let row = harness.subject().row(&name).await;
    expect(row.as_deref() == Some("paid"), "the committed row is still there")
}

async fn reopen(harness: &Harness) -> TestResult {
    let Some(reopening) = harness.subject().reopen() else {
        return Err(Failure::new("a store that claims to be durable can be reopened"));
    };
    reopening.await;
    Ok(())
}
