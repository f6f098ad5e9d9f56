//! Damaged rows are reported as corrupt: never a panic, never somebody else's answer.

use firstwrite_core::{Inserted, Query, Store, StoreErrorKind};

use crate::shop::{Shop, completed, id_of, reserved};

/// Damages the store with `sql` and says what a look-up of `key` tells then.
async fn damaged(sql: &'static str, key: &str) -> (StoreErrorKind, String) {
    let shop = Shop::open();
    shop.store.insert(&completed("done", "{}")).await.unwrap();
    shop.store.insert(&completed("other", "{}")).await.unwrap();
    shop.store.insert(&reserved("held")).await.unwrap();
    shop.store.write(move |connection| connection.execute_batch(sql)).await.unwrap();
    // Fresh connections, which remember nothing.
    let path = shop.path();
    shop.store.clone().close().await;
    let store = firstwrite_store::SqliteStore::open(path).unwrap();
    let error = store.get(id_of(key)).await.expect_err(sql);
    let draft = if key == "held" { reserved(key) } else { completed(key, "{}") };
    let inserted = store.insert(&draft).await.expect_err(sql);
    assert_eq!(inserted.kind(), error.kind(), "{sql}");
    let fine = store.insert(&reserved("fine")).await.expect("the store goes on");
    assert!(matches!(fine, Inserted::Done(_)));
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn damaged_rows_are_corrupt() {
    for (sql, key, part) in [
        ("UPDATE firstwrite_records SET outcome = x''", "done", "ends too early"),
        ("UPDATE firstwrite_records SET outcome = x'f00200'", "done", "another version"),
        ("UPDATE firstwrite_records SET outcome = 'text'", "done", "bytes are missing"),
        ("UPDATE firstwrite_records SET fingerprint = x'00'", "done", "at least 32 bytes"),
        ("UPDATE firstwrite_records SET tenant = 77", "done", "no name"),
        ("UPDATE firstwrite_records SET tenant = x'00'", "done", "neither"),
        ("UPDATE firstwrite_records SET profile = 77", "done", "no facts"),
        ("UPDATE firstwrite_records SET profile = x'00'", "done", "profile"),
        ("UPDATE firstwrite_profiles SET fingerprint_form = 9", "done", "form"),
        ("UPDATE firstwrite_profiles SET on_lost_answer = -9", "done", "lost answers"),
        ("UPDATE firstwrite_profiles SET fingerprint_version = 999", "done", "profile"),
        ("UPDATE firstwrite_records SET key = x'0011'", "done", "key"),
        ("UPDATE firstwrite_records SET key = 'a b'", "done", "key"),
        ("UPDATE firstwrite_records SET created_at = 'noon'", "done", "number"),
        ("DELETE FROM firstwrite_records", "done", "no record"),
        ("UPDATE firstwrite_ids SET record = 2 WHERE record = 1", "done", "another key's"),
        ("UPDATE firstwrite_ids SET record = 1 WHERE record = 3", "held", "another key's"),
        ("UPDATE firstwrite_reservations SET lease_until = 'noon'", "held", "instant"),
        ("UPDATE firstwrite_reservations SET fingerprint_version = 300", "held", "one byte"),
        ("UPDATE firstwrite_reservations SET on_lost_answer = -1", "held", "lost answers"),
        ("UPDATE firstwrite_reservations SET tenant = ''", "held", "tenant"),
        ("UPDATE firstwrite_reservations SET operation = x'ff'", "held", "text is missing"),
        ("UPDATE firstwrite_reservations SET record = 1", "held", "no record"),
        ("UPDATE firstwrite_reservations SET record = 1", "done", "two records"),
    ] {
        let (kind, text) = damaged(sql, key).await;
        assert_eq!(kind, StoreErrorKind::Corrupt, "{sql}: {text}");
        assert!(text.contains(part), "{sql}: {text}");
    }
}

#[tokio::test]
async fn a_damaged_row_does_not_keep_the_others_from_being_reaped() {
    let shop = Shop::open();
    for key in ["a", "b", "c"] {
        shop.store.insert(&completed(key, "{}")).await.unwrap();
    }
    let sql = "UPDATE firstwrite_records SET profile = 77 WHERE record = 1";
    shop.store.write(move |connection| connection.execute_batch(sql)).await.unwrap();
    shop.pass(std::time::Duration::from_secs(1000));
    assert_eq!(shop.store.reap(10).await.unwrap(), 2);
    let everything = Query { tenant: None, state: None, after: None, limit: 10 };
    let error = shop.store.list(&everything).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
}
