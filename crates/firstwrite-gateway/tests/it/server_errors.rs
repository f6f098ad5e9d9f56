//! An API that does its work and then answers with an error: what the gateway makes of it.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::{OnConflict, OnLostAnswer, OnServerError, Policy, ProbeForm};
use firstwrite_gateway::{Calling, OperationExtras, Operations, Probe, ProbeSettings, Rules};

use crate::client::{Client, ask, post};
use crate::gateway::{rules, start};
use crate::upstream::{Script, Upstream, answer};

/// Each request that reaches the API is an effect.
fn effects(upstream: &Upstream) -> usize {
    upstream.seen().iter().filter(|request| request.start.starts_with("POST")).count()
}

fn protected(policy: Policy) -> Arc<Operations> {
    Arc::new(Operations::new(policy, OperationExtras::default()))
}

#[tokio::test]
async fn what_a_proxy_says_when_it_lost_an_answer_is_not_sent_again() {
    for (error, status) in
        [("502 Bad Gateway", 502), ("504 Gateway Timeout", 504), ("408 Request Timeout", 408)]
    {
        let upstream = Upstream::start().await;
        upstream.does(Script::Answer(answer(error, "", "from behind")));
        let gateway = start(rules(&[&upstream])).await;
        let first = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!((first.status(), first.text().as_str()), (status, "from behind"));
        let retry = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!((retry.status(), retry.code()), (409, "outcome-unknown".to_owned()), "{error}");
        assert_eq!(effects(&upstream), 1, "{error}");
    }
}

#[tokio::test]
async fn other_server_errors_are_released_unless_the_operation_says_lost() {
    for (error, status) in [("500 Internal Server Error", 500), ("503 Service Unavailable", 503)] {
        for (on_server_error, retry_status, count) in
            [(OnServerError::Release, 201, 2), (OnServerError::Lost, 409, 1)]
        {
            let upstream = Upstream::start().await;
            upstream.does(Script::Answer(answer(error, "", "")));
            let policy = Policy::default().on_server_error(on_server_error);
            let operations = protected(policy);
            let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
            assert_eq!(ask(gateway.address(), &post("k", "{}")).await.status(), status);
            upstream.does(Script::Answer(answer("201 Created", "", "made")));
            let retry = ask(gateway.address(), &post("k", "{}")).await;
            assert_eq!((retry.status(), effects(&upstream)), (retry_status, count), "{error}");
        }
    }
}

#[tokio::test]
async fn an_api_says_what_it_knows_and_its_client_does_not_see_it() {
    for (error, effect, retry_status) in [
        ("502 Bad Gateway", "none", 201),
        ("500 Internal Server Error", "happened", 409),
        ("429 Too Many Requests", "happened", 409),
        ("500 Internal Server Error", "perhaps", 409),
        ("500 Internal Server Error", "none\r\nfirstwrite-effect: happened", 409),
        ("500 Internal Server Error", "happened\r\nfirstwrite-effect: none", 409),
        ("502 Bad Gateway", "none\r\nfirstwrite-effect: none", 201),
    ] {
        let upstream = Upstream::start().await;
        let header = format!("firstwrite-effect: {effect}\r\n");
        upstream.does(Script::Answer(answer(error, &header, "")));
        let gateway = start(rules(&[&upstream])).await;
        let first = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!(first.header("firstwrite-effect"), None);
        upstream.does(Script::Answer(answer("201 Created", &header, "made")));
        let retry = ask(gateway.address(), &post("k", "{}")).await;
        assert_eq!(retry.status(), retry_status, "{error}, {effect}");
        assert_eq!(retry.header("firstwrite-effect"), None);
    }
}

/// The POST is answered with `error`, the probe with `found`.
async fn probed(error: &str, found: &str) -> (u16, u16, usize) {
    let (upstream, ledger) = (Upstream::start().await, Upstream::start().await);
    upstream.does(Script::Answer(answer(error, "", "")));
    ledger.does(Script::Answer(found.to_owned()));
    let settings = ProbeSettings {
        url: format!("{}/made/{{key}}", ledger.url()),
        headers: Vec::new(),
        status: Some(http::StatusCode::CREATED),
        form: ProbeForm {
            absent_statuses: vec![http::StatusCode::NOT_FOUND],
            ..ProbeForm::default()
        },
        grace: Duration::from_mins(2),
    };
    let probe = Some(Arc::new(Probe::new(settings, &Calling::default()).unwrap()));
    let extras = OperationExtras { probe, ..OperationExtras::default() };
    let operations = Arc::new(Operations::new(Policy::default(), extras));
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    let first = ask(gateway.address(), &post("k", "{}")).await.status();
    assert_eq!(ledger.seen().len(), 1, "it is asked before anything is released");
    upstream.does(Script::Answer(answer("200 OK", "", "again")));
    let retry = ask(gateway.address(), &post("k", "{}")).await.status();
    (first, retry, effects(&upstream))
}

#[tokio::test]
async fn a_probe_is_asked_after_every_server_error() {
    let yes = answer("200 OK", "", "made");
    let no = answer("404 Not Found", "", "");
    let silence = answer("503 Service Unavailable", "", "");
    for error in ["500 Internal Server Error", "503 Service Unavailable"] {
        assert_eq!(probed(error, &yes).await, (201, 201, 1), "{error}");
        let code = error[..3].parse().unwrap();
        assert_eq!(probed(error, &no).await, (code, 200, 2), "{error}");
        assert_eq!(probed(error, &silence).await, (code, 409, 1), "{error}");
    }
    for error in ["502 Bad Gateway", "504 Gateway Timeout", "408 Request Timeout"] {
        assert_eq!(probed(error, &yes).await, (201, 201, 1), "{error}");
        let code = error[..3].parse().unwrap();
        for said in [&no, &silence] {
            assert_eq!(probed(error, said).await, (code, 409, 1), "{error}: too early to tell");
        }
    }
}

/// What the answer says of its outcome, for an operation with this policy.
async fn told(policy: Policy, error: &str, headers: &str) -> (u16, Option<String>) {
    let upstream = Upstream::start().await;
    upstream.does(Script::Answer(answer(error, headers, "")));
    let operations = protected(policy);
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    let first = ask(gateway.address(), &post("k", "{}")).await;
    (first.status(), first.header("idempotency-outcome").map(str::to_owned))
}

#[tokio::test]
async fn an_answer_whose_effect_is_in_doubt_says_so_whatever_its_status() {
    let unknown = || Some("unknown".to_owned());
    let lost = || Policy::default().on_server_error(OnServerError::Lost);
    let resend = || Policy::default().on_lost_answer(OnLostAnswer::Resend);
    for error in ["500 Internal Server Error", "501 Not Implemented", "505 Nothing"] {
        let status = error[..3].parse().unwrap();
        assert_eq!(told(lost(), error, "").await, (status, unknown()));
        assert_eq!(told(Policy::default(), error, "").await, (status, None), "it is released");
        // An API that sends the header by itself is not believed.
        let forged = "idempotency-outcome: unknown\r\n";
        assert_eq!(told(Policy::default(), error, forged).await, (status, None));
        let nothing = "firstwrite-effect: none\r\n";
        assert_eq!(told(lost(), error, nothing).await, (status, None));
    }
    for error in ["502 Bad Gateway", "504 Gateway Timeout", "408 Request Timeout"] {
        let status = error[..3].parse().unwrap();
        assert_eq!(told(Policy::default(), error, "").await, (status, unknown()));
        assert_eq!(told(resend(), error, "").await, (status, unknown()));
    }
    for error in ["401 Unauthorized", "425 Too Early", "429 Too Many", "431 Too Large", "500 No"] {
        let status = error[..3].parse().unwrap();
        let happened = "firstwrite-effect: happened\r\n";
        assert_eq!(told(Policy::default(), error, happened).await, (status, unknown()), "{error}");
        assert_eq!(told(resend(), error, happened).await, (status, unknown()), "{error}");
    }
    for kept in ["201 Created", "404 Not Found"] {
        for header in ["", "firstwrite-effect: happened\r\n", "idempotency-outcome: unknown\r\n"] {
            assert_eq!(told(lost(), kept, header).await.1, None, "{kept} {header}");
        }
    }
}

#[tokio::test]
async fn who_waited_for_an_answer_in_doubt_is_told_the_same() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("502 Bad Gateway", "", "")));
    let policy = Policy::default()
        .on_lost_answer(OnLostAnswer::Resend)
        .on_conflict(OnConflict::Wait(Duration::from_secs(20)));
    let operations = protected(policy);
    let gateway = start(Rules { operations, ..rules(&[&upstream]) }).await;
    let mut first = Client::connect(gateway.address()).await;
    first.send(&post("k", "{}")).await;
    upstream.arrived().await;
    let mut second = Client::connect(gateway.address()).await;
    second.send(&post("k", "{}")).await;
    // Answered at once: the second, which was sent before, is in the gateway by now.
    let seen = ask(gateway.address(), &post("k", "{\"other\":1}")).await;
    assert_eq!(seen.status(), 422, "{seen:?}");
    upstream.release();
    for client in [&mut first, &mut second] {
        let answered = client.read().await.unwrap();
        let said = answered.header("idempotency-outcome");
        assert_eq!((answered.status(), said), (502, Some("unknown")), "{answered:?}");
    }
}
