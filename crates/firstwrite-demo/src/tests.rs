//! Tests the effects of a payment in the store that callers cannot see.

use axum::body::Body;
use axum::http::Request;
use firstwrite_core::Policy;
use firstwrite_store::SqliteStore;
use tower::ServiceExt as _;

use super::*;

/// The secret that a test's provider signs its webhooks with.
pub(crate) const SECRET: &str = "whsec_Zmlyc3R3cml0ZS1kZW1vLXdlYmhvb2stc2VjcmV0ISE=";

const ORDER: &str = r#"{"amount":4990,"currency":"EUR","customer":"cus_1"}"#;

async fn pay(router: &Router, fault: Option<&str>) -> u16 {
    let mut request = Request::post("/payments")
        .header("authorization", "Bearer demo-acme")
        .header("idempotency-key", "order-1");
    if let Some(fault) = fault {
        request = request.header("x-demo-fault", fault);
    }
    let answer = router.clone().oneshot(request.body(Body::from(ORDER)).unwrap()).await;
    answer.unwrap().status().as_u16()
}

/// The derived keys and destinations of all messages in the store.
async fn messages(store: &SqliteStore) -> Vec<(String, String)> {
    store
        .read(|connection| {
            connection
                .prepare("SELECT derived_key, destination FROM firstwrite_messages")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_payment_and_its_message_are_written_together_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = StoreAddress::Sqlite(folder.path().join("demo.db"));
    let books = Books::open(&url).await.unwrap();
    let Books::Sqlite(store) = books.clone() else { panic!("it is in SQLite") };
    let setup = Setup {
        faults: Faults::Honoured,
        retention: Policy::RETENTION_DEFAULT,
        wait_for: Duration::ZERO,
        secret: SECRET.parse().unwrap(),
    };
    let router = api::router(&books, setup).unwrap();

    assert_eq!(pay(&router, Some("status=503")).await, 503);
    assert_eq!(messages(&store).await, []);
    assert_eq!(pay(&router, Some("panic")).await, 500);
    assert_eq!(messages(&store).await, []);

    let charges = [("order-1:charge".to_owned(), "provider".to_owned())];
    for _retry in 0..2 {
        // No worker delivers here, so callers get the interim answer only.
        assert_eq!(pay(&router, None).await, 202);
        assert_eq!(messages(&store).await, charges);
    }
}
