//! The simulator's own promises: it repeats itself, it tries everything, and it finds nothing.

use super::*;

#[test]
fn a_seed_is_one_history() {
    for seed in 0..200 {
        let plan = Plan { trace: Trace::On, ..Plan::default() };
        assert_eq!(run(seed, plan).trace, run(seed, plan).trace, "seed {seed}");
    }
}

#[test]
fn the_protocol_keeps_its_promises_and_everything_planned_happens() {
    let summary = run_many(0, HISTORIES_FOR_ALL_EVENTS, Plan::default(), |_| {});
    assert!(summary.is_good(), "{summary}");
}

#[test]
fn a_broken_promise_is_told_with_its_seed_and_its_steps() {
    let plan = Plan { defect: Some(Defect::EffectBeforeReserve), ..Plan::default() };
    let summary = run_many(0, 1000, plan, |_| {});
    assert!(!summary.is_good());
    let BrokenPromise { seed, words, trace } = summary.violation.unwrap();
    assert!(words.contains("two effects"), "{words}");
    assert!(trace.len() > 3, "seed {seed}: {trace:?}");
}
