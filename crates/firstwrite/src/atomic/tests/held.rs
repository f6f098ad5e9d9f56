//! Transactions that the handler holds: when they begin, and how they end when the handler does not end them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response as AxumResponse};
use axum::routing::post;
use http::StatusCode;
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;

use super::app::{App, Counting, Kind, policy, said};
use crate::service::tests::watched::Watched;
use crate::{Transaction, json};

type Tx = Transaction<Watched>;

#[tokio::test(start_paused = true)]
async fn an_attempt_costs_two_calls_of_the_store_and_a_replay_one() {
    let app = App::new(Kind::Held);
    assert_eq!(app.send("k", "book").await, "201 1 kept");
    assert_eq!(app.store.calls(), 2, "begin and conclude");
    assert_eq!(app.send("k", "book").await, "201 1 kept again");
    assert_eq!(app.store.calls(), 3, "what stands is told without a transaction");
}

#[tokio::test(start_paused = true)]
async fn a_rival_of_another_process_is_told_at_once_and_never_reaches_the_handler() {
    let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let door = (Arc::clone(&entered), Arc::clone(&leave));
    let slow = post(async move |mut tx: Tx| {
        tx.put("row", "slow");
        door.0.add_permits(1);
        door.1.acquire().await.unwrap().forget();
        tx.commit(json(StatusCode::CREATED, &"slow")).await
    });
    let app = App::with(Kind::Held, policy(), slow);
    let elsewhere = app.second_process();
    let first = {
        let app = app.clone();
        tokio::spawn(async move { app.send("k", "book").await })
    };
    entered.acquire().await.unwrap().forget();
    assert_eq!(elsewhere.send("k", "book").await, "409 in-progress");
    assert_eq!(elsewhere.counting.entered(), 0);
    assert_eq!(elsewhere.send("other", "book").await, "201 1 kept", "other keys are free");
    leave.add_permits(1);
    assert_eq!(first.await.unwrap(), "201 \"slow\" kept");
    assert_eq!(elsewhere.send("k", "book").await, "201 \"slow\" kept again");
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_does_not_end_the_transaction() {
    let (entered, leave) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let door = (Arc::clone(&entered), Arc::clone(&leave));
    let slow = post(async move |mut tx: Tx| {
        tx.put("row", "slow");
        door.0.add_permits(1);
        door.1.acquire().await.unwrap().forget();
        tx.commit(json(StatusCode::CREATED, &"slow")).await
    });
    let app = App::with(Kind::Held, policy(), slow);
    let caller = {
        let app = app.clone();
        tokio::spawn(async move { app.send("k", "book").await })
    };
    entered.acquire().await.unwrap().forget();
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    leave.add_permits(1);
    while app.store.memory.row("row").is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(app.send("k", "book").await, "201 \"slow\" kept again");
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_and_let_go_is_undone_and_never_answered_as_done() {
    let forgetful = post(async |State(counting): State<Counting>, mut tx: Tx, body: String| {
        counting.runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        tx.put("row", "written and let go");
        let status: u16 = body.parse().unwrap();
        (StatusCode::from_u16(status).unwrap(), "let go").into_response()
    });
    let app = App::with(Kind::Held, policy(), forgetful);
    for (status, expected) in
        [("201", "500 "), ("303", "500 "), ("409", "409 let go"), ("503", "503 let go")]
    {
        for _ in 0..2 {
            let answer = app.send(status, status).await;
            assert!(answer.starts_with(expected), "{status}: {answer}");
            assert!(!answer.contains("kept"), "{status}: {answer}");
        }
    }
    assert_eq!(app.effects(), (8, 0, 0), "every retry runs, and nothing stays");
}

#[tokio::test(start_paused = true)]
async fn a_handler_without_the_transaction_has_its_answer_kept_and_the_transaction_ended() {
    let app = App::with(Kind::Held, policy(), post(async || "no need of one"));
    let elsewhere = app.second_process();
    assert_eq!(app.send("k", "book").await, "200 no need of one kept");
    assert_eq!(elsewhere.send("k", "book").await, "200 no need of one kept again");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_can_be_taken_out_once() {
    let twice = post(async |mut first: Tx, _second: Tx| {
        first.put("row", "never");
        first.commit(json(StatusCode::CREATED, &"never")).await
    });
    let app = App::with(Kind::Held, policy(), twice);
    assert!(app.send("k", "book").await.starts_with("500 "));
    assert_eq!(app.effects(), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_outlives_its_request_cannot_commit() {
    let (sender, mut leaked) = mpsc::unbounded_channel::<Tx>();
    let leaking = post(async move |tx: Tx| {
        sender.send(tx).unwrap();
        "answered before anything was done"
    });
    let app = App::with(Kind::Held, policy(), leaking);
    let answer = app.send("k", "book").await;
    assert!(answer.starts_with("500 "), "{answer}");
    let mut tx = leaked.recv().await.unwrap();
    tx.put("row", "too late");
    let late = tx.commit(json(StatusCode::CREATED, &"too late")).await;
    assert!(said(late.into_response()).await.starts_with("500 "));
    assert_eq!(app.effects(), (0, 0, 0));
    assert!(app.send("k", "book").await.starts_with("500 "), "the key is free, not kept");
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_acknowledgement_was_lost_is_found_out_about() {
    let app = App::new(Kind::Held);
    app.store.lose_acknowledgement("conclude");
    assert_eq!(app.send("k", "book").await, "201 1 kept");
    assert_eq!(app.send("k", "book").await, "201 1 kept again");
    assert_eq!(app.effects(), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_gives_up_on_its_commit_is_answered_with_what_was_committed() {
    let hasty = post(async |mut tx: Tx| -> AxumResponse {
        tx.put("row", "committed");
        let commit = tx.commit(json(StatusCode::CREATED, &"committed"));
        let Some(answer) = asked_once(commit) else { return "gave up".into_response() };
        answer.into_response()
    });
    let app = App::with(Kind::Held, policy(), hasty);
    let gate = Arc::new(Semaphore::new(1));
    *app.store.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let answer = {
        let app = app.clone();
        tokio::spawn(async move { app.router.oneshot(App::request("k", "book")).await.unwrap() })
    };
    while app.store.calls() < 2 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(100);
    // The commit never got through, so the answer that was given instead is the kept one.
    assert_eq!(said(answer.await.unwrap()).await, "200 gave up kept");
    assert_eq!(app.send("k", "book").await, "200 gave up kept again");
    assert_eq!(app.store.memory.row_count(), 0);
}

/// Polls a future once and returns its output, if ready.
fn asked_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(ready) => Some(ready),
        std::task::Poll::Pending => None,
    }
}
