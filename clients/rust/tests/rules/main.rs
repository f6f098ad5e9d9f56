//! The rules against the vectors that all clients share, and against what the server writes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod server;
mod vectors;

use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::Dialect;
use firstwrite_client::rules::{Decision, Situation, Timestamp, decide};
use firstwrite_client::transport::{Failure, Reply};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

/// A file of vectors.
fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let cases = document["cases"].as_array().unwrap().clone();
    assert!(!cases.is_empty(), "{file} has no cases");
    cases
}

/// Compares every row, and names those that are wrong.
fn check(file: &str, shown: impl Fn(&Value) -> Value) {
    let mut wrong = Vec::new();
    for case in cases(file) {
        let told = shown(&case);
        let expected = &case["expect"];
        if told != *expected {
            wrong.push(format!("{}: expected {expected}, got {told}", case["name"]));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} rows of {file}.json are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The answer of a case.
fn answer(answer: &Value) -> Result<Reply, Failure> {
    match answer["failure"].as_str() {
        Some("not-sent") => return Err(Failure::NotSent("refused".into())),
        Some("lost") => return Err(Failure::Lost("reset".into())),
        Some(other) => panic!("{other} is no failure"),
        None => {}
    }
    let status = u16::try_from(answer["status"].as_u64().unwrap()).unwrap();
    let mut headers = HeaderMap::new();
    for (name, lines) in answer["headers"].as_object().unwrap() {
        let name: HeaderName = name.parse().unwrap();
        for line in lines.as_array().map_or(std::slice::from_ref(lines), Vec::as_slice) {
            let value = HeaderValue::from_str(line.as_str().unwrap()).unwrap();
            headers.append(name.clone(), value);
        }
    }
    let body = answer.get("json").map_or(Bytes::from("no JSON"), |json| json.to_string().into());
    let status = StatusCode::from_u16(status).unwrap();
    let is_hidden = answer.get("hidden").is_some_and(flag);
    Ok(Reply { status, headers, body, is_cut: false, is_hidden })
}

fn dialect(word: &Value) -> Dialect {
    match word.as_str().unwrap() {
        "draft-07" => Dialect::Draft07,
        "stripe" => Dialect::Stripe,
        "generic" => Dialect::Generic,
        other => panic!("{other} is no dialect"),
    }
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap()
}

fn seconds(wait: Duration) -> u64 {
    assert_eq!(wait.subsec_nanos(), 0, "answers name whole seconds");
    wait.as_secs()
}

fn decision(situation: &Situation, answer: Result<&Reply, &Failure>) -> Value {
    match decide(situation, answer) {
        Decision::Retry { wait, doubt, refresh } => {
            json!({"then": "retry", "wait": seconds(wait), "doubt": doubt, "refresh": refresh})
        }
        Decision::Ask { wait } => json!({"then": "ask", "wait": seconds(wait), "doubt": true}),
        Decision::End(end) => json!({
            "then": "end",
            "end": end.end.as_str(),
            "safe_new_key": end.safe_new_key,
            "replayed": end.replayed,
            "code": end.code,
        }),
    }
}

const NOW: Timestamp = Timestamp::from_millis(1_795_032_000_000);
