//! A service that goes away or does not answer: what is certain and what is not, and that the store goes on by
//! itself.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic, AtomicStart};
use firstwrite_core::{
    AsyncTransactionalStore as _, BeginResult, Certainty, Fence, Guard, Inserted, OnLostAnswer,
    Store as _, StoreErrorKind, Swapped, Transacted, Write,
};
use firstwrite_store::{DynamoOptions, DynamoStore};
use firstwrite_testkit::{Network, Proxy, Subject as _, sample};

use crate::emulator::{Tables, on_each};
use crate::subject::{DynamoSubject, completed, done, make_business, put, reserved};

/// A store that reaches the emulator through a network that can be cut.
async fn behind(tables: &Tables, subject: &DynamoSubject) -> (DynamoStore, Proxy) {
    let proxy = Proxy::new(&tables.endpoint).await.unwrap();
    let url = subject.url.replace(&tables.endpoint, &proxy.url(&tables.endpoint));
    let mut options = DynamoOptions::default();
    options.call_timeout = Duration::from_millis(700);
    (DynamoStore::connect_with(&url, options).await.unwrap(), proxy)
}

async fn until_all_are_gone(proxy: &Proxy) {
    while proxy.open() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_uncertain_and_a_look_tells() {
    on_each(async |tables| {
        let subject = DynamoSubject::new(&tables).await;
        let (store, proxy) = behind(&tables, &subject).await;
        let fence = Fence::first(3);
        let draft = reserved("k", fence);
        proxy.set(Network::AnswersLost);
        let error = store.insert(&draft).await.unwrap_err();
        assert_eq!(error.certainty(), Certainty::Indeterminate, "{error}");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        proxy.set(Network::Up);
        // The repetition under the same fence meets its own write.
        let Inserted::Stands(found) = store.insert(&draft).await.unwrap() else {
            panic!("it was written all the same");
        };
        assert_eq!(found.record.fence, fence);

        // A connection that ends with the answer is no better.
        proxy.set(Network::CutOnceAt("HTTP/1.1 200"));
        let error = store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap_err();
        assert_eq!(error.certainty(), Certainty::Indeterminate, "{error}");
        let again = store.swap(draft.id, Guard::Owner(fence), done(), None).await.unwrap();
        assert!(matches!(again, Swapped::Moved(Some(_))), "it was completed all the same");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_cannot_be_reached_is_named() {
    let url = "dynamodb:table?endpoint=http://127.0.0.1:1";
    let error = DynamoStore::connect(url).await.unwrap_err().to_string();
    assert!(error.contains(&format!("DynamoDB cannot be used at {url}")), "{error}");
}

/// Nobody listens: not a byte was sent, so nothing was written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_connection_nothing_was_written_for_certain() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let impostor = crate::answers::Impostor::on(listener);
    let url = format!("dynamodb:table?endpoint=http://{address}");
    let store = DynamoStore::connect(&url).await.unwrap();
    impostor.leave().await;
    // The first finds its connection gone while it is used.
    store.insert(&reserved("unlucky", Fence::first(1))).await.unwrap_err();
    for _ in 0..3 {
        let error = store.insert(&reserved("k", Fence::first(1))).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert_eq!(error.certainty(), Certainty::Definite, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_commit_was_not_acknowledged_is_told_how_it_ended() {
    on_each(async |tables| {
        make_business(&tables).await;
        let subject = DynamoSubject::new(&tables).await;
        let (store, proxy) = behind(&tables, &subject).await;
        let request = sample::request(&sample::tenant("shop"), &sample::key("k"), 1);
        let policy = sample::policy(OnLostAnswer::Resend);
        let begun = protocol::begin(&store, request.into(), policy.into(), 7).await.unwrap();
        let AtomicStart::Run(mut held) = begun else { panic!("the key is free") };
        put(&tables.business(), &mut held, "paid".to_owned(), "once".to_owned()).unwrap();
        // The first answer is lost with its connection; the same commit is sent again under its token.
        proxy.set(Network::CutOnceAt("HTTP/1.1 200"));
        let answer = http::Response::builder().status(201).body(Bytes::from_static(b"ok")).unwrap();
        let ended = protocol::conclude(&store, held, answer).await;
        assert!(matches!(ended, Ok(Atomic::Kept { .. })), "{ended:?}");
        assert_eq!(proxy.cut(), 1);
        assert_eq!(subject.row("paid").await.as_deref(), Some("once"));
    })
    .await;
}

/// By the store itself, without a look of anybody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_sent_again_and_done_once() {
    on_each(async |tables| {
        make_business(&tables).await;
        let subject = DynamoSubject::new(&tables).await;
        let (store, proxy) = behind(&tables, &subject).await;
        let draft = completed("k", Fence::first(7), 10);
        let BeginResult::Open(mut tx, None) = store.begin(draft.id).await.unwrap() else {
            panic!("the key is free");
        };
        put(&tables.business(), &mut tx, "paid".to_owned(), "once".to_owned()).unwrap();
        proxy.set(Network::CutOnceAt("HTTP/1.1 200"));
        let ended = store.conclude(tx, Write::All(Box::new(draft))).await.unwrap();
        assert!(matches!(ended, Transacted::Done(..)), "{ended:?}");
        assert_eq!(proxy.cut(), 1);
        assert_eq!(subject.row("paid").await.as_deref(), Some("once"));
    })
    .await;
}

/// A look that finds nothing does not prove that the commit will not take effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_which_nothing_was_heard_stays_uncertain() {
    on_each(async |tables| {
        make_business(&tables).await;
        let subject = DynamoSubject::new(&tables).await;
        let (store, proxy) = behind(&tables, &subject).await;
        let request = sample::request(&sample::tenant("shop"), &sample::key("k"), 1);
        let id = request.id;
        let policy = std::sync::Arc::new(sample::policy(OnLostAnswer::Resend));
        let request = std::sync::Arc::new(request);
        let begun = protocol::begin(&store, request.clone(), policy.clone(), 7).await.unwrap();
        let AtomicStart::Run(mut held) = begun else { panic!("the key is free") };
        put(&tables.business(), &mut held, "paid".to_owned(), "once".to_owned()).unwrap();
        proxy.set(Network::Down);
        until_all_are_gone(&proxy).await;
        let answer = http::Response::builder().status(201).body(Bytes::from_static(b"ok")).unwrap();
        let error = protocol::conclude(&store, held, answer).await.unwrap_err();
        assert_eq!(error.certainty(), Certainty::Indeterminate, "{error}");
        proxy.set(Network::Up);
        assert!(store.get(id).await.unwrap().is_none());
        let begun = protocol::begin(&store, request, policy, 8).await.unwrap();
        assert!(matches!(begun, AtomicStart::Refused(..)), "it may still take effect");
    })
    .await;
}
