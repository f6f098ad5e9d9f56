//! Answers that do not say what was done.

use firstwrite_provider::{Behaviour, Chance, Keys};

use crate::client::{get, pay};
use crate::stand::Stand;

#[tokio::test]
async fn a_500_after_success_has_its_effect_once_and_a_retry_replays() {
    let behaviour = Behaviour { fail_after_effect: Chance::Always, ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    let failed = pay("k-1", 500).send(stand.address()).await;
    assert_eq!((failed.status, stand.count()), (500, 1));
    let retried = pay("k-1", 500).send(stand.address()).await;
    assert_eq!((retried.status, stand.count()), (201, 1));
    assert_eq!(retried.header("idempotent-replayed"), Some("true"));
    assert_eq!(retried.id(), stand.provider.payments()[0].id);
}

#[tokio::test]
async fn a_500_after_success_is_a_second_payment_where_keys_are_ignored() {
    let behaviour = Behaviour {
        keys: Keys::Ignore,
        fail_after_effect: Chance::First(1),
        ..Behaviour::default()
    };
    let stand = Stand::new(behaviour).await;
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 500);
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 201);
    assert_eq!(stand.count(), 2);
}

#[tokio::test]
async fn a_lost_answer_has_its_effect_and_the_connection_ends() {
    let behaviour = Behaviour { lose_answers: Chance::First(2), ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    // A replay's answer is lost as well as any other.
    for _ in 0..2 {
        let lost = pay("k-1", 500).try_send(stand.address()).await.unwrap_err();
        assert!(lost.is_incomplete_message(), "{lost}");
        assert_eq!(stand.count(), 1);
    }
    let retried = pay("k-1", 500).send(stand.address()).await;
    assert_eq!((retried.status, stand.count()), (201, 1));
}

#[tokio::test]
async fn a_503_before_the_effect_has_none() {
    let behaviour = Behaviour { fail_before_effect: Chance::Every(2), ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    let mut statuses = Vec::new();
    for number in 0..4 {
        statuses.push(pay(&format!("k-{number}"), 500).send(stand.address()).await.status);
    }
    assert_eq!(statuses, [201, 503, 201, 503]);
    assert_eq!(stand.count(), 2);
}

#[tokio::test]
async fn questions_can_fail_while_payments_go_on() {
    let behaviour = Behaviour { fail_lookups: Chance::Always, ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    let id = pay("k-1", 500).send(stand.address()).await.id();
    for path in [
        format!("/v1/payments/{id}"),
        "/v1/payments?idempotency_key=k-1".to_owned(),
        "/v1/payments.csv".to_owned(),
    ] {
        assert_eq!(get(path).send(stand.address()).await.status, 503);
    }
}

#[tokio::test]
async fn a_seed_decides_who_is_unlucky() {
    let behaviour = Behaviour {
        fail_before_effect: Chance::Probability(0.3),
        fail_after_effect: Chance::Probability(0.3),
        ..Behaviour::default()
    };
    let mut runs = Vec::new();
    for _ in 0..2 {
        let stand = Stand::new(behaviour.clone()).await;
        let mut statuses = Vec::new();
        for number in 0..30 {
            statuses.push(pay(&format!("k-{number}"), 500).send(stand.address()).await.status);
        }
        runs.push(statuses);
    }
    assert_eq!(runs[0], runs[1]);
    for status in [201, 500, 503] {
        assert!(runs[0].contains(&status), "{status} in {:?}", runs[0]);
    }
}

#[tokio::test]
async fn a_new_behaviour_begins_its_luck_anew() {
    let behaviour = Behaviour { fail_before_effect: Chance::First(1), ..Behaviour::default() };
    let stand = Stand::new(behaviour.clone()).await;
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 503);
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 201);
    stand.provider.behave(behaviour).unwrap();
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 503);
}
