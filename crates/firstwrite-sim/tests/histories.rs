//! A short form of `cargo xtask sim`: seeds repeat, promises hold, and a world with a planted mistake breaks one.

use firstwrite_sim::{Defect, Event, Plan, catch, run, run_many};

#[test]
fn a_seed_repeats_its_own_history() {
    for seed in 0..60 {
        let first = run(seed, Plan::default());
        let again = run(seed, Plan { is_traced: true, ..Plan::default() });
        assert_eq!(
            (first.hash, first.steps, first.violation),
            (again.hash, again.steps, again.violation),
            "seed {seed}"
        );
        assert!(!again.trace.is_empty(), "seed {seed}");
    }
}

#[test]
fn no_promise_is_broken() {
    let summary = run_many(0, 1500, Plan::default(), 1);
    assert!(summary.is_good(), "{summary}");
    // A reconciliation that never acts, or never holds back, would break no promise either.
    for event in [
        Event::BooksCompared,
        Event::AccountFlawed,
        Event::ProvedDelivered,
        Event::ProvedCompleted,
        Event::AbsenceResent,
        Event::AbsenceFreed,
        Event::AbsenceFound,
        Event::OtherLifeFound,
        Event::NotThere,
    ] {
        assert!(summary.events.count(event) > 0, "{}\n{summary}", event.words());
    }
}

/// Histories that once broke a promise, and are rare.
#[test]
fn rare_histories_hold() {
    // A note is taken over, and its successor withdrawn, while a caller is told to ask for the result.
    assert_eq!(run(416_128, Plan::default()).violation, None);
}

#[test]
fn planted_mistakes_are_seen() {
    // Those that a few hundred histories show; `cargo xtask sim` plants them all.
    for defect in [
        Defect::SqlCompletesTwice,
        Defect::UpstreamForgetsKeys,
        Defect::UncertainIsReleased,
        Defect::NotThereIsRefused,
        Defect::AbsenceIgnoresEvidence,
        Defect::FailedIsMade,
        Defect::OlderIsProof,
    ] {
        assert!(catch(defect, 0..3000).is_some(), "{defect:?}");
    }
}
