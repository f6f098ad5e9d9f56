//! Two attempts on one key: a rival is told at once, and one of two writers wins.

use std::time::Duration;

use firstwrite_core::{
    BeginResult, Change, Fence, Guard, Policy, State, StateKind, Store as _, Swapped, Write,
};
use firstwrite_testkit::{Subject as _, sample};

use super::{Handlers, Shop, at_work, begin, done, id, outcome, rival, with_each_driver};

async fn a_rival_is_told_at_once_while_a_handler_is_at_work<S: Handlers>(shop: Shop) {
    let (store, other) = (S::open(&shop.subject).await, S::open(&shop.subject).await);
    let tx = at_work(&shop, &store, "k").await;
    for _ in 0..3 {
        assert!(matches!(other.begin(id("k")).await.unwrap(), BeginResult::Busy));
    }
    // Another key is nobody's business.
    let (free, _) = begin(&other, "other").await;
    done(other.conclude(free, Write::Nothing).await);
    done(store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await);
    let (tx, found) = begin(&other, "k").await;
    assert_eq!(found.unwrap().record.state.kind(), StateKind::Completed);
    done(other.conclude(tx, Write::Nothing).await);
}

async fn a_reservation_that_slipped_in_undoes_the_handlers_work<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    for (key, write) in
        [("all", Write::All as fn(_) -> Write), ("record", Write::RecordOnly as fn(_) -> Write)]
    {
        let tx = at_work(&shop, &store, key).await;
        let slipped = shop.reserve(key).await;
        let found = rival(store.conclude(tx, write(outcome(key, Fence::first(1)))).await);
        assert_eq!(found.record.fence, slipped.fence);
        assert_eq!(shop.counts().await[..2], [0, 0], "{key}");
    }
}

async fn an_outcome_that_slipped_in_is_what_the_rival_is_told<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let tx = at_work(&shop, &store, "k").await;
    let first = outcome("k", Fence::first(7));
    shop.subject.postgres().insert(&first).await.unwrap();
    let found = rival(store.conclude(tx, Write::All(outcome("k", Fence::first(1)))).await);
    assert_eq!(found.record.fence, first.fence);
    assert_eq!(shop.counts().await, [0, 0, 1]);
}

/// Begins to take a lapsed reservation over.
async fn taking_over<S: Handlers>(shop: &Shop, store: &S) -> (S::Tx, Fence) {
    let lapsed = shop.reserve("k").await;
    shop.subject.advance(Policy::LEASE_DEFAULT).await;
    (at_work(shop, store, "k").await, lapsed.fence)
}

fn late() -> Change {
    let retention = Policy::default().record_retention();
    Change::Complete { outcome: sample::outcome(200, "late"), retention }
}

async fn a_late_owner_that_completes_first_wins<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let (tx, owner) = taking_over(&shop, &store).await;
    let completed = shop.subject.postgres().swap(id("k"), Guard::Owner(owner), late(), None).await;
    assert!(matches!(completed.unwrap(), Swapped::Done(_)));
    let found = rival(store.conclude(tx, Write::All(outcome("k", owner.next(1)))).await);
    assert_eq!(found.record.fence, owner);
    assert!(matches!(found.record.state, State::Completed { .. }));
    assert_eq!(shop.counts().await, [0, 0, 1]);
}

async fn a_take_over_that_commits_first_shuts_the_late_owner_out<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let (tx, owner) = taking_over(&shop, &store).await;
    done(store.conclude(tx, Write::All(outcome("k", owner.next(1)))).await);
    let completed = shop.subject.postgres().swap(id("k"), Guard::Owner(owner), late(), None).await;
    let Swapped::Moved(Some(found)) = completed.unwrap() else { panic!("the owner is late") };
    assert_eq!(found.record.fence, owner.next(1));
    assert_eq!(shop.counts().await, [1, 1, 1]);
    let sql = "SELECT count(*) FROM endings WHERE outcome IS NOT NULL";
    assert_eq!(shop.subject.admin().query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
}

async fn of_a_take_over_and_a_late_owner_at_once_one_wins<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let (tx, owner) = taking_over(&shop, &store).await;
    let keeper = shop.subject.postgres();
    let (concluded, completed) = tokio::join!(
        store.conclude(tx, Write::All(outcome("k", owner.next(1)))),
        keeper.swap(id("k"), Guard::Owner(owner), late(), None),
    );
    let took_over = matches!(concluded.unwrap(), firstwrite_core::Transacted::Done(..));
    let completed = matches!(completed.unwrap(), Swapped::Done(_));
    assert!(took_over != completed, "took over: {took_over}, completed: {completed}");
    let found = shop.found("k").await;
    assert_eq!(found.record.fence, if took_over { owner.next(1) } else { owner });
    assert_eq!(shop.counts().await[0], i64::from(took_over), "rows");
}

async fn a_renewal_in_between_saves_the_owner<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    for write in [Write::All as fn(_) -> Write, Write::RecordOnly as fn(_) -> Write] {
        let (tx, owner) = taking_over(&shop, &store).await;
        let renewal = Change::Renew { lease_for: Duration::from_secs(30) };
        let guard = Guard::Owner(owner);
        let renewed = shop.subject.postgres().swap(id("k"), guard, renewal, None).await.unwrap();
        assert!(matches!(renewed, Swapped::Done(_)));
        let found = rival(store.conclude(tx, write(outcome("k", owner.next(1)))).await);
        assert_eq!(found.record.fence, owner);
        assert_eq!(shop.counts().await, [0, 0, 1]);
        let removed = shop.subject.postgres().swap(id("k"), guard, Change::Remove, None).await;
        assert!(matches!(removed.unwrap(), Swapped::Done(_)));
    }
}

async fn a_client_error_takes_over_without_rows<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let (tx, owner) = taking_over(&shop, &store).await;
    done(store.conclude(tx, Write::RecordOnly(outcome("k", owner.next(1)))).await);
    assert_eq!(shop.found("k").await.record.fence, owner.next(1));
    assert_eq!(shop.counts().await, [0, 0, 1]);
}

async fn an_uncertain_record_is_replaced_where_it_was_seen<S: Handlers>(shop: Shop) {
    let store = S::open(&shop.subject).await;
    let (owner, keeper) = (shop.reserve("k").await.fence, shop.subject.postgres());
    let marked = keeper.swap(id("k"), Guard::Owner(owner), Change::MARK_UNCERTAIN, None).await;
    assert!(matches!(marked.unwrap(), Swapped::Done(_)));
    let tx = at_work(&shop, &store, "k").await;
    done(store.conclude(tx, Write::All(outcome("k", owner.next(1)))).await);
    assert_eq!(shop.found("k").await.record.fence, owner.next(1));
    assert_eq!(shop.counts().await, [1, 1, 1]);
}

with_each_driver!(
    a_rival_is_told_at_once_while_a_handler_is_at_work,
    a_reservation_that_slipped_in_undoes_the_handlers_work,
    an_outcome_that_slipped_in_is_what_the_rival_is_told,
    a_late_owner_that_completes_first_wins,
    a_take_over_that_commits_first_shuts_the_late_owner_out,
    of_a_take_over_and_a_late_owner_at_once_one_wins,
    a_renewal_in_between_saves_the_owner,
    a_client_error_takes_over_without_rows,
    an_uncertain_record_is_replaced_where_it_was_seen,
);
