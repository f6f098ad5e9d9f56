//! Whose key it is: a tenant's, or one principal's.

use std::sync::Arc;

use firstwrite::Policy;
use firstwrite_gateway::tenants::Settings;
use firstwrite_gateway::tenants::settings::{Anonymous, HeaderSettings, Source};
use firstwrite_gateway::{OperationExtras, Operations, Rules};
use http::Method;

use crate::client::{ask, keyed};
use crate::gateway::{anybody, by, rules, start};
use crate::upstream::Upstream;

/// A proxy on this machine says who it is.
fn told_by(peers: &str) -> Settings {
    let source = Source::Header(HeaderSettings {
        tenant: "x-tenant".to_owned(),
        principal: Some("x-user".to_owned()),
        peers: vec![peers.to_owned()],
        namespace: String::new(),
    });
    let anonymous = Anonymous::Operations(["POST /sign-up".to_owned()].into());
    Settings { anonymous, sources: vec![source] }
}

fn operations() -> Arc<Operations> {
    let bound = OperationExtras { bound_to_principal: true, ..OperationExtras::default() };
    let operations = Operations::new(Policy::default(), OperationExtras::default())
        .protected(Method::POST, "/mine", Policy::default(), bound)
        .protected(Method::POST, "/sign-up", Policy::default(), OperationExtras::default());
    Arc::new(operations)
}

fn set_up(upstream: &Upstream, peers: &str) -> Rules {
    let operations = operations();
    let tenants =
        firstwrite_gateway::tenants::Tenants::new(&told_by(peers), || std::time::UNIX_EPOCH);
    let tenants = Arc::new(tenants.unwrap().operations_from((*operations).clone()));
    Rules { operations, tenants, ..rules(&[upstream]) }
}

#[tokio::test]
async fn a_key_is_shared_within_a_tenant_unless_it_is_bound() {
    let upstream = Upstream::start().await;
    let gateway = start(set_up(&upstream, "127.0.0.0/8")).await;
    for (path, user, is_replay) in [
        ("/ours", "ada", false),
        ("/ours", "bob", true),
        ("/mine", "ada", false),
        ("/mine", "bob", false),
        ("/mine", "ada", true),
    ] {
        let who = format!("x-tenant: acme\r\nx-user: {user}\r\n");
        let key = path.trim_start_matches('/');
        let answered = ask(gateway.address(), &keyed(path, key, &who, "{}")).await;
        assert_eq!((answered.status(), answered.is_replay()), (201, is_replay), "{path} {user}");
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2].all("x-tenant"), ["acme"], "whoever may say it is passed on");
}

#[tokio::test]
async fn whoever_is_not_trusted_is_nobody_and_cannot_fool_the_upstream() {
    let upstream = Upstream::start().await;
    let gateway = start(set_up(&upstream, "192.0.2.0/24")).await;
    let who = "x-tenant: acme\r\nx-user: ada\r\n";
    let refused = ask(gateway.address(), &keyed("/ours", "k", who, "{}")).await;
    assert_eq!((refused.status(), refused.code()), (401, "tenant-unknown".to_owned()));
    let signed_up = ask(gateway.address(), &keyed("/sign-up", "k", who, "{}")).await;
    assert_eq!(signed_up.status(), 201);
    let seen = upstream.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].header("x-tenant"), seen[0].header("x-user")), (None, None));
    assert_eq!(seen[0].all("firstwrite-tenant"), ["anonymous"]);
}

#[tokio::test]
async fn a_bound_key_needs_a_principal() {
    let upstream = Upstream::start().await;
    let gateway = start(set_up(&upstream, "127.0.0.1")).await;
    let nobody = keyed("/mine", "k", "x-tenant: acme\r\n", "{}");
    assert_eq!(ask(gateway.address(), &nobody).await.status(), 401);
    let gateway = start(Rules { tenants: by(&anybody()), ..set_up(&upstream, "::1") }).await;
    assert_eq!(ask(gateway.address(), &nobody).await.status(), 401, "anonymous is nobody");
    assert_eq!(upstream.seen().len(), 0);
}

#[tokio::test]
async fn the_status_of_a_bound_key_is_its_principals() {
    let upstream = Upstream::start().await;
    let gateway = start(set_up(&upstream, "127.0.0.0/8")).await;
    let who = |tenant: &str, user: &str| format!("x-tenant: {tenant}\r\nx-user: {user}\r\n");
    for (path, key) in
        [("/mine", "bound"), ("/ours", "shared"), ("/mine", "both"), ("/ours", "both")]
    {
        ask(gateway.address(), &keyed(path, key, &who("acme", "ada"), "{}")).await;
    }
    for (tenant, user, key, operation) in [
        ("acme", "ada", "bound", Some("POST /mine")),
        ("acme", "bob", "bound", None),
        ("globex", "ada", "bound", None),
        ("acme", "ada", "shared", Some("POST /ours")),
        ("acme", "bob", "shared", Some("POST /ours")),
        ("globex", "bob", "shared", None),
        ("acme", "ada", "both", Some("POST /mine")),
        ("acme", "bob", "both", Some("POST /ours")),
    ] {
        let request = format!(
            "GET /.firstwrite/operations/{key} HTTP/1.1\r\nhost: shop.example\r\n{}\r\n",
            who(tenant, user)
        );
        let status = ask(gateway.address(), &request).await;
        let document: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
        assert_eq!(document["operation"].as_str(), operation, "{tenant} {user} {key}");
        assert_eq!(status.status(), if operation.is_some() { 200 } else { 404 });
    }
}

/// Anybody who guessed a key of an anonymous caller could read how it ended.
#[tokio::test]
async fn nobody_unknown_reads_the_status_resource() {
    let upstream = Upstream::start().await;
    let mut gateways = Vec::new();
    for (settings, status) in [(anybody(), 401), (Settings::single(), 200)] {
        let gateway = start(Rules { tenants: by(&settings), ..rules(&[&upstream]) }).await;
        let prefer = "prefer: respond-async\r\n";
        // A 202 would send the caller to a resource that it may not read.
        let expected = if status == 200 { 202 } else { 201 };
        let accepted = ask(gateway.address(), &keyed("/pay", "k", prefer, "{}")).await;
        assert_eq!(accepted.status(), expected);
        let request =
            "GET /.firstwrite/operations/k?wait=10s HTTP/1.1\r\nhost: shop.example\r\n\r\n";
        assert_eq!(ask(gateway.address(), request).await.status(), status);
        gateways.push(gateway);
    }
}
