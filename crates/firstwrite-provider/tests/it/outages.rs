//! A provider that is not there, or has had enough.

use std::time::Duration;

use firstwrite_provider::{Behaviour, Outage};

use crate::client::{get, pay, put};
use crate::stand::Stand;

#[tokio::test]
async fn an_outage_answers_everything_with_503() {
    let behaviour = Behaviour { outage: Outage::Unavailable, ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 503);
    assert_eq!(get("/v1/payments").send(stand.address()).await.status, 503);
    assert_eq!(stand.count(), 0);
    let requests = stand.provider.requests();
    assert_eq!((requests.create, requests.list, requests.met_outage), (1, 1, 2));
}

#[tokio::test]
async fn an_outage_can_hang_up_and_is_ended_from_outside() {
    let behaviour = Behaviour { outage: Outage::HangUp, ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    pay("k-1", 500).try_send(stand.address()).await.unwrap_err();
    get("/v1/payments").try_send(stand.address()).await.unwrap_err();
    assert_eq!(stand.count(), 0);
    let ended = put("/control", r#"{"outage":"none"}"#).send(stand.address()).await;
    assert_eq!(ended.status, 200);
    assert_eq!(pay("k-1", 500).send(stand.address()).await.status, 201);
}

#[tokio::test]
async fn too_many_calls_in_a_second_are_put_off_to_the_next() {
    let behaviour = Behaviour { requests_per_second: Some(2), ..Behaviour::default() };
    let stand = Stand::new(behaviour).await;
    let mut statuses = Vec::new();
    for number in 0..4 {
        let answer = pay(&format!("k-{number}"), 500).send(stand.address()).await;
        assert_eq!(answer.header("retry-after").is_some(), answer.status == 429);
        statuses.push(answer.status);
    }
    assert_eq!(statuses, [201, 201, 429, 429]);
    assert_eq!((stand.count(), stand.provider.requests().rate_limited), (2, 2));
    stand.clock.advance(Duration::from_secs(1));
    assert_eq!(pay("k-2", 500).send(stand.address()).await.status, 201);
}
