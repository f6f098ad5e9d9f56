//! The status resource: asked where the server is known to have one.

use std::time::Duration;

use firstwrite_client::{EndKind, StatusUse};
use serde_json::{Value, json};

use crate::world::{Act, World, always, answer, open, problem, seconds, with_body};

fn requests(world: &World) -> Vec<String> {
    let shown =
        |method: &str, path: &str| format!("{method} {}", path.replace("https://api.example", ""));
    world.server.seen().iter().map(|seen| shown(&seen.method, &seen.path)).collect()
}

fn state(state: &str) -> Act {
    with_body(200, &[("retry-after", "2")], &json!({"state": state, "retry_after": 2}))
}

#[tokio::test(start_paused = true)]
async fn an_interim_answer_is_waited_for_at_the_status_resource() {
    let interim =
        [("idempotency-interim", "true"), ("idempotency-expires", "Thu, 19 Nov 2026 12:00:00 GMT")];
    let replay = [("idempotent-replayed", "true")];
    let world = World::new([
        answer(202, &interim),
        state("interim"),
        state("completed"),
        answer(201, &replay),
    ]);
    let pay = world.open("cart").await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
    let key = pay.key().as_str();
    let status = |hold: u64| format!("GET /.firstwrite/operations/{key}?wait={hold}s");
    let asked = requests(&world);
    assert_eq!(asked[0], "POST /payments");
    assert_eq!(asked[1..3], [status(20), status(20)]);
    assert_eq!(asked[3], "POST /payments");
    let times = world.server.times();
    assert!(times[2] - times[1] >= 2000, "{times:?}");
    let (first, last) = (&world.server.seen()[0], &world.server.seen()[3]);
    assert_eq!(first.key(), last.key());
    assert!(!world.server.seen()[1].headers.contains_key("idempotency-key"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_showed_one_is_not_asked() {
    let world = World::new([Act::Lost, answer(502, &[]), answer(201, &[])]);
    assert_eq!(world.open("cart").await.send().await.unwrap().kind(), EndKind::Done);
    assert_eq!(requests(&world), ["POST /payments"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_server_of_ours_is_asked_after_a_lost_answer_unless_the_setting_says_never() {
    for (status, expected) in [(StatusUse::Auto, "GET"), (StatusUse::Never, "POST")] {
        let acts =
            [problem(503, "overloaded", true), Act::Lost, state("released"), answer(201, &[])];
        let world = World::new(acts.into_iter().chain([answer(201, &[])]));
        let client = world.builder().status(status).build();
        // `released` has no meaning as an answer to a POST: it is 200, so the intent is done.
        assert_eq!(open(&client, "cart").await.send().await.unwrap().kind(), EndKind::Done);
        assert_eq!(world.server.seen()[2].method, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_finds_the_intent_in_doubt_asks_a_server_that_showed_the_resource() {
    // In an answer to the intent itself, and in one to another intent of the same process.
    for showed_other in [false, true] {
        let shows = problem(503, "overloaded", true);
        let acts = [shows, Act::Lost, state("completed"), answer(201, &[])];
        let world = World::new(acts);
        let client = world.client();
        let moment = Duration::from_nanos(1);
        if showed_other {
            open(&client, "other").await.send_for(moment).await.unwrap_err();
        } else {
            open(&client, "cart").await.send_for(moment).await.unwrap_err();
            world.clock.pass(seconds(60)).await;
        }
        open(&client, "cart").await.send_for(moment).await.unwrap_err();
        assert_eq!(requests(&world), ["POST /payments"; 2]);
        assert_eq!(world.open("cart").await.send().await.unwrap().kind(), EndKind::Done);
        let methods: Vec<_> = world.server.seen().into_iter().map(|seen| seen.method).collect();
        assert_eq!(methods, ["POST", "POST", "GET", "POST"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_was_denied_is_not_asked_for_after_a_restart_either() {
    let acts = [
        problem(503, "overloaded", true),
        Act::Lost,
        answer(404, &[]),
        Act::Lost,
        problem(503, "overloaded", true),
        answer(201, &[]),
    ];
    let world = World::new(acts);
    let pay = world.open("cart").await;
    // What the server says of keys later does not bring the resource back.
    while world.server.seen().len() < 5 {
        pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
        world.clock.pass(seconds(60)).await;
    }
    assert_eq!(world.open("cart").await.send().await.unwrap().kind(), EndKind::Done);
    let methods: Vec<_> = world.server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["POST", "POST", "GET", "POST", "POST", "POST"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_one_is_asked_once() {
    let acts = [Act::Lost, answer(404, &[]), Act::Lost, answer(201, &[])];
    let world = World::new(acts);
    let client = world.builder().status(StatusUse::Always).build();
    assert_eq!(open(&client, "cart").await.send().await.unwrap().kind(), EndKind::Done);
    let methods: Vec<_> = world.server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["POST", "GET", "POST", "POST"]);
}

#[tokio::test(start_paused = true)]
async fn whatever_the_resource_says_the_request_has_the_last_word() {
    let strange =
        || [answer(500, &[]), Act::Lost, answer(200, &[]), problem(404, "key-unknown", false)];
    for told in strange() {
        let world = World::new([Act::Lost, told, answer(422, &[("idempotent-replayed", "true")])]);
        let client = world.builder().status(StatusUse::Always).build();
        let end = open(&client, "cart").await.send().await.unwrap();
        assert_eq!(end.kind(), EndKind::Refused);
    }
}

#[tokio::test(start_paused = true)]
async fn asking_ends_with_the_callers_time_and_with_the_life_of_the_intent() {
    let world = World::new([Act::Lost].into_iter().chain((0..2000).map(|_| state("reserved"))));
    let client = world.builder().status(StatusUse::Always).build();
    let pay = open(&client, "cart").await;
    let started = tokio::time::Instant::now();
    assert!(pay.send().await.unwrap_err().pending().is_some());
    assert_eq!(started.elapsed(), seconds(30));
    let asks = world.server.seen().len() - 1;
    assert!((4..15).contains(&asks), "{asks}");
    let end = pay.send_for(Duration::from_hours(2)).await.unwrap();
    assert_eq!(end.kind(), EndKind::Unknown);
    assert_eq!(world.server.seen().iter().filter(|seen| seen.method == "POST").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_wait_between_questions_grows_with_their_number() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/ask.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = document["cases"].as_array().unwrap();
    let cases: Vec<_> = cases.iter().filter(|case| case.get("asked").is_some()).collect();
    assert!(!cases.is_empty());
    for case in cases {
        let headers = case["answer"]["headers"].as_object().unwrap();
        let told = || {
            let headers = [("retry-after", headers["retry-after"].as_str().unwrap())];
            with_body(200, &headers, &case["answer"]["json"])
        };
        let asked = usize::try_from(case["asked"].as_u64().unwrap()).unwrap();
        let questions = (0..asked).map(|_| told()).chain([state("completed")]);
        let world = World::new([Act::Lost].into_iter().chain(questions).chain([answer(201, &[])]));
        let client = world.builder().status(StatusUse::Always);
        let client = client.randomness(always(case["random"].as_f64().unwrap())).build();
        let end = open(&client, "cart").await.send_for(Duration::from_hours(1)).await.unwrap();
        assert_eq!(end.kind(), EndKind::Done);
        let times = world.server.times();
        let waited = u64::try_from(times[asked + 1] - times[asked]).unwrap();
        assert_eq!(json!(waited), case["expect_ms"], "{}", case["name"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_resource_is_asked_to_hold_for_less_than_the_question_may_take() {
    for (timeout, wait_for, query) in [
        (60, 999, "?wait=20s"),
        (12, 999, "?wait=10s"),
        (60, 10, "?wait=7s"),
        (2, 999, ""),
        (1, 999, ""),
    ] {
        let world = World::new([Act::Lost, state("completed"), answer(201, &[])]);
        let builder = world.builder().status(StatusUse::Always).attempt_timeout(seconds(timeout));
        let client = builder.randomness(always(0.0)).build();
        let pay = open(&client, "cart").await;
        assert_eq!(pay.send_for(seconds(wait_for)).await.unwrap().kind(), EndKind::Done);
        let expected = format!("GET /.firstwrite/operations/{}{query}", pay.key().as_str());
        assert_eq!(requests(&world)[1], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_key_stays_uncertain_ends_nothing() {
    let uncertain = [("idempotency-outcome", "unknown"), ("retry-after", "1")];
    let world = World::new([
        answer(422, &uncertain),
        state("uncertain"),
        state("released"),
        answer(201, &[]),
    ]);
    assert_eq!(world.open("cart").await.send().await.unwrap().kind(), EndKind::Done);
    let methods: Vec<_> = world.server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(
        methods,
        ["POST", "GET", "GET", "POST"],
        "the header shows that the server has the resource"
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_resource_names_holds_for_the_next_call_and_the_next_process() {
    let reserved = || with_body(200, &[("retry-after", "60")], &json!({"state": "reserved"}));
    for restarts in [false, true] {
        let acts = [Act::Lost, reserved(), state("completed"), answer(201, &[])];
        let world = World::new(acts);
        let pay = open(&world.builder().status(StatusUse::Always).build(), "cart").await;
        let error = pay.send_for(seconds(5)).await.unwrap_err();
        let left = error.pending().unwrap().wait_left;
        assert!((seconds(55)..seconds(61)).contains(&left), "{left:?}");
        let next = world.builder().status(StatusUse::Always).build();
        let next = if restarts { open(&next, "cart").await } else { pay };
        assert_eq!(next.send_for(seconds(999)).await.unwrap().kind(), EndKind::Done);
        let (times, seen) = (world.server.times(), world.server.seen());
        assert_eq!(seen[2].method, "GET");
        assert!(times[2] - times[1] >= 60_000, "{restarts}: {times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_the_times_that_two_processes_were_told_the_later_stands() {
    // While one asks and is told two seconds, the other is told ten minutes.
    let acts = [
        Act::Lost,
        Act::After(seconds(5), Box::new(state("reserved"))),
        answer(503, &[("retry-after", "600")]),
    ];
    let world = World::new(acts);
    let one = open(&world.builder().status(StatusUse::Always).build(), "cart").await;
    let other = open(&world.builder().status(StatusUse::Never).build(), "cart").await;
    let asks = world.builder().status(StatusUse::Always).build();
    let (one, other) = tokio::join!(one.send_for(seconds(9)), async {
        tokio::time::sleep_until(tokio::time::Instant::now() + seconds(2)).await;
        other.send_for(seconds(2)).await
    });
    assert!(one.is_err() && other.is_err());
    let left = open(&asks, "cart").await.snapshot().await.unwrap().wait_left;
    assert!(left > seconds(580), "{left:?}");
}
