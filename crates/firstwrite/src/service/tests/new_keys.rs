//! If no new key may be made, existing keys are answered as before and nothing new is run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{
    BoxError, OnLostAnswer, Policy, Rejection, RejectionKind, Store as _, Tenant,
};

use super::harness::{Door, Handled, World, advance, answer, post, request};
use crate::policies::Operation;
use crate::{Observer, RecordChange, RecordStep};

/// Lets new keys be made until it is told not to, and writes down what is stored.
#[derive(Default)]
struct Bouncer {
    is_full: AtomicBool,
    stored: Mutex<Vec<String>>,
}

impl Observer for Bouncer {
    fn may_make_key(&self, tenant: &Tenant) -> Result<(), Rejection> {
        if tenant.as_str() == "acme" && self.is_full.load(Ordering::SeqCst) {
            let wait = Duration::from_secs(42);
            return Err(Rejection::new(RejectionKind::RateLimited).retry_after(wait));
        }
        Ok(())
    }

    fn stored(&self, stored: &RecordChange<'_>) {
        let step = match stored.step {
            RecordStep::Made => "made".to_owned(),
            RecordStep::Kept(bytes) => format!("kept {bytes}"),
            RecordStep::Freed => "freed".to_owned(),
        };
        self.stored.lock().unwrap().push(format!("{} {step}", stored.tenant));
    }
}

impl Bouncer {
    fn fills(&self) {
        self.is_full.store(true, Ordering::SeqCst);
    }

    fn noted(&self) -> Vec<String> {
        std::mem::take(&mut *self.stored.lock().unwrap())
    }
}

fn world<H, F>(policy: Policy, handler: H) -> (World, Arc<Bouncer>)
where
    H: Fn(usize, http::Request<super::harness::RequestBody>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Handled> + Send + 'static,
{
    let (bouncer, policy) = (Arc::new(Bouncer::default()), Arc::new(policy));
    let observer = Arc::clone(&bouncer);
    let world = World::with(handler, move |layer| {
        let observed = layer.observed_by(observer).policies(move |_: &http::request::Parts| {
            Some(Operation { name: "POST /payments".into(), policy: Arc::clone(&policy) })
        });
        observed.unwrap()
    });
    (world, bouncer)
}

#[tokio::test(start_paused = true)]
async fn what_stands_answers_as_ever_and_nothing_new_is_run_or_written() {
    let door = Door::new();
    let inside = door.clone();
    let (world, bouncer) = world(Policy::default(), move |run, _request| {
        let door = inside.clone();
        async move {
            match run {
                1 => Ok(answer(201, "made")),
                2 => Err(BoxError::from("lost")),
                3 => {
                    door.pass().await;
                    Ok(answer(201, "slow"))
                }
                _ => Ok(answer(201, "another tenant's")),
            }
        }
    });
    assert_eq!(world.send(post("kept", "{}")).await.summary(), "201 made");
    assert_eq!(world.send(post("lost", "{}")).await.summary(), "504 outcome-unknown");
    let slow = world.send_aside(post("slow", "{}"));
    door.entered().await;
    bouncer.fills();
    for (request, summary) in [
        (post("kept", "{}"), "201 made"),
        (post("kept", "[]"), "422 key-reused"),
        (post("lost", "{}"), "409 outcome-unknown"),
        (post("slow", "{}"), "409 in-progress"),
        (post("new", "{}"), "429 rate-limited"),
        (request("globex", "new", "{}"), "201 another tenant's"),
    ] {
        assert_eq!(world.send(request).await.summary(), summary);
    }
    door.open();
    assert_eq!(slow.await.unwrap().summary(), "201 slow", "what is under way ends");
    assert_eq!(world.send(post("slow", "{}")).await.summary(), "201 slow");
    let refused = world.send(post("new", "{}")).await;
    assert_eq!(refused.header("retry-after"), Some("42"));
    let written = world.store.memory.get(super::harness::id("new")).await.unwrap();
    assert!(written.is_none(), "{written:?}");
    assert_eq!(world.runs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_key_past_its_retention_is_no_new_one() {
    let policy = Policy::default();
    let retention = policy.retention;
    let (world, bouncer) =
        world(policy, |run, _request| async move { Ok(answer(201, &run.to_string())) });
    world.send(post("k", "{}")).await;
    bouncer.fills();
    advance(retention).await;
    // Its record stands until it is reaped, and is taken over.
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 2");
    assert_eq!(bouncer.noted(), ["acme made", "acme kept 1", "acme kept 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_not_a_full_one() {
    let (world, bouncer) =
        world(Policy::default(), |_run, _request| async { Ok(answer(201, "made")) });
    bouncer.fills();
    world.store.fail("get");
    assert_eq!(world.send(post("k", "{}")).await.summary(), "503 store-unavailable");
    world.store.recover();
    assert_eq!(world.send(post("k", "{}")).await.summary(), "429 rate-limited");
    assert_eq!(world.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn duplicates_of_a_new_key_are_refused_together() {
    let (world, bouncer) =
        world(Policy::default(), |_run, _request| async { Ok(answer(201, "made")) });
    bouncer.fills();
    let asked: Vec<_> = (0..10).map(|_| world.send_aside(post("k", "{}"))).collect();
    for asked in asked {
        assert_eq!(asked.await.unwrap().summary(), "429 rate-limited");
    }
    assert_eq!(world.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_records_is_told() {
    let policy = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let (world, bouncer) = world(policy, |run, _request| async move {
        match run {
            1 => Ok(answer(201, "seven..")),
            2 => Ok(answer(503, "not now")),
            _ => Err(BoxError::from("lost")),
        }
    });
    for (key, told) in [
        ("a", &["acme made", "acme kept 7"][..]),
        ("a", &[]),
        ("b", &["acme made", "acme freed"]),
        ("c", &["acme made", "acme freed"]),
    ] {
        world.send(post(key, "{}")).await;
        assert_eq!(bouncer.noted(), told, "{key}");
    }
}
