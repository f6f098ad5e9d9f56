//! Servers that break off, stay silent or never finish.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use firstwrite::carrier::http::HttpDestination;
use firstwrite_core::outbox::{Delivery, Ending, Receipt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::provider::{PAYLOAD, carry, settle_down};

const SHORT: Duration = Duration::from_millis(50);

/// Reads requests and writes `answers`, one for each; after the last it closes the connection, or holds it
/// open without a word.
struct Scripted {
    address: SocketAddr,
    request_count: Arc<AtomicUsize>,
}

impl Scripted {
    async fn start(answers: &'static [&'static str], is_held: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let request_count = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&request_count);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let count = Arc::clone(&count);
                tokio::spawn(async move {
                    for answer in answers {
                        read_request(&mut stream).await;
                        count.fetch_add(1, Ordering::Relaxed);
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    if is_held {
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self { address, request_count }
    }

    fn destination(&self) -> HttpDestination {
        HttpDestination::new(&format!("http://{}/", self.address))
            .allow_network("127.0.0.1".parse().unwrap())
    }

    fn request_count(&self) -> usize {
        self.request_count.load(Ordering::Relaxed)
    }
}

async fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(PAYLOAD.as_bytes()) {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the request broke off");
    }
}

fn ends(delivery: &Delivery, ending: &Ending, detail: &str) {
    assert_eq!(&delivery.ending, ending, "{}", delivery.detail);
    assert!(delivery.detail.contains(detail), "{}", delivery.detail);
}

#[tokio::test]
async fn a_server_that_hangs_up_on_the_request_leaves_it_unknown() {
    let server = Scripted::start(&[""], false).await;
    let delivery = carry(&server.destination().build().unwrap()).await;
    ends(&delivery, &Ending::Unknown, "no answer");
    assert_eq!((delivery.status, server.request_count()), (None, 1));
}

#[tokio::test]
async fn a_request_lost_on_a_kept_connection_is_reported_and_not_sent_again() {
    let answers = &["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""];
    let server = Scripted::start(answers, false).await;
    let carrier = server.destination().build().unwrap();
    ends(&carry(&carrier).await, &Ending::Delivered(Receipt::default()), "200");
    settle_down().await;
    ends(&carry(&carrier).await, &Ending::Unknown, "no answer");
    settle_down().await;
    assert_eq!(server.request_count(), 2);
}

/// Whether a closing is noticed before or after the next request was written is a matter of luck; what is
/// reported must be true in either case.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_called_unsent_was_not_sent() {
    let server = Scripted::start(&["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], false).await;
    let carrier = server.destination().build().unwrap();
    let (mut delivered_count, mut unknown_count) = (0, 0);
    for _ in 0..500 {
        match carry(&carrier).await.ending {
            Ending::Delivered(_) => delivered_count += 1,
            Ending::Unknown => unknown_count += 1,
            Ending::Retry => {}
            Ending::Refused | Ending::NotThere => panic!("nobody refused"),
        }
    }
    let seen = server.request_count();
    assert!(delivered_count > 0);
    assert!((delivered_count..=delivered_count + unknown_count).contains(&seen), "{seen}");
}

#[tokio::test]
async fn silence_is_unknown_after_the_timeout() {
    let server = Scripted::start(&[""], true).await;
    let delivery = carry(&server.destination().timeout(SHORT).build().unwrap()).await;
    ends(&delivery, &Ending::Unknown, "no answer within 50ms");
}

#[tokio::test]
async fn half_an_answer_is_none() {
    let server = Scripted::start(&["HTTP/1.1 200 O"], false).await;
    let delivery = carry(&server.destination().build().unwrap()).await;
    ends(&delivery, &Ending::Unknown, "no answer");
    let server = Scripted::start(&["SMTP ready\r\n\r\n"], false).await;
    let delivery = carry(&server.destination().build().unwrap()).await;
    ends(&delivery, &Ending::Unknown, "no answer");
}

#[tokio::test]
async fn a_body_that_breaks_off_matters_only_for_the_id_in_it() {
    let answers = &["HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"id\":\"ch_1\"}"];
    let server = Scripted::start(answers, false).await;
    let plain = carry(&server.destination().build().unwrap()).await;
    ends(&plain, &Ending::Delivered(Receipt::default()), "200");
    let carrier = server.destination().provider_id("/id".parse().unwrap());
    ends(&carry(&carrier.build().unwrap()).await, &Ending::Unknown, "broke off");
}

#[tokio::test]
async fn a_body_that_never_ends_is_waited_for_until_the_timeout() {
    let answers = &["HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"id\":\"ch_1\"}"];
    let server = Scripted::start(answers, true).await;
    let carrier = server.destination().timeout(SHORT).provider_id("/id".parse().unwrap());
    ends(&carry(&carrier.build().unwrap()).await, &Ending::Unknown, "did not end in time");
}

#[tokio::test]
async fn a_connection_that_is_never_ready_carries_nothing() {
    // It accepts and says nothing, so TLS never begins.
    let server = Scripted::start(&[], true).await;
    let url = format!("https://{}/", server.address);
    let destination = HttpDestination::new(&url).allow_network("127.0.0.1".parse().unwrap());
    let carrier = destination.clone().connect_timeout(SHORT).build().unwrap();
    ends(&carry(&carrier).await, &Ending::Retry, "not connected within 50ms");
    let carrier = destination.timeout(SHORT).build().unwrap();
    ends(&carry(&carrier).await, &Ending::Retry, "no connection within 50ms");
}
