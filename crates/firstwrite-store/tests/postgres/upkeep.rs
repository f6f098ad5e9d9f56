//! Sweeping and reaping: beside each other, beside traffic, and while somebody holds an old snapshot.

use std::collections::HashSet;
use std::time::Duration;

use firstwrite_core::{Change, Fence, Guard, Policy, Query, Store, Swapped};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::Subject;

use crate::server::{Way, client, on_database};
use crate::subject::{PostgresSubject, completed, done, reserved};

async fn count(subject: &PostgresSubject, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    subject.admin().query_one(&sql, &[]).await.unwrap().get(0)
}

/// Both kinds of completed record, all past their time.
async fn expired(subject: &PostgresSubject, each: u64) {
    let store = subject.postgres();
    for at in 0..each {
        let fence = Fence::first(at);
        store.insert(&completed(&format!("inline-{at}"), fence, 200)).await.unwrap();
        let draft = reserved(&format!("ended-{at}"), fence);
        store.insert(&draft).await.unwrap();
        store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap();
    }
    let policy = Policy::default();
    subject.advance(policy.retention + policy.slack).await;
}

async fn reap_all(store: &PostgresStore) -> usize {
    let mut reaped = 0;
    loop {
        match store.reap(50).await.unwrap() {
            0 => return reaped,
            count => reaped += count,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_kinds_of_completed_record_are_reaped_with_all_that_belongs_to_them() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        expired(&subject, 120).await;
        assert_eq!(reap_all(&subject.postgres()).await, 240);
        assert_eq!(count(&subject, "records").await, 0);
        assert_eq!(count(&subject, "endings").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reaping_goes_on_while_somebody_holds_an_old_snapshot() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, stranger) = (subject.postgres(), client(&database.url).await);
        let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
        stranger.batch_execute(hold).await.unwrap();
        // Round after round, the dead rows of all rounds before are still there.
        for round in 0..4 {
            expired(&subject, 40).await;
            assert_eq!(reap_all(&store).await, 80, "round {round}");
        }
        stranger.batch_execute("COMMIT").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_reapers_at_once_count_each_record_once() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        expired(&subject, 100).await;
        let (one, other) = (subject.postgres(), subject.rival().await);
        let (one, other) = tokio::join!(
            tokio::spawn(async move { reap_all(&one).await }),
            tokio::spawn(async move { reap_all(&other).await })
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        // What one found the other at work with, it comes back to later.
        let left = reap_all(&subject.rival().await).await;
        assert_eq!(one + other + left, 200, "{one} and {other} and {left}");
        assert_eq!(count(&subject, "records").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_is_at_work_with_is_passed_over_and_a_new_life_stays() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, stranger) = (subject.postgres(), client(&database.url).await);
        expired(&subject, 3).await;
        let schema = subject.schema();
        let replace = format!(
            "BEGIN; UPDATE {schema}.records SET fence = 99, created_at = {schema}.now()
                    WHERE key = convert_to('inline-1', 'UTF8')"
        );
        stranger.batch_execute(&replace).await.unwrap();
        let others = store.reap(50).await.unwrap();
        assert_eq!(others, 3, "the endings are in another table");
        stranger.batch_execute("COMMIT").await.unwrap();
        subject.advance(Duration::from_secs(2)).await;
        assert_eq!(reap_all(&store).await, 2);
        let left = "SELECT fence FROM records";
        assert_eq!(subject.admin().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 99);
    })
    .await;
}

/// Deletes wait at the first row until `flag` has one; who waits holds an advisory lock, to be seen by.
const WAIT_AT_THE_FIRST_ROW: &str = "
    CREATE TABLE flag (number int);
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock(4711);
        WHILE NOT EXISTS (SELECT FROM SCHEMA.flag) LOOP END LOOP;
        RETURN OLD;
    END $$;
    CREATE TRIGGER wait BEFORE DELETE ON records FOR EACH ROW EXECUTE FUNCTION SCHEMA.wait()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_gets_a_new_life_under_the_reapers_hands_stays() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, admin) = (subject.postgres(), subject.admin());
        for key in ["first", "second"] {
            store.insert(&completed(key, Fence::first(1), 10)).await.unwrap();
        }
        let policy = Policy::default();
        subject.advance(policy.retention + policy.slack).await;
        let wait = WAIT_AT_THE_FIRST_ROW.replace("SCHEMA", subject.schema());
        admin.batch_execute(&wait).await.unwrap();
        let reaping = tokio::spawn(async move { store.reap(10).await });
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711";
        while admin.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(!reaping.is_finished(), "nothing was reaped");
        }
        // Both are chosen by now, and the second is not yet deleted.
        let replace = format!(
            "UPDATE records SET fence = 99, created_at = {}.now()
                    WHERE key = convert_to('second', 'UTF8');
             INSERT INTO flag VALUES (1)",
            subject.schema()
        );
        admin.batch_execute(&replace).await.unwrap();
        assert_eq!(reaping.await.unwrap().unwrap(), 1);
        let left = admin.query_one("SELECT fence FROM records", &[]).await.unwrap();
        assert_eq!(left.get::<_, i64>(0), 99);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_stays_while_a_message_of_its_waits() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        expired(&subject, 3).await;
        let waits = [
            completed("inline-1", Fence::first(1), 200).id,
            reserved("ended-1", Fence::first(1)).id,
        ];
        for id in waits {
            let sql = format!(
                "INSERT INTO messages (id, tenant, derived_key, destination, content_type, payload,
                                       created_at, not_before)
                 SELECT '{id}', 'shop', 'k', 'd', 'text/plain', '', '2026-01-01', '2026-01-01'"
            );
            subject.admin().batch_execute(&sql).await.unwrap();
        }
        let store = subject.postgres();
        assert_eq!(reap_all(&store).await, 4);
        for id in waits {
            assert!(store.get(id).await.unwrap().is_some(), "its message is still there");
        }
        subject.admin().batch_execute("DELETE FROM messages").await.unwrap();
        assert_eq!(reap_all(&store).await, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_superseded_attempt_is_stopped_and_its_mark_is_reaped_later() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        let draft = reserved("k", Fence::first(1));
        store.insert(&draft).await.unwrap();
        store.swap(draft.id, Guard::Owner(draft.fence), Change::Remove, None).await.unwrap();
        let late = store.swap(draft.id, Guard::Owner(draft.fence), done(), None).await.unwrap();
        assert_eq!(late, Swapped::Moved(None));
        assert_eq!(count(&subject, "endings").await, 1, "what stops a late owner");
        subject.advance(Duration::from_mins(59)).await;
        store.reap(100).await.unwrap();
        assert_eq!(count(&subject, "endings").await, 1);
        subject.advance(Duration::from_mins(1)).await;
        assert_eq!(store.reap(100).await.unwrap(), 0, "a mark is no record");
        assert_eq!(count(&subject, "endings").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sweepers_at_once_move_each_record_once() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        for at in 0..60 {
            let draft = reserved(&format!("k-{at}"), Fence::first(at));
            store.insert(&draft).await.unwrap();
            if at % 3 == 0 {
                store.swap(draft.id, Guard::Owner(draft.fence), done(), None).await.unwrap();
            }
        }
        subject.advance(Policy::LEASE_DEFAULT).await;
        let sweeper = |store: PostgresStore| {
            tokio::spawn(async move {
                let mut moved = Vec::new();
                for _ in 0..10 {
                    for record in store.list(&Query::lapsed(16)).await.unwrap().records {
                        let guard = Guard::Seen(record.seen());
                        let swapped = store.swap(record.id, guard, Change::MARK_UNCERTAIN, None);
                        if matches!(swapped.await.unwrap(), Swapped::Done(_)) {
                            moved.push(record.id);
                        }
                    }
                }
                moved
            })
        };
        let (one, other) = tokio::join!(sweeper(store), sweeper(subject.rival().await));
        let moved = [one.unwrap(), other.unwrap()].concat();
        assert_eq!(moved.len(), 40, "every open record once, no completed one");
        assert_eq!(moved.iter().collect::<HashSet<_>>().len(), 40);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lapsed_record_is_found_until_somebody_moves_it() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        let early = reserved("early", Fence::first(1));
        store.insert(&early).await.unwrap();
        subject.advance(Policy::LEASE_DEFAULT + Duration::from_mins(10)).await;
        // Nobody moves it: it is found again, however far the sweep has come.
        for _ in 0..3 {
            let lapsed = store.list(&Query::lapsed(10)).await.unwrap();
            assert_eq!(lapsed.records.len(), 1);
            subject.advance(Duration::from_mins(5)).await;
        }
        store.swap(early.id, Guard::Owner(early.fence), done(), None).await.unwrap();
        assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        // What comes late, with a lease that is over, is found all the same.
        store.insert(&reserved("late", Fence::first(1))).await.unwrap();
        let back = "UPDATE records SET lease_until =
                        (SELECT at FROM test_clock) - interval '30 seconds'
                    WHERE lease_until > (SELECT at FROM test_clock)";
        subject.admin().batch_execute(back).await.unwrap();
        assert_eq!(store.list(&Query::lapsed(10)).await.unwrap().records.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_that_is_committed_long_after_its_lease_is_swept_at_once() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, application) = (subject.postgres(), client(&database.url).await);
        let schema = subject.schema();
        let reserve = format!("SELECT {schema}.reserve('acme', 'late', sha256('a'))");
        for _ in 0..2 {
            assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        }
        application.batch_execute(&format!("BEGIN; {reserve}")).await.unwrap();
        for _ in 0..3 {
            subject.advance(Duration::from_mins(2)).await;
            assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        }
        application.batch_execute("COMMIT").await.unwrap();
        assert_eq!(store.list(&Query::lapsed(10)).await.unwrap().records.len(), 1);
    })
    .await;
}
