//! The key header: what is accepted, what is refused, and that a refusal touches nothing.

use firstwrite_core::{KeyRequirement, Policy, Rejection, RejectionKind};
use http::{HeaderValue, Method};

use super::harness::{World, answer, post, tenant};
use crate::Policies;

fn world() -> World {
    World::new(Policy::default(), |run, _| async move { Ok(answer(201, &format!("run {run}"))) })
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_understood_is_refused_without_the_store() {
    type Lines<'a> = &'a [&'a [u8]];
    let long = "x".repeat(256);
    let cases: [(Lines<'_>, &str); 17] = [
        (&[], "400 key-missing"),
        (&[b"a", b"b"], "400 key-invalid"),
        (&[b"a", b"a"], "400 key-invalid"),
        (&[b"\"a\",\"b\""], "400 key-invalid"),
        (&[b""], "400 key-invalid"),
        (&[b"\"\""], "400 key-invalid"),
        (&[b"\"open"], "400 key-invalid"),
        (&[b"\"tab\there\""], "400 key-invalid"),
        (&[b"caf\xe9"], "400 key-invalid"),
        (&["\"ключ\"".as_bytes()], "400 key-invalid"),
        (&[b"?1"], "400 key-invalid"),
        (&[b":aGk=:"], "400 key-invalid"),
        (&[b"(\"a\")"], "400 key-invalid"),
        (&[b"with space"], "400 key-invalid"),
        (&[b"\"; DROP TABLE"], "400 key-invalid"),
        (&[b"\"a\" trailing"], "400 key-invalid"),
        (&[long.as_bytes()], "400 key-invalid"),
    ];
    let world = world();
    for (lines, expected) in cases {
        let mut request = post("placeholder", "{}");
        request.headers_mut().remove("idempotency-key");
        for line in lines {
            let value = HeaderValue::from_bytes(line).unwrap();
            request.headers_mut().append("idempotency-key", value);
        }
        let refused = world.send(request).await;
        assert_eq!(refused.summary(), expected, "{lines:?}");
    }
    assert_eq!((world.runs(), world.store.calls()), (0, 0), "nothing was run or looked up");
}

#[tokio::test(start_paused = true)]
async fn both_spellings_and_parameters_name_the_same_key() {
    let world = world();
    let bare = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    assert_eq!(world.send(post(bare, "{}")).await.summary(), "201 run 1");
    for same in [format!("\"{bare}\""), format!("\"{bare}\"; attempt=2"), format!(" {bare} ")] {
        let again = world.send(post(&same, "{}")).await;
        assert_eq!(again.summary(), "201 run 1", "{same}");
        assert!(again.is_replay(), "{same}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_and_the_naughtiest_keys_work() {
    let world = world();
    let longest = "x".repeat(255);
    let naughty = ["\"'; DROP TABLE records--\"", "%0d%0aSet-Cookie:a", "${jndi:ldap://x}"];
    for key in naughty.into_iter().chain([longest.as_str()]) {
        let first = world.send(post(key, "{}")).await;
        let second = world.send(post(key, "{}")).await;
        assert!(
            (first.status == 201 && second.is_replay()) || first.status == 400,
            "{key}: {first:?}"
        );
    }
    assert_eq!(world.send(post(&longest, "{}")).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn a_key_on_a_get_is_ignored_and_forwarded() {
    let world = World::with(
        |run, request| async move {
            let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
            Ok(answer(200, &format!("run {run} {key}")))
        },
        |layer| layer,
    );
    for run in 1..=2 {
        let mut request = post("\"k\"; a=1", "");
        *request.method_mut() = Method::GET;
        request.extensions_mut().clear();
        let passed = world.send(request).await;
        assert_eq!(passed.summary(), format!("200 run {run} \"k\"; a=1"));
        assert_eq!(passed.header("idempotency-expires"), None);
    }
    assert_eq!(world.store.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn where_a_key_is_optional_a_request_without_one_runs_unprotected() {
    let policy = Policy::default().key(KeyRequirement::Optional);
    let world = World::with(
        |run, _| async move { Ok(answer(201, &format!("run {run}"))) },
        |layer| layer.policies(Policies::new().default_policy(policy)).unwrap(),
    );
    for run in 1..=2 {
        let mut request = post("k", "{}");
        request.headers_mut().remove("idempotency-key");
        assert_eq!(world.send(request).await.summary(), format!("201 run {run}"));
    }
    assert_eq!(world.store.calls(), 0);
    assert_eq!(world.send(post("k", "{}")).await.summary(), "201 run 3");
    assert!(world.send(post("k", "{}")).await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn without_a_tenant_nothing_is_looked_up() {
    let world = world();
    let mut request = post("k", "{}");
    request.extensions_mut().clear();
    let refused = world.send(request).await;
    assert_eq!(refused.summary(), "401 tenant-unknown");
    assert_eq!((world.runs(), world.store.calls()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_caller_does_not_get_the_stored_answer() {
    let world = World::with(
        |_, _| async { Ok(answer(201, "secret")) },
        |layer| {
            layer.tenant_from(|parts: &http::request::Parts| {
                match parts.headers.get("authorization").map(HeaderValue::as_bytes) {
                    Some(b"good") => Ok(tenant("acme")),
                    _ => Err(Rejection::new(RejectionKind::TenantUnknown)),
                }
            })
        },
    );
    let with = |credentials: &'static str| {
        let mut request = post("k", "{}");
        request.headers_mut().insert("authorization", HeaderValue::from_static(credentials));
        request
    };
    assert_eq!(world.send(with("good")).await.summary(), "201 secret");
    let calls = world.store.calls();
    assert_eq!(world.send(with("revoked")).await.summary(), "401 tenant-unknown");
    assert_eq!(world.store.calls(), calls);
    assert_eq!(world.send(with("good")).await.summary(), "201 secret");
}
