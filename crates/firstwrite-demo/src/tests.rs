//! Tests the effects of a payment in the store that callers cannot see.

use axum::body::Body;
use axum::http::Request;
use firstwrite_core::{Policy, Store as _};
use firstwrite_provider::{Behaviour, Chance, ManualClock, Provider};
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

/// Makes every record older than its retention, and reaps it.
async fn outlive_records(store: &SqliteStore) {
    let two_days = Duration::from_hours(48).as_millis();
    let sql = format!("UPDATE firstwrite_records SET created_at = created_at - {two_days}");
    store.write(move |connection| connection.execute_batch(&sql)).await.unwrap();
    assert_eq!(store.reap(10).await.unwrap(), 1);
}

/// The provider remembers a key no longer than it lives, and its answer about the second order, asked for
/// because the first answer was lost, is not the payment of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lives_of_a_key_are_two_payments() {
    let folder = tempfile::tempdir().unwrap();
    let address = StoreAddress::Sqlite(folder.path().join("demo.db"));
    let books = Books::open(&address).await.unwrap();
    let Books::Sqlite(store) = books.clone() else { panic!("it is in SQLite") };
    // The first life lies in the past of the store, whose own clock goes on with the system's.
    let day = Duration::from_hours(24);
    let clock = ManualClock::at(firstwrite_provider::Clock::system().now().minus(day));
    let mut options = provider::own_options(&folder.path().join("ledger.jsonl"));
    options.clock = clock.clock();
    let provider = Provider::start(options).await.unwrap();
    let counterpart = Counterpart::other(&provider.url(), SECRET.parse().unwrap());
    let setup = Setup {
        faults: Faults::Ignored,
        retention: day,
        wait_for: Duration::from_secs(30),
        secret: SECRET.parse().unwrap(),
    };
    let router = api::router(&books, setup).unwrap();
    let destination = counterpart.destination().unwrap();
    let deliver = Deliver::new(books.messages(), vec![destination]).unwrap();
    let worker = Worker::start(books.store(), Schedule::default()).delivering(deliver);

    assert_eq!(pay(&router, None).await, 201);
    let first = provider.payments();
    outlive_records(&store).await;
    clock.advance(day);
    let lossy = Behaviour { lose_answers: Chance::Always, ..provider.behaviour() };
    provider.behave(lossy).unwrap();
    assert_eq!(pay(&router, None).await, 201);
    let [second] = &provider.payments()[first.len()..] else { panic!("one more payment") };
    assert_eq!((first.len(), &first[0].idempotency_key), (1, &second.idempotency_key));
    let told: Vec<String> = store
        .read(|connection| {
            connection
                .prepare("SELECT provider_id FROM firstwrite_deliveries WHERE provider_id IS NOT NULL ORDER BY 1")?
                .query_map([], |row| row.get(0))?
                .collect()
        })
        .await
        .unwrap();
    assert_eq!(told, [&*first[0].id, &*second.id]);
    worker.stop().await;
    provider.stop().await;
}

#[test]
fn a_retention_shorter_than_the_providers_memory_is_refused() {
    let settings = |retention| Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: StoreAddress::Sqlite(STORE_DEFAULT.into()),
        store_shown: String::new(),
        faults: Faults::Ignored,
        retention,
        drain: Duration::ZERO,
        wait_for: Duration::ZERO,
        provider: ProviderChoice::Own,
    };
    let day = Duration::from_hours(24);
    assert!(settings(day).check().is_ok());
    let refused =
        settings(day.checked_sub(Duration::from_secs(1)).unwrap()).check().unwrap_err().to_string();
    assert!(refused.contains("recognises a key for 1day"), "{refused}");
    let short = settings(Duration::from_secs(1)).check().unwrap_err().to_string();
    assert!(short.contains("lease"), "{short}");
}
