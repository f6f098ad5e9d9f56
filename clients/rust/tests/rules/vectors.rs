//! Every row of `clients/vectors`.

use std::time::Duration;

use firstwrite_client::rules::{
    AfterStatus, Life, Limits, Over, Situation, Timestamp, after_status, key_time, life,
    retry_after, wait, wait_left,
};
use firstwrite_client::transport::Reply;
use firstwrite_client::{Cause, EndKind, Secret};
use serde_json::{Value, json};

use super::{NOW, answer, check, decision, dialect, flag, seconds};

#[test]
fn answers_are_decided() {
    check("decide", |case| {
        let situation = Situation {
            dialect: dialect(&case["dialect"]),
            doubt: flag(&case["doubt"]),
            refreshed: flag(&case["refreshed"]),
            now: NOW,
        };
        decision(&situation, answer(&case["answer"]).as_ref())
    });
}

#[test]
fn answers_of_the_status_resource_are_decided() {
    check("ask", |case| {
        let answer = answer(&case["answer"]);
        match after_status(answer.as_ref(), flag(&case["refreshed"]), NOW) {
            AfterStatus::Send { forget } => json!({"then": "send", "forget": forget}),
            AfterStatus::Ask { wait } => json!({"then": "ask", "wait": seconds(wait)}),
            AfterStatus::Refresh => json!({"then": "refresh"}),
        }
    });
}

#[test]
fn every_file_is_run() {
    let sources = [
        include_str!("vectors.rs"),
        include_str!("../client/crashes.rs"),
        include_str!("../client/status.rs"),
    ];
    let sources = sources.concat();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let files: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
    assert!(!files.is_empty());
    let is_run = |file: &str| {
        let stem = file.strip_suffix(".json").unwrap_or(file);
        // As a test names it, here or beside a client that is run.
        [format!("check(\"{stem}\""), format!("check_named(\"{stem}\""), format!("/{file}\"")]
            .iter()
            .any(|named| sources.contains(named))
    };
    let left: Vec<_> = files.iter().filter(|file| !is_run(file)).collect();
    assert!(left.is_empty(), "no test runs {left:?}");
}

#[test]
fn waits_are_computed() {
    check_named("wait", "expect_ms", |case| {
        let now = date(&case["date_header"]).or(date(&case["now"])).unwrap();
        let attempt = u32::try_from(case["attempt"].as_u64().unwrap()).unwrap();
        let header = case["retry_after_header"].as_str();
        let said =
            retry_after(header, case["retry_after_member"].as_f64(), now).unwrap_or_default();
        let wait = wait(said, attempt, case["random"].as_f64().unwrap());
        json!(u64::try_from(wait.as_millis()).unwrap())
    });
}

fn date(value: &Value) -> Option<Timestamp> {
    Timestamp::from_http_date(value.as_str()?)
}

#[test]
fn waits_that_began_in_another_process_are_read() {
    check_named("left", "expect_ms", |case| {
        let not_before = case["not_before"].as_i64().map(Timestamp::from_millis);
        let waits_for = Duration::from_millis(case["waits_for_ms"].as_u64().unwrap());
        let now = Timestamp::from_millis(case["now"].as_i64().unwrap());
        json!(u64::try_from(wait_left(not_before, waits_for, now).as_millis()).unwrap())
    });
}

#[test]
fn the_life_of_a_key_is_told_by_the_servers_clock() {
    check("expires", |case| {
        let header = |name: &str| case[name].as_str().map(|value| value.parse().unwrap());
        let named = [("idempotency-expires", "expires_header"), ("date", "date_header")];
        let lines = named.into_iter().filter_map(|(name, member)| {
            Some((http::HeaderName::from_static(name), header(member)?))
        });
        let (status, body) = (http::StatusCode::CREATED, bytes::Bytes::new());
        let reply =
            Reply { status, headers: lines.collect(), body, is_cut: false, is_hidden: false };
        json!(reply.key_expires_at(date(&case["now"]).unwrap()).map(|at| at.to_string()))
    });
}

#[test]
fn answers_show_a_status_resource() {
    check("shows", |case| json!(answer(&case["answer"]).is_ok_and(|reply| reply.shows_status())));
}

#[test]
fn lives_end() {
    const LIMITS: Limits =
        Limits { give_up_after: Duration::from_hours(1), retention: Duration::from_hours(24) };
    let time = |value: &Value| value.as_i64().map(Timestamp::from_millis);
    check("life", |case| {
        let lived = Life {
            first_attempt_at: time(&case["first_attempt_at"]),
            resumed_at: time(&case["resumed_at"]),
            latest_at: time(&case["latest_at"]),
            expires_at: time(&case["expires_at"]),
            doubt: flag(&case["doubt"]),
        };
        match life(&lived, &LIMITS, time(&case["now"]).unwrap()) {
            None => json!({"may_send": true}),
            Some(Over { end, safe_new_key, .. }) => {
                json!({"may_send": false, "end": end.as_str(), "safe_new_key": safe_new_key})
            }
        }
    });
}

#[test]
fn keys_are_derived() {
    check("key", |case| {
        let hex = case["secret_hex"].as_str().unwrap().as_bytes();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let secret = Secret::new(hex.chunks(2).map(byte).collect::<Vec<u8>>()).unwrap();
        json!(secret.derive(case["intent"].as_str().unwrap()).as_str())
    });
}

#[test]
fn a_request_may_take_until_the_last_minute_of_its_key() {
    let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
    let limits =
        Limits { give_up_after: Duration::from_hours(1), retention: Duration::from_hours(24) };
    let open = Life {
        first_attempt_at: None,
        resumed_at: None,
        latest_at: None,
        expires_at: None,
        doubt: false,
    };
    let left = |life: &Life, now| key_time(life, &limits, at(now)).as_secs();
    assert_eq!(left(&open, 5), 86_340);
    let begun = Life { first_attempt_at: Some(at(0)), doubt: true, ..open };
    assert_eq!(left(&begun, 86_000), 340);
    let told = Life { expires_at: Some(at(100)), ..begun };
    assert_eq!([0, 39, 40, 99].map(|now| left(&told, now)), [40, 1, 0, 0]);
    // A clock that was set back a little gives no time.
    let later = Life { latest_at: Some(at(30)), ..told };
    assert_eq!(left(&later, 20), 10);
    let over = life(&told, &limits, at(40)).unwrap();
    assert_eq!((over.end, over.cause), (EndKind::Expired, Cause::KeyLife));
    let back = life(&Life { latest_at: Some(at(61)), ..told }, &limits, at(0)).unwrap();
    assert_eq!((back.end, back.cause), (EndKind::Unknown, Cause::ClockSetBack));
}

/// As `check`, for a file whose expectation has another name.
fn check_named(file: &str, name: &str, shown: impl Fn(&Value) -> Value) {
    let mut wrong = Vec::new();
    for case in super::cases(file) {
        let told = shown(&case);
        if told != case[name] {
            wrong.push(format!("{}: expected {}, got {told}", case["name"], case[name]));
        }
    }
    assert!(wrong.is_empty(), "rows of {file}.json are wrong:\n{}", wrong.join("\n"));
}
