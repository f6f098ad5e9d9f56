//! The testkit tested: sound stores pass, and every planted defect turns something red.

use std::sync::Arc;

use firstwrite_core::{BoxFuture, Capabilities, Store};
use firstwrite_testkit::conformance::{assert_conforms, cases, run_all};
use firstwrite_testkit::defects::{
    Defect, DefectiveStore, catch, planted, red_history, red_simulation,
};
use firstwrite_testkit::history::{HistoryOptions, HistoryReport, check_store};
use firstwrite_testkit::{Fault, FaultyStore, ManualClock, MemorySubject, Subject};

fn memory() -> BoxFuture<'static, Arc<dyn Subject>> {
    Box::pin(async { Arc::new(MemorySubject::new()) as Arc<dyn Subject> })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_conforms() {
    let report = assert_conforms(memory).await;
    println!("{report}");
    assert_eq!(report.passed.len() + report.skipped.len(), cases().len());
    report.keep("memory", "this process");
}

#[tokio::test]
async fn a_store_without_a_planted_defect_conforms_and_is_asked_everything() {
    let report = assert_conforms(|| planted(None)).await;
    assert_eq!(report.passed.len(), cases().len(), "{report}");
}

#[tokio::test]
async fn every_case_is_reached_by_a_store_that_claims_what_it_needs() {
    let claims: Capabilities = planted(None).await.store().capabilities();
    for case in cases() {
        assert!(claims.cover(case.needs), "nobody runs {}", case.name);
    }
}

#[tokio::test]
async fn a_filter_runs_only_what_it_names() {
    let report = run_all(memory, "listing/").await;
    assert!(report.passed.len() >= 5, "{report}");
    assert!(report.passed.iter().all(|name| name.starts_with("listing/")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_histories_of_the_memory_store_are_explained() {
    let mut sum = HistoryReport::default();
    for seed in 0..200 {
        let store = MemorySubject::new().store();
        let report = check_store(store, seed, HistoryOptions::default()).await;
        let report = report.unwrap_or_else(|violation| panic!("{violation}"));
        sum.operations += report.operations;
        sum.written += report.written;
    }
    assert!(sum.operations > 10_000 && sum.written > 3_000, "{sum:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_with_lost_acknowledgements_are_explained() {
    let plan: Vec<Fault> = [Fault::None, Fault::LostAfter, Fault::None, Fault::LostBefore]
        .into_iter()
        .cycle()
        .take(40)
        .collect();
    let mut lost = 0;
    for seed in 0..50 {
        let store = Arc::new(FaultyStore::new(MemorySubject::new().store(), &plan));
        let report = check_store(store, seed, HistoryOptions::default()).await;
        lost += report.unwrap_or_else(|violation| panic!("{violation}")).lost;
    }
    assert!(lost > 500, "{lost}");
}

#[tokio::test]
async fn a_history_tells_two_winners_apart_from_one() {
    let mut red = 0;
    for seed in 0..20 {
        let defect = Some(Defect::CheckThenInsert);
        let store: Arc<dyn Store> = Arc::new(DefectiveStore::new(ManualClock::new(), defect));
        red += usize::from(check_store(store, seed, HistoryOptions::default()).await.is_err());
    }
    assert!(red > 0, "no history showed an insert that looks first and writes afterwards");
}

#[tokio::test]
async fn every_planted_defect_is_caught() {
    let mut missed = Vec::new();
    for defect in Defect::ALL {
        match catch(defect).await {
            Some(catcher) => println!("{defect:?}: {catcher}"),
            None => missed.push(defect),
        }
    }
    let (all, caught) = (Defect::ALL.len(), Defect::ALL.len() - missed.len());
    println!("planted defects caught: {caught} of {all}");
    assert!(missed.is_empty(), "missed: {missed:?}");
}

#[test]
fn the_simulator_alone_sees_what_breaks_the_protocol() {
    for defect in [
        Defect::CheckThenInsert,
        Defect::NoFenceCompare,
        Defect::OwnerGuardIgnoresState,
        Defect::SeenGuardIgnoresState,
        Defect::CompletedCanChange,
        Defect::TakeOverKeepsOldFence,
        Defect::ReaperIgnoresState,
        Defect::ReaperIgnoresKeptUntil,
        Defect::LeaseByCallerClock,
        Defect::RetentionEqualsLease,
        Defect::ForgetsTenant,
    ] {
        assert!(red_simulation(defect).is_some(), "{defect:?}");
    }
}

#[tokio::test]
async fn concurrent_histories_alone_see_what_is_not_one_step() {
    for defect in [
        Defect::CheckThenInsert,
        Defect::NoFenceCompare,
        Defect::OwnerGuardIgnoresState,
        Defect::SeenGuardIgnoresRenewal,
        Defect::SeenGuardIgnoresState,
        Defect::CompletedCanChange,
        Defect::RenewRevivesUncertain,
        Defect::TakeOverKeepsOldFence,
        Defect::LeaseByLaggingClock,
    ] {
        assert!(red_history(defect).await.is_some(), "{defect:?}");
    }
}
