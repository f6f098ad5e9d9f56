//! How a table comes to be, and what is refused.

use firstwrite_core::{Fence, Inserted, Store as _, StoreErrorKind};
use firstwrite_store::{Access, DynamoOptions, DynamoStore, doctor, open};

use crate::emulator::on_each;
use crate::subject::reserved;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_migrate_at_once_and_the_second_time_nothing_is_done() {
    on_each(async |tables| {
        let url = tables.url();
        let missing = DynamoStore::connect(&url).await.unwrap_err().to_string();
        assert!(missing.contains("firstwrite migrate --store 'dynamodb:firstwrite-"), "{missing}");
        let migrate = || DynamoStore::migrate(&url, DynamoOptions::default());
        let (one, other, third) = tokio::join!(migrate(), migrate(), migrate());
        for migrated in [one, other, third] {
            assert_eq!(migrated.unwrap().to, 1);
        }
        let again = migrate().await.unwrap();
        assert_eq!((again.from, again.to), (1, 1));
        let store = open(&url, Access::Write).await.unwrap();
        store.insert(&reserved("k", Fence::first(1))).await.unwrap();
    })
    .await;
}

/// Whoever names another number later would look for records where they are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_says_over_how_many_shards_it_is_spread() {
    on_each(async |tables| {
        let url = tables.made().await;
        let draft = reserved("k", Fence::first(1));
        DynamoStore::connect(&url).await.unwrap().insert(&draft).await.unwrap();
        for other in ["&shards=3", "&shards=256", ""].map(|other| url.replace("&shards=3", other)) {
            DynamoStore::migrate(&other, DynamoOptions::default()).await.unwrap();
            let store = DynamoStore::connect(&other).await.unwrap();
            assert!(store.get(draft.id).await.unwrap().is_some(), "{other}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_gone_is_missed_with_the_next_step() {
    on_each(async |tables| {
        let url = tables.made().await;
        let store = DynamoStore::connect(&url).await.unwrap();
        let table = url.split(['?', ':']).nth(1).unwrap();
        tables.admin.delete_table().table_name(table).send().await.unwrap();
        let error = store.insert(&reserved("k", Fence::first(1))).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("firstwrite migrate --store dynamodb:"), "{error}");
        let error = store.get(reserved("k", Fence::first(1)).id).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_only_reads_changes_nothing() {
    on_each(async |tables| {
        let url = tables.made().await;
        let draft = reserved("k", Fence::first(1));
        DynamoStore::connect(&url).await.unwrap().insert(&draft).await.unwrap();
        let store = DynamoStore::connect_read_only(&url).await.unwrap();
        assert!(store.get(draft.id).await.unwrap().is_some());
        let error = store.insert(&reserved("other", Fence::first(1))).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
        let error = store.reap(10).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported, "{error}");
    })
    .await;
}

/// Stores in many processes, one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_rivals_one_reserves_and_the_others_see_it() {
    on_each(async |tables| {
        let url = tables.made().await;
        let rivals: Vec<_> = (1..=12)
            .map(|nonce| {
                let url = url.clone();
                tokio::spawn(async move {
                    let store = DynamoStore::connect(&url).await.unwrap();
                    (nonce, store.insert(&reserved("k", Fence::first(nonce))).await.unwrap())
                })
            })
            .collect();
        let (mut granted, mut seen) = (Vec::new(), Vec::new());
        for rival in rivals {
            match rival.await.unwrap() {
                (nonce, Inserted::Done(_)) => granted.push(Fence::first(nonce)),
                (_, Inserted::Stands(found)) => seen.push(found.record.fence),
            }
        }
        assert_eq!((granted.len(), seen.len()), (1, 11));
        assert!(seen.iter().all(|fence| *fence == granted[0]), "{granted:?} {seen:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_says_what_is_unsafe_about_it() {
    on_each(async |tables| {
        let url = tables.made().await;
        let store = DynamoStore::connect_read_only(&url).await.unwrap();
        let findings = doctor::dynamodb(&store).await.unwrap();
        let codes: Vec<_> = findings.iter().map(|finding| finding.code).collect();
        assert!(codes.contains(&"emulator") && codes.contains(&"recovery"), "{findings:?}");
        assert!(!codes.contains(&"expiry") && !codes.contains(&"clock"), "{findings:?}");
    })
    .await;
}
