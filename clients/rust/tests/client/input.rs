//! Input that makes no sense: one clear error each, nothing written, nothing sent.

use firstwrite_client::{Client, Draft, Error};
use serde::ser::{Error as _, Serialize, Serializer};

use crate::world::{URL, World, order};

async fn refusal(world: &World, draft: impl FnOnce(Client) -> Draft) -> String {
    let error = draft(world.client()).open().await.expect_err("it makes no sense");
    assert!(world.client().list().await.unwrap().is_empty(), "nothing is written: {error}");
    assert!(world.server.seen().is_empty());
    assert!(!error.to_string().contains('\n'), "{error}");
    error.to_string()
}

struct Unserialisable;

impl Serialize for Unserialisable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("a lock is poisoned"))
    }
}

#[tokio::test(start_paused = true)]
async fn names_have_a_length() {
    let world = World::new([]);
    let named =
        |name: String| refusal(&world, |client| client.intent(name).post_json(URL, &order()));
    assert_eq!(named(String::new()).await, "the name of an intent is empty");
    let long = "the name of an intent has 256 bytes; at most 255 are allowed";
    assert_eq!(named("ü".repeat(128)).await, long);
    let world = World::new([]);
    world.open(&"ü".repeat(127)).await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_checked_before_anything_is_written() {
    let world = World::new([]);
    let told = refusal(&world, |client| client.intent("a").post_json(URL, &Unserialisable)).await;
    let expected = "the request of \"a\" cannot be sent: the body cannot be written as JSON: a lock is poisoned";
    assert_eq!(told, expected);
    let told = refusal(&world, |client| client.intent("a").json(&order())).await;
    assert!(told.contains("it has no URL"), "{told}");
    for (url, problem) in [
        ("not a url", "cannot be read"),
        ("/payments", "not a whole one"),
        ("ftp://a.example/", "not a whole one"),
        ("https://ann:pass@a.example/", "holds credentials"),
    ] {
        let told = refusal(&world, |client| client.intent("a").post_json(url, &order())).await;
        assert!(told.contains(problem), "{url}: {told}");
        assert!(!told.contains("pass"), "a password is not shown: {told}");
    }
    for (name, value, problem) in [
        ("Authorization", "Bearer x", "no part of a request that is kept"),
        ("Cookie", "a=b", "no part"),
        ("Idempotency-Key", "mine", "no part"),
        ("content-length", "1", "no part"),
        ("a b", "x", "name is malformed"),
        ("a", "x\ny", "value is malformed"),
    ] {
        let draft =
            |client: Client| client.intent("a").post_json(URL, &order()).header(name, value);
        let told = refusal(&world, draft).await;
        assert!(told.contains(problem), "{name}: {told}");
    }
    let large = "x".repeat(20_000);
    let draft = |client: Client| client.intent("a").post_json(URL, &order()).header("a", &large);
    assert!(refusal(&world, draft).await.contains("headers have"));
    let draft =
        |client: Client| client.intent("a").post_json(URL, "").body(vec![0; 8 << 20 | 1], "a/b");
    let told = refusal(&world, draft).await;
    assert!(told.contains("8388609 bytes; at most 8388608 are allowed"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn there_is_a_number_of_entries() {
    let world = World::new([]);
    let client = world.builder().entries_max(2).build();
    let open = |name| client.intent(name).post_json(URL, &order()).open();
    open("a").await.unwrap();
    open("b").await.unwrap();
    let error = open("c").await.unwrap_err();
    assert!(matches!(error, Error::TooManyEntries { entries_max: 2 }), "{error}");
    open("a").await.expect("one that stands is no new one");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_drawn_is_an_error() {
    let world = World::new([]);
    let client = world.builder().randomness(|_| Err("no entropy".into())).build();
    let error = client.intent("a").post_json(URL, &order()).open().await.unwrap_err();
    assert_eq!(error.to_string(), "the system gave no random bytes for a key: no entropy");
}
