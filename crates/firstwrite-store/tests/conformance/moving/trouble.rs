//! A store that is away, and acknowledgements that are lost.

use std::sync::Arc;

use firstwrite_core::{
    AuditEntry, Audited, BoxFuture, Capabilities, Certainty, Change, Draft, Fence, Found, Guard,
    Inserted, Page, Query, RecordId, Store, StoreError, StoreErrorKind, Swapped, Timestamp,
    UsagePage,
};
use firstwrite_store::MovingStore;
use firstwrite_testkit::{AwayStore, Fault, FaultyStore, sample};

use super::{Houses, granted, policy, refused, request};

/// Answers so many calls and is away from then on.
fn fading(inner: &Arc<dyn Store>, left: usize) -> Arc<AwayStore> {
    let store = AwayStore::new(Arc::clone(inner));
    store.goes_away_after(left);
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
    assert!(matches!(verdict, firstwrite_core::Verdict::InProgress { .. }), "{verdict:?}");
}
