//! The same key again: replay, mismatch, in progress, after retention, another tenant.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{AfterRetention, Policy};
use http::{HeaderValue, Method, Uri};
use tokio::sync::Semaphore;

use super::harness::{Door, World, advance, answer, post, request};

fn world() -> World {
    World::new(Policy::default(), |run, _| async move { Ok(answer(201, &format!("run {run}"))) })
}

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_first_answer_marked_as_a_replay() {
    let world = world();
    let first = world.send(post("k", "{}")).await;
    assert_eq!(first.summary(), "201 run 1");
    assert!(!first.is_replay());
    // A day after the store's time, 2023-11-14T22:13:20Z.
    assert_eq!(first.header("idempotency-expires"), Some("Wed, 15 Nov 2023 22:13:20 GMT"));
    advance(Duration::from_mins(1)).await;
    let again = world.send(post("k", "{}")).await;
    assert_eq!(again.summary(), "201 run 1");
    assert!(again.is_replay());
    assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_different_request_under_a_used_key_is_refused_and_does_not_run() {
    let world = world();
    world.send(post("k", "{}")).await;
    let other_body = post("k", "{\"amount\":2}");
    let mut other_path = post("k", "{}");
    *other_path.uri_mut() = Uri::from_static("/refunds");
    let mut other_query = post("k", "{}");
    *other_query.uri_mut() = Uri::from_static("/payments?dry_run=1");
    let mut other_method = post("k", "{}");
    *other_method.method_mut() = Method::PUT;
    let mut other_host = post("k", "{}");
    other_host.headers_mut().insert("host", HeaderValue::from_static("eu.example"));
    for different in [other_body, other_path, other_query, other_method] {
        let what = format!("{} {}", different.method(), different.uri());
        let refused = world.send(different).await;
        assert_eq!(refused.summary(), "422 key-reused", "{what}");
        // It may be the same action, changed between two retries.
        assert_eq!(refused.json()["safe_new_key"], false, "{what}");
    }
    // It may be the same service: under a new key the action would run twice there.
    let refused = world.send(other_host).await;
    assert_eq!(refused.summary(), "422 key-reused");
    let document = refused.json();
    assert_eq!(
        (&document["safe_new_key"], &document["differing"][0]),
        (&false.into(), &"authority".into())
    );
    assert!(document["detail"].as_str().unwrap().contains("`service_name`"), "{document}");
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn while_the_first_runs_a_duplicate_gets_409_and_a_different_request_422() {
    let door = Door::new();
    let inside = door.clone();
    let policy = Policy::default().retry_after(Duration::from_secs(7));
    let world = World::new(policy.clone(), move |_, _| {
        let door = inside.clone();
        async move {
            door.pass().await;
            Ok(answer(201, "paid"))
        }
    });
    let elsewhere = world.second_process(policy);
    let first = world.send_aside(post("k", "{}"));
    door.entered().await;
    let calls = world.store.calls();
    let duplicate = world.send(post("k", "{}")).await;
    assert_eq!(duplicate.summary(), "409 in-progress");
    assert_eq!(duplicate.header("retry-after"), Some("7"));
    assert_eq!(world.store.calls(), calls, "this process knows it without the store");
    assert_eq!(world.send(post("k", "{\"other\":1}")).await.summary(), "422 key-reused");
    assert_eq!(elsewhere.send(post("k", "{}")).await.summary(), "409 in-progress");
    assert_eq!(elsewhere.send(post("k", "{\"other\":1}")).await.summary(), "422 key-reused");
    door.open();
    assert_eq!(first.await.unwrap().summary(), "201 paid");
    assert_eq!(elsewhere.send(post("k", "{}")).await.summary(), "201 paid");
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_right_retry_is_not_refused_because_a_wrong_one_asks_the_store_first() {
    let world = world();
    world.send(post("k", "right")).await;
    let gate = Arc::new(Semaphore::new(0));
    *world.store.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let wrong = world.send_aside(post("k", "wrong"));
    let right = world.send_aside(post("k", "right"));
    while world.store.calls() < 3 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(100);
    assert_eq!(wrong.await.unwrap().summary(), "422 key-reused");
    assert_eq!(right.await.unwrap().summary(), "201 run 1");
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_came_during_the_reservation_is_told_as_soon_as_it_stands() {
    let door = Door::new();
    let inside = door.clone();
    let world = World::new(Policy::default(), move |_, _| {
        let door = inside.clone();
        async move {
            door.pass().await;
            Ok(answer(201, "paid"))
        }
    });
    let gate = Arc::new(Semaphore::new(0));
    *world.store.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let first = world.send_aside(post("k", "{}"));
    let duplicate = world.send_aside(post("k", "{}"));
    while world.store.calls() == 0 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(100);
    door.entered().await;
    let conflict = tokio::time::timeout(Duration::from_secs(1), duplicate).await;
    assert_eq!(conflict.expect("it is told at once").unwrap().summary(), "409 in-progress");
    door.open();
    assert_eq!(first.await.unwrap().summary(), "201 paid");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_duplicates_cost_one_run_and_a_handful_of_store_calls() {
    let door = Door::new();
    let inside = door.clone();
    let world = World::new(Policy::default(), move |run, _| {
        let door = inside.clone();
        async move {
            door.pass().await;
            Ok(answer(201, &format!("run {run}")))
        }
    });
    let answers: Vec<_> = (0..1000).map(|_| world.send_aside(post("k", "{}"))).collect();
    door.entered().await;
    door.open();
    let mut kept = 0;
    for answer in answers {
        let answer = answer.await.unwrap();
        match answer.summary().as_str() {
            "201 run 1" => kept += 1,
            "409 in-progress" => assert!(answer.header("retry-after").is_some()),
            other => panic!("neither the first answer nor a conflict: {other}"),
        }
    }
    assert!(kept >= 1);
    assert_eq!(world.runs(), 1);
    assert!(world.store.calls() <= 4, "{} store calls", world.store.calls());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_retries_of_an_ended_request_share_one_look_up() {
    let world = world();
    world.send(post("k", "{}")).await;
    let before = world.store.calls();
    let gate = Arc::new(Semaphore::new(0));
    *world.store.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let answers: Vec<_> = (0..1000).map(|_| world.send_aside(post("k", "{}"))).collect();
    while world.store.calls() == before {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1000);
    for answer in answers {
        let answer = answer.await.unwrap();
        assert_eq!(answer.summary(), "201 run 1");
        assert!(answer.is_replay());
    }
    assert!(world.store.calls() - before <= 4, "{} store calls", world.store.calls() - before);
}

#[tokio::test(start_paused = true)]
async fn after_retention_the_key_is_free_or_refused_as_the_policy_says() {
    let day = Policy::RETENTION_DEFAULT;
    let world = world();
    world.send(post("k", "{}")).await;
    advance(day).await;
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 2");

    let refusing = Policy::default().after_retention(AfterRetention::Refuse(day));
    let world = World::new(refusing, |_, _| async { Ok(answer(201, "once")) });
    world.send(post("k", "{}")).await;
    advance(day).await;
    assert_eq!(world.send(post("k", "{}")).await.summary(), "410 key-expired");
    assert_eq!(world.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_tenants_never_meet() {
    let world = world();
    assert_eq!(world.send(request("acme", "k", "a")).await.summary(), "201 run 1");
    assert_eq!(world.send(request("globex", "k", "b")).await.summary(), "201 run 2");
    assert_eq!(world.send(request("acme", "k", "a")).await.summary(), "201 run 1");
    assert_eq!(world.send(request("globex", "k", "b")).await.summary(), "201 run 2");
}

#[tokio::test(start_paused = true)]
async fn not_now_is_not_replayed_and_no_is() {
    for status in [500, 501, 503, 505, 401, 407, 421, 425, 429, 431] {
        let world = World::new(Policy::default(), move |run, _| async move {
            Ok(answer(status, &format!("run {run}")))
        });
        for run in 1..=2 {
            let passed = world.send(post("k", "{}")).await;
            assert_eq!(passed.summary(), format!("{status} run {run}"));
            assert!(!passed.is_replay());
            assert_eq!(passed.header("idempotency-expires"), None);
        }
    }
    for status in [200, 201, 204, 303, 400, 403, 404, 409, 422] {
        let world =
            World::new(Policy::default(), move |_, _| async move { Ok(answer(status, "")) });
        world.send(post("k", "{}")).await;
        assert!(world.send(post("k", "{}")).await.is_replay(), "{status}");
        assert_eq!(world.runs(), 1, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_has_the_kept_headers_and_no_others() {
    let world = World::new(Policy::default(), |_, _| async {
        let mut response = answer(201, "{}");
        let headers = response.headers_mut();
        for (name, value) in [
            ("link", "<a>; rel=\"x, y\""),
            ("link", "<b>"),
            ("link", "<c>"),
            ("content-type", "application/json"),
            ("location", "/payments/7"),
            ("set-cookie", "session=1"),
            ("www-authenticate", "Basic"),
            ("connection", "x-foo"),
            ("x-foo", "1"),
            ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        Ok(response)
    });
    let first = world.send(post("k", "{}")).await;
    assert_eq!(
        first.header("set-cookie"),
        Some("session=1"),
        "the first answer is passed on whole"
    );
    let again = world.send(post("k", "{}")).await;
    let links: Vec<_> = again.headers.get_all("link").iter().collect();
    assert_eq!(links, ["<a>; rel=\"x, y\"", "<b>", "<c>"]);
    let mut names: Vec<_> = again.headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    let expected =
        ["content-type", "idempotency-expires", "idempotent-replayed", "link", "location"];
    assert_eq!(names, expected);
}
