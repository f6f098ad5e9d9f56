//! Observers are told of every request once, and can refuse it before the store is touched.

use std::sync::{Arc, Mutex};

use firstwrite_core::{Rejection, RejectionKind};
use http::Request;
use http_body_util::Full;

use super::harness::{Door, World, answer, post, request};
use crate::{AdmitContext, Observer, RequestFinished, RequestResult};

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn admit(&self, asked: &AdmitContext<'_>) -> Result<(), Rejection> {
        match asked.tenant.as_str() {
            "globex" => Err(Rejection::new(RejectionKind::RateLimited)),
            _ => Ok(()),
        }
    }

    fn answered(&self, answered: &RequestFinished<'_>) {
        let RequestFinished { tenant, was_admitted, how, status, .. } = answered;
        let tenant = tenant.map_or("nobody", |tenant| tenant.as_str());
        let status = status.map_or(0, |status| status.as_u16());
        let note = format!("{tenant} {was_admitted} {} {status}", how.as_str());
        self.0.lock().unwrap().push(note);
    }
}

fn observed(handler: Door) -> (World, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let observer = Arc::clone(&notes);
    let world = World::with(
        move |_run, _request| {
            let door = handler.clone();
            async move {
                door.pass().await;
                Ok(answer(201, "made"))
            }
        },
        move |layer| layer.observed_by(observer),
    );
    (world, notes)
}

impl Notes {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn every_end_is_told_once() {
    let door = Door::new();
    door.open();
    let (world, notes) = observed(door);
    for (request, note) in [
        (post("k", "{}"), "acme true ran 201"),
        (post("k", "{}"), "acme true replayed 201"),
        (post("k", "{\"a\":1}"), "acme true key-reused 422"),
        (post("", "{}"), "acme false key-invalid 400"),
        (request("globex", "k", "{}"), "globex false rate-limited 429"),
        (
            Request::post("/payments")
                .header("idempotency-key", "k")
                .body(Full::default())
                .unwrap(),
            "nobody false tenant-unknown 401",
        ),
    ] {
        world.send(request).await;
        assert_eq!(notes.taken(), [note]);
    }
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_hangs_up_is_told_of_too() {
    let door = Door::new();
    let (world, notes) = observed(door.clone());
    let waiting = world.send_aside(post("k", "{}"));
    door.entered().await;
    world.send(post("k", "{}")).await;
    assert_eq!(notes.taken(), ["acme true in-progress 409"]);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(notes.taken(), [format!("acme true {} 0", RequestResult::Abandoned.as_str())]);
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_does_not_touch_the_store() {
    let (world, _notes) = observed(Door::new());
    let answered = world.send(request("globex", "k", "{}")).await;
    assert_eq!(answered.status, 429);
    assert_eq!((world.runs(), world.store.calls()), (0, 0));
}
