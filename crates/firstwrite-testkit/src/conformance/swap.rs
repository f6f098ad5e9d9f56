//! Changing what stands, if the guard still holds.

use std::time::Duration;

use firstwrite_core::{
    Audited, Change, Fence, Guard, OnLostAnswer, Policy, Record, RecordId, State, StateKind,
    Swapped,
};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("swap", MINIMUM, nothing_is_changed_where_nothing_stands),
    case!("swap", MINIMUM, the_owner_completes_and_all_else_stays),
    case!("swap", MINIMUM, the_owner_removes_its_record),
    case!("swap", MINIMUM, stale_fence_is_refused),
    case!("swap", MINIMUM, nobody_changes_a_completed_record),
    case!("swap", MINIMUM, the_owner_completes_an_uncertain_record),
    case!("swap", MINIMUM, the_owner_frees_an_uncertain_record),
    case!("swap", MINIMUM, a_heartbeat_does_not_revive_an_uncertain_record),
    case!("swap", MINIMUM, what_did_not_move_is_changed),
    case!("swap", MINIMUM, a_renewal_in_between_is_noticed),
    case!("swap", MINIMUM, a_change_of_state_in_between_is_noticed),
    case!("swap", MINIMUM, a_take_over_in_between_is_noticed),
    case!("swap", MINIMUM, a_take_over_replaces_the_whole_record),
    case!("swap", MINIMUM, an_audit_entry_is_written_with_the_change),
    case!("swap", MINIMUM, a_refused_change_leaves_no_audit_entry),
    case!("swap", MINIMUM, audit_entries_outlive_the_record_oldest_first),
    case!("swap", MINIMUM, a_copy_is_uncertain_since_its_original_was),
    case!("swap", MINIMUM, an_uncertain_record_can_be_given_up_anew),
    case!("swap", MINIMUM, a_copied_audit_entry_keeps_its_time_and_changes_nothing_else),
];

async fn nothing_is_changed_where_nothing_stands(harness: Harness) -> TestResult {
    let id = harness.request("k").id;
    for change in every_change(&harness) {
        let swapped = swap(&harness, id, Guard::Owner(Fence::first(1)), change).await?;
        expect_equal("a change of nothing is refused", &swapped, &Swapped::Moved(None))?;
    }
    expect(harness.store().get(id).await?.is_none(), "nothing stands there afterwards")
}

async fn the_owner_completes_and_all_else_stays(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Resend).await?;
    let before = harness.record(id).await?;
    harness.advance(Duration::from_secs(7)).await;
    let swapped = swap(&harness, id, Guard::Owner(Fence::first(1)), complete("done")).await?;
    let Swapped::Done(now) = swapped else {
        return Err(Failure::new("the owner completes its record"));
    };
    let state =
        State::completed(sample::outcome(201, "done"), Policy::default().record_retention(), now);
    let wanted = Record { state, ..before };
    expect_equal("only the state changed", &harness.record(id).await?, &wanted)
}

async fn the_owner_removes_its_record(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let swapped = swap(&harness, id, Guard::Owner(Fence::first(1)), Change::Remove).await?;
    expect(matches!(swapped, Swapped::Done(_)), "the owner frees its key")?;
    expect(harness.store().get(id).await?.is_none(), "nothing stands under a freed key")
}

async fn stale_fence_is_refused(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1).next(2), OnLostAnswer::Resend).await?;
    let before = harness.record(id).await?;
    for stale in [Fence::first(1), Fence::first(2), Fence::first(1).next(3)] {
        for change in every_change(&harness) {
            let words = format!("{change:?} under a stale fence is refused");
            match swap(&harness, id, Guard::Owner(stale), change).await? {
                Swapped::Moved(Some(found)) => expect_equal(&words, &found.record, &before)?,
                Swapped::Done(_) | Swapped::Moved(None) => return Err(Failure::new(&words)),
            }
        }
    }
    expect_equal("the record stands unchanged", &harness.record(id).await?, &before)
}

async fn nobody_changes_a_completed_record(harness: Harness) -> TestResult {
    let id = harness.put_completed("k", Fence::first(1)).await?;
    let before = harness.record(id).await?;
    for change in every_change(&harness) {
        let words = format!("{change:?} of a completed record is refused, even to its owner");
        let swapped = swap(&harness, id, Guard::Owner(Fence::first(1)), change).await?;
        expect(matches!(swapped, Swapped::Moved(Some(_))), &words)?;
    }
    let renew = Change::Renew { lease_for: Duration::from_secs(1) };
    let swapped = swap(&harness, id, Guard::Seen(before.seen()), renew).await?;
    expect(matches!(swapped, Swapped::Moved(_)), "a completed record has no lease to renew")?;
    expect_equal("the record stands unchanged", &harness.record(id).await?, &before)
}

async fn the_owner_completes_an_uncertain_record(harness: Harness) -> TestResult {
    let id = uncertain(&harness, "k").await?;
    let swapped = swap(&harness, id, Guard::Owner(Fence::first(1)), complete("late")).await?;
    expect(matches!(swapped, Swapped::Done(_)), "the owner knows what happened, and says it late")?;
    expect_equal(
        "the record's state",
        &harness.record(id).await?.state.kind(),
        &StateKind::Completed,
    )
}

async fn the_owner_frees_an_uncertain_record(harness: Harness) -> TestResult {
    let id = uncertain(&harness, "k").await?;
    swap(&harness, id, Guard::Owner(Fence::first(1)), Change::Remove).await?;
    expect(harness.store().get(id).await?.is_none(), "the owner may say late that nothing happened")
}

async fn an_uncertain_record_can_be_given_up_anew(harness: Harness) -> TestResult {
    let id = uncertain(&harness, "k").await?;
    let before = harness.record(id).await?;
    harness.advance(Duration::from_secs(7)).await;
    let guard = Guard::Seen(before.seen());
    let Swapped::Done(now) = swap(&harness, id, guard, Change::MARK_UNCERTAIN).await? else {
        return Err(Failure::new("an uncertain record is marked again"));
    };
    let wanted = Record { state: State::Uncertain { since: now }, ..before };
    expect_equal("only the time has changed", &harness.record(id).await?, &wanted)
}

async fn a_heartbeat_does_not_revive_an_uncertain_record(harness: Harness) -> TestResult {
    let id = uncertain(&harness, "k").await?;
    let seen = Guard::Seen(harness.record(id).await?.seen());
    for guard in [Guard::Owner(Fence::first(1)), seen] {
        let renew = Change::Renew { lease_for: Duration::from_secs(30) };
        let swapped = swap(&harness, id, guard, renew).await?;
        expect(matches!(swapped, Swapped::Moved(Some(_))), "a renewal comes too late")?;
    }
    let kind = harness.record(id).await?.state.kind();
    expect_equal("the record's state", &kind, &StateKind::Uncertain)
}

async fn what_did_not_move_is_changed(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    for change in [Change::MARK_UNCERTAIN, complete("settled"), Change::Remove] {
        let words = format!("{change:?} of a record that did not move is applied");
        let seen = harness.record(id).await?.seen();
        let swapped = swap(&harness, id, Guard::Seen(seen), change).await?;
        expect(matches!(swapped, Swapped::Done(_)), &words)?;
    }
    expect(harness.store().get(id).await?.is_none(), "the last change removed the record")
}

async fn a_renewal_in_between_is_noticed(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let seen = harness.record(id).await?.seen();
    harness.advance(sample::TICK).await;
    let renew = Change::Renew { lease_for: Policy::LEASE_DEFAULT };
    swap(&harness, id, Guard::Owner(Fence::first(1)), renew).await?;
    moved(&harness, id, Guard::Seen(seen), "the owner renewed its lease in between").await
}

async fn a_change_of_state_in_between_is_noticed(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let seen = harness.record(id).await?.seen();
    swap(&harness, id, Guard::Owner(Fence::first(1)), Change::MARK_UNCERTAIN).await?;
    moved(&harness, id, Guard::Seen(seen), "the record became uncertain in between").await?;
    let seen = harness.record(id).await?.seen();
    swap(&harness, id, Guard::Owner(Fence::first(1)), complete("late")).await?;
    moved(&harness, id, Guard::Seen(seen), "the record was completed in between").await
}

async fn a_take_over_in_between_is_noticed(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Resend).await?;
    let seen = harness.record(id).await?.seen();
    let policy = sample::policy(OnLostAnswer::Resend);
    let next = sample::reserved(&harness.request("k"), &policy, Fence::first(1).next(2));
    swap(&harness, id, Guard::Seen(seen), Change::TakeOver(Box::new(next))).await?;
    moved(&harness, id, Guard::Seen(seen), "another attempt took over in between").await
}

async fn a_take_over_replaces_the_whole_record(harness: Harness) -> TestResult {
    let id = harness.put_completed("k", Fence::first(1)).await?;
    let policy = sample::policy(OnLostAnswer::Resend);
    harness.advance(policy.retention + Duration::from_secs(1)).await;
    let request = sample::request(harness.tenant(), &sample::key("k"), 9);
    let next = sample::reserved(&request, &policy, Fence::first(1).next(2));
    let seen = harness.record(id).await?.seen();
    let change = Change::TakeOver(Box::new(next.clone()));
    let Swapped::Done(now) = swap(&harness, id, Guard::Seen(seen), change).await? else {
        return Err(Failure::new("what did not move is taken over"));
    };
    let wanted = Record::from_draft(&next, now);
    expect_equal("nothing of the former record is left", &harness.record(id).await?, &wanted)
}

async fn an_audit_entry_is_written_with_the_change(harness: Harness) -> TestResult {
    let id = uncertain(&harness, "k").await?;
    let entry = sample::audit("the provider's statement shows it: 10 € — \"paid\"");
    let seen = Guard::Seen(harness.record(id).await?.seen());
    let swapped = harness.store().swap(id, seen, complete("settled"), Some(&entry)).await?;
    let Swapped::Done(now) = swapped else { return Err(Failure::new("the change is applied")) };
    let audits = harness.store().audits(id).await?;
    expect_equal("one audit entry", &audits.len(), &1)?;
    expect_equal("what was done and why", &audits[0].entry, &entry)?;
    expect_equal("when it was done", &audits[0].at, &now)?;
    let other = harness.store().audits(harness.request("other").id).await?;
    expect(other.is_empty(), "another record's audit entries are its own")
}

async fn a_refused_change_leaves_no_audit_entry(harness: Harness) -> TestResult {
    let id = harness.put_completed("k", Fence::first(1)).await?;
    let entry = sample::audit("refused");
    for guard in [Guard::Owner(Fence::first(1)), Guard::Owner(Fence::first(2))] {
        harness.store().swap(id, guard, Change::Remove, Some(&entry)).await?;
    }
    let nothing = harness.request("nothing").id;
    let guard = Guard::Owner(Fence::first(1));
    harness.store().swap(nothing, guard, Change::Remove, Some(&entry)).await?;
    for id in [id, nothing] {
        let audits = harness.store().audits(id).await?;
        expect(audits.is_empty(), "what was not done is not written down as done")?;
    }
    Ok(())
}

async fn audit_entries_outlive_the_record_oldest_first(harness: Harness) -> TestResult {
    for (life, reason) in ["first", "second", "third"].into_iter().enumerate() {
        let fence = Fence::first(life as u64);
        let id = harness.put_reserved("k", fence, OnLostAnswer::Uncertain).await?;
        harness.advance(sample::TICK).await;
        let entry = sample::audit(reason);
        harness.store().swap(id, Guard::Owner(fence), Change::Remove, Some(&entry)).await?;
    }
    let audits = harness.store().audits(harness.request("k").id).await?;
    let reasons: Vec<&str> = audits.iter().map(|audited| audited.entry.reason.as_str()).collect();
    expect_equal("every audit entry, oldest first", &reasons, &vec!["first", "second", "third"])
}

/// A probe's patience counts from there.
async fn a_copy_is_uncertain_since_its_original_was(harness: Harness) -> TestResult {
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let ago = Duration::from_hours(30);
    let change = Change::MarkUncertain { ago };
    let Swapped::Done(now) = swap(&harness, id, Guard::Owner(Fence::first(1)), change).await?
    else {
        return Err(Failure::new("the copy is marked"));
    };
    let uncertain = State::Uncertain { since: now.minus(ago) };
    expect_equal("the copy's state", &harness.record(id).await?.state, &uncertain)
}

async fn a_copied_audit_entry_keeps_its_time_and_changes_nothing_else(
    harness: Harness,
) -> TestResult {
    let (owner, ago) = (Guard::Owner(Fence::first(1)), Duration::from_hours(30));
    let id = harness.put_reserved("k", Fence::first(1), OnLostAnswer::Uncertain).await?;
    let mut wanted = Vec::new();
    for (reason, ago, then) in [
        ("first", ago, Some(Change::MARK_UNCERTAIN)),
        ("second", ago / 2, Some(complete("settled"))),
        ("late", Duration::ZERO, None),
    ] {
        let (before, entry) = (harness.record(id).await?, sample::audit(reason));
        let noted = harness.store().swap(id, owner, Change::Note { ago }, Some(&entry)).await?;
        expect_equal("the record", &harness.record(id).await?, &before)?;
        match (noted, then) {
            (Swapped::Done(now), Some(then)) => {
                wanted.push(Audited { at: now.minus(ago), entry });
                swap(&harness, id, owner, then).await?;
            }
            (Swapped::Moved(Some(_)), None) => {}
            (noted, _) => return Err(Failure::new(&format!("{reason}: not {noted:?}"))),
        }
    }
    expect_equal("the audit entries", &harness.store().audits(id).await?, &wanted)
}

/// One change of every kind.
fn every_change(harness: &Harness) -> [Change; 6] {
    let policy = sample::policy(OnLostAnswer::Resend);
    let next = sample::reserved(&harness.request("k"), &policy, Fence::first(8).next(9));
    [
        Change::Note { ago: Duration::ZERO },
        Change::Renew { lease_for: Duration::from_secs(99) },
        complete("other"),
        Change::MARK_UNCERTAIN,
        Change::TakeOver(Box::new(next)),
        Change::Remove,
    ]
}

fn complete(text: &str) -> Change {
    Change::Complete {
        outcome: sample::outcome(201, text),
        retention: Policy::default().record_retention(),
    }
}

async fn uncertain(harness: &Harness, key: &str) -> Result<RecordId, Failure> {
    let id = harness.put_reserved(key, Fence::first(1), OnLostAnswer::Uncertain).await?;
    swap(harness, id, Guard::Owner(Fence::first(1)), Change::MARK_UNCERTAIN).await?;
    Ok(id)
}

/// Every kind of change is refused under `guard`, because of `what` happened in between.
async fn moved(harness: &Harness, id: RecordId, guard: Guard, what: &str) -> TestResult {
    let before = harness.record(id).await?;
    for change in every_change(harness) {
        let words = format!("{change:?} is refused: {what}");
        match swap(harness, id, guard, change).await? {
            Swapped::Moved(Some(found)) => expect_equal(&words, &found.record, &before)?,
            Swapped::Done(_) | Swapped::Moved(None) => return Err(Failure::new(&words)),
        }
    }
    expect_equal("the record stands unchanged", &harness.record(id).await?, &before)
}

async fn swap(
    harness: &Harness,
    id: RecordId,
    guard: Guard,
    change: Change,
) -> Result<Swapped, Failure> {
    Ok(harness.store().swap(id, guard, change, None).await?)
}
