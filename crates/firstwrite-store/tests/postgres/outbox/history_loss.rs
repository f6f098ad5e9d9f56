//! A dump is put back: what it calls waiting may have been sent since.

use std::time::Duration;

use firstwrite_core::outbox::{ClaimStatus, MessageState, Outbox, REST_AFTER_LOSS};
use firstwrite_core::{Query, Store as _, StoreErrorKind};
use firstwrite_store::PostgresStore;
use firstwrite_testkit::Subject as _;

use super::{
    LEASE, arrived, claim, deliver, destination, enqueue, keys, message, number, request, settle,
    states, subject,
};
use crate::lost_history::{dump, put_back};
use crate::server::{Database, Way, on_database};
use crate::subject::PostgresSubject;

async fn refuses_to_claim(store: &PostgresStore) {
    let refused = store.claim(&[request("mailer", 9)], 1).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
}

async fn advance(subject: &PostgresSubject, by: Duration) {
    subject.advance(by).await;
    // Claims of other processes are looked for once in a second.
    subject.advance(Duration::from_secs(1)).await;
}

/// Messages in every state in which a dump can call them never sent: taken in or not, due or not, under a claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dump_calls_never_sent_is_in_doubt_once_the_loss_is_cleared() {
    for way in [Way::Direct, Way::Pooler] {
        on_database(way, &[], async |database| {
            let subject = subject(&database).await;
            let (worker, other) = (subject.postgres(), subject.rival().await);
            enqueue(&worker, &["sending"], "mailer").await;
            let held = claim(&worker, "mailer", 9).await;
            assert_eq!(keys(&held), ["sending"]);
            enqueue(&worker, &["taken-in"], "mailer").await;
            worker.claim(&[], 1).await.unwrap();
            for key in ["first", "second"] {
                worker.enqueue(&message(key, "mailer").ordered_by("card")).await.unwrap();
            }
            worker.enqueue(&message("later", "mailer").delayed_by(LEASE * 20)).await.unwrap();
            enqueue(&worker, &["elsewhere"], "other").await;
            assert_eq!(number(&subject, "SELECT count(*) FROM pending").await, 2);
            let dump = dump(&database);

            for store in [&worker, &other] {
                store.list(&Query::lapsed(10)).await.unwrap();
            }
            deliver(&worker, &held).await;
            for _ in 0..2 {
                deliver(&other, &claim(&other, "mailer", 9).await).await;
            }
            assert_eq!(destination(&other, "mailer").await.delivered_count, 4);
            put_back(&database, dump);

            refuses_to_claim(&other).await;
            assert_eq!(states(&other).await.len(), 6);
            let cleared = other.clear_history_losses("ops", "compared").await.unwrap();
            assert_eq!((cleared.losses, cleared.messages), (1, 6), "{cleared:?}");
            let open = destination(&other, "mailer").await.open_count;
            assert_eq!((open, destination(&other, "other").await.open_count), (5, 1));
            // The worker that held a claim when the dump was made settles it a second time.
            assert_eq!(settle(&worker, &[arrived(&held[0])]).await, [ClaimStatus::Lost]);
            enqueue(&other, &["new"], "mailer").await;
            let new = claim(&worker, "mailer", 9).await;
            assert_eq!((keys(&new), new[0].maybe_sent_at), (vec!["new"], None));
            deliver(&worker, &new).await;

            advance(&subject, REST_AFTER_LOSS).await;
            let claimed = claim(&worker, "mailer", 9).await;
            assert_eq!(keys(&claimed), ["sending", "taken-in", "first"]);
            for message in &claimed {
                assert_eq!(message.maybe_sent_at, Some(message.created_at), "{message:?}");
            }
            // Its receipt outlived the claim.
            assert!(claimed[0].receipt.is_some(), "{:?}", claimed[0]);
            deliver(&worker, &claimed).await;
            let second = claim(&other, "mailer", 9).await;
            assert_eq!(keys(&second), ["second"]);
            assert_eq!(second[0].maybe_sent_at, Some(second[0].created_at));
            deliver(&other, &second).await;
            advance(&subject, LEASE * 20).await;
            let later = claim(&other, "mailer", 9).await;
            assert_eq!(keys(&later), ["later"]);
            assert_eq!(later[0].maybe_sent_at, Some(later[0].created_at));
        })
        .await;
    }
}

/// A process that only clears takes in what no worker has, and more than one statement looks at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_messages_that_nobody_has_taken_in_are_marked() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        enqueue(&store, &["first"], "mailer").await;
        let many = "INSERT INTO messages (id, tenant, derived_key, destination, content_type, payload,
                                          created_at, not_before)
                    SELECT id, tenant, 'k-' || n || ':s', destination, content_type, payload, created_at,
                           not_before
                    FROM messages, generate_series(1, 2100) n";
        subject.admin().batch_execute(many).await.unwrap();
        let loss = "INSERT INTO history_losses (noticed_at, detail) VALUES (now(), 'lost')";
        subject.admin().batch_execute(loss).await.unwrap();
        let operator = subject.rival().await;
        let cleared = operator.clear_history_losses("ops", "compared").await.unwrap();
        assert_eq!((cleared.losses, cleared.messages), (1, 2101), "{cleared:?}");
        let unmarked = "SELECT count(*) FROM messages m LEFT JOIN pending p USING (message)
                        WHERE p.maybe_sent_at IS DISTINCT FROM m.created_at";
        assert_eq!(number(&subject, unmarked).await, 0);
        let states = states(&store).await;
        assert!(states.iter().all(|(_, state)| *state == MessageState::Waiting));
    })
    .await;
}

/// A trigger of the audit that adds another loss.
const ANOTHER_LOSS: &str =
    "INSERT INTO %I.history_losses (noticed_at, detail) VALUES (now(), ''again'')";
/// A trigger of the audit that puts an older count back.
const OLDER_COUNT: &str = "UPDATE %I.history SET sweeps = -1";

/// What is lost while messages are marked is not cleared with the loss that they are marked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_that_is_noticed_while_messages_are_marked_stays_open() {
    on_database(Way::Direct, &[], async |database| {
        refuses_to_clear(&database, ANOTHER_LOSS, 2).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_that_is_put_back_while_messages_are_marked_leaves_the_loss_open() {
    on_database(Way::Direct, &[], async |database| {
        refuses_to_clear(&database, OLDER_COUNT, 1).await;
    })
    .await;
}

async fn refuses_to_clear(database: &Database, happens: &str, open: usize) {
    let subject = subject(database).await;
    enqueue(&subject.postgres(), &["first"], "mailer").await;
    let harm = format!(
        "INSERT INTO history_losses (noticed_at, detail) VALUES (now(), 'lost');
         CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             EXECUTE format('{happens}', TG_TABLE_SCHEMA); RETURN NULL; END $$;
         CREATE TRIGGER harm AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION harm()"
    );
    subject.admin().batch_execute(&harm).await.unwrap();
    let operator = subject.rival().await;
    let refused = operator.clear_history_losses("ops", "compared").await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
    assert!(refused.to_string().contains("run it again"), "{refused}");
    let losses = operator.history_losses().await.unwrap();
    assert!(losses.iter().all(|loss| loss.cleared.is_none()), "{losses:?}");
    subject.admin().batch_execute("DROP TRIGGER harm ON audit").await.unwrap();
    let cleared = operator.clear_history_losses("ops", "compared").await.unwrap();
    assert_eq!((cleared.losses, cleared.messages), (open, 1), "{cleared:?}");
}
