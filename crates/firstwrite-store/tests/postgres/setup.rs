//! How a database comes to have the tables, who may use them, and what is refused.

use firstwrite_core::{Fence, Guard, Inserted, Query, Store, StoreErrorKind};
use firstwrite_store::{Access, PostgresOptions, PostgresStore, SchemaName, open};

use crate::server::{Way, client, on_database};
use crate::subject::{PostgresSubject, completed, done, reserved};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_who_migrate_at_once_one_does_and_all_can_connect() {
    on_database(Way::Direct, &[], async |database| {
        let error = PostgresStore::connect(&database.url).await.unwrap_err().to_string();
        assert!(error.contains("firstwrite migrate --store 'postgres://"), "{error}");
        let tasks: Vec<_> = (0..6)
            .map(|_| {
                let url = database.url.clone();
                tokio::spawn(async move {
                    PostgresStore::migrate(&url, PostgresOptions::default()).await
                })
            })
            .collect();
        let mut from_nothing = 0;
        for task in tasks {
            let migrated = task.await.unwrap().unwrap();
            assert_eq!(migrated.to, 1);
            from_nothing += usize::from(migrated.from == 0);
        }
        assert_eq!(from_nothing, 1);
        let store = open(&database.url, Access::Write).await.unwrap();
        let inserted = store.insert(&reserved("k", Fence::first(1))).await.unwrap();
        assert!(matches!(inserted, Inserted::Done(_)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_is_refused() {
    on_database(Way::Direct, &[], async |database| {
        PostgresStore::migrate(&database.url, PostgresOptions::default()).await.unwrap();
        let admin = client(&database.url).await;
        let newer = "INSERT INTO firstwrite.migrations VALUES (99, now())";
        admin.batch_execute(newer).await.unwrap();
        for error in [
            PostgresStore::connect(&database.url).await.unwrap_err(),
            PostgresStore::migrate(&database.url, PostgresOptions::default()).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("schema version 99"), "{error}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_and_grants_are_all_that_an_application_needs() {
    on_database(Way::Direct, &[], async |database| {
        let admin = client(&database.url).await;
        let schema = SchemaName::new("keys").unwrap();
        let role = format!("app_{:016x}", fastrand::u64(..));
        admin.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
        admin.batch_execute(&PostgresStore::dump(&schema)).await.unwrap();
        admin.batch_execute(&PostgresStore::grants(&schema, &role)).await.unwrap();
        let url = database.url.replace("postgres@", &format!("{role}@"));
        let used = async {
            let url = format!("{url}?schema=keys");
            let error =
                PostgresStore::migrate(&url.replace("keys", "other"), PostgresOptions::default())
                    .await;
            assert!(error.is_err(), "the role may make no tables");
            let store = PostgresStore::connect(&url).await.unwrap();
            assert_eq!(store.schema_name(), "keys");
            let fence = Fence::first(1);
            let draft = reserved("k", fence);
            store.insert(&draft).await.unwrap();
            store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap();
            store.insert(&completed("c", fence, 10)).await.unwrap();
            let removed = reserved("r", fence);
            store.insert(&removed).await.unwrap();
            let entry = firstwrite_testkit::sample::audit("why");
            let remove = firstwrite_core::Change::Remove;
            store.swap(removed.id, Guard::Owner(fence), remove, Some(&entry)).await.unwrap();
            assert_eq!(store.audits(removed.id).await.unwrap().len(), 1);
            store.reap(10).await.unwrap();
            store.list(&Query::lapsed(10)).await.unwrap();
            assert!(store.history_losses().await.unwrap().is_empty());
            assert_eq!(store.clear_history_losses("a", "b").await.unwrap().losses, 0);
            let query = Query { tenant: None, state: None, after: None, limit: 10 };
            assert_eq!(store.list(&query).await.unwrap().records.len(), 2);
            store.close().await;
        };
        used.await;
        let drop_role = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        admin.batch_execute(&drop_role).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_only_reads_changes_nothing() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let fence = Fence::first(1);
        let draft = reserved("k", fence);
        subject.postgres().insert(&draft).await.unwrap();
        let url = format!("{}?schema={}", database.url, subject.schema());
        let store = PostgresStore::connect_read_only(&url).await.unwrap();
        assert!(store.get(draft.id).await.unwrap().is_some());
        let query = Query { tenant: None, state: None, after: None, limit: 10 };
        assert_eq!(store.list(&query).await.unwrap().records.len(), 1);
        for error in [
            store.insert(&reserved("other", fence)).await.unwrap_err(),
            store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap_err(),
            store.reap(10).await.unwrap_err(),
            store.clear_history_losses("a", "b").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
        }
        let pooled = store.pool().get().await.unwrap();
        let error = pooled.batch_execute("CREATE TABLE public.t ()").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "25006", "the server refuses too");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_bound_operations_share_a_name_and_keep_their_facts() {
    on_database(Way::Direct, &[], async |database| {
        let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
        let fill = "INSERT INTO profiles (operation, on_lost_answer, fingerprint_version,
                                          fingerprint_form, replay_for, linger_for,
                                          refuses_spent)
                    SELECT 'GET /' || number, 0, 1, 1, 1000, 500, false
                      FROM generate_series(1, 10000) AS number";
        subject.admin().batch_execute(fill).await.unwrap();
        let store = subject.postgres();
        for operation in ["POST /one", "POST /two"] {
            let mut draft = completed(&operation.replace(' ', ""), Fence::first(1), 5);
            draft.operation = operation.into();
            assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
            let record = store.get(draft.id).await.unwrap().unwrap().record;
            assert_eq!(&*record.operation, "(other)");
            assert_eq!(record.on_lost_answer, draft.on_lost_answer);
            assert_eq!(record.fingerprint, draft.fingerprint);
        }
        let count = "SELECT count(*) FROM profiles";
        let count: i64 = subject.admin().query_one(count, &[]).await.unwrap().get(0);
        assert_eq!(count, 10_001, "both share one profile");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_makes_no_sense_is_corrupt_and_hides_no_other() {
    on_database(Way::Direct, &[], async |database| {
        let mut options = PostgresOptions::default();
        options.cache_bytes_max = 0;
        let subject = PostgresSubject::new(&database, options).await;
        let store = subject.postgres();
        let drafts: Vec<_> =
            (0..8).map(|at| completed(&format!("k-{at}"), Fence::first(at), 20)).collect();
        for draft in &drafts {
            store.insert(draft).await.unwrap();
        }
        let damage = [
            "outcome = '\\x99'",
            "key = '\\x6f74686572'",
            "tenant = 'another'",
            "profile = 999",
            "fingerprint = ''",
        ];
        for (draft, damage) in drafts.iter().zip(damage) {
            let sql = format!("UPDATE records SET {damage} WHERE id = '{}'", draft.id);
            subject.admin().batch_execute(&sql).await.unwrap();
        }
        let tasks: Vec<_> = drafts
            .iter()
            .cloned()
            .map(|draft| {
                let store = store.clone();
                tokio::spawn(async move { (store.get(draft.id).await, store.insert(&draft).await) })
            })
            .collect();
        for (at, task) in tasks.into_iter().enumerate() {
            let (found, inserted) = task.await.unwrap();
            if at < damage.len() {
                assert_eq!(found.unwrap_err().kind(), StoreErrorKind::Corrupt, "{}", damage[at]);
                assert_eq!(inserted.unwrap_err().kind(), StoreErrorKind::Corrupt);
            } else {
                assert!(found.unwrap().is_some());
                assert!(matches!(inserted.unwrap(), Inserted::Stands(_)));
            }
        }
    })
    .await;
}
