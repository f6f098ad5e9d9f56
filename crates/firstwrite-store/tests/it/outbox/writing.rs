//! A message is written with all that belongs to it, in its handler's commit, or not at all.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use firstwrite_core::outbox::{Outbox, protocol};
use firstwrite_core::{
    Conclusion, Message, StoreError, StoreErrorKind, Transacted, TransactionalStore, Write,
};
use firstwrite_store::{SqliteStore, SqliteTx};
use tokio::time::timeout;

use super::{claim, counts, enqueue, message};
use crate::group_commit::ClaimStatus;
use crate::shop::{Shop, completed, id_of};

/// Longer than word ever takes; only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Enqueues `messages` in a handler that goes on whatever happens.
async fn handle(
    store: &SqliteStore,
    messages: Vec<Message>,
    write: Write,
) -> Result<bool, StoreError> {
    let work = move |tx: &mut SqliteTx<'_>, _found: Option<_>| {
        let all_enqueued = messages.iter().all(|message| tx.enqueue(message).is_ok());
        Conclusion { write, answer: all_enqueued }
    };
    match store.transact(id_of("k"), work).await? {
        Transacted::Done(answer, _) => Ok(answer),
        Transacted::Rival(found) => panic!("{found:?}"),
    }
}

async fn row_counts(shop: &Shop) -> Vec<String> {
    shop.column(
        "SELECT count(*) || '' FROM firstwrite_messages UNION ALL
         SELECT count(*) || '' FROM firstwrite_pending UNION ALL
         SELECT count(*) || '' FROM firstwrite_tallies",
    )
    .await
}

#[tokio::test]
async fn messages_of_a_handler_are_due_with_its_commit_and_counted() {
    let shop = Shop::open();
    let later = message("later").delayed_by(Duration::from_secs(5));
    let draft = Box::new(completed("k", "{}"));
    assert!(handle(&shop.store, vec![message("k"), later], Write::All(draft)).await.unwrap());
    assert_eq!(counts(&shop.store).await, [2, 0, 0, 0]);
    assert_eq!(claim(&shop.store, 9).await.len(), 1);
    shop.pass(Duration::from_secs(5));
    assert_eq!(claim(&shop.store, 9).await.len(), 1);
}

#[tokio::test]
async fn messages_of_a_handler_that_is_undone_leave_no_trace() {
    let shop = Shop::open();
    let ordered = message("k").ordered_by("a");
    handle(&shop.store, vec![ordered], Write::Nothing).await.unwrap();
    let draft = Box::new(completed("k", "{}"));
    handle(&shop.store, vec![message("k")], Write::RecordOnly(draft)).await.unwrap();
    assert_eq!(row_counts(&shop).await, ["0", "0", "0"]);
    // Nor does it stand in the way of a successor.
    shop.store.enqueue(&message("next").ordered_by("a")).await.unwrap();
    assert_eq!(claim(&shop.store, 9).await.len(), 1);
}

#[tokio::test]
async fn a_handler_cannot_keep_half_a_message() {
    let shop = Shop::open();
    let trigger = "CREATE TRIGGER broken BEFORE INSERT ON firstwrite_pending
                   BEGIN SELECT RAISE(FAIL, 'in a test'); END";
    shop.store.write(move |connection| connection.execute_batch(trigger)).await.unwrap();
    let draft = Box::new(completed("k", "{}"));
    let error = handle(&shop.store, vec![message("k")], Write::All(draft)).await.unwrap_err();
    assert!(error.to_string().contains("a message could not be written"), "{error}");
    assert_eq!(row_counts(&shop).await, ["0", "0", "0"]);
    let error = shop.store.enqueue(&message("k")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
    assert_eq!(row_counts(&shop).await, ["0", "0", "0"]);
}

#[tokio::test]
async fn whoever_waits_is_nudged_after_the_commit_and_not_before() {
    let shop = Shop::open();
    let mut context = Context::from_waker(Waker::noop());
    let mut wait_for_work = pin!(shop.store.wait_for_work());
    assert_eq!(wait_for_work.as_mut().poll(&mut context), Poll::Pending);
    let held = ClaimStatus::hold(&shop.store).await;
    let message = message("k");
    let mut enqueued = shop.store.enqueue(&message);
    assert!(enqueued.as_mut().poll(&mut context).is_pending());
    assert_eq!(wait_for_work.as_mut().poll(&mut context), Poll::Pending);
    held.let_go();
    enqueued.await.unwrap();
    timeout(PATIENCE, wait_for_work).await.expect("there was no word");
    // Who was not waiting at that moment is wait_for_work as well, once.
    timeout(PATIENCE, shop.store.wait_for_work()).await.expect("there was no word");
    let mut third = pin!(shop.store.wait_for_work());
    assert_eq!(third.as_mut().poll(&mut context), Poll::Pending);
}

#[tokio::test]
async fn messages_that_wait_share_one_commit() {
    let shop = Shop::open();
    let before = shop.store.commit_count();
    let enqueue_one = |number: usize| {
        let store = shop.store.clone();
        async move { store.enqueue(&message(&format!("k{number}"))).await.unwrap() }
    };
    crate::group_commit::in_one_batch(&shop.store, (0..100).map(enqueue_one).collect()).await;
    assert_eq!(shop.store.commit_count() - before, 1 + 1);
    assert_eq!(counts(&shop.store).await, [100, 0, 0, 0]);
}

#[tokio::test]
async fn a_reader_beside_the_writer_lists_messages_and_changes_nothing() {
    let shop = Shop::open();
    enqueue(&shop.store, &["a", "b"]).await;
    let reader = SqliteStore::open_read_only(shop.path()).unwrap();
    assert_eq!(super::views(&reader).await.len(), 2);
    assert_eq!(counts(&reader).await, [2, 0, 0, 0]);
    let by = super::ada("pause");
    for refused in [
        reader.enqueue(&message("c")).await.unwrap_err(),
        reader.claim(&[], 1).await.unwrap_err(),
        protocol::settle(&reader, &[], &[]).await.unwrap_err(),
        protocol::pause(&reader, "provider", &by).await.unwrap_err(),
        reader.upkeep(Duration::ZERO, 1).await.unwrap_err(),
    ] {
        assert_eq!(refused.kind(), StoreErrorKind::Unsupported, "{refused}");
    }
}
