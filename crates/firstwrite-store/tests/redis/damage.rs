//! Keys that hold what this build did not write: an error that says so, and nothing else suffers.

use firstwrite_core::{Change, Fence, Guard, Inserted, Query, Store as _, StoreErrorKind, Swapped};

use crate::server::{all, client, prefix};
use crate::subject::{completed, created, done, reserved};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_is_corrupt_and_others_are_not() {
    for url in all() {
        let store = created(&url).await;
        let mut operator = client(&url).await;
        let (good, bad) =
            (completed("good", Fence::first(1), 100), completed("bad", Fence::first(1), 100));
        for draft in [&good, &bad] {
            store.insert(draft).await.unwrap();
        }
        let key = format!("{{{}:{:02x}}}r:{}", prefix(&url), bad.id.as_bytes()[0], bad.id);
        let whole: Vec<u8> = redis::cmd("GET").arg(&key).query_async(&mut operator).await.unwrap();
        let mut cases: Vec<Vec<u8>> =
            (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
        cases.extend((0..whole.len().min(200)).map(|place| {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x80;
            damaged
        }));
        let (mut refused, count) = (0, cases.len());
        for value in cases {
            redis::cmd("SET").arg(&key).arg(&value).query_async::<()>(&mut operator).await.unwrap();
            let errors = [
                store.get(bad.id).await.err(),
                store.insert(&bad).await.err(),
                store.swap(bad.id, Guard::Owner(Fence::first(9)), done(), None).await.err(),
            ];
            // Whatever was hit, it is an answer or says that it is damaged.
            for error in errors.into_iter().flatten() {
                assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
                refused += 1;
            }
        }
        assert!(refused > count, "{refused} of {count}");
        let usage = store.usage(None, 100).await.unwrap();
        assert_eq!(
            usage.tenants.iter().map(|(_, usage)| usage.keys).sum::<u64>(),
            2,
            "the last damage is in its body"
        );
        redis::cmd("SET").arg(&key).arg("x").query_async::<()>(&mut operator).await.unwrap();
        let usage = store.usage(None, 100).await.unwrap();
        assert_eq!(
            usage.tenants.iter().map(|(_, usage)| usage.keys).sum::<u64>(),
            1,
            "others are counted all the same"
        );
        assert!(matches!(store.insert(&good).await, Ok(Inserted::Stands(_))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_another_kind_are_corrupt() {
    for url in all() {
        let store = created(&url).await;
        let mut operator = client(&url).await;
        let draft = reserved("k", Fence::first(1));
        store.insert(&draft).await.unwrap();
        let tag = format!("{{{}:{:02x}}}", prefix(&url), draft.id.as_bytes()[0]);
        let mark = format!("{{{}:00}}mark", prefix(&url));
        for name in [format!("{tag}r:{}", draft.id), format!("{tag}journal"), mark] {
            redis::cmd("DEL").arg(&name).query_async::<()>(&mut operator).await.unwrap();
            redis::cmd("SADD")
                .arg(&name)
                .arg("stranger")
                .query_async::<()>(&mut operator)
                .await
                .unwrap();
            let error = store.insert(&draft).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{name}: {error}");
            let guard = Guard::Owner(Fence::first(1));
            match store.swap(draft.id, guard, Change::Remove, None).await {
                Ok(swapped) => {
                    assert!(matches!(swapped, Swapped::Moved(None)) && name.ends_with("journal"));
                }
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{name}: {error}"),
            }
            redis::cmd("DEL").arg(&name).query_async::<()>(&mut operator).await.unwrap();
        }
    }
}

/// An index that lost an entry or has one too many costs a look, never a record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_names_what_is_not_there_is_passed() {
    for url in all() {
        let store = created(&url).await;
        let mut operator = client(&url).await;
        let draft = reserved("k", Fence::first(1));
        let tag = format!("{{{}:{:02x}}}", prefix(&url), draft.id.as_bytes()[0]);
        for index in ["ids", "leases", "kept"] {
            let name = format!("{tag}{index}");
            redis::cmd("ZADD")
                .arg(&name)
                .arg(0)
                .arg(draft.id.as_bytes())
                .query_async::<()>(&mut operator)
                .await
                .unwrap();
        }
        assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
        assert_eq!(store.reap(10).await.unwrap(), 0);
        let query = Query { tenant: None, state: None, after: None, limit: 10 };
        assert!(store.list(&query).await.unwrap().records.is_empty());
        let left: usize =
            redis::cmd("ZCARD").arg(format!("{tag}kept")).query_async(&mut operator).await.unwrap();
        assert_eq!(left, 0, "a reap clears the entry away");
        assert!(matches!(store.insert(&draft).await, Ok(Inserted::Done(_))));
        // The record says when it may go, whatever an index says.
        let kept = completed("kept", Fence::first(1), 10);
        store.insert(&kept).await.unwrap();
        let name = format!("{{{}:{:02x}}}kept", prefix(&url), kept.id.as_bytes()[0]);
        let mut early = redis::cmd("ZADD");
        early.arg(name).arg(0).arg(kept.id.as_bytes());
        early.query_async::<()>(&mut operator).await.unwrap();
        assert_eq!(store.reap(10).await.unwrap(), 0);
        assert!(store.get(kept.id).await.unwrap().is_some());
    }
}
