//! No room left: honest errors, nothing half-written, and the store goes on.

use firstwrite_core::{Certainty, Inserted, Query, Store, StoreErrorKind};

use crate::group_commit::in_one_batch;
use crate::shop::{Shop, completed, id_of};

fn small() -> Shop {
    Shop::open_with(|options| options.file_bytes_max = Some(400 * 1024))
}

async fn stored_count(shop: &Shop) -> usize {
    let query = Query { tenant: None, state: None, after: None, limit: Query::LIMIT_MAX };
    shop.store.list(&query).await.unwrap().records.len()
}

#[tokio::test]
async fn a_full_file_refuses_inserts_definitely_and_keeps_what_it_has() {
    let shop = small();
    let body = "x".repeat(8000);
    let mut stored = 0;
    let error = loop {
        match shop.store.insert(&completed(&format!("k-{stored}"), &body)).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 100, "the file never filled up");
    };
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    assert_eq!(error.certainty(), Certainty::Definite);
    assert_eq!(shop.store.get(id_of(&format!("k-{stored}"))).await.unwrap(), None);
    assert_eq!(stored_count(&shop).await, stored);
    let again = shop.store.insert(&completed("k-0", &body)).await.unwrap();
    assert!(matches!(again, Inserted::Stands(_)), "look-ups still work");

    // Room again once what is due was reaped.
    shop.pass(std::time::Duration::from_secs(1000));
    assert_eq!(shop.store.reap(500).await.unwrap(), stored);
    shop.store.insert(&completed("fits-again", &body)).await.unwrap();
}

#[tokio::test]
async fn a_batch_that_does_not_fit_leaves_no_answered_record_missing_and_no_other_behind() {
    let shop = small();
    let body = "x".repeat(8000);
    let insert = |number: usize| {
        let (store, body) = (shop.store.clone(), body.clone());
        async move { (number, store.insert(&completed(&format!("k-{number}"), &body)).await) }
    };
    let answers = in_one_batch(&shop.store, (0..100).map(insert).collect()).await;
    let mut stored = 0;
    for (number, answer) in answers {
        let found = shop.store.get(id_of(&format!("k-{number}"))).await.unwrap();
        match answer {
            Ok(Inserted::Done(_)) => {
                stored += 1;
                assert!(found.is_some(), "k-{number} was answered and is not there");
            }
            Ok(Inserted::Stands(found)) => panic!("{found:?}"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
                assert_eq!(error.certainty(), Certainty::Definite);
                assert!(found.is_none(), "k-{number} was refused and is there");
            }
        }
    }
    assert!(stored < 100, "the file never filled up");
    assert_eq!(stored_count(&shop).await, stored);
    shop.store.insert(&completed("small", "{}")).await.expect("the store goes on");
}
