//! Keys: honoured, ignored, forgotten.

use std::time::Duration;

use firstwrite_provider::{Behaviour, Keys};

use crate::client::pay;
use crate::stand::Stand;

fn with(keys: Keys) -> Behaviour {
    Behaviour { keys, ..Behaviour::default() }
}

#[tokio::test]
async fn an_honoured_key_has_one_effect_and_one_answer() {
    let stand = Stand::new(with(Keys::Honour)).await;
    let first = pay("k-1", 500).send(stand.address()).await;
    stand.clock.advance(Duration::from_hours(1));
    let second = pay("k-1", 500).send(stand.address()).await;
    assert_eq!((first.status, second.status), (201, 201));
    assert_eq!(first.body, second.body);
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(second.header("idempotent-replayed"), Some("true"));
    assert_eq!(stand.count(), 1);
}

#[tokio::test]
async fn an_honoured_key_is_refused_for_another_payment() {
    let stand = Stand::new(with(Keys::Honour)).await;
    pay("k-1", 500).send(stand.address()).await;
    let other = pay("k-1", 501).send(stand.address()).await;
    assert_eq!((other.status, &other.json()["code"]), (422, &"key-reused".into()));
    assert_eq!(stand.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_same_time_share_one_effect_under_an_honoured_key() {
    let stand = Stand::new(with(Keys::Honour)).await;
    let address = stand.address();
    let calls: Vec<_> =
        (0..20).map(|_| tokio::spawn(async move { pay("k-1", 500).send(address).await })).collect();
    let others: Vec<_> = (0..20)
        .map(|number| {
            tokio::spawn(async move { pay(&format!("other-{number}"), 500).send(address).await })
        })
        .collect();
    let mut ids = Vec::new();
    for call in calls {
        ids.push(call.await.unwrap().id());
    }
    for other in others {
        assert_eq!(other.await.unwrap().status, 201);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(stand.count(), 21);
}

#[tokio::test]
async fn an_ignored_key_has_an_effect_for_each_call() {
    let stand = Stand::new(with(Keys::Ignore)).await;
    let first = pay("k-1", 500).send(stand.address()).await;
    let second = pay("k-1", 500).send(stand.address()).await;
    assert_ne!(first.id(), second.id());
    let keys: Vec<_> =
        stand.provider.payments().into_iter().map(|payment| payment.idempotency_key).collect();
    assert_eq!(keys, [Some("k-1".to_owned()), Some("k-1".to_owned())]);
}

#[tokio::test]
async fn a_key_is_forgotten_after_its_window_and_not_before() {
    let stand = Stand::new(with(Keys::ForgetAfter(Duration::from_mins(1)))).await;
    let first = pay("k-1", 500).send(stand.address()).await;
    stand.clock.advance(Duration::from_secs(59));
    let second = pay("k-1", 500).send(stand.address()).await;
    assert_eq!(first.body, second.body);
    stand.clock.advance(Duration::from_secs(1));
    let third = pay("k-1", 500).send(stand.address()).await;
    assert_ne!(first.id(), third.id());
    assert_eq!(stand.count(), 2);
    // The window runs anew from the new payment.
    stand.clock.advance(Duration::from_secs(59));
    assert_eq!(pay("k-1", 500).send(stand.address()).await.id(), third.id());
}

#[tokio::test]
async fn a_decline_leaves_the_key_free() {
    let stand = Stand::new(with(Keys::Honour)).await;
    assert_eq!(pay("k-1", 666).send(stand.address()).await.status, 402);
    assert_eq!(pay("k-1", 666).send(stand.address()).await.status, 402);
    assert_eq!(pay("k-1", 667).send(stand.address()).await.status, 201);
}
