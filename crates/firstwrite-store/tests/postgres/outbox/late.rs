//! Messages that come to light late: numbers are given out before their transactions commit.

use std::time::Duration;

use firstwrite_core::outbox::{Ending, Next, Outbox, Sent};
use firstwrite_store::tokio_postgres::Client;

use super::{claim, deliver, enqueue, keys, message, settle, settlement, subject};
use crate::server::{Way, client, on_database};
use crate::subject::PostgresSubject;

/// Writes a message as a handler does, in the transaction that is open.
async fn write(stranger: &Client, subject: &PostgresSubject, key: &str, ordering_key: &str) {
    let sql = format!(
        "INSERT INTO {schema}.messages (id, tenant, derived_key, destination, content_type, payload,
                                        ordering_key, created_at, not_before)
         VALUES (gen_random_uuid(), 'shop', '{key}:s', 'mailer', 'text/plain', '',
                 nullif('{ordering_key}', ''), {schema}.now(), {schema}.now())",
        schema = subject.schema()
    );
    stranger.batch_execute(&sql).await.unwrap();
}

async fn many(subject: &PostgresSubject, count: usize) {
    let sql = format!(
        "INSERT INTO messages (id, tenant, derived_key, destination, content_type, payload, created_at,
                               not_before)
         SELECT gen_random_uuid(), 'shop', 'k-' || n || ':s', 'mailer', 'text/plain', '', {schema}.now(),
                {schema}.now()
         FROM generate_series(1, {count}) n",
        schema = subject.schema()
    );
    subject.admin().batch_execute(&sql).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_commits_after_a_thousand_later_ones_is_delivered() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, stranger) = (subject.postgres(), client(&database.url).await);
        stranger.batch_execute("BEGIN").await.unwrap();
        write(&stranger, &subject, "first", "").await;
        many(&subject, 2500).await;
        let mut got = 0;
        for _ in 0..10 {
            let messages = claim(&store, "mailer", 400).await;
            got += messages.len();
            deliver(&store, &messages).await;
        }
        assert_eq!(got, 2500);
        // Another worker begins only now, and knows what was written down.
        let rival = subject.rival().await;
        assert!(claim(&rival, "mailer", 10).await.is_empty());
        stranger.batch_execute("COMMIT").await.unwrap();
        assert_eq!(keys(&claim(&store, "mailer", 10).await), ["first"]);
        assert!(claim(&rival, "mailer", 10).await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_delivered_once_whatever_order_transactions_commit_in() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let seed = firstwrite_testkit::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut strangers = Vec::new();
        for _ in 0..6 {
            strangers.push(client(&database.url).await);
        }
        let workers = [subject.postgres(), subject.rival().await];
        let (mut open, mut expected, mut got) = ([const { Vec::new() }; 6], Vec::new(), Vec::new());
        for step in 0..400 {
            let at = random.usize(..6);
            let (stranger, keys_of): (&Client, &mut Vec<String>) = (&strangers[at], &mut open[at]);
            match random.u8(..10) {
                0..=4 => {
                    if keys_of.is_empty() {
                        stranger.batch_execute("BEGIN").await.unwrap();
                    }
                    let key = format!("k-{step}");
                    write(stranger, &subject, &key, "").await;
                    keys_of.push(key);
                }
                5 | 6 if !keys_of.is_empty() => {
                    stranger.batch_execute("COMMIT").await.unwrap();
                    expected.append(keys_of);
                }
                7 if !keys_of.is_empty() => {
                    stranger.batch_execute("ROLLBACK").await.unwrap();
                    keys_of.clear();
                }
                _ => {
                    let worker = &workers[random.usize(..2)];
                    let messages = claim(worker, "mailer", 20).await;
                    got.extend(keys(&messages).into_iter().map(str::to_owned));
                    deliver(worker, &messages).await;
                }
            }
        }
        for (stranger, keys_of) in strangers.iter().zip(&mut open) {
            stranger.batch_execute("COMMIT").await.unwrap();
            expected.append(keys_of);
        }
        for worker in [&workers[0], &workers[1], &subject.rival().await] {
            let messages = claim(worker, "mailer", 1000).await;
            got.extend(keys(&messages).into_iter().map(str::to_owned));
            deliver(worker, &messages).await;
        }
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_never_come_are_given_up_and_the_rest_is_remembered() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, stranger) = (subject.postgres(), client(&database.url).await);
        let note = format!(
            "UPDATE {0}.intake SET starts = ARRAY[3, 5, max] , stops = ARRAY[3, 5, 9223372036854775807]
             FROM (SELECT coalesce(max(message), 0) + 1 AS max FROM {0}.messages) m",
            subject.schema()
        );
        stranger.batch_execute("BEGIN").await.unwrap();
        write(&stranger, &subject, "gone", "").await;
        stranger.batch_execute("ROLLBACK").await.unwrap();
        for at in 0..10 {
            store.enqueue(&message(&format!("k-{at}"), "mailer")).await.unwrap();
        }
        assert_eq!(claim(&store, "mailer", 100).await.len(), 10);
        // Somebody whose notes say less than what is there looks at it all, and takes nothing twice.
        stranger.batch_execute(&note).await.unwrap();
        let rival = subject.rival().await;
        assert!(claim(&rival, "mailer", 100).await.is_empty());
        enqueue(&rival, &["last"], "mailer").await;
        assert_eq!(keys(&claim(&rival, "mailer", 100).await), ["last"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_that_a_claim_had_no_room_to_look_at_is_not_given_up() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        enqueue(&store, &["a"], "mailer").await;
        let messages = claim(&store, "mailer", 1).await;
        let again = Next::Waiting { pause: Duration::ZERO, counts: true, sent: Sent::No };
        settle(&store, &[settlement(&messages[0], Ending::Retry, again)]).await;
        enqueue(&store, &["late"], "mailer").await;
        let note = "UPDATE intake SET starts = ARRAY[last, last + 1],
                                      stops = ARRAY[last, 9223372036854775807]
                    FROM (SELECT max(message) AS last FROM messages) m";
        subject.admin().batch_execute(note).await.unwrap();
        // It begins with the gap, and nobody is at work who might fill it.
        let rival = subject.rival().await;
        assert_eq!(keys(&claim(&rival, "mailer", 1).await), ["a"]);
        assert_eq!(keys(&claim(&rival, "mailer", 1).await), ["late"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_comes_late_is_sent_behind_the_others_of_its_order() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, stranger) = (subject.postgres(), client(&database.url).await);
        stranger.batch_execute("BEGIN").await.unwrap();
        write(&stranger, &subject, "late", "order").await;
        for key in ["a", "b"] {
            store.enqueue(&message(key, "mailer").ordered_by("order")).await.unwrap();
        }
        let first = claim(&store, "mailer", 9).await;
        assert_eq!(keys(&first), ["a"]);
        stranger.batch_execute("COMMIT").await.unwrap();
        assert!(claim(&store, "mailer", 9).await.is_empty(), "one of an order at a time");
        deliver(&store, &first).await;
        let mut rest = Vec::new();
        for _ in 0..2 {
            let messages = claim(&store, "mailer", 9).await;
            assert_eq!(messages.len(), 1);
            deliver(&store, &messages).await;
            rest.extend(keys(&messages).into_iter().map(str::to_owned));
        }
        rest.sort_unstable();
        assert_eq!(rest, ["b", "late"]);
    })
    .await;
}
