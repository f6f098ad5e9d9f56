//! Hooks of the application that panic: the call that runs them does, and no intent is lost.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use firstwrite_client::{
    BoxError, BoxFuture, Client, Done, EndKind, QueueHooks, Snapshot, StatusUse, Step,
};
use futures_util::FutureExt as _;

use crate::queue::enqueue;
use crate::world::{Act, World, answer, open, problem, seconds};

/// Opens, sends and acknowledges an intent; returns how it ended.
async fn pay(client: &Client) -> EndKind {
    let pay = open(client, "cart").await;
    let end = pay.send_for(seconds(999)).await.unwrap();
    pay.acknowledge().await.unwrap();
    end.kind()
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_events_that_panics_at_any_step_loses_no_intent() {
    for (step, in_other_process) in Step::ALL.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        // The first answer is recorded, and ends nothing.
        let replays = (0..9).map(|_| answer(201, &[("idempotent-replayed", "true")]));
        let world = World::new([problem(503, "overloaded", true)].into_iter().chain(replays));
        let armed = AtomicBool::new(true);
        let client = world.builder().status(StatusUse::Never).on_event(move |event| {
            let is_first = event.step == step && armed.swap(false, Ordering::Relaxed);
            assert!(!is_first, "the application's own mistake");
        });
        let client = client.build();
        assert!(AssertUnwindSafe(pay(&client)).catch_unwind().await.is_err(), "{step:?}");
        let client = if in_other_process { world.client() } else { client };
        let stands = client.find("cart").await.unwrap();
        if step == Step::Acknowledged {
            assert!(stands.is_none(), "it was acknowledged before that was told");
            continue;
        }
        let key = format!("\"{}\"", stands.unwrap().key().as_str());
        assert_eq!(pay(&client).await, EndKind::Done, "{step:?}");
        let seen = world.server.seen();
        assert!(!seen.is_empty() && seen.iter().all(|seen| seen.key() == key), "{step:?}");
    }
}

/// A hook of the queue that panics once.
struct Panics(AtomicBool);

impl QueueHooks for Panics {
    fn confirm<'a>(&'a self, _: &'a Snapshot, _: &'a Done) -> BoxFuture<'a, Result<(), BoxError>> {
        assert!(!self.0.swap(false, Ordering::Relaxed), "the application's own mistake");
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_the_queue_that_panics_loses_no_intent() {
    let world = World::new([Act::Lost, answer(201, &[]), answer(201, &[])]);
    let client = world.client();
    let queue = client.queue(Panics(AtomicBool::new(true))).acknowledge_settled();
    for name in ["a", "b"] {
        enqueue(&client, &queue, "lane", name).await;
    }
    assert!(AssertUnwindSafe(queue.run_once()).catch_unwind().await.is_err());
    assert_eq!(client.list().await.unwrap().len(), 2, "an end is kept until its hook has run");
    assert_eq!(queue.run_once().await.unwrap(), Vec::<String>::new());
    assert!(client.list().await.unwrap().is_empty());
    assert_eq!(world.server.seen().len(), 3);
}
