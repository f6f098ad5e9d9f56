//! Ends of intents, and what the caller gets.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_client::{Cause, Dialect, End, EndKind, Error, Seal, Step};
use serde_json::json;

use crate::world::{Act, World, answer, open, problem, seconds, with_body};

#[tokio::test(start_paused = true)]
async fn a_request_has_its_key_in_the_words_of_the_dialect() {
    for (dialect, quote) in
        [(Dialect::Draft07, "\""), (Dialect::Stripe, ""), (Dialect::Generic, "")]
    {
        let world = World::new([answer(201, &[])]);
        let pay = open(&world.builder().dialect(dialect).build(), "cart").await;
        assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
        let seen = &world.server.seen()[0];
        assert_eq!(seen.key(), format!("{quote}{}{quote}", pay.key().as_str()));
        assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", crate::world::URL));
        assert_eq!(seen.headers["content-type"], "application/json");
        assert_eq!(&seen.body[..], br#"{"amount":4990,"currency":"EUR","customer":"cus_1"}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_given_and_kept_without_cookies() {
    let headers = [("location", "/payments/1"), ("set-cookie", "a=b"), ("www-authenticate", "x")];
    let world = World::new([answer(201, &headers)]);
    let pay = world.open("cart").await;
    let first = pay.send().await.unwrap();
    let End::Done(done) = &first else { panic!("{first:?}") };
    assert!(!done.replayed);
    assert_eq!(done.answer.headers["location"], "/payments/1");
    assert_eq!(done.answer.headers.len(), 1);
    assert_eq!(world.open("cart").await.send().await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_done_and_its_body_is_said_to_be_missing() {
    let world = World::new([with_body(201, &[], &json!("x".repeat(100)))]);
    let pay = open(&world.builder().answer_bytes_max(10).build(), "cart").await;
    let end = pay.send().await.unwrap();
    assert_eq!((end.kind(), &end.answer().unwrap().body), (EndKind::Done, &None));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_server_did_not_keep_is_told_by_its_status() {
    for (first, kind) in [(201, EndKind::Done), (422, EndKind::Refused)] {
        let document = json!({
            "code": "answer-not-kept", "retryable": false, "safe_new_key": false, "first_status": first,
        });
        let world = World::new([Act::Lost, with_body(409, &[], &document)]);
        let end = world.open("cart").await.send().await.unwrap();
        assert_eq!((end.kind(), end.is_new_key_safe()), (kind, false));
        let answer = end.answer().unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body), (first, &None));
    }
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_given_up_after_an_hour_by_what_is_known() {
    // Every connection is refused: nothing was ever sent.
    let world = World::new((0..1000).map(|_| Act::NotSent));
    let end = world.open("cart").await.send_for(Duration::MAX).await.unwrap();
    let End::Refused(refused) = end else { panic!("{end:?}") };
    assert_eq!((refused.safe_new_key, refused.cause), (true, Cause::GivenUp));
    let last = *world.server.times().last().unwrap();
    assert!((3_400_000..3_600_000).contains(&last), "{last}");

    // One answer was lost among them.
    let acts = (0..1000).map(|n| if n == 3 { Act::Lost } else { Act::NotSent });
    let world = World::new(acts);
    let end = world.open("cart").await.send_for(Duration::MAX).await.unwrap();
    let End::Unknown(unknown) = end else { panic!("{end:?}") };
    assert_eq!((unknown.safe_new_key, unknown.cause), (false, Cause::GivenUp));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_end_is_resumed_under_the_same_key() {
    let world =
        World::new([answer(301, &[]), Act::Lost, answer(201, &[("idempotent-replayed", "true")])]);
    let pay = world.open("cart").await;
    assert!(matches!(pay.resume().await, Err(Error::NotUnknown { end: None, .. })));
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Unknown);
    // Later than `give_up_after` counts from the first attempt.
    world.clock.pass(Duration::from_hours(2)).await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Unknown, "not sent by itself");
    let End::Done(done) = pay.resume().await.unwrap() else { panic!("it was done") };
    assert!(done.replayed);
    let seen = world.server.seen();
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.key() == seen.key()));
    assert!(seen.windows(2).all(|pair| pair[0].key() == pair[1].key()));
    let error = pay.resume().await.unwrap_err();
    assert!(matches!(error, Error::NotUnknown { end: Some(EndKind::Done), .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_end_is_not_resumed_after_the_life_of_the_key() {
    let world = World::new([answer(301, &[])]);
    let pay = world.open("cart").await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Unknown);
    world.clock.pass(Duration::from_hours(24)).await;
    let End::Expired(expired) = pay.resume().await.unwrap() else { panic!("the key is gone") };
    assert_eq!(expired.cause, Cause::KeyLife);
    assert_eq!(world.server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_in_the_last_minute_of_a_keys_life() {
    // The server keeps keys for ten minutes, and says so with its first word.
    let expires = crate::world::NOON.after(Duration::from_mins(10)).to_string();
    let headers = [("idempotency-expires", expires.as_str()), ("idempotency-interim", "true")];
    let acts = (0..1000).map(|_| answer(202, &headers));
    let world = World::new(acts);
    let client = world.builder().status(firstwrite_client::StatusUse::Never).build();
    let end = open(&client, "cart").await.send_for(Duration::MAX).await.unwrap();
    assert_eq!(end.kind(), EndKind::Expired);
    let last = *world.server.times().last().unwrap();
    assert!((480_000..540_000).contains(&last), "{last}");
}

#[tokio::test(start_paused = true)]
async fn events_tell_every_step_in_order_and_no_secret() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let world = World::new([problem(503, "overloaded", true), answer(201, &[])]);
    let builder = world.builder().on_event(move |event| {
        telling.lock().unwrap().push((event.step, event.attempt, format!("{event:?}")));
    });
    let pay = open(&builder.build(), "cart").await;
    assert_eq!(pay.send_for(seconds(60)).await.unwrap().kind(), EndKind::Done);
    pay.acknowledge().await.unwrap();
    let told = told.lock().unwrap();
    let steps: Vec<_> = told.iter().map(|(step, attempt, _)| (step.as_str(), *attempt)).collect();
    let expected = [
        ("opened", 0),
        ("marked", 1),
        ("sent", 1),
        ("answered", 1),
        ("recorded", 1),
        ("marked", 2),
        ("sent", 2),
        ("answered", 2),
        ("ended", 2),
        ("acknowledged", 2),
    ];
    assert_eq!(steps, expected);
    assert!(told.iter().all(|(_, _, text)| !text.contains(pay.key().as_str())));
    assert!(told.iter().all(|(_, _, text)| !text.contains("4990") && !text.contains("pay_1")));
    assert_eq!(Step::ALL.map(Step::as_str).len(), 7);
}

/// Bodies backwards.
struct Backwards;

impl Seal for Backwards {
    fn seal(&self, _: &str, body: &[u8]) -> Result<Vec<u8>, firstwrite_client::BoxError> {
        Ok(body.iter().rev().copied().collect())
    }

    fn open(&self, _: &str, sealed: &[u8]) -> Result<Vec<u8>, firstwrite_client::BoxError> {
        Ok(sealed.iter().rev().copied().collect())
    }
}

#[tokio::test(start_paused = true)]
async fn sealed_bodies_are_sent_and_returned_in_the_clear_and_compared_so() {
    let world = World::new([Act::Lost, answer(201, &[])]);
    let process = || world.builder().seal(Backwards).build();
    let pay = open(&process(), "cart").await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
    let again = open(&process(), "cart").await;
    assert_eq!(
        again.send().await.unwrap().answer().unwrap().body.as_deref(),
        Some(&br#"{"id":"pay_1"}"#[..])
    );
    assert!(world.server.seen().iter().all(|seen| seen.body.starts_with(b"{\"amount\"")));
    // A process without the seal names the entry and leaves it.
    let error = world.client().find("cart").await.unwrap_err();
    assert!(
        matches!(error, Error::Damaged { .. }) && error.to_string().contains("\"cart\""),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn sent_is_told_when_the_transport_has_the_request() {
    let (world, told) = (World::new([answer(201, &[])]), Arc::new(Mutex::new(None)));
    let (server, telling) = (Arc::clone(&world.server), Arc::clone(&told));
    let builder = world.builder().on_event(move |event| {
        if event.step == Step::Sent {
            *telling.lock().unwrap() = Some(server.seen().len());
        }
    });
    let pay = open(&builder.build(), "cart").await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);
    assert_eq!(*told.lock().unwrap(), Some(1), "the request was handed over before it was told");
}
