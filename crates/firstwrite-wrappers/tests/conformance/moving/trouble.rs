//! A store that is away, and acknowledgements that are lost.

use std::sync::Arc;

use firstwrite_core::{
    Certainty, Change, Fence, Guard, Inserted, RecordId, StateKind, Store, StoreErrorKind, Swapped,
    Verdict,
};
use firstwrite_store::SqliteStore;
use firstwrite_testkit::{AwayStore, Fault, FaultyStore, sample};
use firstwrite_wrappers::MovingStore;

use super::{Houses, granted, policy, refused, request, uncertain_in_both};

/// Answers so many calls and is away from then on.
fn fading(inner: &Arc<dyn Store>, left: usize) -> Arc<AwayStore> {
    let store = AwayStore::new(Arc::clone(inner));
    store.goes_away_after(left);
    Arc::new(store)
}

/// One that stays, in which `meanwhile` happens right before the first change.
fn interrupted(
    inner: &Arc<dyn Store>,
    meanwhile: impl Future<Output = ()> + Send + 'static,
) -> Arc<AwayStore> {
    let store = AwayStore::new(Arc::clone(inner));
    store.before_next_change(meanwhile);
    Arc::new(store)
}

/// Away before the insert, or between the insert and the look: nothing may run, and nothing is left.
#[tokio::test]
async fn while_the_other_store_is_away_nothing_runs() {
    let houses = Houses::new();
    for answered in [0, 1] {
        let other = fading(&houses.old, answered);
        let moving = MovingStore::new(Arc::clone(&houses.new), other);
        let draft = sample::reserved(&request("a"), &policy(), Fence::first(1));
        let error = moving.insert(&draft).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.certainty()),
            (StoreErrorKind::Unavailable, Certainty::Definite)
        );
        assert!(houses.new.get(draft.id).await.unwrap().is_none(), "it was withdrawn");
        assert!(moving.now().await.is_err(), "whoever waits for it must ask both");
    }
    let _fresh = granted(&houses.after, "a", &policy()).await;
}

/// The other store lost its file: keys that it does not know may have been used there.
#[tokio::test]
async fn while_the_other_store_is_in_doubt_unknown_keys_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.db");
    let old: Arc<dyn Store> = Arc::new(SqliteStore::open_or_create(&path).unwrap());
    let houses = Houses::new();
    let moving = MovingStore::new(Arc::clone(&houses.new), Arc::clone(&old));
    let used = granted(&*old, "used", &policy()).await;
    super::complete(&*old, used, "paid").await;
    std::fs::remove_file(&path).unwrap();
    let draft = sample::reserved(&request("unknown"), &policy(), Fence::first(1));
    let error = moving.insert(&draft).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.certainty()),
        (StoreErrorKind::HistoryLost, Certainty::Definite)
    );
    assert!(houses.new.get(draft.id).await.unwrap().is_none(), "it was withdrawn");
    let verdict = refused(&moving, "used", &policy()).await;
    assert!(matches!(verdict, Verdict::Replay { .. }), "what is known is answered: {verdict:?}");
}

/// What could not be withdrawn is said to be there, perhaps: the caller withdraws it later.
#[tokio::test]
async fn a_write_that_cannot_be_withdrawn_is_not_denied() {
    let houses = Houses::new();
    let new = Arc::new(FaultyStore::new(Arc::clone(&houses.new), &[Fault::None, Fault::Refused]));
    let moving = MovingStore::new(new, fading(&houses.old, 1));
    let draft = sample::reserved(&request("a"), &policy(), Fence::first(1));
    let error = moving.insert(&draft).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Indeterminate);
}

/// A repeated insert meets a rival who came in between, and takes back what it wrote the first time.
#[tokio::test]
async fn an_insert_that_was_not_acknowledged_is_taken_back_for_a_rival() {
    let houses = Houses::new();
    let new = Arc::new(FaultyStore::new(Arc::clone(&houses.new), &[Fault::LostAfter]));
    let moving = MovingStore::new(new, Arc::clone(&houses.old));
    let mine = sample::reserved(&request("a"), &policy(), Fence::first(1));
    assert_eq!(moving.insert(&mine).await.unwrap_err().certainty(), Certainty::Indeterminate);
    assert!(houses.new.get(mine.id).await.unwrap().is_some());
    let theirs = sample::reserved(&request("a"), &policy(), Fence::first(2));
    assert!(matches!(houses.old.insert(&theirs).await.unwrap(), Inserted::Done(_)));
    let Inserted::Stands(found) = moving.insert(&mine).await.unwrap() else {
        panic!("two own the key");
    };
    assert_eq!(found.record.fence, theirs.fence);
    assert!(houses.new.get(mine.id).await.unwrap().is_none(), "nobody would ever end it");
    let verdict = refused(&moving, "a", &policy()).await;
    assert!(matches!(verdict, Verdict::InProgress { .. }), "{verdict:?}");
}

/// Between the look and the removal another process takes the record over in the old store: it stays, and the
/// attempt in the new one is withdrawn.
#[tokio::test]
async fn a_rival_who_takes_over_in_the_other_store_wins() {
    let houses = Houses::new();
    let outcome = sample::outcome(201, "first");
    let first = sample::completed(&request("a"), &policy(), Fence::first(1), outcome);
    houses.old.insert(&first).await.unwrap();
    houses.clock.advance(policy().record_retention().replay_for);
    let seen = houses.old.get(first.id).await.unwrap().unwrap().record.seen();
    let take_over = |nonce| {
        let fence = seen.fence.next(nonce);
        sample::reserved(&request("a"), &policy(), fence)
    };
    let (mine, theirs) = (take_over(1), take_over(2));
    let (old, change) = (Arc::clone(&houses.old), Change::TakeOver(Box::new(theirs.clone())));
    let other = interrupted(&houses.old, async move {
        old.swap(seen_id(), Guard::Seen(seen), change, None).await.unwrap();
    });
    let moving = MovingStore::new(Arc::clone(&houses.new), other);
    let change = Change::TakeOver(Box::new(mine.clone()));
    let swapped = moving.swap(mine.id, Guard::Seen(seen), change, None).await.unwrap();
    let Swapped::Moved(Some(found)) = swapped else { panic!("two own the key: {swapped:?}") };
    assert_eq!(found.record.fence, theirs.fence);
    assert!(houses.new.get(mine.id).await.unwrap().is_none(), "nobody would ever end it");
}

fn seen_id() -> RecordId {
    request("a").id
}

/// The old store is away for the second half: that is not called done, and saying it again does the rest.
#[tokio::test]
async fn a_settlement_that_reached_one_store_is_finished_by_saying_it_again() {
    for change in [
        Change::Complete {
            outcome: sample::outcome(201, "it did"),
            retention: policy().record_retention(),
        },
        Change::Remove,
    ] {
        let houses = Houses::new();
        let seen = uncertain_in_both(&houses, "a").await;
        let settle = async |store: &MovingStore| {
            let guard = Guard::Seen(seen);
            store.swap(request("a").id, guard, change.clone(), None).await
        };
        let half = MovingStore::new(Arc::clone(&houses.new), fading(&houses.old, 0));
        let error = settle(&half).await.unwrap_err();
        assert_eq!(error.certainty(), Certainty::Indeterminate);
        let state = async |store: &Arc<dyn Store>| {
            store.get(request("a").id).await.unwrap().map(|found| found.record.state.kind())
        };
        let settled = state(&houses.new).await;
        assert_ne!(settled, Some(StateKind::Uncertain));
        assert_eq!(state(&houses.old).await, Some(StateKind::Uncertain));
        if settled.is_some() {
            let verdict = refused(&houses.after, "a", &policy()).await;
            assert!(matches!(verdict, Verdict::Replay { .. }), "{verdict:?}");
        }
        settle(&houses.after).await.unwrap();
        assert_eq!((state(&houses.new).await, state(&houses.old).await), (settled, settled));
    }
}

/// The copy arrives between the two halves of a settlement.
#[tokio::test]
async fn a_copy_that_comes_while_its_original_is_settled_is_settled_too() {
    let houses = Houses::new();
    let seen = uncertain_in_both(&houses, "a").await;
    houses.new.swap(request("a").id, Guard::Seen(seen), Change::Remove, None).await.unwrap();
    let new = Arc::clone(&houses.new);
    let other = interrupted(&houses.old, async move {
        let draft = sample::reserved(&request("a"), &policy(), seen.fence);
        new.insert(&draft).await.unwrap();
        let mark = new.swap(draft.id, Guard::Owner(seen.fence), Change::MARK_UNCERTAIN, None);
        mark.await.unwrap();
    });
    let moving = MovingStore::new(Arc::clone(&houses.new), other);
    let settled = moving.swap(request("a").id, Guard::Seen(seen), Change::Remove, None).await;
    assert!(matches!(settled.unwrap(), Swapped::Done(_)));
    for store in [&houses.old, &houses.new] {
        assert!(store.get(request("a").id).await.unwrap().is_none(), "it is uncertain for ever");
    }
}
