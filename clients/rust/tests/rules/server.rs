//! The server's own refusals are decided as the vectors say, so that server and clients cannot drift apart.

use std::collections::BTreeMap;

use firstwrite_client::Dialect;
use firstwrite_client::rules::Situation;
use firstwrite_client::transport::Reply;
use firstwrite_core::{Rejection, RejectionKind};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::{NOW, cases, decision, flag};

/// Every refusal in every form in which the server sends it.
fn refusals() -> Vec<Rejection> {
    let mut refusals: Vec<Rejection> = RejectionKind::ALL.into_iter().map(Rejection::new).collect();
    refusals.push(Rejection::outcome_unknown_now());
    refusals.push(Rejection::lost_and_sent_again());
    for (is_late, is_repeatable) in [(false, false), (false, true), (true, false), (true, true)] {
        refusals.push(Rejection::answer_lost(is_late, is_repeatable));
    }
    for status in [StatusCode::CREATED, StatusCode::SEE_OTHER, StatusCode::UNPROCESSABLE_ENTITY] {
        refusals.push(Rejection::answer_not_kept(status));
    }
    refusals
}

/// The rows of the vectors that are about a code, with `retryable` and the half of statuses that `first_status` is in.
type Rows = BTreeMap<(String, bool, Option<bool>), Vec<Value>>;

fn rows() -> Rows {
    let mut rows = Rows::new();
    for case in cases("decide") {
        let problem = &case["answer"]["json"];
        let is_ours = case["dialect"] == "draft-07" && problem["retryable"].is_boolean();
        let headers = &case["answer"]["headers"];
        let is_replay = headers.get("idempotent-replayed").is_some();
        // Only one refusal says when its key expires.
        let is_kept = headers.get("idempotency-expires").is_some();
        // The server marks no refusal of its own so, and names no first status that is none.
        let is_marked = headers.get("idempotency-outcome").is_some();
        let first = &problem["first_status"];
        let is_odd = problem.get("first_status").is_some()
            && !first.as_u64().is_some_and(|status| (100..600).contains(&status));
        let is_refusal = is_ours
            && !is_replay
            && !is_marked
            && !is_odd
            && is_kept == (problem["code"] == "answer-not-kept");
        if let (Some(code), true) = (problem["code"].as_str(), is_refusal) {
            let first = problem["first_status"].as_u64().map(|status| status < 400);
            let at = (code.to_owned(), flag(&problem["retryable"]), first);
            rows.entry(at).or_default().push(case);
        }
    }
    rows
}

#[test]
fn every_refusal_of_the_server_is_decided_as_the_vectors_say() {
    let rows = rows();
    let mut wrong = Vec::new();
    for refusal in refusals() {
        let (mut head, body) = refusal.to_response().into_parts();
        if refusal.kind() == RejectionKind::AnswerNotKept {
            // As the layer stamps it: the key is kept, the answer is not.
            let expires = HeaderValue::from_static("Thu, 19 Nov 2026 20:00:00 GMT");
            head.headers.insert("idempotency-expires", expires);
        }
        let (status, headers) = (head.status, head.headers);
        let reply = Reply { status, headers, body, is_cut: false, is_hidden: false };
        let document: Value = serde_json::from_slice(&reply.body).unwrap();
        let code = document["code"].as_str().unwrap().to_owned();
        let first = document["first_status"].as_u64().map(|status| status < 400);
        let at = (code, flag(&document["retryable"]), first);
        let Some(cases) = rows.get(&at) else {
            // A bare `answer-not-kept` is never sent: its builder adds the first status.
            if refusal.kind() != RejectionKind::AnswerNotKept {
                wrong.push(format!("{at:?}: no vector decides it"));
            }
            continue;
        };
        for case in cases {
            let situation = Situation {
                dialect: Dialect::Draft07,
                doubt: flag(&case["doubt"]),
                refreshed: flag(&case["refreshed"]),
                now: NOW,
            };
            let mut told = decision(&situation, Ok(&reply));
            let mut expected = case["expect"].clone();
            // The server's own wait is its own matter; that it names one is not.
            if let (Some(told), Some(expected)) = (told.get_mut("wait"), expected.get_mut("wait")) {
                let has_to = flag(&document["retryable"]);
                assert!(!has_to || told.as_u64() > Some(0), "{at:?} names no time");
                (*told, *expected) = (json!(0), json!(0));
            }
            if told != expected {
                wrong.push(format!("{}: expected {expected}, got {told}", case["name"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_vectors_know_no_code_that_the_server_does_not() {
    let codes: Vec<&str> = RejectionKind::ALL.into_iter().map(RejectionKind::code).collect();
    let strange: Vec<_> = rows()
        .into_keys()
        .map(|(code, _, _)| code)
        // Those of a later version, by which the vectors ask what a client does with them.
        .filter(|code| !codes.contains(&code.as_str()) && code != "later" && code != "strange")
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
}
