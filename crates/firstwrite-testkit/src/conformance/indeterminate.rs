//! Lost acknowledgements: the protocol ends right over the store, whichever way they got lost.

use firstwrite_core::protocol::{self, Completed, Reserved};
use firstwrite_core::{Certainty, Fence, OnLostAnswer, Policy, Request, StateKind, Verdict};

use super::{Case, Failure, Harness, MINIMUM, TestResult, case, expect, expect_equal};
use crate::Fault::{LostAfter, LostBefore, Refused};
use crate::{Fault, FaultyStore, sample};

pub(super) const CASES: &[Case] = &[
    case!("indeterminate", MINIMUM, a_reservation_recognises_its_own_write),
    case!("indeterminate", MINIMUM, a_take_over_recognises_its_own_write),
    case!("indeterminate", MINIMUM, a_reservation_does_not_claim_a_rivals_write),
    case!("indeterminate", MINIMUM, a_completion_recognises_its_own_write),
    case!("indeterminate", MINIMUM, a_release_ends_with_the_key_free),
    case!("indeterminate", MINIMUM, an_uncertain_mark_ends_with_the_record_uncertain),
    case!("indeterminate", MINIMUM, an_attempt_that_cannot_reserve_does_not_run),
    case!("indeterminate", MINIMUM, a_completion_that_cannot_be_written_stays_the_owners),
];

/// Both faults after which the caller cannot know whether the step took effect.
const LOST: [Fault; 2] = [LostBefore, LostAfter];

async fn a_reservation_recognises_its_own_write(harness: Harness) -> TestResult {
    for fault in LOST {
        let request = harness.request(&format!("{fault:?}"));
        let faulty = FaultyStore::new(harness.store(), &[fault]);
        match protocol::reserve(&faulty, &request, &Policy::default(), 7).await? {
            Reserved::Granted(reservation) => {
                let record = harness.record(request.id).await?;
                expect_equal("its own fence", &record.fence, &reservation.fence())?;
                let until = record.state.lease_until();
                expect_equal("its own lease", &until, &Some(reservation.lease_until()))?;
            }
            Reserved::Refused(verdict, ..) => {
                return Err(Failure::new(&format!("its own write, not {verdict:?} ({fault:?})")));
            }
        }
    }
    Ok(())
}

async fn a_take_over_recognises_its_own_write(harness: Harness) -> TestResult {
    let policy = sample::policy(OnLostAnswer::Resend);
    for fault in LOST {
        let key = format!("{fault:?}");
        harness.put_reserved(&key, Fence::first(1), OnLostAnswer::Resend).await?;
        harness.advance(policy.lease).await;
        // The insert goes through and finds what stands; the take-over is lost.
        let faulty = FaultyStore::new(harness.store(), &[Fault::None, fault]);
        let reserved = protocol::reserve(&faulty, &harness.request(&key), &policy, 7).await?;
        let Reserved::Granted(reservation) = reserved else {
            return Err(Failure::new("a lapsed attempt is taken over"));
        };
        let wanted = Fence::first(1).next(7);
        expect_equal("the take-over's fence", &reservation.fence(), &wanted)?;
    }
    Ok(())
}

async fn a_reservation_does_not_claim_a_rivals_write(harness: Harness) -> TestResult {
    let request = harness.request("k");
    let _rival = harness.granted(&request, &Policy::default(), 1).await?;
    for fault in LOST {
        let faulty = FaultyStore::new(harness.store(), &[fault]);
        match protocol::reserve(&faulty, &request, &Policy::default(), 2).await? {
            Reserved::Refused(Verdict::InProgress { .. }, ..) => {}
            reserved @ (Reserved::Refused(..) | Reserved::Granted(_)) => {
                return Err(Failure::new(&format!("in progress instead of {reserved:?}")));
            }
        }
    }
    Ok(())
}

async fn a_completion_recognises_its_own_write(harness: Harness) -> TestResult {
    let policy = Policy::default();
    for fault in LOST {
        let request = harness.request(&format!("{fault:?}"));
        let reservation = harness.granted(&request, &policy, 1).await?;
        let faulty = FaultyStore::new(harness.store(), &[fault]);
        let outcome = sample::outcome(201, "once");
        let completed = protocol::complete(&faulty, reservation, outcome.clone())
            .await
            .map_err(|undone| undone.error)?;
        expect(matches!(completed, Completed::Kept { .. }), "its own outcome is kept")?;
        let verdict = harness.refused(&request, &policy).await?;
        let is_replay =
            matches!(&verdict, Verdict::Replay { outcome: found, .. } if *found == outcome);
        expect(is_replay, &format!("a replay instead of {verdict:?}"))?;
    }
    Ok(())
}

async fn a_release_ends_with_the_key_free(harness: Harness) -> TestResult {
    for fault in LOST {
        let request = harness.request(&format!("{fault:?}"));
        let reservation = harness.granted(&request, &Policy::default(), 1).await?;
        let faulty = FaultyStore::new(harness.store(), &[fault]);
        protocol::release(&faulty, reservation).await?;
        expect(harness.store().get(request.id).await?.is_none(), "the key is free")?;
    }
    Ok(())
}

async fn an_uncertain_mark_ends_with_the_record_uncertain(harness: Harness) -> TestResult {
    for fault in LOST {
        let request = harness.request(&format!("{fault:?}"));
        let reservation = harness.granted(&request, &Policy::default(), 1).await?;
        let faulty = FaultyStore::new(harness.store(), &[fault]);
        protocol::mark_uncertain(&faulty, reservation, "no answer").await?;
        let kind = harness.record(request.id).await?.state.kind();
        expect_equal("the record", &kind, &StateKind::Uncertain)?;
    }
    Ok(())
}

async fn an_attempt_that_cannot_reserve_does_not_run(harness: Harness) -> TestResult {
    for plan in [&[Refused][..], &[LostBefore, LostBefore], &[LostAfter, LostBefore]] {
        let request = harness.request(&format!("{plan:?}").replace([' ', ','], "-"));
        let faulty = FaultyStore::new(harness.store(), plan);
        let reserved = protocol::reserve(&faulty, &request, &Policy::default(), 1).await;
        expect(reserved.is_err(), "no reservation without the store's word")?;
        expect_equal("planned faults left over", &faulty.remaining(), &0)?;
    }
    Ok(())
}

async fn a_completion_that_cannot_be_written_stays_the_owners(harness: Harness) -> TestResult {
    let policy = Policy::default();
    for plan in [&[Refused][..], &[LostBefore, LostBefore], &[LostAfter, LostAfter]] {
        let request: Request = harness.request(&format!("{plan:?}").replace([' ', ','], "-"));
        let reservation = harness.granted(&request, &policy, 1).await?;
        let faulty = FaultyStore::new(harness.store(), plan);
        let outcome = sample::outcome(201, "once");
        let undone = protocol::complete(&faulty, reservation, outcome).await;
        let Err(undone) = undone else {
            return Err(Failure::new("a completion without the store's word is not kept"));
        };
        let wanted = if plan == [Refused] { Certainty::Definite } else { Certainty::Indeterminate };
        expect_equal("how certain the failure is", &undone.error.certainty(), &wanted)?;
        let (reservation, outcome) = (undone.reservation, undone.outcome);
        let again = protocol::complete(&*harness.store(), reservation, outcome)
            .await
            .map_err(|undone| undone.error)?;
        expect(matches!(again, Completed::Kept { .. }), "the owner completes once it can")?;
    }
    Ok(())
}
