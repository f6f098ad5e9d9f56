//! How a database comes to have the tables, and what is refused.

use firstwrite_core::{Fence, OnLostAnswer, Query, StateFilter, Store as _, StoreErrorKind};
use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::{Access, MysqlOptions, MysqlStore, open};
use firstwrite_testkit::sample;

use crate::server::{client, on_each};
use crate::subject::reserved;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_migrate_at_once_and_the_second_time_nothing_is_done() {
    on_each(async |database| {
        let url = database.url.as_str();
        let missing = MysqlStore::connect(url).await.unwrap_err().to_string();
        assert!(missing.contains("firstwrite migrate --store 'mysql://root@"), "{missing}");
        let migrate = || MysqlStore::migrate(url, MysqlOptions::default());
        let (one, other, third) = tokio::join!(migrate(), migrate(), migrate());
        for migrated in [one, other, third] {
            assert_eq!(migrated.unwrap().to, 1);
        }
        let again = MysqlStore::migrate(url, MysqlOptions::default()).await.unwrap();
        assert_eq!((again.from, again.to), (1, 1));
        let store = open(url, Access::Write).await.unwrap();
        store.insert(&reserved("k", Fence::first(1))).await.unwrap();
        // The server's own clock, whatever its time zone.
        let sql = "SELECT CAST(UNIX_TIMESTAMP() * 1000 AS CHAR)";
        let wall: Option<String> = client(url).await.query_first(sql).await.unwrap();
        let wall: i64 = wall.unwrap().split('.').next().unwrap().parse().unwrap();
        let now = store.now().await.unwrap().as_millis();
        assert!((now - wall).abs() < 5_000, "{now} is not {wall}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dump_makes_the_same_tables() {
    on_each(async |database| {
        let mut admin = client(&database.url).await;
        admin.query_drop(MysqlStore::dump()).await.unwrap();
        let store = MysqlStore::connect(&database.url).await.unwrap();
        store.insert(&reserved("k", Fence::first(1))).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_newer_build_are_refused() {
    on_each(async |database| {
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        let mut admin = client(&database.url).await;
        admin.query_drop("INSERT INTO firstwrite_migrations VALUES (2, 0)").await.unwrap();
        for refused in [
            MysqlStore::connect(&database.url).await.map(drop),
            MysqlStore::migrate(&database.url, MysqlOptions::default()).await.map(drop),
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("schema version 2 and this build knows 1"), "{text}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_only_reads_changes_nothing() {
    on_each(async |database| {
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        let draft = reserved("k", Fence::first(1));
        MysqlStore::connect(&database.url).await.unwrap().insert(&draft).await.unwrap();
        let store = MysqlStore::connect_read_only(&database.url).await.unwrap();
        assert!(store.get(draft.id).await.unwrap().is_some());
        let error = store.insert(&reserved("other", Fence::first(1))).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
        let error = store.reap(10).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_needs_no_more_than_it_is_granted() {
    on_each(async |database| {
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        let mut admin = client(&database.url).await;
        let user = format!("app_{:08x}", fastrand::u32(..));
        admin
            .query_drop(format!("CREATE USER '{user}'@'%' IDENTIFIED BY 's3 cret'"))
            .await
            .unwrap();
        admin.query_drop(MysqlStore::grants(&database.url, &user).unwrap()).await.unwrap();
        let url = database.url.replace("root@", &format!("{user}:s3%20cret@"));
        let store = MysqlStore::connect(&url).await.unwrap();
        let report = firstwrite_testkit::history::check_store(
            std::sync::Arc::new(store.clone()),
            1,
            firstwrite_testkit::history::HistoryOptions::default(),
        )
        .await;
        assert!(report.is_ok(), "{:?}", report.err().map(|violation| violation.to_string()));
        let outbox = store.outbox().unwrap();
        outbox.upkeep(std::time::Duration::from_hours(1), 10).await.unwrap();
        assert!(outbox.destinations().await.unwrap().is_empty());
        store.close().await;
        admin.query_drop(format!("DROP USER '{user}'@'%'")).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_host_that_takes_writes_is_used() {
    on_each(async |database| {
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        // Nobody listens on the first.
        let url = database.url.replace("127.0.0.1:", "127.0.0.1:1,127.0.0.1:");
        let store = MysqlStore::connect(&url).await.unwrap();
        store.insert(&reserved("k", Fence::first(1))).await.unwrap();
    })
    .await;
}

/// As text the server takes the two for one: it fills the shorter up with spaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_and_the_same_name_with_a_space_behind_it_are_two() {
    on_each(async |database| {
        MysqlStore::migrate(&database.url, MysqlOptions::default()).await.unwrap();
        let store = MysqlStore::connect(&database.url).await.unwrap();
        let policy = sample::policy(OnLostAnswer::Resend);
        for tenant in ["shop", "shop "] {
            let request = sample::request(&sample::tenant(tenant), &sample::key("k"), 1);
            store.insert(&sample::reserved(&request, &policy, Fence::first(1))).await.unwrap();
        }
        for tenant in ["shop", "shop "].map(sample::tenant) {
            for state in [None, Some(StateFilter::Reserved)] {
                let tenant = Some(tenant.clone());
                let query = Query { tenant: tenant.clone(), state, after: None, limit: 10 };
                let records = store.list(&query).await.unwrap().records;
                assert_eq!(records.len(), 1, "{records:?}");
                assert_eq!(Some(&records[0].tenant), tenant.as_ref());
            }
        }
    })
    .await;
}
