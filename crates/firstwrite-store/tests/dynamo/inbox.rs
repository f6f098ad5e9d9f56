//! Messages of others take effect once, with what follows from them.

use std::time::Duration;

use firstwrite_core::StoreErrorKind;
use firstwrite_store::aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use firstwrite_store::{Consumed, Inbox};
use firstwrite_testkit::Subject as _;

use crate::emulator::{Tables, Which, on_each, on_tables};
use crate::subject::{DynamoSubject, make_business};

/// A row that can be written once.
fn row(tables: &Tables, name: &str) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(tables.business())
        .item("name", AttributeValue::S(name.to_owned()))
        .item("value", AttributeValue::S("done".to_owned()))
        .condition_expression("attribute_not_exists(#name)")
        .expression_attribute_names("#name", "name");
    TransactWriteItem::builder().put(put.build().unwrap()).build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_takes_effect_once_and_is_forgotten_after_its_time() {
    on_each(async |tables| {
        make_business(&tables).await;
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let kept_for = Duration::from_hours(1);
        let inbox = Inbox::new("stripe").unwrap().kept_for(kept_for);
        let consume =
            async |id: &str, name: &str| store.consume(&inbox, id, vec![row(&tables, name)]).await;
        assert_eq!(consume("evt_1", "first").await.unwrap(), Consumed::First);
        let again = consume("evt_1", "second").await.unwrap();
        assert!(matches!(again, Consumed::Again { .. }), "{again:?}");
        assert_eq!(subject.row("second").await, None);
        let other = Inbox::new("adyen").unwrap();
        assert_eq!(store.consume(&other, "evt_1", Vec::new()).await.unwrap(), Consumed::First);
        // What does not go through was never here.
        let error = consume("evt_2", "first").await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(consume("evt_2", "third").await.unwrap(), Consumed::First);
        assert_eq!(subject.row("third").await.as_deref(), Some("done"));
        subject.advance(kept_for).await;
        assert_eq!(consume("evt_1", "fourth").await.unwrap(), Consumed::First);
        let error = consume("", "fifth").await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_consumers_of_one_message_one_is_the_first() {
    on_tables(Which::Ministack, async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let inbox = Inbox::new("stripe").unwrap();
        let mut consumers = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (store, inbox) = (subject.rival().await, inbox.clone());
            consumers.spawn(async move { store.consume(&inbox, "evt_1", Vec::new()).await });
        }
        let consumed = consumers.join_all().await;
        let first = consumed.iter().filter(|consumed| matches!(consumed, Ok(Consumed::First)));
        assert_eq!(first.count(), 1, "{consumed:?}");
        assert!(consumed.iter().all(Result::is_ok), "{consumed:?}");
    })
    .await;
}
