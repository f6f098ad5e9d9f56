//! Promises 2 and 10: what comes back under a key, and what never does.

use std::fs::{self, File};

use crate::database::{on_dynamodb, on_every_store, on_redis};
use crate::http::{Response, post};
use crate::process::{Demo, Folder};
use crate::scene::{Scene, pay, said};
use crate::upstream::{Upstream, answer, made};

on_every_store! {
    promise_2_every_answer_is_the_first_byte_for_byte,
    promise_10_no_5xx_is_replayed,
    promise_10_no_cookie_or_secret_is_replayed,
    promise_10_no_whole_key_is_in_the_log,
}

on_redis! {
    promise_2_every_answer_is_the_first_byte_for_byte,
    promise_10_no_5xx_is_replayed,
    promise_10_no_cookie_or_secret_is_replayed,
    promise_10_no_whole_key_is_in_the_log,
}

on_dynamodb! {
    promise_2_every_answer_is_the_first_byte_for_byte,
    promise_10_no_5xx_is_replayed,
}

const STATUSES: [&str; 5] =
    ["200 OK", "201 Created", "303 See Other", "402 Payment Required", "404 Not Found"];

/// Headers that belong to an answer, one of them in three lines with a comma inside.
const KEPT: &str = "content-type: application/octet-stream\r\nlocation: /payments/7?a=b,c\r\n\
    etag: W/\"x,y\"\r\ncontent-language: de, en\r\nlink: </a>; rel=next\r\nlink: </b>; title=\"x, y\"\r\n\
    link: </c>\r\n";

fn kept(answer: &Response) -> Vec<Vec<&str>> {
    let names = ["content-type", "location", "etag", "content-language", "link", "content-length"];
    names.map(|name| answer.lines(name)).into()
}

fn promise_2_every_answer_is_the_first_byte_for_byte(folder: &Folder) {
    // Every byte there is, and no two bodies alike.
    let upstream = Upstream::answering(|effect| {
        let turned = u8::try_from(effect.number).unwrap();
        let body: Vec<u8> = (0..=255).map(|byte: u8| byte.wrapping_add(turned)).collect();
        answer(STATUSES[(effect.number - 1) % STATUSES.len()], KEPT, &body)
    });
    let scene = Scene::before(folder, upstream, "");
    let gateway = scene.gateway();
    let keys: Vec<String> = (0..STATUSES.len()).map(|number| format!("order-{number}")).collect();
    let first: Vec<Response> = keys.iter().map(|key| gateway.answer(&pay(key))).collect();
    let compare = |gateway: &Demo| {
        for (key, first) in keys.iter().zip(&first) {
            let again = gateway.answer(&pay(key));
            assert_eq!((first.is_replay(), again.is_replay()), (false, true));
            assert_eq!(said(&again), said(first), "{key}");
            assert_eq!(kept(&again), kept(first), "{key}");
            assert_eq!(first.lines("link").len(), 3);
        }
    };
    compare(&gateway);
    gateway.kill();
    compare(&scene.gateway());
    let statuses: Vec<u16> = first.iter().map(|first| first.status).collect();
    assert_eq!(statuses, [200, 201, 303, 402, 404]);
    assert_eq!(scene.upstream.effects().len(), keys.len());
}

fn promise_10_no_5xx_is_replayed(folder: &Folder) {
    let upstream = Upstream::answering(|effect| match effect.number {
        1 => answer("500 Internal Server Error", "", b"sorry"),
        2 => answer("503 Service Unavailable", "retry-after: 1\r\n", b"not now"),
        3 => answer("429 Too Many Requests", "", b"slowly"),
        _ => answer("201 Created", "", made(effect).as_bytes()),
    });
    let scene = Scene::before(folder, upstream, "");
    let gateway = scene.gateway();
    for (expected, body) in [(500, &b"sorry"[..]), (503, b"not now"), (429, b"slowly")] {
        let failed = gateway.answer(&pay("order-1"));
        assert_eq!((said(&failed), failed.is_replay()), ((expected, body), false));
    }
    let made = gateway.answer(&pay("order-1"));
    assert_eq!((made.status, made.is_replay()), (201, false), "{made:?}");
    let again = gateway.answer(&pay("order-1"));
    assert_eq!((said(&again), again.is_replay()), (said(&made), true));
    assert_eq!(scene.upstream.effects().len(), 4);
}

const SECRETS: [&str; 6] = [
    "set-cookie",
    "www-authenticate",
    "authentication-info",
    "x-session-token",
    "proxy-authenticate",
    "set-cookie2",
];

fn promise_10_no_cookie_or_secret_is_replayed(folder: &Folder) {
    let headers = SECRETS.map(|name| format!("{name}: secret-of-the-first\r\n")).concat();
    let upstream = Upstream::answering(move |_| answer("201 Created", &headers, b"made"));
    let scene = Scene::before(folder, upstream, "");
    let gateway = scene.gateway();
    let first = gateway.answer(&pay("order-1"));
    assert_eq!(first.lines("set-cookie"), ["secret-of-the-first"], "the first caller's own");
    let again = gateway.answer(&pay("order-1"));
    assert!(again.is_replay());
    for name in SECRETS {
        assert_eq!(again.lines(name), [""; 0], "{name}");
    }
    assert!(!format!("{again:?}").contains("secret-of-the-first"));
}

fn promise_10_no_whole_key_is_in_the_log(folder: &Folder) {
    let scene = Scene::before(
        folder,
        Upstream::answering(|effect| match effect.number {
            1 => answer("201 Created", "", b"made"),
            2 => answer("500 Internal Server Error", "", b"sorry"),
            // Nothing that anybody could take for an answer.
            _ => b"what?\r\n\r\n".to_vec(),
        }),
        "",
    );
    let log = File::create(folder.path().join("gateway.log")).unwrap();
    let mut command = scene.command("127.0.0.1:0");
    let gateway = Demo::logging_to(command.args(["--log", "trace"]), log);
    let keys = ["canary-one-5b1d0c", "canary-two-9a2e1f", "canary-three-77aa01"];
    let answers = keys.map(|key| gateway.answer(&pay(key)).status);
    assert_eq!(answers, [201, 500, 504]);
    assert!(gateway.answer(&pay(keys[0])).is_replay());
    assert_eq!(gateway.answer(&post("/payments", "{}").acme().key(keys[0])).status, 422);
    assert_eq!(gateway.answer(&pay(keys[2])).problem(), "outcome-unknown");
    gateway.terminate();
    assert!(gateway.end().success());
    let log = fs::read_to_string(folder.path().join("gateway.log")).unwrap();
    assert!(log.contains("record_id"), "there is nothing to look at: {log}");
    for key in keys {
        assert!(!log.contains(key), "{key} is in the log");
    }
}
