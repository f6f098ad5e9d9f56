//! Credentials: fetched for each attempt, fetched anew once, never written down.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use firstwrite_client::{Ask, BoxError, Builder, EndKind, Error, State, StatusUse, Storage as _};
use http::{HeaderMap, HeaderValue};

use crate::world::{Act, World, always, answer, open, seconds};

/// True for each call that asked for fresh ones.
type Asked = Arc<Mutex<Vec<bool>>>;

/// Tokens with numbers, and what was asked.
fn numbered(builder: Builder) -> (Builder, Asked) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (asking, number) = (Arc::clone(&asked), Arc::new(AtomicU32::new(0)));
    let credentials = move |ask: Ask| {
        asking.lock().unwrap().push(ask.refresh);
        let number = number.fetch_add(1, Ordering::Relaxed);
        async move {
            let token = HeaderValue::try_from(format!("Bearer token-{number}"))?;
            Ok::<_, BoxError>(HeaderMap::from_iter([(http::header::AUTHORIZATION, token)]))
        }
    };
    (builder.credentials(credentials), asked)
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_and_none_is_written_down() {
    let world = World::new([Act::Lost, answer(201, &[])]);
    let (builder, asked) = numbered(world.builder());
    let pay = open(&builder.build(), "cart").await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
    assert_eq!(*asked.lock().unwrap(), [false, false]);
    let seen = world.server.seen();
    assert_eq!(seen[0].headers["authorization"], "Bearer token-0");
    assert_eq!(seen[1].headers["authorization"], "Bearer token-1");
    let stored = world.storage.get("cart").await.unwrap().unwrap();
    assert!(!stored.document.windows(6).any(|part| part == b"token-"));
}

#[tokio::test(start_paused = true)]
async fn refused_ones_are_fetched_anew_once() {
    let world = World::new([answer(401, &[]), answer(201, &[])]);
    let (builder, asked) = numbered(world.builder());
    let pay = open(&builder.build(), "cart").await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
    assert_eq!(*asked.lock().unwrap(), [false, true]);

    let world = World::new([answer(401, &[]), answer(401, &[])]);
    let (builder, _) = numbered(world.builder());
    let end = open(&builder.build(), "cart").await.send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Refused, true));

    // In doubt, a refusal of the credentials settles nothing.
    let world = World::new([Act::Lost, answer(401, &[]), answer(401, &[])]);
    let (builder, _) = numbered(world.builder());
    let end = open(&builder.build(), "cart").await.send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Unknown, false));

    // Fresh ones that worked once may be refused again, an hour later.
    let acts = [
        answer(401, &[]),
        answer(429, &[("retry-after", "9")]),
        answer(401, &[]),
        answer(201, &[]),
    ];
    let world = World::new(acts);
    let (builder, asked) = numbered(world.builder());
    let end = open(&builder.build(), "cart").await.send_for(seconds(99)).await.unwrap();
    assert_eq!(end.kind(), EndKind::Done);
    assert_eq!(*asked.lock().unwrap(), [false, true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn without_credentials_nothing_is_sent_and_no_doubt_is_left() {
    let world = World::new([answer(201, &[])]);
    let fails = |_: Ask| async { Err::<HeaderMap, BoxError>("the vault is sealed".into()) };
    let pay = open(&world.builder().credentials(fails).build(), "cart").await;
    let error = pay.send().await.unwrap_err();
    assert!(
        matches!(error, Error::Credentials(_)) && error.to_string().contains("vault"),
        "{error}"
    );
    let snapshot = pay.snapshot().await.unwrap();
    assert_eq!((snapshot.state, snapshot.is_in_doubt), (State::Open, false));
    assert_eq!(world.open("cart").await.send().await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn the_status_resource_is_asked_with_them_and_with_fresh_ones_once() {
    let world = World::new([Act::Lost, answer(401, &[]), answer(401, &[]), answer(201, &[])]);
    let (builder, asked) = numbered(world.builder().status(StatusUse::Always));
    let end = open(&builder.build(), "cart").await.send().await.unwrap();
    assert_eq!(end.kind(), EndKind::Done);
    assert_eq!(*asked.lock().unwrap(), [false, false, true, false]);
    let methods: Vec<_> = world.server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["POST", "GET", "GET", "POST"]);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_take_all_the_time_leave_no_doubt() {
    use firstwrite_client::Clock as _;

    let world = World::new([answer(201, &[])]);
    let clock = world.clock.clone();
    let slow = move |_: Ask| {
        let arrives = clock.wait(seconds(30));
        async move {
            arrives.await;
            Ok::<_, BoxError>(HeaderMap::new())
        }
    };
    let pay = open(&world.builder().credentials(slow).build(), "cart").await;
    assert!(pay.send().await.unwrap_err().pending().is_some());
    assert_eq!(pay.snapshot().await.unwrap().state, State::Open);
    assert_eq!(pay.send_for(seconds(31)).await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn fresh_ones_for_a_question_are_not_those_of_the_attempt_after_it() {
    // The resource refuses the credentials of one intent, and is denied to another before that one asks again.
    let late = |act| Act::After(seconds(5), Box::new(act));
    let world = World::new([
        Act::Lost,
        Act::Lost,
        late(answer(401, &[])),
        late(answer(404, &[])),
        answer(401, &[]),
        answer(201, &[]),
        answer(201, &[]),
    ]);
    let builder = world.builder().status(StatusUse::Always).randomness(always(0.0));
    let (builder, asked) = numbered(builder);
    let client = builder.build();
    let (one, other) = (open(&client, "one").await, open(&client, "other").await);
    let (one, other) = tokio::join!(one.send(), other.send());
    assert_eq!((one.unwrap().kind(), other.unwrap().kind()), (EndKind::Done, EndKind::Done));
    let methods: Vec<_> = world.server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["POST", "POST", "GET", "GET", "POST", "POST", "POST"]);
    assert_eq!(*asked.lock().unwrap(), [false, false, false, false, false, false, true]);
}
