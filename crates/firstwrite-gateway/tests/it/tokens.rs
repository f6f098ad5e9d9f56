//! Tokens over the wire: one that does not hold touches no store, and nobody is asked about it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use firstwrite_gateway::tenants::settings::{Algorithm, Anonymous, Document, JwtSettings, Source};
use firstwrite_gateway::tenants::{Settings, Tenants};
use firstwrite_gateway::{Gateway, Rules};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::client::{ask, keyed};
use crate::gateway::{anywhere, away_store, rules, start};
use crate::upstream::Upstream;

const NOW: u64 = 1_000_000;

/// Signs as its issuer does.
struct Issuer(Ed25519KeyPair);

impl Issuer {
    fn new() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn public(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key());
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x })
    }

    fn sign(&self, header: &Value, claims: &str) -> String {
        let signed = unsigned(header, claims);
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn rules(&self, upstream: &Upstream) -> Rules {
        let jwt = JwtSettings {
            issuer: "https://id.example".to_owned(),
            audience: vec!["payments".to_owned()],
            algorithms: vec![Algorithm::EdDsa],
            jwks: Document::Text(json!({ "keys": [self.public()] }).to_string()),
            tenant: "sub".to_owned(),
            principal: "sub".to_owned(),
            leeway: Duration::ZERO,
            types: vec!["JWT".to_owned()],
            namespace: None,
        };
        let settings = Settings { anonymous: Anonymous::Never, sources: vec![Source::Jwt(jwt)] };
        let clock = || UNIX_EPOCH + Duration::from_secs(NOW);
        let tenants = Arc::new(Tenants::new(&settings, clock).unwrap());
        Rules { tenants, ..rules(&[upstream]) }
    }
}

fn unsigned(header: &Value, claims: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}", encode(&header.to_string()), encode(claims))
}

fn claims() -> Value {
    json!({ "iss": "https://id.example", "aud": "payments", "exp": NOW + 60, "sub": "acme" })
}

async fn pay(gateway: &Gateway, token: Option<&str>) -> crate::wire::Message {
    let header = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    ask(gateway.address(), &keyed("/pay", "k", &header.unwrap_or_default(), "{}")).await
}

#[tokio::test]
async fn one_that_holds_names_a_tenant() {
    let (issuer, upstream) = (Issuer::new(), Upstream::start().await);
    let gateway = start(issuer.rules(&upstream)).await;
    let token = issuer.sign(&json!({ "alg": "EdDSA", "kid": "one" }), &claims().to_string());
    for is_replay in [false, true] {
        let answered = pay(&gateway, Some(&token)).await;
        assert_eq!((answered.status(), answered.is_replay()), (201, is_replay));
    }
    assert_eq!(upstream.seen()[0].all("firstwrite-tenant"), ["acme"]);
    // What is kept is not for whoever lost the right to ask for it since.
    let ended = issuer.sign(&json!({ "alg": "EdDSA" }), &with("exp", json!(NOW - 1)).to_string());
    let refused = pay(&gateway, Some(&ended)).await;
    assert_eq!((refused.status(), refused.is_replay()), (401, false));
    assert!(!refused.text().contains("made"), "{refused:?}");
}

#[tokio::test]
async fn one_that_does_not_hold_is_a_401_and_touches_nobody() {
    let (issuer, upstream) = (Issuer::new(), Upstream::start().await);
    // Whoever asks the store gets a 503.
    let store = away_store();
    store.goes_away();
    let gateway = Gateway::start(store, &anywhere(), issuer.rules(&upstream)).await.unwrap();
    // Where somebody would fetch keys from.
    let elsewhere = Upstream::start().await;
    let url = format!("{}/keys.json", elsewhere.url());
    let plain = json!({ "alg": "EdDSA", "kid": "one" });
    let valid = issuer.sign(&plain, &claims().to_string());
    assert_eq!(pay(&gateway, Some(&valid)).await.status(), 503, "the store is asked for this one");
    let mut tokens: Vec<(&str, String)> = Vec::new();
    for (name, header) in [
        ("kid unknown", json!({ "alg": "EdDSA", "kid": "two" })),
        ("kid a path", json!({ "alg": "EdDSA", "kid": "../../dev/null" })),
        ("kid in SQL", json!({ "alg": "EdDSA", "kid": "' or '1'='1" })),
        ("jku", json!({ "alg": "EdDSA", "kid": "one", "jku": url })),
        ("x5u", json!({ "alg": "EdDSA", "kid": "one", "x5u": url })),
        ("jwk", json!({ "alg": "EdDSA", "jwk": issuer.public() })),
        ("crit", json!({ "alg": "EdDSA", "crit": ["what"], "what": 1 })),
        ("typ", json!({ "alg": "EdDSA", "typ": "logout+jwt" })),
    ] {
        tokens.push((name, issuer.sign(&header, &claims().to_string())));
    }
    for (name, claim, value) in [
        ("iss", "iss", json!("https://evil.example")),
        ("aud", "aud", json!("others")),
        ("exp missing", "exp", Value::Null),
        ("exp past", "exp", json!(NOW - 1)),
        ("exp as text", "exp", json!((NOW + 60).to_string())),
        ("nbf future", "nbf", json!(NOW + 60)),
        ("nbf as text", "nbf", json!("0")),
    ] {
        tokens.push((name, issuer.sign(&plain, &with(claim, value).to_string())));
    }
    let twice = claims().to_string().replacen('{', r#"{"sub":"globex","#, 1);
    tokens.push(("a claim twice", issuer.sign(&plain, &twice)));
    for none in ["none", "None", "NONE"] {
        let token = unsigned(&json!({ "alg": none }), &claims().to_string());
        tokens.push(("none", format!("{token}.")));
    }
    let (signed, _) = valid.rsplit_once('.').unwrap();
    tokens.push(("stripped", format!("{signed}.")));
    tokens.push(("stripped altogether", signed.to_owned()));
    let secret = hmac::Key::new(hmac::HMAC_SHA256, issuer.0.public_key().as_ref());
    let signed = unsigned(&json!({ "alg": "HS256", "kid": "one" }), &claims().to_string());
    let mac = URL_SAFE_NO_PAD.encode(hmac::sign(&secret, signed.as_bytes()));
    tokens.push(("the public key as a secret", format!("{signed}.{mac}")));
    tokens.push(("another's signature", Issuer::new().sign(&plain, &claims().to_string())));
    for (name, kibibytes) in [("8 KiB and more", 8), ("64 KiB", 48)] {
        let long = with("padding", json!("x".repeat(kibibytes * 1024))).to_string();
        tokens.push((name, issuer.sign(&plain, &long)));
    }
    for (name, token) in &tokens {
        let refused = pay(&gateway, Some(token)).await;
        // The longest is longer than a head may be.
        let expected = if *name == "64 KiB" {
            (431, "head-too-large".to_owned())
        } else {
            (401, "tenant-unknown".to_owned())
        };
        assert_eq!((refused.status(), refused.code()), expected, "{name}");
        if refused.status() == 401 {
            let challenge = refused.header("www-authenticate");
            assert_eq!(challenge, Some("Bearer error=\"invalid_token\""), "{name}");
        }
    }
    let nobody = pay(&gateway, None).await;
    assert_eq!((nobody.status(), nobody.code()), (401, "tenant-unknown".to_owned()));
    assert_eq!((upstream.connections(), elsewhere.connections()), (0, 0));
}

/// The claims with one replaced, or left out where the value is `null`.
fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    claims
}
