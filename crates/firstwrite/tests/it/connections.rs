//! What happens on the wire: hang-ups, and what is left of refused requests.

use std::sync::Arc;

use firstwrite::memory_store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::app::{App, to};

async fn app() -> App {
    App::over(Arc::new(memory_store())).await
}

/// Writes these bytes and reads until the server closes the connection.
async fn exchange(app: &App, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    // The server may close before it has read everything; what counts is what it answered.
    drop(stream.write_all(bytes).await);
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await);
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_caller_who_hangs_up_gets_the_answer_on_the_next_call() {
    let app = app().await;
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    let request = "POST /slow HTTP/1.1\r\nHost: payments.test\r\nAuthorization: Bearer acme\r\n\
                   Idempotency-Key: k\r\nContent-Type: application/json\r\n\
                   Content-Length: 2\r\n\r\n{}";
    stream.write_all(request.as_bytes()).await.unwrap();
    app.effects.entered.acquire().await.unwrap().forget();
    drop(stream);
    app.effects.leave.add_permits(1);
    let mut retry = app.send(to("/slow", "k", "{}")).await;
    while retry.status == 409 {
        tokio::task::yield_now().await;
        retry = app.send(to("/slow", "k", "{}")).await;
    }
    assert_eq!(retry.summary(), "201 slow 1 again");
    assert_eq!(app.effects.count(), 1);
}

/// A whole request, hidden in another one's body.
const HIDDEN: &str = "POST /payments HTTP/1.1\r\nHost: payments.test\r\n\
                      Authorization: Bearer acme\r\nIdempotency-Key: hidden\r\n\
                      Content-Length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_request_hidden_in_an_unread_body_is_never_executed() {
    let app = app().await;
    let body = HIDDEN.repeat(1000);
    let request = format!(
        "POST /payments HTTP/1.1\r\nHost: payments.test\r\nAuthorization: Bearer acme\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(&app, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    assert_eq!(app.effects.count(), 0);
}

#[tokio::test]
async fn after_a_small_refused_request_the_connection_goes_on() {
    let app = app().await;
    let refused = format!(
        "POST /payments HTTP/1.1\r\nHost: payments.test\r\nAuthorization: Bearer acme\r\n\
         Content-Length: {}\r\n\r\n{HIDDEN}",
        HIDDEN.len()
    );
    let next = "POST /payments HTTP/1.1\r\nHost: payments.test\r\nAuthorization: Bearer acme\r\n\
                Idempotency-Key: next\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
    let answer = exchange(&app, format!("{refused}{next}").as_bytes()).await;
    let statuses: Vec<&str> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["400", "201"], "{answer}");
    assert_eq!(app.effects.count(), 1, "the hidden request is not executed");
}

#[tokio::test]
async fn a_request_over_the_cap_is_refused_by_its_declared_length() {
    let app = app().await;
    let request = "POST /payments HTTP/1.1\r\nHost: payments.test\r\nAuthorization: Bearer acme\r\n\
                   Idempotency-Key: k\r\nContent-Length: 10000000\r\n\r\n";
    let answer = exchange(&app, request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(app.effects.count(), 0);
}
