//! Opening, finding, superseding, acknowledging: what a name stands for.

use std::time::Duration;

use firstwrite_client::{Dialect, EndKind, Error, Secret, State};
use serde_json::json;

use crate::world::{Act, URL, World, answer, open, order, with_body};

#[tokio::test(start_paused = true)]
async fn the_same_request_has_the_same_key_after_a_restart_and_another_is_a_conflict() {
    let world = World::new([]);
    let key = world.open("cart").await.key().clone();
    let again = world.open("cart").await;
    assert_eq!(*again.key(), key);

    // A body whose members come in another order is the same request.
    let text = r#"{"customer":"cus_1","currency":"EUR","amount":4990}"#;
    let turned: serde_json::Value = serde_json::from_str(text).unwrap();
    let turned = world.client().intent("cart").post_json(URL, &turned).open().await.unwrap();
    assert_eq!(*turned.key(), key);

    for (draft, differs) in [
        (world.client().intent("cart").post_json(URL, &json!({"amount": 1})), "body"),
        (world.client().intent("cart").post_json("https://api.example/other", &order()), "url"),
        (world.client().intent("cart").request(http::Method::PUT, URL).json(&order()), "method"),
        (
            world
                .client()
                .intent("cart")
                .body("{}", "text/plain")
                .request(http::Method::POST, URL)
                .body(r#"{"amount":4990,"currency":"EUR","customer":"cus_1"}"#, "text/plain"),
            "headers",
        ),
    ] {
        match draft.open().await {
            Err(Error::IntentConflict { intent, differing }) => {
                assert_eq!((intent.as_str(), differing), ("cart", vec![differs]));
            }
            other => panic!("{differs}: {other:?}"),
        }
    }
    assert_ne!(*world.open("cart2").await.key(), key);
    assert!(world.server.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn headers_that_are_not_about_the_content_may_differ_and_the_first_ones_are_sent() {
    let world = World::new([answer(201, &[])]);
    let open = |trace| {
        let draft = world.client().intent("cart").post_json(URL, &order());
        draft.header("traceparent", trace).header("user-agent", trace).open()
    };
    let first = open("one").await.unwrap();
    let again = open("two").await.unwrap();
    assert_eq!(first.key(), again.key());
    assert_eq!(again.send().await.unwrap().kind(), EndKind::Done);
    assert_eq!(world.server.seen()[0].headers["traceparent"], "one");
}

#[tokio::test(start_paused = true)]
async fn credentials_are_no_part_of_a_request() {
    let world = World::new([]);
    for name in ["Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "api-key"] {
        let draft = world.client().intent("cart").post_json(URL, &order()).header(name, "secret");
        let error = draft.open().await.unwrap_err();
        assert!(matches!(error, Error::Request { .. }), "{name}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert!(world.client().find("cart").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_sent_as_the_first_attempt_sent_it_whatever_the_settings_are_now() {
    let world = World::new([Act::Lost, Act::Lost, answer(201, &[])]);
    let stripes = || world.builder().dialect(Dialect::Stripe).key_header("x-key".parse().unwrap());
    // Opened by one client, first sent by another: the first attempt counts.
    world.open("cart").await;
    let pay = open(&stripes().build(), "cart").await;
    pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
    let other = world.open("cart").await;
    assert_eq!(other.send().await.unwrap().kind(), EndKind::Done);
    for seen in world.server.seen() {
        assert_eq!(seen.headers["x-key"], pay.key().as_str());
        assert!(!seen.headers.contains_key("idempotency-key"));
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_read_in_the_dialect_of_the_first_attempt() {
    // 402 is Stripe's word for a refusal; in draft-07 it would say nothing about the attempt before.
    let world = World::new([Act::Lost, answer(402, &[])]);
    let pay = open(&world.builder().dialect(Dialect::Stripe).build(), "cart").await;
    pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
    let end = world.open("cart").await.send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Refused, true));
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_not_made_after_an_unknown_end_whatever_a_problem_says() {
    let document = json!({
        "code": "strange", "retryable": false, "safe_new_key": true, "status": 500,
    });
    let world = World::new([with_body(500, &[], &document)]);
    let end = world.open("cart").await.send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Unknown, true));
    let draft = world.client().intent("cart").post_json(URL, &json!({"amount": 5}));
    let unsafe_after = Some(EndKind::Unknown);
    assert!(
        matches!(draft.supersede().await, Err(Error::NewKeyUnsafe { end, .. }) if end == unsafe_after)
    );
}

#[tokio::test(start_paused = true)]
async fn an_intent_that_ended_is_not_sent_again_and_is_forgotten_by_acknowledgement_alone() {
    let world = World::new([answer(201, &[])]);
    let pay = world.open("cart").await;
    assert_eq!(pay.send().await.unwrap().kind(), EndKind::Done);

    // Another process, later: the answer is kept, body and all.
    world.clock.pass(Duration::from_hours(999)).await;
    let again = world.open("cart").await;
    let end = again.send().await.unwrap();
    assert_eq!(end.answer().unwrap().json::<serde_json::Value>().unwrap()["id"], "pay_1");
    assert_eq!(world.server.seen().len(), 1);

    again.acknowledge().await.unwrap();
    assert!(world.client().find("cart").await.unwrap().is_none());
    assert!(matches!(pay.send().await, Err(Error::NoIntent { .. })));
    assert!(matches!(pay.acknowledge().await, Err(Error::NoIntent { .. })));
}

#[tokio::test(start_paused = true)]
async fn what_has_no_end_cannot_be_acknowledged() {
    let world = World::new([Act::Lost]);
    let pay = world.open("cart").await;
    assert!(matches!(pay.acknowledge().await, Err(Error::NotEnded { .. })));
    assert!(pay.send_for(Duration::ZERO).await.unwrap_err().pending().is_some());
    assert!(matches!(pay.acknowledge().await, Err(Error::NotEnded { .. })));
    assert_eq!(pay.snapshot().await.unwrap().state, State::Open);
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_made_only_where_it_cannot_pay_twice() {
    let supersede = |world: &World| {
        world.client().intent("cart").post_json(URL, &json!({"amount": 5})).supersede()
    };
    // Nothing was ever sent.
    let world = World::new([answer(402, &[]), answer(201, &[])]);
    let first = world.open("cart").await;
    let second = supersede(&world).await.unwrap();
    assert_ne!(first.key(), second.key());
    assert!(matches!(first.send().await, Err(Error::NoIntent { .. })), "the old life is over");
    // It was refused, and nothing happened.
    assert!(second.send().await.unwrap().is_new_key_safe());
    let third = supersede(&world).await.unwrap();
    assert_ne!(third.key(), second.key());
    assert!(matches!(second.acknowledge().await, Err(Error::NoIntent { .. })));
    // It was carried out.
    assert_eq!(third.send().await.unwrap().kind(), EndKind::Done);
    assert!(matches!(
        supersede(&world).await,
        Err(Error::NewKeyUnsafe { end: Some(EndKind::Done), .. })
    ));
    // It is not known.
    let world = World::new([answer(301, &[])]);
    assert_eq!(world.open("cart").await.send().await.unwrap().kind(), EndKind::Unknown);
    assert!(matches!(supersede(&world).await, Err(Error::NewKeyUnsafe { .. })));
    // It is under way.
    let world = World::new([Act::Lost]);
    let pay = world.open("cart").await;
    pay.send_for(Duration::from_nanos(1)).await.unwrap_err();
    assert!(matches!(supersede(&world).await, Err(Error::NewKeyUnsafe { end: None, .. })));
}

#[tokio::test(start_paused = true)]
async fn derived_keys_are_the_same_without_storage_and_have_one_life() {
    let world = World::new([answer(402, &[])]);
    let secret = || Secret::new("a secret of 16 b").unwrap();
    assert!(Secret::new("a secret of 15b").is_err());
    let server = || {
        let storage = firstwrite_client::MemoryStorage::new();
        world.builder_on(storage).derive_keys(secret()).build()
    };
    let one = open(&server(), "checkout/cart_42").await;
    let client = server();
    let other = open(&client, "checkout/cart_42").await;
    assert_eq!(one.key(), other.key());
    assert_eq!(one.key().as_str(), "v__2tBiVfI-sOdQ6kf4Rqg");

    // An earlier process may have sent this key, of which this one's storage knows nothing.
    assert!(other.snapshot().await.unwrap().is_in_doubt);
    let end = other.send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Unknown, false));
    let draft = client.intent("checkout/cart_42").post_json(URL, &json!({}));
    assert!(matches!(draft.supersede().await, Err(Error::NewKeyUnsafe { .. })));
    let untouched = open(&client, "checkout/cart_43").await;
    let draft = client.intent(untouched.name()).post_json(URL, &json!({}));
    assert!(matches!(draft.supersede().await, Err(Error::KeyIsDerived { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_untouched_intent_with_a_derived_key_is_not_superseded_without_the_secret_either() {
    let world = World::new([]);
    let secret = Secret::new("a secret of 16 b").unwrap();
    let derived = open(&world.builder().derive_keys(secret).build(), "cart").await;
    // A client of the same storage that draws its keys: the derived one may have been sent by another process.
    let client = world.client();
    let draft = client.intent("cart").post_json(URL, &json!({"amount": 5}));
    let error = draft.supersede().await.unwrap_err();
    assert!(matches!(error, Error::NewKeyUnsafe { end: None, .. }), "{error}");
    assert_eq!(client.find("cart").await.unwrap().unwrap().key(), derived.key());
}

#[tokio::test(start_paused = true)]
async fn lists_show_what_stands() {
    let world = World::new([answer(201, &[]), Act::Lost]);
    let client = world.client();
    assert_eq!(open(&client, "b").await.send().await.unwrap().kind(), EndKind::Done);
    open(&client, "c").await.send_for(Duration::from_nanos(1)).await.unwrap_err();
    open(&client, "a").await;
    let list = client.list().await.unwrap();
    let shown: Vec<_> = list
        .iter()
        .map(|snapshot| snapshot.as_ref().unwrap())
        .map(|snapshot| (snapshot.name.as_str(), snapshot.state, snapshot.is_in_doubt))
        .collect();
    let expected =
        [("a", State::Open, false), ("b", State::Ended, false), ("c", State::Sending, true)];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn futures_can_be_sent_between_threads() {
    fn check(_: impl Send) {}

    let world = World::new([]);
    let client = world.client();
    let pay = open(&client, "cart").await;
    let queue = client.queue(());
    check(pay.send());
    check(pay.resume());
    check(pay.acknowledge());
    check(client.intent("a").post_json(URL, &order()).open());
    check(client.intent("a").post_json(URL, &order()).supersede());
    check(client.list());
    check(queue.enqueue("a", client.intent("b")));
    check(queue.run(std::future::pending()));
    check(queue.run_once());
}
