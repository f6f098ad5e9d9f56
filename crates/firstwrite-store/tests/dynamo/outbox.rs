//! Messages in the table: what the suite does not ask of every store.

mod lines;

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{
    ClaimRequest, ClaimStatus, ClaimedMessage, Delivery, DestinationView, Ending, MessageQuery,
    MessageState, Next, Outbox as _, Receipt, Settlement, protocol as messages,
};
use firstwrite_core::protocol::{self, Atomic, AtomicStart};
use firstwrite_core::{Message, OnLostAnswer, Store as _, StoreErrorKind, Timestamp, Verdict};
use firstwrite_store::aws_sdk_dynamodb::primitives::Blob;
use firstwrite_store::aws_sdk_dynamodb::types::AttributeValue;
use firstwrite_store::{DynamoStore, DynamoTx};
use firstwrite_testkit::{ManualClock, Network, Proxy, Subject as _, sample};

use crate::emulator::{Tables, Which, on_each, on_tables};
use crate::subject::{DynamoSubject, options};

fn message(key: &str) -> Message {
    message_of(key, Bytes::from(format!("payload of {key}")))
}

fn message_of(key: &str, payload: Bytes) -> Message {
    let (tenant, key) = (sample::tenant("shop"), sample::key(key));
    Message::new(&tenant, &key, "step", "provider", payload).unwrap()
}

async fn claim(store: &DynamoStore, count_max: usize) -> Vec<ClaimedMessage> {
    let lease_for = Duration::from_mins(1);
    let request = ClaimRequest { destination: "provider".to_owned(), count_max, lease_for };
    store.claim(&[request], fastrand::u64(..)).await.unwrap().messages
}

fn delivered(claimed_message: &ClaimedMessage) -> Settlement {
    let receipt = Receipt { provider_id: Some("pay_1".to_owned()) };
    let ending = Ending::Delivered(receipt.clone());
    Settlement {
        claim: claimed_message.claim(),
        delivery: Some(Delivery::new(ending, "in a test")),
        next: Next::Delivered(receipt),
        answer: None,
    }
}

async fn settle(store: &DynamoStore, claimed_message: &ClaimedMessage) -> ClaimStatus {
    messages::settle(store, &[], &[delivered(claimed_message)]).await.unwrap()[0]
}

async fn keys(store: &DynamoStore) -> Vec<String> {
    let query = MessageQuery { limit: 100, ..MessageQuery::default() };
    let page = messages::messages(store, &query).await.unwrap();
    page.messages.into_iter().map(|view| view.derived_key).collect()
}

async fn provider(store: &DynamoStore) -> DestinationView {
    let all = store.destinations().await.unwrap();
    all.into_iter().find(|view| view.name == "provider").unwrap()
}

async fn running(store: &DynamoStore, key: &str, nonce: u64) -> protocol::OpenAttempt<DynamoTx> {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    let policy = sample::policy(OnLostAnswer::Resend);
    match protocol::begin(store, request.into(), policy.into(), nonce).await.unwrap() {
        AtomicStart::Run(held) => held,
        AtomicStart::Refused(verdict, _) => panic!("{verdict:?}"),
    }
}

fn created() -> http::Response<Bytes> {
    http::Response::builder().status(201).body(Bytes::from_static(b"ok")).unwrap()
}

/// What the table holds, by the letters before the first `#` of partition keys.
async fn item_count(tables: &Tables, url: &str, kind: &str) -> usize {
    let table = url.split(['?', ':']).nth(1).unwrap();
    let mut count = 0;
    let mut after = None;
    loop {
        let page = tables.admin.scan().table_name(table).set_exclusive_start_key(after);
        let page = page.send().await.unwrap();
        let is_kind = |shard: &str| shard.split('#').next() == Some(kind);
        count += page.items().iter().filter(|item| is_kind(item["shard"].as_s().unwrap())).count();
        after = page.last_evaluated_key;
        if after.is_none() {
            return count;
        }
    }
}

/// Both handlers run; the messages of one are there, and those of the other never were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_at_work_on_a_key_one_has_its_messages_sent() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let (one, other) = (subject.dynamo(), subject.rival().await);
        let (mut first, mut second) = (running(&one, "k", 1).await, running(&other, "k", 2).await);
        first.enqueue(&message("of-the-first")).unwrap();
        second.enqueue(&message("of-the-second")).unwrap();
        second.enqueue(&message("of-the-second-too").ordered_by("card")).unwrap();
        let ended = protocol::conclude(&other, second, created()).await.unwrap();
        assert!(matches!(ended, Atomic::Kept { .. }), "{ended:?}");
        let ended = protocol::conclude(&one, first, created()).await.unwrap();
        assert!(matches!(ended, Atomic::Refused(Verdict::Replay { .. }, _)), "{ended:?}");
        assert_eq!(keys(&one).await, ["of-the-second:step", "of-the-second-too:step"]);
        assert_eq!(claim(&one, 9).await.len(), 2);
    })
    .await;
}

/// The answer is lost with its connection; the same commit is sent again under its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_messages_whose_answer_was_lost_is_done_once() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let proxy = Proxy::new(&tables.endpoint).await.unwrap();
        let url = subject.url.replace(&tables.endpoint, &proxy.url(&tables.endpoint));
        let store = DynamoStore::connect(&url).await.unwrap();
        let mut held = running(&store, "k", 1).await;
        held.enqueue(&message("k")).unwrap();
        proxy.set(Network::CutOnceAt("HTTP/1.1 200"));
        let ended = protocol::conclude(&store, held, created()).await;
        assert!(matches!(ended, Ok(Atomic::Kept { .. })), "{ended:?}");
        assert_eq!((proxy.cut(), keys(&store).await.len()), (1, 1));
        let claimed_messages = claim(&store, 9).await;
        assert_eq!((claimed_messages.len(), claimed_messages[0].lapse_count), (1, 0));
        assert_eq!(settle(&store, &claimed_messages[0]).await, ClaimStatus::Current);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_has_as_many_messages_as_the_service_takes() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let mut held = running(&store, "k", 1).await;
        for at in 0..49 {
            held.enqueue(&message(&format!("m{at}"))).unwrap();
        }
        let error = held.enqueue(&message("one-more")).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unsupported);
        assert!(error.to_string().contains("at most 99 items"), "{error}");
        let error = held.enqueue(&message("m7")).unwrap_err().to_string();
        assert!(error.contains("name each message's step apart"), "{error}");
        protocol::conclude(&store, held, created()).await.unwrap();
        assert_eq!(claim(&store, 100).await.len(), 49);
    })
    .await;
}

/// In items of their own, which go when the message goes, with its history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_of_every_size_are_delivered_whole_and_leave_nothing_behind() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let sizes = [0, 1, 500, 501, 400_000, 400_001, Message::PAYLOAD_BYTES_MAX];
        for size in sizes {
            let payload: Bytes = (0..=u8::MAX).cycle().take(size).collect();
            store.enqueue(&message_of(&format!("of-{size}"), payload.clone())).await.unwrap();
            let claimed_messages = claim(&store, 9).await;
            assert_eq!(claimed_messages.len(), 1, "{size}");
            assert!(claimed_messages[0].payload == payload, "{size}");
            assert_eq!(settle(&store, &claimed_messages[0]).await, ClaimStatus::Current);
        }
        assert_eq!(item_count(&tables, &subject.url, "b").await, 1 + 1 + 2 + 3);
        assert_eq!(item_count(&tables, &subject.url, "q").await, 0);
        assert_eq!(item_count(&tables, &subject.url, "h").await, sizes.len());
        subject.advance(Duration::from_hours(25)).await;
        assert_eq!(store.upkeep(Duration::from_hours(24), 100).await.unwrap(), sizes.len());
        for kind in ["b", "e", "h", "m", "o", "q"] {
            assert_eq!(item_count(&tables, &subject.url, kind).await, 0, "{kind}");
        }
    })
    .await;
}

/// What a process had not yet written when it died is counted anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_that_are_wrong_are_put_right() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        for key in ["1", "2", "3"] {
            store.enqueue(&message(key)).await.unwrap();
        }
        let claimed_messages = claim(&store, 1).await;
        let dead = Next::Dead(firstwrite_core::outbox::Cause::Exhausted);
        messages::settle(
            &store,
            &[],
            &[Settlement { next: dead, ..delivered(&claimed_messages[0]) }],
        )
        .await
        .unwrap();
        let counts = async || {
            let seen = provider(&store).await;
            [seen.open_count, seen.unknown_count, seen.dead_count, seen.delivered_count]
        };
        assert_eq!(counts().await, [2, 0, 1, 0]);
        let table = subject.url.split(['?', ':']).nth(1).unwrap();
        let wrong = |count: &str| AttributeValue::N(count.to_owned());
        tables
            .admin
            .update_item()
            .table_name(table)
            .key("shard", AttributeValue::S("destinations".to_owned()))
            .key("id", AttributeValue::B(Blob::new("provider")))
            .update_expression("SET open_count = :open, unknown_count = :more, dead_count = :more")
            .expression_attribute_values(":open", wrong("-7"))
            .expression_attribute_values(":more", wrong("5"))
            .send()
            .await
            .unwrap();
        assert_eq!(counts().await, [-7, 5, 5, 0]);
        store.upkeep(Duration::from_hours(24), 100).await.unwrap();
        assert_eq!(counts().await, [2, 0, 1, 0]);
    })
    .await;
}

/// Two processes that draw the same number in the same millisecond: both messages are there.
#[tokio::test]
async fn a_number_that_is_taken_is_drawn_again() {
    on_tables(Which::Ministack, async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        let handler = async |key: &str, seed: u64| {
            let rival = subject.rival().await;
            let mut held = running(&rival, key, 1).await;
            held.enqueue(&message(key)).unwrap();
            // On one thread, so that what is drawn is the same.
            fastrand::seed(seed);
            protocol::conclude(&rival, held, created()).await.unwrap();
        };
        // Another in each run: tokens are drawn too, and an emulator remembers them.
        let (seed, other_seed) = (fastrand::u64(..), fastrand::u64(..));
        fastrand::seed(seed);
        store.enqueue(&message("1")).await.unwrap();
        handler("2", seed).await;
        handler("3", other_seed).await;
        let rival = subject.rival().await;
        fastrand::seed(other_seed);
        rival.enqueue(&message("4")).await.unwrap();
        let mut keys = keys(&store).await;
        keys.sort();
        assert_eq!(keys, ["1:step", "2:step", "3:step", "4:step"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_only_reads_moves_no_message() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        subject.dynamo().enqueue(&message("k")).await.unwrap();
        let reader = DynamoStore::connect_read_only(&subject.url).await.unwrap();
        let entry = sample::audit("no");
        let refused = [
            reader.enqueue(&message("2")).await.unwrap_err(),
            reader.claim(&[], 1).await.unwrap_err(),
            messages::settle(&reader, &[], &[]).await.unwrap_err(),
            messages::pause(&reader, "provider", &entry).await.unwrap_err(),
            messages::resume(&reader, "provider", &entry).await.unwrap_err(),
            reader.upkeep(Duration::ZERO, 9).await.unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == StoreErrorKind::Unsupported));
        assert_eq!(keys(&reader).await, ["k:step"]);
    })
    .await;
}

/// Pages are merged from shards that are read one by one, while messages move between them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_has_a_message_once_while_it_ends() {
    on_tables(Which::Ministack, async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let store = subject.dynamo();
        for at in 0..30 {
            store.enqueue(&message(&format!("{at:02}"))).await.unwrap();
        }
        let wanted: Vec<String> = (0..30).map(|at| format!("{at:02}:step")).collect();
        let worker = subject.rival().await;
        let working = tokio::spawn(async move {
            loop {
                let claimed_messages = claim(&worker, 4).await;
                for claimed_message in &claimed_messages {
                    assert_eq!(settle(&worker, claimed_message).await, ClaimStatus::Current);
                }
                if claimed_messages.is_empty() {
                    return;
                }
            }
        });
        while !working.is_finished() {
            assert_eq!(keys(&store).await, wanted);
        }
        working.await.unwrap();
        assert_eq!(keys(&store).await, wanted);
        let query =
            MessageQuery { state: Some(MessageState::Delivered), ..MessageQuery::default() };
        assert_eq!(messages::count(&store, &query).await.unwrap().count, 30);
    })
    .await;
}

/// A store whose clock is behind by a minute.
async fn late(subject: &DynamoSubject) -> DynamoStore {
    let clock = ManualClock::new();
    let now = subject.dynamo().now().await.unwrap();
    clock.set(Timestamp::from_millis(now.as_millis() - 60_000));
    DynamoStore::connect_with(&subject.url, options(&clock)).await.unwrap()
}
