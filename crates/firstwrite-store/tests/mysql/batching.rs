//! Reservations and completions share transactions, and none of them spoils another's.

use firstwrite_core::{
    Change, Fence, Guard, Inserted, Policy, State, Store as _, StoreErrorKind, Swapped,
};
use firstwrite_store::MysqlOptions;
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_testkit::{Subject as _, sample};
use futures_util::future::join_all;

use crate::server::{client, on_each};
use crate::subject::{MysqlSubject, completed, done, reserved};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_few_commits() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let before = store.commit_count();
        let tasks: Vec<_> = (0..300)
            .map(|at| {
                let store = store.clone();
                tokio::spawn(async move {
                    let draft = reserved(&format!("k-{at}"), Fence::first(at));
                    let inserted = store.insert(&draft).await.unwrap();
                    assert!(matches!(inserted, Inserted::Done(_)));
                    let guard = Guard::Owner(Fence::first(at));
                    let swapped = store.swap(draft.id, guard, done(), None).await.unwrap();
                    assert!(matches!(swapped, Swapped::Done(_)));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let commits = store.commit_count() - before;
        assert!(commits < 150, "600 writes took {commits} commits");
        let completed = "SELECT HEX(id) FROM firstwrite_records WHERE state = 2";
        assert_eq!(subject.tables().ask(completed).await.len(), 300);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_shared_statement_everybody_hears_of_its_own_record() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let before = store.commit_count();
        let (first, second) = (Fence::first(1), Fence::first(2));
        let drafts: Vec<_> = (0..100).map(|at| reserved(&format!("k-{at}"), first)).collect();
        for inserted in join_all(drafts.iter().map(|draft| store.insert(draft))).await {
            assert!(matches!(inserted, Ok(Inserted::Done(_))), "{inserted:?}");
        }
        // Half of these stand already, and half are new.
        let rivals: Vec<_> = (50..150).map(|at| reserved(&format!("k-{at}"), second)).collect();
        let ended = join_all(rivals.iter().map(|draft| store.insert(draft))).await;
        for (at, inserted) in ended.into_iter().enumerate() {
            match inserted.unwrap() {
                Inserted::Stands(found) => {
                    assert!(at < 50 && found.record.fence == first, "{at}: {found:?}");
                    assert_eq!(found.record.id, rivals[at].id);
                }
                Inserted::Done(_) => assert!(at >= 50, "{at}"),
            }
        }
        for draft in &drafts[..5] {
            store.swap(draft.id, Guard::Owner(first), Change::Remove, None).await.unwrap();
        }
        // Five owners have lost their records; the others keep their own outcomes.
        let own = |at: usize| Change::Complete {
            outcome: sample::outcome(201, &format!("outcome {at}")),
            retention: Policy::default().record_retention(),
        };
        let complete = |(at, draft): (usize, &firstwrite_core::Draft)| {
            store.swap(draft.id, Guard::Owner(first), own(at), None)
        };
        let swapped = join_all(drafts.iter().enumerate().map(complete)).await;
        for (at, swapped) in swapped.into_iter().enumerate() {
            let swapped = swapped.unwrap();
            if at < 5 {
                assert!(matches!(swapped, Swapped::Moved(None)), "{at}: {swapped:?}");
                continue;
            }
            assert!(matches!(swapped, Swapped::Done(_)), "{at}: {swapped:?}");
            let found = store.get(drafts[at].id).await.unwrap().unwrap();
            let State::Completed { outcome, .. } = found.record.state else { panic!("{at}") };
            assert_eq!(outcome, sample::outcome(201, &format!("outcome {at}")));
        }
        let commits = store.commit_count() - before;
        assert!(commits < 30, "300 commands took {commits} commits: they shared nothing");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_holds_one_record_holds_up_nobody_else() {
    on_each(async |database| {
        let mut options = MysqlOptions::default();
        options.lock_timeout = std::time::Duration::from_secs(1);
        let subject = MysqlSubject::new(&database, options).await;
        let store = subject.mysql();
        let held = reserved("held", Fence::first(1));
        store.insert(&held).await.unwrap();
        let mut stranger = client(&database.url).await;
        let held_id = format!("{:032x}", u128::from_be_bytes(*held.id.as_bytes()));
        let lock = format!("SELECT id FROM firstwrite_records WHERE id = x'{held_id}' FOR UPDATE");
        stranger.query_drop("START TRANSACTION").await.unwrap();
        stranger.query_drop(lock).await.unwrap();
        let others: Vec<_> = std::iter::once("held".to_owned())
            .chain((0..20).map(|at| format!("free-{at}")))
            .map(|key| {
                let store = store.clone();
                tokio::spawn(async move { store.insert(&reserved(&key, Fence::first(2))).await })
            })
            .collect();
        let mut ended = Vec::new();
        for other in others {
            ended.push(other.await.unwrap());
        }
        let blocked = ended.remove(0).unwrap_err();
        assert_eq!(blocked.kind(), StoreErrorKind::Unavailable, "{blocked}");
        assert!(ended.iter().all(|one| matches!(one, Ok(Inserted::Done(_)))), "{ended:?}");
        stranger.query_drop("ROLLBACK").await.unwrap();
        let stands = store.insert(&held).await.unwrap();
        assert!(matches!(stands, Inserted::Stands(_)), "its own earlier write is recognised");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_into_a_packet_is_refused_for_certain_and_alone() {
    on_each(async |database| {
        let subject = MysqlSubject::new(&database, MysqlOptions::default()).await;
        let store = subject.mysql();
        let bytes = subject.tables().ask("SELECT CAST(@@max_allowed_packet AS CHAR)").await;
        let bytes: usize = bytes[0].parse().unwrap();
        // Spelt out, each byte takes two.
        let (large, small) =
            (completed("large", Fence::first(1), bytes / 2), completed("s", Fence::first(1), 1000));
        let (large, small) = tokio::join!(store.insert(&large), store.insert(&small));
        let error = large.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("max_allowed_packet"), "{error}");
        assert!(matches!(small, Ok(Inserted::Done(_))));
        let megabytes = completed("m", Fence::first(1), 3 * 1024 * 1024);
        assert!(matches!(subject.store().insert(&megabytes).await, Ok(Inserted::Done(_))));
        let found = store.get(megabytes.id).await.unwrap().unwrap();
        assert_eq!(found.record, firstwrite_core::Record::from_draft(&megabytes, found.now));
    })
    .await;
}
