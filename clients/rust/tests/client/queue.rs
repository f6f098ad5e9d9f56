//! The queue: order in a lane, independence between them, hooks that a crash repeats.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_client::{
    BoxError, BoxFuture, Client, Done, EndKind, Error, Queue, QueueHooks, Refused, Snapshot,
};
use serde_json::json;

use crate::world::{Act, URL, World, answer, open, seconds};

/// Writes down what it was told, and fails when it is told to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    lines: Arc<Mutex<Vec<String>>>,
    fails_at: Arc<Mutex<Option<String>>>,
}

impl Notes {
    fn note(&self, what: &str, name: &str) -> Result<(), BoxError> {
        let line = format!("{what} {name}");
        let fails = self.fails_at.lock().unwrap().take_if(|fails_at| *fails_at == line).is_some();
        self.lines.lock().unwrap().push(line);
        if fails { Err("the application is down".into()) } else { Ok(()) }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }

    pub(crate) fn fail_at(&self, line: &str) {
        *self.fails_at.lock().unwrap() = Some(line.to_owned());
    }
}

impl QueueHooks for Notes {
    fn apply<'a>(&'a self, intent: &'a Snapshot) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { self.note("apply", &intent.name) })
    }

    fn confirm<'a>(
        &'a self,
        intent: &'a Snapshot,
        _: &'a Done,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { self.note("confirm", &intent.name) })
    }

    fn rollback<'a>(
        &'a self,
        intent: &'a Snapshot,
        _: &'a Refused,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { self.note("rollback", &intent.name) })
    }

    fn failed(&self, lane: &str, error: &Error) {
        self.note("failed", &format!("{lane}: {error}")).unwrap();
    }
}

/// A process with a queue.
pub(crate) fn process(world: &World) -> (Client, Queue, Notes) {
    let (client, notes) = (world.client(), Notes::default());
    let queue = client.queue(notes.clone());
    (client, queue, notes)
}

pub(crate) async fn enqueue(client: &Client, queue: &Queue, lane: &str, name: &str) {
    let draft = client.intent(name).post_json(URL, &json!({"name": name}));
    queue.enqueue(lane, draft).await.unwrap();
}

/// The names in the bodies, in the order in which they were sent.
pub(crate) fn sent(world: &World) -> Vec<String> {
    let name = |body: &[u8]| {
        serde_json::from_slice::<serde_json::Value>(body).unwrap()["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    world.server.seen().iter().map(|seen| name(&seen.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_sent_in_order_and_goes_on_after_a_refusal() {
    let world = World::new([answer(201, &[]), answer(422, &[]), Act::Lost, answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    for name in ["z", "y", "x"] {
        enqueue(&client, &queue, "lane", name).await;
    }
    assert_eq!(notes.take(), ["apply z", "apply y", "apply x"]);
    assert_eq!(queue.run_once().await.unwrap(), Vec::<String>::new());
    assert_eq!(sent(&world), ["z", "y", "x", "x"]);
    assert_eq!(notes.take(), ["confirm z", "rollback y", "confirm x"]);
    // They stand until the application acknowledges them, and nothing is done twice.
    queue.run_once().await.unwrap();
    assert_eq!(notes.take(), Vec::<String>::new());
    let list = queue.list().await.unwrap();
    let names: Vec<_> = list.iter().map(|entry| entry.as_ref().unwrap().name.as_str()).collect();
    assert_eq!(names, ["z", "y", "x"]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_stops_at_an_unknown_end_until_it_is_resumed_or_acknowledged() {
    let acts =
        [answer(301, &[]), answer(201, &[]), answer(201, &[]), answer(301, &[]), answer(201, &[])];
    let world = World::new(acts);
    let (client, queue, notes) = process(&world);
    for name in ["a", "b"] {
        enqueue(&client, &queue, "a-stops", name).await;
    }
    enqueue(&client, &queue, "b-runs", "c").await;
    notes.take();
    let stopped = queue.run_once().await.unwrap();
    assert_eq!(stopped, ["a-stops"]);
    assert_eq!(notes.take(), ["confirm c"], "an unknown end is neither confirmed nor taken back");

    let first = client.find("a").await.unwrap().unwrap();
    assert!(first.resume().await.unwrap_err().pending().is_some());
    assert_eq!(queue.run_once().await.unwrap(), ["a-stops"]);
    assert_eq!(notes.take(), ["confirm a"]);
    client.find("b").await.unwrap().unwrap().acknowledge().await.unwrap();
    enqueue(&client, &queue, "a-stops", "d").await;
    assert!(queue.run_once().await.unwrap().is_empty());
    assert_eq!(notes.take(), ["apply d", "confirm d"]);
    assert_eq!(sent(&world), ["a", "c", "a", "b", "d"]);
}

#[tokio::test(start_paused = true)]
async fn the_order_survives_a_restart_and_a_clock_that_went_back() {
    let world = World::new((0..4).map(|_| answer(201, &[])));
    let (client, queue, _) = process(&world);
    for name in ["d", "c"] {
        enqueue(&client, &queue, "lane", name).await;
    }
    drop((client, queue));
    world.clock.step(-100);
    let (client, queue, notes) = process(&world);
    for name in ["b", "a"] {
        enqueue(&client, &queue, "lane", name).await;
    }
    queue.acknowledge_settled().run_once().await.unwrap();
    assert_eq!(sent(&world), ["d", "c", "b", "a"]);
    assert_eq!(notes.take().len(), 6);
    assert!(client.list().await.unwrap().is_empty(), "each is acknowledged");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_is_called_again_and_nothing_is_sent_before_apply() {
    let world = World::new([answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    notes.fail_at("apply a");
    let draft = client.intent("a").post_json(URL, &json!({"name": "a"}));
    let error = queue.enqueue("lane", draft).await.unwrap_err();
    assert_eq!(error.to_string(), "the hook `apply` failed for \"a\": the application is down");
    assert!(world.server.seen().is_empty());
    // The process dies here. The next one applies it before it is sent.
    let (_, queue, notes) = process(&world);
    notes.fail_at("confirm a");
    let error = queue.run_once().await.unwrap_err();
    assert!(matches!(error, Error::Hook { hook: "confirm", .. }), "{error}");
    assert_eq!(notes.take(), ["apply a", "confirm a"]);
    let (_, queue, notes) = process(&world);
    queue.run_once().await.unwrap();
    assert_eq!(notes.take(), ["confirm a"]);
    assert_eq!(world.server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lanes_run_side_by_side_and_take_what_comes_until_they_are_told_to_stop() {
    let slow = || Act::After(seconds(25), Box::new(answer(201, &[])));
    let world = World::new([slow(), answer(201, &[]), answer(201, &[]), answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    enqueue(&client, &queue, "a-slow", "a").await;
    let over = Mutex::new(None);
    let stop = async {
        tokio::time::sleep_until(tokio::time::Instant::now() + seconds(1)).await;
        enqueue(&client, &queue, "quick", "b").await;
        enqueue(&client, &queue, "quick", "c").await;
        tokio::time::sleep_until(tokio::time::Instant::now() + seconds(1)).await;
        *over.lock().unwrap() = Some(notes.take());
        // By another handle, as another process would: it is found by looking.
        let (client, other) = (world.client(), world.client().queue(()));
        enqueue(&client, &other, "late", "d").await;
        tokio::time::sleep_until(tokio::time::Instant::now() + seconds(120)).await;
    };
    queue.run(stop).await.unwrap();
    let early = over.lock().unwrap().take().unwrap();
    assert_eq!(early, ["apply a", "apply b", "apply c", "confirm b", "confirm c"]);
    let mut late = notes.take();
    late.sort();
    assert_eq!(late, ["confirm a", "confirm d"]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_fails_rests_and_is_tried_again_without_end() {
    let world = World::new([answer(201, &[])]);
    let (client, queue, notes) = process(&world);
    enqueue(&client, &queue, "lane", "a").await;
    notes.take();
    notes.fail_at("confirm a");
    let queue = queue.poll(seconds(7));
    let time = tokio::time::sleep_until(tokio::time::Instant::now() + seconds(20));
    queue.run(time).await.unwrap();
    let failed = "failed lane: the hook `confirm` failed for \"a\": the application is down";
    assert_eq!(notes.take(), ["confirm a", failed, "confirm a"]);
}

#[tokio::test(start_paused = true)]
async fn an_offline_queue_waits_as_long_as_it_takes() {
    let give_up_after = Duration::from_mins(1);
    for (first, kind) in [(answer(429, &[]), EndKind::Done), (Act::Lost, EndKind::Unknown)] {
        // Ten minutes offline at least; only in doubt does the time count.
        let offline = (0..60).map(|_| Act::NotSent);
        let world = World::new([first].into_iter().chain(offline).chain([answer(201, &[])]));
        let client = world.builder().give_up_after(give_up_after).build();
        let queue = client.queue(());
        enqueue(&client, &queue, "lane", "a").await;
        queue.run_once().await.unwrap();
        let end = client.find("a").await.unwrap().unwrap().send().await.unwrap();
        assert_eq!(end.kind(), kind);
        let is_long = *world.server.times().last().unwrap() > 5 * give_up_after.as_millis();
        assert_eq!(is_long, kind == EndKind::Done);
    }
    // Outside of the queue the time counts.
    let world = World::new((0..60).map(|_| Act::NotSent));
    let client = world.builder().give_up_after(give_up_after).build();
    let end = open(&client, "a").await.send_for(Duration::MAX).await.unwrap();
    assert_eq!(end.kind(), EndKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn a_queue_waits_longer_than_a_caller_would() {
    let acts = (0..20).map(|_| answer(503, &[("retry-after", "60")])).chain([answer(201, &[])]);
    let world = World::new(acts);
    let (client, queue, _) = process(&world);
    enqueue(&client, &queue, "lane", "a").await;
    queue.run_once().await.unwrap();
    let end = client.find("a").await.unwrap().unwrap().send_for(Duration::ZERO).await.unwrap();
    assert_eq!(end.kind(), EndKind::Done);
    // A plain intent beside the queue is not the queue's.
    open(&client, "plain").await;
    queue.run_once().await.unwrap();
    assert_eq!(world.server.seen().len(), 21);
}
