//! Several workers on one outbox: claims, leases, fences and trials.

use std::collections::HashSet;
use std::time::Duration;

use firstwrite_core::Message;
use firstwrite_core::outbox::{
    ClaimStatus, Delivery, Ending, MessageState, Next, Outbox, REST_AFTER_LOSS, Received, Sent,
    Settlement, Switch, protocol,
};
use firstwrite_core::{Store, StoreErrorKind};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::{Subject, sample};

use super::{
    LEASE, arrived, claim, claim_all, deliver, destination, enqueue, keys, message, number,
    receipt, request, settle, settlement, somebody, states, subject,
};
use crate::server::{Database, Way, on_database};
use crate::subject::PostgresSubject;

async fn a_message_is_claimed_delivered_and_gone(database: Database) {
    let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
    let store = subject.postgres();
    enqueue(&store, &["a", "b", "c"], "mailer").await;
    enqueue(&store, &["x"], "other").await;
    let first = claim(&store, "mailer", 2).await;
    assert_eq!(keys(&first), ["a", "b"]);
    let claimed_message = &first[0];
    assert_eq!(&claimed_message.payload[..], b"payload of a");
    assert_eq!(
        (
            claimed_message.fence.count(),
            claimed_message.delivery_count,
            claimed_message.lapse_count
        ),
        (1, 0, 0)
    );
    assert_eq!(
        (claimed_message.maybe_sent_at, claimed_message.is_trial, &claimed_message.receipt),
        (None, false, &None)
    );
    assert_eq!(keys(&claim(&store, "mailer", 9).await), ["c"]);
    assert!(claim(&store, "mailer", 9).await.is_empty());
    deliver(&store, &first).await;
    assert_eq!(number(&subject, "SELECT count(*) FROM pending").await, 2);
    assert_eq!(number(&subject, "SELECT count(*) FROM deliveries").await, 2);
    let view = destination(&store, "mailer").await;
    assert_eq!((view.open_count, view.delivered_count), (1, 2));
    assert_eq!(destination(&store, "other").await.open_count, 1);
    // A worker that begins now finds what is left, and nothing else.
    let rival = subject.rival().await;
    assert!(claim(&rival, "mailer", 9).await.is_empty());
    assert_eq!(keys(&claim(&rival, "other", 9).await), ["x"]);
    let story = store.message(claimed_message.number).await.unwrap().unwrap();
    assert_eq!(story.message.state, MessageState::Delivered);
    assert_eq!(story.message.receipt, Some(receipt(&format!("id-{}", claimed_message.number))));
    assert_eq!(story.deliveries.len(), 1);
    assert_eq!(story.deliveries[0].ending, "delivered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_claimed_delivered_and_gone_directly() {
    on_database(Way::Direct, &[], a_message_is_claimed_delivered_and_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_claimed_delivered_and_gone_behind_a_pooler() {
    on_database(Way::Pooler, &[], a_message_is_claimed_delivered_and_gone).await;
}

/// Claims until nothing is left, and says what it got.
async fn work_off(store: PostgresStore, count: usize) -> Vec<i64> {
    let mut got = Vec::new();
    let mut empty = 0;
    while empty < 3 {
        let messages = claim(&store, "mailer", count).await;
        empty = if messages.is_empty() { empty + 1 } else { 0 };
        got.extend(messages.iter().map(|claimed_message| claimed_message.number.0));
        deliver(&store, &messages).await;
    }
    got
}

async fn workers_never_get_the_same_message(database: Database) {
    let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
    let store = subject.postgres();
    let writers = (0..4).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for at in 0..100 {
                store.enqueue(&message(&format!("{writer}-{at}"), "mailer")).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut workers = Vec::new();
    for count in [7, 16, 33] {
        workers.push(tokio::spawn(work_off(subject.rival().await, count)));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let mut got = Vec::new();
    for worker in workers {
        got.extend(worker.await.unwrap());
    }
    got.extend(work_off(store.clone(), 50).await);
    assert_eq!(got.len(), 400);
    assert_eq!(got.iter().collect::<HashSet<_>>().len(), 400, "none of them twice");
    assert_eq!(number(&subject, "SELECT count(*) FROM pending").await, 0);
    assert_eq!(destination(&store, "mailer").await.delivered_count, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_never_get_the_same_message_directly() {
    on_database(Way::Direct, &[], workers_never_get_the_same_message).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_never_get_the_same_message_behind_a_pooler() {
    on_database(Way::Pooler, &[], workers_never_get_the_same_message).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_ran_out_is_taken_again_and_its_owner_is_refused() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, rival) = (subject.postgres(), subject.rival().await);
        enqueue(&store, &["a"], "mailer").await;
        let old = claim_all(&store, "mailer", 1).await;
        assert!(claim(&rival, "mailer", 1).await.is_empty());
        subject.advance(LEASE).await;
        let new = claim(&rival, "mailer", 1).await;
        assert_eq!(new[0].maybe_sent_at, Some(old.now), "it may have been sent since");
        assert_eq!((new[0].lapse_count, new[0].fence.count()), (1, 2));
        // The receipt of the first is kept, though its claim does not hold any more.
        let old = &old.messages[0];
        let delivery = Delivery::new(Ending::Delivered(receipt("pay-1")), "arrived");
        let received = Received { number: old.number, fence: old.fence, delivery };
        let held = protocol::settle(&store, &[received], &[arrived(old)]).await.unwrap();
        assert_eq!(held, [ClaimStatus::Lost]);
        let sent = Sent::AsBefore;
        let later = Next::Waiting { pause: Duration::ZERO, counts: false, sent };
        let back = Settlement { delivery: None, ..settlement(&new[0], Ending::Retry, later) };
        assert_eq!(settle(&rival, std::slice::from_ref(&back)).await, [ClaimStatus::Current]);
        assert_eq!(settle(&rival, &[back]).await, [ClaimStatus::Lost], "once");
        let last = claim(&rival, "mailer", 1).await;
        assert_eq!(last[0].receipt, Some(receipt("pay-1")));
        assert_eq!((last[0].lapse_count, last[0].delivery_count), (0, 0));
        // What is known from before is written down once.
        let known = Next::Delivered(receipt("pay-1"));
        let known = Settlement { delivery: None, ..settlement(&last[0], Ending::Retry, known) };
        assert_eq!(settle(&rival, &[known]).await, [ClaimStatus::Current]);
        assert_eq!(number(&subject, "SELECT count(*) FROM deliveries").await, 1);
        assert!(claim(&store, "mailer", 1).await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_destination_says_happened_is_not_taken_in_again() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, rival) = (subject.postgres(), subject.rival().await);
        enqueue(&store, &["a"], "mailer").await;
        let messages = claim(&store, "mailer", 1).await;
        // No delivery of this claim, and none before: the destination was asked.
        let next = Next::Delivered(receipt("pay-1"));
        let asked = Settlement { delivery: None, ..settlement(&messages[0], Ending::Retry, next) };
        assert_eq!(settle(&store, &[asked]).await, [ClaimStatus::Current]);
        assert!(claim(&rival, "mailer", 1).await.is_empty());
        assert_eq!(states(&store).await, [("a".to_owned(), MessageState::Delivered)]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_waits_as_long_as_it_is_told_to() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        let minute = Duration::from_mins(1);
        store.enqueue(&message("late", "mailer").delayed_by(minute)).await.unwrap();
        enqueue(&store, &["now"], "mailer").await;
        let messages = claim(&store, "mailer", 9).await;
        assert_eq!(keys(&messages), ["now"]);
        let next = Next::Waiting { pause: minute, counts: true, sent: Sent::Maybe };
        settle(&store, &[settlement(&messages[0], Ending::Unknown, next)]).await;
        subject.advance(sample::just_before(minute)).await;
        assert!(claim(&store, "mailer", 9).await.is_empty());
        subject.advance(sample::TICK).await;
        let messages = claim(&store, "mailer", 9).await;
        assert_eq!(keys(&messages), ["late", "now"]);
        assert_eq!((messages[1].delivery_count, messages[1].maybe_sent_at.is_some()), (1, true));
        assert_eq!((messages[0].delivery_count, messages[0].maybe_sent_at), (0, None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_workers_tries_a_destination_that_was_left_alone() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        enqueue(&store, &["a", "b", "c"], "mailer").await;
        let open_for = Duration::from_secs(5);
        let open = Switch::Open { open_for, cause: "five failures".to_owned() };
        for round in 0..6 {
            protocol::switch(&store, "mailer", &open).await.unwrap();
            let left_alone = claim_all(&store, "mailer", 9).await;
            assert_eq!(
                (left_alone.messages.len(), left_alone.closed),
                (0, vec!["mailer".to_owned()])
            );
            subject.advance(open_for).await;
            // Messages that are new, and messages that wait.
            let (one, other) = (subject.rival().await, subject.rival().await);
            let (one, other) = tokio::join!(
                tokio::spawn(async move { claim_all(&one, "mailer", 9).await }),
                tokio::spawn(async move { claim_all(&other, "mailer", 9).await })
            );
            let (one, other) = (one.unwrap(), other.unwrap());
            let messages = [one.messages, other.messages].concat();
            assert_eq!(messages.len(), 1, "round {round}");
            assert!(messages[0].is_trial);
            let next = Next::Waiting { pause: Duration::ZERO, counts: false, sent: Sent::No };
            settle(&store, &[settlement(&messages[0], Ending::Retry, next)]).await;
        }
        let view = destination(&store, "mailer").await;
        assert_eq!((view.opening_count, view.open_cause.as_deref()), (6, Some("five failures")));
        protocol::switch(&store, "mailer", &Switch::Closed).await.unwrap();
        assert_eq!(destination(&store, "mailer").await.opening_count, 0);
        assert_eq!(claim(&store, "mailer", 9).await.len(), 3);
        // Nothing is there to try it with: it stays due.
        protocol::switch(&store, "empty", &open).await.unwrap();
        subject.advance(open_for).await;
        assert!(claim_all(&store, "empty", 1).await.closed.is_empty());
        enqueue(&store, &["e"], "empty").await;
        assert!(claim(&store, "empty", 1).await[0].is_trial);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_destination_gives_nothing_until_it_is_resumed() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        protocol::pause(&store, "mailer", &somebody("pause")).await.unwrap();
        enqueue(&store, &["a"], "mailer").await;
        assert_eq!(claim_all(&store, "mailer", 9).await.closed, ["mailer"]);
        let paused = destination(&store, "mailer").await.paused.unwrap();
        assert_eq!(paused.entry, somebody("pause"));
        protocol::resume(&store, "mailer", &somebody("resume")).await.unwrap();
        assert_eq!(claim(&store, "mailer", 9).await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_cannot_be_read_keeps_no_other_from_going() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        enqueue(&store, &["a", "b", "c"], "mailer").await;
        let damage = "UPDATE messages SET answers = '\\x99' WHERE derived_key = 'b:s'";
        subject.admin().batch_execute(damage).await.unwrap();
        assert_eq!(keys(&claim(&store, "mailer", 9).await), ["a", "c"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_only_reads_shows_everything_and_changes_nothing() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        enqueue(&subject.postgres(), &["a", "b"], "mailer").await;
        let url = format!("{}?schema={}", subject.url(), subject.schema());
        let store = PostgresStore::connect_read_only(&url).await.unwrap();
        let outbox = store.outbox().unwrap();
        let refused = outbox.claim(&[request("mailer", 1)], 1).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Unsupported);
        assert_eq!(destination(&store, "mailer").await.open_count, 2);
        assert_eq!(states(&store).await.len(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_claimed_while_acknowledged_history_is_missing() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        enqueue(&store, &["a"], "mailer").await;
        let loss = format!(
            "INSERT INTO history_losses (noticed_at, detail) VALUES ({}.now(), 'lost')",
            subject.schema()
        );
        subject.admin().batch_execute(&loss).await.unwrap();
        let refused = store.claim(&[request("mailer", 1)], 1).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::HistoryLost);
        let cleared = store.clear_history_losses("ops", "looked").await.unwrap();
        assert_eq!((cleared.losses, cleared.messages), (1, 1), "{cleared:?}");
        assert_eq!(claim(&store, "mailer", 1).await.len(), 0, "it rests");
        subject.advance(REST_AFTER_LOSS).await;
        let claimed = claim(&store, "mailer", 1).await;
        assert!(claimed[0].maybe_sent_at.is_some(), "{claimed:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_a_turn_takes_is_worked_off() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        let first: Message = message("first", "mailer");
        store.enqueue(&first).await.unwrap();
        let many = "INSERT INTO messages (id, tenant, derived_key, destination, content_type, payload,
                                          created_at, not_before)
                    SELECT id, tenant, 'k-' || n || ':s', CASE WHEN n < 3000 THEN 'slow' ELSE 'mailer' END,
                           content_type, payload, created_at, not_before
                    FROM messages, generate_series(1, 3100) n";
        subject.admin().batch_execute(many).await.unwrap();
        // The first one is found at once, the others behind thousands that nobody wants.
        assert_eq!(claim(&store, "mailer", 500).await.len(), 1);
        assert_eq!(claim(&store, "mailer", 500).await.len(), 101);
        assert_eq!(destination(&store, "slow").await.open_count, 2999);
        let rival = subject.rival().await;
        assert!(claim(&rival, "mailer", 500).await.is_empty());
        assert_eq!(claim(&rival, "slow", 5000).await.len(), 2999);
    })
    .await;
}
