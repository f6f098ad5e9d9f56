//! Answers of the API whose body is cut off before its end: what becomes of the key, and what the client gets.

use firstwrite::{KeptStatuses, OnLostAnswer, OnServerError, Policy};
use firstwrite_gateway::{Gateway, Rules};
use http::StatusCode;
use tokio::io::AsyncReadExt as _;

use crate::client::{Client, ask, post};
use crate::frames::{
    Came, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, RST_STREAM, block, code, frame, put,
};
use crate::gateway::{policy, rules, start};
use crate::upstream::{Script, Upstream, answer};
use crate::wire;

/// Statuses that say by themselves that nothing ran.
pub(crate) const NOTHING_RAN: [&str; 6] = [
    "401 Unauthorized",
    "407 Proxy Authentication Required",
    "421 Misdirected Request",
    "425 Too Early",
    "429 Too Many Requests",
    "431 Request Header Fields Too Large",
];

/// Statuses that leave open what happened, once it is certain that their answer was cut off.
pub(crate) const LEAVES_OPEN: [&str; 11] = [
    "200 OK",
    "201 Created",
    "303 See Other",
    "404 Not Found",
    "408 Request Timeout",
    "422 Unprocessable Content",
    "500 Internal Server Error",
    "501 Not Implemented",
    "502 Bad Gateway",
    "503 Service Unavailable",
    "504 Gateway Timeout",
];

/// The error code with which a server gives a stream up.
const INTERNAL_ERROR: u32 = 2;

/// An answer that ends before its end: with a length, and in chunks.
fn cut(status: &str, headers: &str) -> [String; 2] {
    [
        format!("HTTP/1.1 {status}\r\n{headers}content-length: 9\r\n\r\nhalf"),
        format!("HTTP/1.1 {status}\r\n{headers}transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
    ]
}

#[tokio::test]
async fn a_length_where_no_body_can_be_is_no_cut() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for (key, status, code) in [("a", "204 No Content", 204), ("b", "304 Not Modified", 304)] {
        upstream.does(Script::Answer(format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n")));
        let first = ask(gateway.address(), &post(key, "{}")).await;
        assert_eq!((first.status(), first.text().as_str()), (code, ""), "{first:?}");
        let again = ask(gateway.address(), &post(key, "{}")).await;
        assert_eq!((again.status(), again.is_replay()), (code, true), "{again:?}");
    }
}

/// Status and code of an answer.
type Told = (u16, String);
/// What a request and its retry were told, and how often the API was asked.
type Twice = (Told, Told, usize);

/// A request whose answer is cut off, and its retry, whose answer is whole.
async fn twice(policy_of: Policy, cut: &str) -> Twice {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerAndHangUp(cut.to_owned()));
    let gateway = start(Rules { operations: policy(policy_of), ..rules(&[&upstream]) }).await;
    let first = ask(gateway.address(), &post("k", "{}")).await;
    if first.status() == 500 {
        let document: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
        assert_eq!(document["retryable"], true, "{cut}");
        assert!(first.header("retry-after").is_some(), "{cut}");
    }
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    let retry = ask(gateway.address(), &post("k", "{}")).await;
    let told = |message: &wire::Message| -> Told { (message.status(), message.code()) };
    (told(&first), told(&retry), upstream.seen().len())
}

fn lost() -> Twice {
    ((504, "outcome-unknown".to_owned()), (409, "outcome-unknown".to_owned()), 1)
}

fn free() -> Twice {
    ((500, "attempt-failed".to_owned()), (201, String::new()), 2)
}

#[tokio::test]
async fn a_cut_answer_is_lost_unless_its_status_says_that_nothing_ran() {
    for status in LEAVES_OPEN {
        for cut in cut(status, "") {
            assert_eq!(twice(Policy::default(), &cut).await, lost(), "{cut}");
        }
    }
    for status in NOTHING_RAN {
        for cut in cut(status, "") {
            assert_eq!(twice(Policy::default(), &cut).await, free(), "{cut}");
        }
    }
}

#[tokio::test]
async fn the_operation_and_the_api_itself_have_a_say() {
    let resent = ((504, "outcome-unknown".to_owned()), (201, String::new()), 2);
    let resend = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let doubtful = Policy::default().on_server_error(OnServerError::Lost);
    let conflict = KeptStatuses::default().release_on(StatusCode::CONFLICT);
    let conflict = Policy::default().kept_statuses(conflict);
    let (none, happened) = ("firstwrite-effect: none\r\n", "firstwrite-effect: happened\r\n");
    for (policy, status, headers, expected) in [
        (resend.clone(), "502 Bad Gateway", "", resent.clone()),
        (resend.clone(), "500 Internal Server Error", "", resent.clone()),
        (resend.clone(), "201 Created", "", resent),
        (resend, "429 Too Many Requests", "", free()),
        (doubtful.clone(), "500 Internal Server Error", "", lost()),
        (doubtful.clone(), "429 Too Many Requests", "", free()),
        (doubtful, "500 Internal Server Error", none, free()),
        (conflict, "409 Conflict", "", free()),
        (Policy::default(), "409 Conflict", "", lost()),
        (Policy::default(), "502 Bad Gateway", none, free()),
        (Policy::default(), "500 Internal Server Error", none, free()),
        (Policy::default(), "500 Internal Server Error", happened, lost()),
        (Policy::default(), "429 Too Many Requests", happened, lost()),
        (Policy::default(), "201 Created", none, lost()),
    ] {
        for cut in cut(status, headers) {
            assert_eq!(twice(policy.clone(), &cut).await, expected, "{policy:?} {cut}");
        }
    }
}

#[tokio::test]
async fn a_cut_not_now_says_when_and_how_it_began() {
    let upstream = Upstream::start().await;
    let headers = "retry-after: 7\r\nset-cookie: a=b\r\ncontent-encoding: gzip\r\n";
    let gateway = start(rules(&[&upstream])).await;
    for cut in cut("429 Too Many Requests", headers) {
        upstream.does(Script::AnswerAndHangUp(cut));
        let first = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!(first.header("content-type"), Some("application/problem+json"));
        assert_eq!((first.status(), first.header("retry-after")), (500, Some("7")));
        assert_eq!((first.header("set-cookie"), first.header("content-encoding")), (None, None));
        let document: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
        assert_eq!((&document["retry_after"], &document["first_status"]), (&7.into(), &429.into()));
        assert_eq!(document["safe_new_key"], false);
    }
}

/// What a client on HTTP/1.1 gets before its connection ends, and whether that is a whole answer.
async fn comes(gateway: &Gateway, request: &str) -> (u16, String, bool) {
    let mut client = Client::connect(gateway.address()).await;
    client.send(request).await;
    let head = wire::read_head(&mut client.0).await.unwrap().expect("a head");
    let mut rest = Vec::new();
    client.0.read_to_end(&mut rest).await.unwrap();
    let is_whole = match head.header("content-length") {
        Some(length) => rest.len() == length.parse::<usize>().unwrap(),
        None => rest.ends_with(b"0\r\n\r\n"),
    };
    (head.status(), String::from_utf8(rest).unwrap(), is_whole)
}

#[tokio::test]
async fn what_passes_through_is_cut_for_the_client_too() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for status in ["200 OK", "502 Bad Gateway"] {
        let code = status[..3].parse().unwrap();
        for cut in cut(status, "") {
            upstream.does(Script::AnswerAndHangUp(cut.clone()));
            let get = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
            let (status, body, is_whole) = comes(&gateway, get).await;
            assert_eq!((status, is_whole), (code, false), "{cut}");
            assert!(body.contains("half"), "{body}");
            let mut connection = Frames::connect(gateway.address()).await;
            connection.send(&[&crate::frames::get(1)]).await;
            assert_eq!(ends(&mut connection).await, Came::Reset(INTERNAL_ERROR), "{cut}");
        }
    }
}

/// How an answer on the stream 1 ends over HTTP/2.
async fn ends(connection: &mut Frames) -> Came {
    while let Some(found) = connection.read().await {
        match (found.kind, found.stream) {
            (HEADERS | DATA, 1) if found.flags & END_STREAM != 0 => return Came::Answer,
            (RST_STREAM, 1) => return Came::Reset(code(&found.payload)),
            _ => {}
        }
    }
    Came::End
}

#[tokio::test]
async fn a_cut_answer_under_a_key_is_a_whole_problem_over_http2_too() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    for (status, key) in [("502 Bad Gateway", "a"), ("429 Too Many Requests", "b")] {
        let [cut, _] = cut(status, "");
        upstream.does(Script::AnswerAndHangUp(cut));
        let mut head = put(&[("idempotency-key", key)]);
        head[0].1 = "POST";
        let mut connection = Frames::connect(gateway.address()).await;
        connection.send(&[&frame(HEADERS, END_HEADERS, 1, &block(&head))]).await;
        connection.send(&[&frame(DATA, END_STREAM, 1, b"{}")]).await;
        assert_eq!(ends(&mut connection).await, Came::Answer, "{status}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_cap_that_breaks_off_is_cut_for_the_client_too() {
    let upstream = Upstream::start().await;
    let small = Policy::default().response_bytes_max(3);
    let gateway = start(Rules { operations: policy(small), ..rules(&[&upstream]) }).await;
    for (status, retry_code, key) in
        [("201 Created", "answer-not-kept", "a"), ("502 Bad Gateway", "outcome-unknown", "b")]
    {
        for (cut, framing) in cut(status, "").into_iter().zip(["length", "chunks"]) {
            upstream.does(Script::AnswerAndHangUp(cut.clone()));
            let request = post(&format!("{key}-{framing}"), "{}");
            let (found, body, is_whole) = comes(&gateway, &request).await;
            assert_eq!((found, is_whole), (status[..3].parse().unwrap(), false), "{cut}");
            assert!(body.contains("half"), "{body}");
            assert_eq!(ask(gateway.address(), &request).await.code(), retry_code);
        }
    }
}
