//! Counts are kept as differences: after anything whatever, their sums are what is there.

use std::time::Duration;

use firstwrite_core::outbox::{
    Cause, ClaimedMessage, Ending, MessageQuery, MessageState, Next, Outbox, Resolution, Sent,
    Settlement, protocol,
};
use firstwrite_store::PostgresStore;
use firstwrite_testkit::Subject;

use super::{LEASE, arrived, message, receipt, request, settlement, somebody, subject};
use crate::server::{Way, on_database};
use crate::subject::PostgresSubject;

fn some_end(random: &mut fastrand::Rng, claimed_message: &ClaimedMessage) -> Settlement {
    let waiting = Next::Waiting { pause: Duration::ZERO, counts: true, sent: Sent::No };
    match random.u8(..6) {
        0..=2 => arrived(claimed_message),
        3 => settlement(claimed_message, Ending::Retry, waiting),
        4 => settlement(claimed_message, Ending::Unknown, Next::Unknown("nobody can be asked")),
        _ => settlement(claimed_message, Ending::Refused, Next::Dead(Cause::Refused)),
    }
}

async fn resolve_one(random: &mut fastrand::Rng, store: &PostgresStore, step: usize) {
    let query = MessageQuery { limit: 1000, ..MessageQuery::default() };
    let page = protocol::messages(store, &query).await.unwrap();
    let Some(seen) = page.messages.get(random.usize(..page.messages.len().max(1))) else { return };
    let found = match random.u8(..3) {
        0 => Resolution::Delivered { receipt: receipt("told"), answer: None },
        1 => Resolution::NotDelivered,
        _ => Resolution::Dropped,
    };
    let by = somebody(&format!("step {step}"));
    protocol::resolve(store, seen.number, seen.fence, &found, &by).await.unwrap();
}

/// The counts as they are kept, and as they are.
async fn compare(subject: &PostgresSubject, store: &PostgresStore) {
    let real = "SELECT d.name,
                       count(*) FILTER (WHERE p.state IN (0, 1, 4)
                                           OR p.state IS NULL AND e.ending IS NULL),
                       count(*) FILTER (WHERE p.state = 2), count(*) FILTER (WHERE p.state = 3),
                       count(*) FILTER (WHERE p.state IS NULL AND e.ending = 0)
                FROM messages m JOIN destinations d ON d.name = m.destination
                LEFT JOIN pending p USING (message)
                LEFT JOIN (SELECT message, max(ending) FILTER (WHERE ending IN (0, 4)) AS ending
                           FROM deliveries GROUP BY message) e USING (message)
                GROUP BY d.name ORDER BY d.name";
    let real = subject.admin().query(real, &[]).await.unwrap();
    let real: Vec<(String, [i64; 4])> =
        real.iter().map(|row| (row.get(0), [1, 2, 3, 4].map(|at| row.get(at)))).collect();
    let kept = store.destinations().await.unwrap();
    let kept: Vec<(String, [i64; 4])> = kept
        .into_iter()
        .filter(|one| real.iter().any(|(name, _)| *name == one.name))
        .map(|one| {
            let counts = [one.open_count, one.unknown_count, one.dead_count, one.delivered_count];
            (one.name, counts)
        })
        .collect();
    assert_eq!(kept, real);
    // Of every order, one at most is on its way, and one if any waits.
    let heads = "SELECT count(*) FROM (
                     SELECT count(*) FILTER (WHERE state <> 4) AS heads FROM pending
                     WHERE ordering_key IS NOT NULL GROUP BY destination, ordering_key) o
                 WHERE heads <> 1";
    assert_eq!(super::number(subject, heads).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_what_is_there_whatever_was_done() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let seed = firstwrite_testkit::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let stores = [subject.postgres(), subject.rival().await];
        let mut claimed: Vec<ClaimedMessage> = Vec::new();
        for step in 0..500 {
            let store = &stores[random.usize(..2)];
            match random.u8(..12) {
                0..=3 => {
                    let to = ["mailer", "provider"][random.usize(..2)];
                    let mut message = message(&format!("k-{step}"), to);
                    if random.bool() {
                        message = message.ordered_by(&format!("o-{}", random.u8(..3)));
                    }
                    store.enqueue(&message).await.unwrap();
                }
                4..=6 => {
                    let requests = [request("mailer", random.usize(..5)), request("provider", 2)];
                    claimed.extend(store.claim(&requests, random.u64(..)).await.unwrap().messages);
                }
                7..=8 => {
                    let all: Vec<Settlement> = claimed
                        .drain(..)
                        .map(|claimed_message| some_end(&mut random, &claimed_message))
                        .collect();
                    protocol::settle(store, &[], &all).await.unwrap();
                }
                9 => resolve_one(&mut random, store, step).await,
                10 => {
                    let query = MessageQuery {
                        state: Some(MessageState::Dead),
                        limit: 10,
                        ..MessageQuery::default()
                    };
                    protocol::redrive(store, &query, random.usize(..3), &somebody("redrive"))
                        .await
                        .unwrap();
                }
                _ if random.u8(..4) == 0 => subject.advance(LEASE).await,
                _ => drop(store.upkeep(Duration::from_hours(24), 10).await.unwrap()),
            }
            if step % 25 == 24 {
                compare(&subject, store).await;
            }
        }
    })
    .await;
}
