//! What operators do: look, put back, resolve.

use std::time::Duration;

use firstwrite_core::Store;
use firstwrite_core::outbox::{
    Cause, ClaimStatus, Ending, MessageQuery, MessageState, Next, Outbox, Resolution, protocol,
};

use super::{
    LEASE, claim, deliver, destination, enqueue, keys, message, number, receipt, settle,
    settlement, somebody, states, subject,
};
use crate::server::{Way, on_database};
use firstwrite_testkit::Subject;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_found_put_back_and_delivered() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        enqueue(&store, &["a", "b", "c", "d"], "mailer").await;
        let claimed_messages = claim(&store, "mailer", 9).await;
        for (claimed_message, detail) in
            claimed_messages.iter().zip(["no such user", "no such user", "too long"])
        {
            let mut dead = settlement(claimed_message, Ending::Refused, Next::Dead(Cause::Refused));
            let delivery = dead.delivery.as_mut().unwrap();
            (delivery.status, delivery.detail) = (Some(422), detail.to_owned());
            settle(&store, &[dead]).await;
        }
        let unknown =
            settlement(&claimed_messages[3], Ending::Unknown, Next::Unknown("nobody can be asked"));
        settle(&store, &[unknown]).await;
        let view = destination(&store, "mailer").await;
        assert_eq!((view.open_count, view.dead_count, view.unknown_count), (0, 3, 1));
        let query = |problem: &str| MessageQuery {
            state: Some(MessageState::Dead),
            problem: Some(problem.to_owned()),
            limit: 100,
            ..MessageQuery::default()
        };
        assert_eq!(protocol::count(&store, &query("such")).await.unwrap().count, 2);
        assert_eq!(protocol::count(&store, &query("422")).await.unwrap().count, 3);
        assert_eq!(protocol::count(&store, &query("42")).await.unwrap().count, 0);
        assert_eq!(
            protocol::redrive(&store, &query("such"), 1, &somebody("redrive")).await.unwrap(),
            1
        );
        assert_eq!(
            protocol::redrive(&store, &query("such"), 9, &somebody("redrive")).await.unwrap(),
            1
        );
        assert_eq!(
            protocol::redrive(&store, &query("such"), 9, &somebody("redrive")).await.unwrap(),
            0
        );
        let again = claim(&store, "mailer", 9).await;
        assert_eq!(keys(&again), ["a", "b"]);
        assert_eq!((again[0].delivery_count, again[0].fence.count()), (0, 2));
        assert_eq!(again[0].wire_key(), claimed_messages[0].wire_key());
        deliver(&store, &again).await;
        let audits = store.audits(again[0].record).await.unwrap();
        assert_eq!(audits[0].entry.action, format!("redrive message {}", again[0].number));
        let story = store.message(again[0].number).await.unwrap().unwrap();
        let endings: Vec<&str> = story.deliveries.iter().map(|one| one.ending.as_str()).collect();
        assert_eq!((endings, story.audits.len()), (vec!["refused", "delivered"], 1));
        let view = destination(&store, "mailer").await;
        assert_eq!((view.open_count, view.dead_count, view.delivered_count), (0, 1, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_resolved_once_and_only_as_it_was_seen() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        enqueue(&store, &["a", "b"], "mailer").await;
        let by = somebody("resolve");
        let claimed_messages = claim(&store, "mailer", 1).await;
        let (claimed_message, arrived) = (&claimed_messages[0], receipt("pay-1"));
        let found = Resolution::Delivered { receipt: arrived.clone(), answer: None };
        let resolve =
            |fence, found| protocol::resolve(&store, claimed_message.number, fence, found, &by);
        assert_eq!(
            resolve(claimed_message.fence, &found).await.unwrap(),
            ClaimStatus::Lost,
            "it is being sent"
        );
        let unknown =
            settlement(claimed_message, Ending::Unknown, Next::Unknown("nobody can be asked"));
        settle(&store, &[unknown]).await;
        let not = Resolution::NotDelivered;
        assert_eq!(resolve(claimed_message.fence.next(1), &not).await.unwrap(), ClaimStatus::Lost);
        assert_eq!(resolve(claimed_message.fence, &not).await.unwrap(), ClaimStatus::Current);
        assert_eq!(
            resolve(claimed_message.fence, &found).await.unwrap(),
            ClaimStatus::Lost,
            "somebody was faster"
        );
        let again = claim(&store, "mailer", 1).await;
        assert_eq!((again[0].number, again[0].maybe_sent_at), (claimed_message.number, None));
        // A claim that ran out is nobody's.
        subject.advance(LEASE).await;
        assert_eq!(resolve(again[0].fence, &found).await.unwrap(), ClaimStatus::Current);
        let late = settlement(&again[0], Ending::Refused, Next::Dead(Cause::Refused));
        assert_eq!(settle(&store, &[late]).await, [ClaimStatus::Lost]);
        let story = store.message(claimed_message.number).await.unwrap().unwrap();
        assert_eq!(story.message.receipt, Some(arrived));
        assert_eq!(story.audits.len(), 2);
        let view = destination(&store, "mailer").await;
        assert_eq!((view.open_count, view.unknown_count, view.delivered_count), (1, 0, 1));
        assert_eq!(keys(&claim(&store, "mailer", 9).await), ["b"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_nobody_has_taken_in_is_listed_and_can_be_dropped() {
    on_database(Way::Pooler, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        store.enqueue(&message("a", "mailer").delayed_by(Duration::from_hours(1))).await.unwrap();
        enqueue(&store, &["b"], "mailer").await;
        let waiting = MessageQuery {
            state: Some(MessageState::Waiting),
            limit: 1,
            ..MessageQuery::default()
        };
        let page = protocol::messages(&store, &waiting).await.unwrap();
        assert_eq!((page.messages.len(), page.next), (1, Some(page.messages[0].number)));
        assert_eq!(page.messages[0].due_at, Some(page.now.plus(Duration::from_hours(1))));
        assert_eq!(protocol::count(&store, &waiting).await.unwrap().count, 2);
        let next = MessageQuery { after: page.next, ..waiting };
        let last = protocol::messages(&store, &next).await.unwrap();
        assert_eq!((last.messages[0].derived_key.as_str(), last.next), ("b:s", None));
        let view = &page.messages[0];
        let by = somebody("drop");
        let dropped =
            protocol::resolve(&store, view.number, view.fence, &Resolution::Dropped, &by).await;
        assert_eq!(dropped.unwrap(), ClaimStatus::Current);
        assert_eq!(states(&store).await[0].1, MessageState::Dropped);
        subject.advance(Duration::from_hours(1)).await;
        assert_eq!(keys(&claim(&store, "mailer", 9).await), ["b"]);
        let view = destination(&store, "mailer").await;
        assert_eq!((view.open_count, view.delivered_count), (1, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_delivered_is_kept_for_a_while_and_then_deleted() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        let day = Duration::from_hours(24);
        enqueue(&store, &["a", "b", "c", "d"], "mailer").await;
        let claimed_messages = claim(&store, "mailer", 9).await;
        deliver(&store, &claimed_messages[..1]).await;
        subject.advance(day).await;
        deliver(&store, &claimed_messages[1..3]).await;
        assert_eq!(store.upkeep(2 * day, 10).await.unwrap(), 0);
        subject.advance(day).await;
        assert_eq!(store.upkeep(2 * day, 10).await.unwrap(), 1);
        assert_eq!(store.message(claimed_messages[0].number).await.unwrap(), None);
        subject.advance(10 * day).await;
        let rival = subject.rival().await;
        assert_eq!(rival.upkeep(2 * day, 1).await.unwrap(), 1);
        assert_eq!(rival.upkeep(2 * day, 9).await.unwrap(), 1);
        assert_eq!(number(&subject, "SELECT count(*) FROM deliveries").await, 0);
        // What waits stays, and what is gone is not taken in again.
        assert_eq!(keys(&claim(&rival, "mailer", 9).await), ["d"]);
        let view = destination(&rival, "mailer").await;
        assert_eq!((view.open_count, view.delivered_count), (1, 3));
        let one_each = "SELECT count(*) - count(DISTINCT kind) FROM tallies";
        assert_eq!(number(&subject, one_each).await, 0, "folded");
    })
    .await;
}
