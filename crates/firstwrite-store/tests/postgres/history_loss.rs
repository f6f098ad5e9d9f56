//! Acknowledged history that is gone: it is noticed, and nothing new runs until somebody has looked.

use std::time::Duration;

use firstwrite_core::{
    AsyncTransactionalStore as _, BeginResult, Certainty, Change, Draft, Fence, Guard, Inserted,
    Outcome, Query, Retention, Store, StoreErrorKind,
};
use firstwrite_store::doctor::{self, Expected};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::Subject as _;
use http::StatusCode;

use crate::server::{Way, on_database};
#[cfg(feature = "sqlx")]
use crate::sqlx::SqlxSubject;
use crate::subject::{PostgresSubject, completed, done, replace_history, replace_server, reserved};

/// Calls until the connection that was cut is replaced.
async fn insert(store: &PostgresStore, key: &str) -> Result<Inserted, StoreErrorKind> {
    for _ in 0..1000 {
        match store.insert(&reserved(key, Fence::first(1))).await {
            Ok(inserted) => return Ok(inserted),
            Err(error) if error.kind() == StoreErrorKind::Unavailable => {}
            Err(error) => {
                assert_eq!(error.certainty(), Certainty::Definite, "{error}");
                return Err(error.kind());
            }
        }
    }
    panic!("the store does not come back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_fail_over_that_lost_writes_unknown_keys_are_refused_until_cleared() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, other) = (subject.postgres(), subject.rival().await);
        insert(&store, "known").await.unwrap();
        insert(&store, "lost").await.unwrap();
        // The standby that took over had not got the last write.
        let lost = reserved("lost", Fence::first(1)).id;
        let lose = format!("DELETE FROM records WHERE id = '{lost}'");
        subject.admin().batch_execute(&lose).await.unwrap();
        subject.cut().await;

        assert_eq!(insert(&store, "unknown").await, Err(StoreErrorKind::HistoryLost));
        assert_eq!(insert(&store, "lost").await, Err(StoreErrorKind::HistoryLost));
        assert_eq!(insert(&other, "unknown").await, Err(StoreErrorKind::HistoryLost), "everywhere");
        assert!(matches!(insert(&store, "known").await, Ok(Inserted::Stands(_))));
        let known = reserved("known", Fence::first(1));
        store.swap(known.id, Guard::Owner(known.fence), done(), None).await.unwrap();

        let losses = store.history_losses().await.unwrap();
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert!(losses[0].cleared.is_none() && losses[0].detail.contains(&lost.to_string()));
        assert_eq!(
            store.clear_history_losses("operator", "compared with the bank").await.unwrap().losses,
            1
        );
        let cleared = store.history_losses().await.unwrap()[0].cleared.clone().unwrap();
        assert_eq!((&*cleared.by, &*cleared.reason), ("operator", "compared with the bank"));
        assert!(matches!(insert(&store, "unknown").await, Ok(Inserted::Done(_))));
        subject.cut().await;
        assert!(matches!(insert(&store, "later").await, Ok(Inserted::Done(_))), "said once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooled_connection_notices_too() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        insert(&store, "lost").await.unwrap();
        subject.admin().batch_execute("DELETE FROM records").await.unwrap();
        subject.cut().await;
        drop(store.pool().get().await);
        while store.pool().get().await.is_err() {}
        assert_eq!(store.history_losses().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_removed_or_taken_over_in_good_order_raises_no_doubt() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, other) = (subject.postgres(), subject.rival().await);
        // Ours, removed by ourselves; ours, removed and taken over by another process.
        insert(&store, "own").await.unwrap();
        let own = reserved("own", Fence::first(1));
        let remove = Change::Remove;
        store.swap(own.id, Guard::Owner(own.fence), remove.clone(), None).await.unwrap();
        subject.cut().await;
        insert(&store, "theirs").await.unwrap();
        let theirs = reserved("theirs", Fence::first(1));
        other_swap(&other, &theirs, remove).await;
        subject.cut().await;
        insert(&store, "taken").await.unwrap();
        let taken = reserved("taken", Fence::first(1));
        let next = Box::new(reserved("taken", taken.fence.next(5)));
        other_swap(&other, &taken, Change::TakeOver(next)).await;
        subject.cut().await;
        assert!(matches!(insert(&store, "next").await, Ok(Inserted::Done(_))));
        assert!(subject.rival().await.history_losses().await.unwrap().is_empty());
    })
    .await;
}

/// Records that are kept for less time than a reservation bears witness: completed here, completed by another
/// process, and released with a note.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_reaped_in_good_order_raises_no_doubt() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let (store, other) = (subject.postgres(), subject.rival().await);
        let short = |replay_for| Retention {
            replay_for,
            linger_for: Duration::from_secs(1),
            refuses_spent: false,
        };
        for (key, owner, replay_for) in [
            ("own", &store, Duration::from_secs(10)),
            ("theirs", &other, Duration::from_secs(10)),
            ("noted", &store, Duration::ZERO),
        ] {
            let retention = short(Duration::from_secs(10));
            let draft = Draft { retention, ..reserved(key, Fence::first(1)) };
            store.insert(&draft).await.unwrap();
            let outcome = Outcome::released(StatusCode::SERVICE_UNAVAILABLE);
            let change = Change::Complete { outcome, retention: short(replay_for) };
            other_swap(owner, &draft, change).await;
        }
        subject.advance(Duration::from_mins(1)).await;
        while store.reap(100).await.unwrap() > 0 {}
        let left = subject.admin().query_one("SELECT count(*) FROM records", &[]).await.unwrap();
        assert_eq!(left.get::<_, i64>(0), 0, "they are reaped");
        subject.cut().await;
        assert!(matches!(insert(&store, "next").await, Ok(Inserted::Done(_))));
        assert!(store.history_losses().await.unwrap().is_empty());
    })
    .await;
}

/// Loses the newest write of `store` behind its connections, and returns how a new key then fares.
async fn lost_behind_a_pooler(subject: &PostgresSubject, store: &PostgresStore) {
    insert(store, "known").await.unwrap();
    let kept = completed("kept", Fence::first(1), 10);
    store.insert(&kept).await.unwrap();
    assert!(store.get(kept.id).await.unwrap().is_some());
    assert!(store.cached_bytes() > 0);
    let lose = format!("DELETE FROM records WHERE id = '{}'", kept.id);
    subject.admin().batch_execute(&lose).await.unwrap();
    replace_server(subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_replaced_behind_a_pooler_is_asked_before_anything_is_written() {
    for way in [Way::Direct, Way::Pooler] {
        on_database(way, &[], async |database| {
            let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
            let store = subject.postgres();
            lost_behind_a_pooler(&subject, &store).await;
            assert_eq!(insert(&store, "unknown").await, Err(StoreErrorKind::HistoryLost));
            assert!(matches!(insert(&store, "known").await, Ok(Inserted::Stands(_))));
            // Nor is what was lost answered out of memory.
            assert_eq!(store.cached_bytes(), 0);
            assert_eq!(insert(&store, "kept").await, Err(StoreErrorKind::HistoryLost));
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_transaction_asks_a_replaced_server_too() {
    on_database(Way::Direct, &[], async |database| {
        let unknown = reserved("unknown", Fence::first(1)).id;
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        lost_behind_a_pooler(&subject, &store).await;
        let refused = store.begin(unknown).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");

        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        lost_behind_a_pooler(&subject, &store).await;
        let ahead = store.begin_ahead(unknown, async |client| client.simple_query("").await);
        let refused = ahead.await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");
    })
    .await;
}

#[cfg(feature = "sqlx")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlx_pool_with_a_replaced_server_behind_it_is_found_out() {
    on_database(Way::Direct, &[], async |database| {
        let subject = SqlxSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.sqlx();
        lost_behind_a_pooler(subject.postgres(), store.store()).await;
        let refused = store.begin(reserved("unknown", Fence::first(1)).id).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::HistoryLost, "{refused}");

        let subject = SqlxSubject::new(&database, PostgresOptions::default()).await;
        replace_server(subject.postgres()).await;
        let begun = subject.sqlx().begin(reserved("whole", Fence::first(1)).id).await.unwrap();
        assert!(matches!(begun, BeginResult::Open(_, None)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarted_with_everything_goes_on_at_once() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        insert(&store, "before").await.unwrap();
        replace_server(&subject).await;
        assert!(matches!(insert(&store, "after").await, Ok(Inserted::Done(_))));
        replace_server(&subject).await;
        let begun = store.begin(reserved("held", Fence::first(1)).id).await.unwrap();
        assert!(matches!(begun, BeginResult::Open(_, None)));
        assert!(store.history_losses().await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_started_after_a_fail_over_doubts_a_standby_that_may_have_been_behind() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        insert(&subject.postgres(), "known").await.unwrap();
        replace_history(&subject).await;
        let store = subject.rival().await;
        assert_eq!(insert(&store, "unknown").await, Err(StoreErrorKind::HistoryLost));
        assert!(matches!(insert(&store, "known").await, Ok(Inserted::Stands(_))));
        store.clear_history_losses("operator", "nothing was lost").await.unwrap();
        let again = subject.rival().await;
        assert!(matches!(insert(&again, "unknown").await, Ok(Inserted::Done(_))), "said once");

        // One that commits waited for has everything.
        let sure = "UPDATE mark SET is_synchronous = true";
        subject.admin().batch_execute(sure).await.unwrap();
        replace_history(&subject).await;
        assert!(matches!(insert(&subject.rival().await, "next").await, Ok(Inserted::Done(_))));
        let mark = subject.admin().query_one("SELECT is_synchronous FROM mark", &[]).await.unwrap();
        assert!(!mark.get::<_, bool>(0), "the new primary waits for nobody");

        replace_history(&subject).await;
        let mut options = PostgresOptions::default();
        options.schema = subject.schema().parse().unwrap();
        options.trusts_fail_over = true;
        let trusting = PostgresStore::connect_with(subject.url(), options).await.unwrap();
        assert!(matches!(insert(&trusting, "trusted").await, Ok(Inserted::Done(_))));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_tell_its_history_is_used_all_the_same() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let schema = subject.schema();
        // As a hosted server has it that keeps these functions to itself.
        let hide = format!(
            "DO $$ BEGIN
                 EXECUTE 'REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public';
                 CREATE ROLE {schema} LOGIN;
             END $$;
             {}",
            PostgresStore::grants(&schema.parse().unwrap(), schema)
        );
        subject.admin().batch_execute(&hide).await.unwrap();
        subject
            .admin()
            .batch_execute(&format!("GRANT SELECT ON test_clock TO {schema}"))
            .await
            .unwrap();
        let url = subject.url().replace("postgres@", &format!("{schema}@"));
        let mut options = PostgresOptions::default();
        options.schema = schema.parse().unwrap();
        let store = PostgresStore::connect_with(&url, options).await.unwrap();
        assert!(matches!(insert(&store, "k").await, Ok(Inserted::Done(_))));
        assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        assert!(store.history_losses().await.unwrap().is_empty());
        let findings = doctor::postgres(&store, &Expected::default()).await.unwrap();
        assert!(findings.iter().any(|finding| finding.code == "history-hidden"), "{findings:?}");
        // Once it tells, that is no other history.
        let tells = "UPDATE mark SET epoch = 'unknown'; GRANT EXECUTE ON FUNCTION pg_control_system() TO public";
        subject.admin().batch_execute(tells).await.unwrap();
        assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        assert!(store.history_losses().await.unwrap().is_empty());
        let told = "SELECT FROM mark WHERE epoch <> 'unknown'";
        assert_eq!(subject.admin().query(told, &[]).await.unwrap().len(), 1);
        let drop_role = format!("DROP OWNED BY {schema}; DROP ROLE {schema}");
        store.close().await;
        subject.admin().batch_execute(&drop_role).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_notices_that_history_goes_on_elsewhere() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let store = subject.postgres();
        replace_history(&subject).await;
        assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        assert_eq!(store.history_losses().await.unwrap().len(), 1);
        assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        assert_eq!(store.history_losses().await.unwrap().len(), 1, "said once");
    })
    .await;
}

async fn other_swap(store: &PostgresStore, draft: &Draft, change: Change) {
    for _ in 0..100 {
        let swapped = store.swap(draft.id, Guard::Owner(draft.fence), change.clone(), None).await;
        if swapped.is_ok() {
            return;
        }
    }
    panic!("the store does not come back");
}
