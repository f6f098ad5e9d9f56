//! Atomic handlers of both kinds: what holds for the one holds for the other.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use firstwrite_core::{MemoryStore, OnConflict, Policy, StoreErrorKind, Tenant, Timestamp};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};

use self::app::{App, Counting, Kind, order, policy};
use crate::service::tests::watched::Watched;
use crate::{Atomic, ExtractorError, IdempotencyLayer, Transaction};

mod app;
mod held;
mod interim;

#[tokio::test(start_paused = true)]
async fn rows_messages_and_the_outcome_are_committed_once() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        assert_eq!(app.send("k", "book").await, "201 1 kept");
        assert_eq!(app.send("k", "book").await, "201 1 kept again");
        assert_eq!(app.send("k", "other").await, "422 key-reused");
        assert_eq!(app.effects(), (1, 1, 1));
        assert_eq!(app.counting.entered(), 1, "a retry does not reach the handler");
        assert_eq!(app.store.memory.messages()[0].derived_key(), "k:receipt");
        assert_eq!(app.store.memory.row("order-1").as_deref(), Some("k"));
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_new_key_may_be_made_what_stands_is_told_all_the_same() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        app.send("k", "book").await;
        let full = app.full_process();
        assert_eq!(full.send("k", "book").await, "201 1 kept again");
        assert_eq!(full.send("new", "book").await, "429 rate-limited");
        assert_eq!(app.effects(), (1, 1, 1), "{kind:?}");
        assert_eq!(app.send("new", "book").await, "201 2 kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_kept_and_what_it_wrote_is_not() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        assert_eq!(app.send("k", "refuse").await, "402 \"no money\" kept");
        assert_eq!(app.send("k", "refuse").await, "402 \"no money\" kept again");
        assert_eq!(app.effects(), (1, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_rolled_back_and_runs_again() {
    for (body, expected) in [
        ("break", "500 \"broken\""),
        ("fail", "409 out of stock"),
        ("panic", "500 "),
        ("early panic", "500 "),
    ] {
        for kind in Kind::ALL {
            let app = App::new(kind);
            for _ in 0..2 {
                let answer = app.send("k", body).await;
                assert!(answer.starts_with(expected), "{kind:?} {body}: {answer}");
                assert!(!answer.contains("kept"), "{kind:?} {body}: {answer}");
            }
            let (runs, rows, messages) = app.effects();
            assert_eq!((rows, messages), (0, 0), "{kind:?} {body}");
            assert_eq!(runs, if body == "early panic" { 0 } else { 2 }, "{kind:?} {body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_after_the_commit_does_not_lose_the_answer() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        assert_eq!(app.send("k", "late panic").await, "201 1 kept again");
        assert_eq!(app.send("k", "late panic").await, "201 1 kept again");
        assert_eq!(app.effects(), (1, 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_is_the_committed_one_whatever_the_handler_makes_of_it() {
    for body in ["late error", "late words"] {
        for kind in Kind::ALL {
            let app = App::new(kind);
            assert_eq!(app.send("k", body).await, "201 1 kept again", "{kind:?} {body}");
            assert_eq!(app.send("k", body).await, "201 1 kept again", "{kind:?} {body}");
            assert_eq!(app.counting.runs(), 1, "{kind:?} {body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_transaction_is_kept_too() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        assert_eq!(app.send("k", "invalid").await, "422 invalid order kept");
        assert_eq!(app.send("k", "invalid").await, "422 invalid order kept again");
        assert_eq!(app.send("k", "book").await, "422 key-reused");
        tokio::time::advance(Policy::RETENTION_DEFAULT).await;
        let answer = app.send("k", "invalid").await;
        assert_eq!(answer, "422 invalid order kept", "as new after retention");
        assert_eq!(app.effects(), (0, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn two_processes_at_once_commit_one_effect() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        let elsewhere = app.second_process();
        let mut answers = Vec::new();
        for app in [app.clone(), elsewhere].into_iter().cycle().take(200) {
            answers.push(tokio::spawn(async move { app.send("k", "book").await }));
        }
        for answer in answers {
            let answer = answer.await.unwrap();
            let expected = ["201 1 kept", "201 1 kept again", "409 in-progress"];
            assert!(expected.contains(&answer.as_str()), "{kind:?}: {answer}");
        }
        assert_eq!(app.effects(), (1, 1, 1), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn duplicates_wait_for_the_first_answer_where_the_policy_says_so() {
    let patient = policy().on_conflict(OnConflict::Wait(Duration::from_secs(5)));
    for kind in Kind::ALL {
        let app = App::with(kind, patient.clone(), order(kind));
        let ask = || {
            let app = app.clone();
            tokio::spawn(async move { app.send("k", "book").await })
        };
        let asked = [ask(), ask(), ask()];
        for (number, answer) in asked.into_iter().enumerate() {
            let answer = answer.await.unwrap();
            let expected = if number == 0 { "201 1 kept" } else { "201 1 kept again" };
            assert_eq!(answer, expected, "{kind:?}");
        }
        assert_eq!(app.effects(), (1, 1, 1), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_accepted_early_before_a_transaction_has_committed() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        let mut request = App::request("k", "book");
        request.headers_mut().insert("prefer", http::HeaderValue::from_static("respond-async"));
        let early = app.router.clone().oneshot(request).await.unwrap();
        assert_eq!(early.status(), StatusCode::CREATED, "it was carried out");
        assert!(!early.headers().contains_key("preference-applied"));
        let location = "/.firstwrite/operations/k";
        let ask = Request::get(format!("{location}?wait=20s")).body(Body::empty()).unwrap();
        let status = app.router.clone().oneshot(ask).await.unwrap();
        let body = status.into_body().collect().await.unwrap().to_bytes();
        let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(document["state"], "completed");
        assert_eq!(document["operation"], "POST /orders");
        assert_eq!(document["outcome"]["body"], "1");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_the_store_or_when_it_has_lost_history() {
    for (kind, method) in [(Kind::Closure, "get"), (Kind::Held, "begin")] {
        let app = App::new(kind);
        app.store.fail(method);
        assert_eq!(app.send("k", "book").await, "503 store-unavailable", "{kind:?}");
        app.store.fail_as(method, StoreErrorKind::HistoryLost);
        assert_eq!(app.send("k", "book").await, "409 outcome-unknown", "{kind:?}");
        assert_eq!((app.counting.entered(), app.effects()), (0, (0, 0, 0)), "{kind:?}");
        app.store.recover();
        assert_eq!(app.send("k", "book").await, "201 1 kept", "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_refused_leaves_nothing_and_says_so() {
    for (kind, method) in [(Kind::Closure, "transact"), (Kind::Held, "conclude")] {
        let app = App::new(kind);
        app.store.fail(method);
        assert_eq!(app.send("k", "book").await, "503 store-unavailable", "{kind:?}");
        app.store.fail_as(method, StoreErrorKind::HistoryLost);
        assert_eq!(app.send("k", "book").await, "409 outcome-unknown", "{kind:?}");
        app.store.recover();
        let (_, rows, messages) = app.effects();
        assert_eq!((rows, messages), (0, 0), "{kind:?}");
        assert!(app.send("k", "book").await.starts_with("201 "), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_put_together_wrongly_says_so_without_running() {
    let store = Watched::over(MemoryStore::new(|| Timestamp::EPOCH));
    let check = async |kind: Kind, layer: Option<IdempotencyLayer>| {
        let runs = Arc::new(AtomicUsize::new(0));
        let router = Router::new().route("/orders", order(kind));
        let router = match layer {
            Some(layer) => router.layer(layer.single_tenant(Tenant::new("acme").unwrap())),
            None => router,
        };
        let router = router.with_state(Counting { runs: Arc::clone(&runs), ..Counting::default() });
        let response = router.oneshot(App::request("k", "book")).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    };
    for (kind, other) in [(Kind::Closure, Kind::Held), (Kind::Held, Kind::Closure)] {
        check(kind, None).await;
        check(kind, Some(kind.layer(&store))).await;
        check(kind, Some(other.layer(&store).policy(policy()).unwrap())).await;
        // A policy made up as requests come cannot be checked when the layer is built.
        let plain = IdempotencyLayer::new(Arc::new(store.clone()));
        let made_up = plain.policies(|_: &http::request::Parts| {
            Some(crate::Operation { name: "POST /orders".into(), policy: Arc::new(policy()) })
        });
        check(kind, Some(made_up.unwrap())).await;
    }
    assert_ne!(ExtractorError::NotAtomic.to_string(), ExtractorError::NoAttempt.to_string());
}

#[test]
fn a_layer_refuses_policies_it_cannot_carry_out() {
    use crate::PolicyMismatch;
    let plain = IdempotencyLayer::new(Arc::new(crate::memory_store()));
    assert_eq!(plain.check(&Policy::default()), Ok(()));
    assert_eq!(plain.check(&policy()), Err(PolicyMismatch::NoTransactions));
    let hasty = Policy::default().lease(Duration::from_millis(1));
    assert!(matches!(plain.check(&hasty), Err(PolicyMismatch::Contradictory(_))));
    let keyless = policy().key(firstwrite_core::KeyRequirement::Optional);
    for kind in Kind::ALL {
        let layer = kind.layer(&Watched::over(crate::memory_store()));
        assert_eq!(layer.check(&policy()), Ok(()));
        assert_eq!(layer.check(&keyless), Err(PolicyMismatch::KeylessAtomic));
    }
}

#[test]
fn a_layer_without_transactions_is_not_built_with_an_atomic_policy() {
    let refused = IdempotencyLayer::new(Arc::new(crate::memory_store())).policy(policy());
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "atomic mode needs a layer built by IdempotencyLayer::atomic");
}

#[tokio::test(start_paused = true)]
async fn whatever_axum_can_send_is_committed_as_it_would_be_sent() {
    let sent = post(async |mut tx: Transaction<Watched>, body: String| {
        tx.put("row", "sent");
        if body == "stream" {
            let never = futures_util::stream::pending::<Result<Bytes, Infallible>>();
            return tx.commit(Body::from_stream(never)).await;
        }
        tx.commit((StatusCode::CREATED, [("location", "/orders/1")], Json("made"))).await
    });
    let app = App::with(Kind::Held, policy(), sent);
    assert_eq!(app.send("k", "book").await, "201 \"made\" kept");
    let replay = app.router.clone().oneshot(App::request("k", "book")).await.unwrap();
    assert_eq!(replay.headers()["location"], "/orders/1");
    assert_eq!(replay.headers()["content-type"], "application/json");
    assert_eq!(app.store.memory.row_count(), 1);
    assert_eq!(app.send("other", "stream").await, "500 ", "a stream cannot be committed");
}

#[tokio::test]
async fn the_wrong_extractor_is_told_which_one_to_take() {
    let layer = Kind::Held.layer(&Watched::over(crate::memory_store())).policy(policy()).unwrap();
    let (told, mut texts) = tokio::sync::mpsc::unbounded_channel();
    let service = layer.layer(service_fn(move |request: Request<Full<Bytes>>| {
        let problem = Atomic::<MemoryStore>::from_extensions(request.extensions()).unwrap_err();
        told.send(problem.to_string()).unwrap();
        async move { Ok::<_, Infallible>(problem.response()) }
    }));
    let request = App::request("k", "book").map(|_body| Full::from("book"));
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let text = texts.recv().await.unwrap();
    assert!(text.contains("the handler takes firstwrite::Atomic<"), "{text}");
    assert!(text.contains("take firstwrite::Transaction<"), "{text}");
}
