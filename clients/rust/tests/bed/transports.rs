//! The transports: what they call not sent, what lost; no redirect is followed; one key over retries.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::transport::{Failure, HyperTransport, Reply, ReqwestTransport};
use firstwrite_client::{Client, EndKind, MemoryStorage, OneKey, Transport};
use http::{Extensions, Method, Request};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use serde_json::json;

use crate::bed::bed;
use crate::victim::{FastClock, token};

/// A server that says the same to everybody, and what it was asked.
struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers every request with these bytes and closes the connection.
    fn that_says(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                drop(serve(stream.unwrap(), answer, &seen));
            }
        });
        Self { address, heads }
    }

    fn url(&self) -> String {
        format!("http://{}/payments", self.address)
    }
}

fn serve(stream: TcpStream, answer: &str, seen: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head)? > 2 && !head.ends_with("\r\n\r\n") {}
    seen.lock().unwrap().push(head);
    reader.get_mut().write_all(answer.as_bytes())
}

/// Its name, and the transport.
type Named = (&'static str, Arc<dyn Transport>);

fn transports() -> Vec<Named> {
    vec![
        ("hyper", Arc::new(HyperTransport::plain())),
        ("reqwest", Arc::new(ReqwestTransport::new().unwrap())),
    ]
}

async fn post(transport: &dyn Transport, url: &str, bytes_max: usize) -> Result<Reply, Failure> {
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = url.parse().unwrap();
    transport.send(request, bytes_max).await
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    for (name, transport) in transports() {
        for status in [301, 302, 303, 307, 308] {
            let answer = format!(
                "HTTP/1.1 {status} Elsewhere\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n"
            );
            let server = Server::that_says(answer.leak());
            let reply = post(&transport, &server.url(), 100).await.unwrap();
            assert_eq!(reply.status.as_u16(), status, "{name}");
            let heads = server.heads.lock().unwrap();
            assert!(
                heads.len() == 1 && heads[0].starts_with("POST /payments"),
                "{name}: {heads:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_connection_that_was_refused_carried_nothing_and_one_that_broke_may_have() {
    for (name, transport) in transports() {
        let refused = format!("{}/payments", bed().refused);
        let failure = post(&transport, &refused, 100).await.unwrap_err();
        assert!(matches!(failure, Failure::NotSent(_)), "{name}: {failure}");
        for answer in
            ["", "HTTP/1.1 201 Cr", "HTTP/1.1 201 Created\r\ncontent-length: 9\r\n\r\nhalf"]
        {
            let server = Server::that_says(answer);
            let failure = post(&transport, &server.url(), 100).await.unwrap_err();
            assert!(matches!(failure, Failure::Lost(_)), "{name}: {failure}");
            assert_eq!(server.heads.lock().unwrap().len(), 1, "{name}: it is sent once");
        }
    }
}

#[tokio::test]
async fn bodies_are_read_up_to_the_limit() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n4\r\nfour\r\n3\r\nend\r\n0\r\n\r\n";
    const PLAIN: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 7\r\n\r\nfourend";
    for (name, transport) in transports() {
        for answer in [CHUNKED, PLAIN] {
            let url = Server::that_says(answer).url();
            for (bytes_max, body, is_cut) in
                [(100, "fourend", false), (7, "fourend", false), (6, "fouren", true), (0, "", true)]
            {
                let reply = post(&transport, &url, bytes_max).await.unwrap();
                assert_eq!(
                    (&reply.body[..], reply.is_cut),
                    (body.as_bytes(), is_cut),
                    "{name}, {bytes_max}"
                );
            }
        }
    }
}

#[tokio::test]
async fn over_each_transport_a_lost_answer_is_found_again_under_the_same_key() {
    for (name, transport) in transports() {
        let client = Client::builder(MemoryStorage::new(), transport)
            .credentials(token)
            .clock(FastClock::default())
            .build();
        for fault in [
            "cut-after",
            "cut-half",
            "cut-before",
            "502",
            "503",
            "504",
            "delay=20",
            "cut-after, 503, 502",
        ] {
            let customer = format!("transport/{name}/{fault}");
            let order = json!({"amount": 100, "currency": "EUR", "customer": customer});
            let draft = client.intent(&customer).post_json(&bed().payments(), &order);
            let intent = draft.header("x-bed-fault", fault).open().await.unwrap();
            let end = intent.send_for(Duration::from_hours(1)).await.unwrap();
            assert_eq!(end.kind(), EndKind::Done, "{customer}");
            let log = bed().log(&customer).await;
            assert!(log.iter().all(|entry| entry["key"] == intent.key().as_str()), "{log:?}");
            assert_eq!(bed().effects(&customer).await[&customer], 1);
        }
    }
}

/// Sends everything a second time, as a middleware does that retries.
struct Twice;

#[async_trait::async_trait]
impl Middleware for Twice {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let again = request.try_clone().unwrap();
        drop(next.clone().run(request, extensions).await);
        next.run(again, extensions).await
    }
}

#[tokio::test]
async fn one_key_stands_over_all_retries_of_a_middleware() {
    let client = ClientBuilder::new(reqwest::Client::new()).with(OneKey::new()).with(Twice).build();
    for number in 1..=2 {
        let customer = format!("one-key/{number}");
        let order = json!({"amount": 100, "currency": "EUR", "customer": customer});
        let request = client.post(bed().payments()).header("authorization", "Bearer demo-acme");
        let request =
            request.header("content-type", "application/json").header("x-bed-fault", "cut-after");
        let answer = request.body(order.to_string()).send().await.unwrap();
        assert_eq!(answer.headers()["idempotent-replayed"], "true");
        assert_eq!(bed().effects(&customer).await[&customer], 1);
        let log = bed().log(&customer).await;
        assert!(log.len() == 2 && log[0]["key"] == log[1]["key"], "{log:?}");
    }
    let log = bed().log("one-key/").await;
    assert_ne!(log[0]["key"], log[2]["key"], "each request has a key of its own");

    let server =
        Server::that_says("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    client.get(server.url()).send().await.unwrap();
    client.post(server.url()).header("idempotency-key", "mine").send().await.unwrap();
    let heads = server.heads.lock().unwrap();
    assert!(
        !heads[0].contains("idempotency-key") && heads[2].contains("idempotency-key: mine"),
        "{heads:?}"
    );
}
