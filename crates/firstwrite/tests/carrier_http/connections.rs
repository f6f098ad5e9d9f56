//! Connections: used again, never made twice for one delivery.

use firstwrite::carrier::http::HttpDestination;
use firstwrite_core::outbox::Ending;
use http::HeaderValue;
use http::header::CONNECTION;
use tokio::net::TcpSocket;

use crate::provider::{Provider, answer, carry, settle_down};

#[tokio::test]
async fn a_connection_is_used_again() {
    for body in ["", r#"{"id":"ch_1"}"#] {
        let provider = Provider::start(move |_| answer(200, body)).await;
        let carrier = provider.destination().build().unwrap();
        for _ in 0..10 {
            assert!(matches!(carry(&carrier).await.ending, Ending::Delivered(_)));
            settle_down().await;
        }
        assert_eq!((provider.seen().len(), provider.connection_count()), (10, 1));
    }
}

#[tokio::test]
async fn a_connection_that_the_server_gives_up_is_replaced() {
    let provider = Provider::start(|_| {
        let mut answer = answer(200, "");
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        answer
    })
    .await;
    let carrier = provider.destination().build().unwrap();
    for _ in 0..3 {
        assert!(matches!(carry(&carrier).await.ending, Ending::Delivered(_)));
        settle_down().await;
    }
    assert_eq!((provider.seen().len(), provider.connection_count()), (3, 3));
}

#[tokio::test]
async fn deliveries_at_the_same_time_do_not_wait_for_each_other() {
    let provider = Provider::start(|_| answer(200, "")).await;
    let carrier = provider.destination().build().unwrap();
    let (one, two, three) = tokio::join!(carry(&carrier), carry(&carrier), carry(&carrier));
    for delivery in [one, two, three] {
        assert!(matches!(delivery.ending, Ending::Delivered(_)), "{}", delivery.detail);
    }
    assert_eq!(provider.seen().len(), 3);
}

#[tokio::test]
async fn where_nobody_listens_nothing_is_sent() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let carrier = HttpDestination::new(&format!("http://{address}/"))
        .allow_network("127.0.0.1".parse().unwrap())
        .build()
        .unwrap();
    let delivery = carry(&carrier).await;
    assert_eq!(delivery.ending, Ending::Retry);
    assert!(delivery.detail.starts_with("cannot connect"), "{}", delivery.detail);
    assert!(delivery.detail.contains("refused"), "{}", delivery.detail);
    assert_eq!(delivery.status, None);
}

#[tokio::test]
async fn a_name_that_stands_for_nothing_can_be_mended() {
    // No part of a name is longer than 63 characters, so nobody needs to be asked.
    let url = format!("http://{}.test/", "a".repeat(64));
    let carrier = HttpDestination::new(&url).build().unwrap();
    let delivery = carry(&carrier).await;
    assert_eq!(delivery.ending, Ending::Retry);
    assert!(delivery.detail.starts_with("cannot connect"), "{}", delivery.detail);
}
