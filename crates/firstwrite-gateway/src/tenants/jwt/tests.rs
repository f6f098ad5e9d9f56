//! Tokens that hold and tokens that do not, each with the reason why.

use std::time::Duration;

use ring::hmac;
use serde_json::{Value, json};

use super::signer::{Signer, encode};
use super::*;
use crate::tenants::settings::{Anonymous, Document, JwtSettings};

const ISSUER: &str = "https://id.example";
/// Far from any real time: nothing here reads a clock.
const NOW: u64 = 1_000_000;

fn settings(signer: &Signer, algorithms: &[Algorithm]) -> JwtSettings {
    JwtSettings {
        issuer: ISSUER.to_owned(),
        audience: vec!["payments".to_owned(), "refunds".to_owned()],
        algorithms: algorithms.to_vec(),
        jwks: Document::Text(signer.keys().to_string()),
        tenant: "sub".to_owned(),
        principal: "sub".to_owned(),
        leeway: Duration::from_secs(30),
        types: vec!["JWT".to_owned(), "at+jwt".to_owned()],
        namespace: None,
    }
}

fn jwt(sources: Vec<JwtSettings>) -> Result<Jwt, SettingsError> {
    let sources = sources.into_iter().map(Source::Jwt).collect();
    Jwt::new(&Settings { anonymous: Anonymous::Never, sources })
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": "payments", "exp": NOW + 60, "sub": "acme" })
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

fn verify(jwt: &Jwt, token: &str) -> Result<String, Reason> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    let identity = jwt.verify(token.as_bytes(), now)?;
    Ok(format!("{} {}", identity.tenant, identity.principal.as_deref().unwrap_or("-")))
}

/// Checks the results of tokens with these claims that are otherwise valid.
fn check_claims(cases: impl IntoIterator<Item = (Value, Result<&'static str, Reason>)>) {
    let signer = Signer::new();
    let jwt = jwt(vec![settings(&signer, &[Algorithm::EdDsa])]).unwrap();
    for (claims, expected) in cases {
        let found = verify(&jwt, &signer.token(Algorithm::EdDsa, &claims));
        assert_eq!(found, expected.map(str::to_owned), "{claims}");
    }
}

#[test]
fn every_algorithm_verifies_its_own_signatures_and_no_other() {
    let signer = Signer::new();
    for algorithm in Algorithm::ALL {
        let jwt = jwt(vec![settings(&signer, &[algorithm])]).unwrap();
        let token = signer.token(algorithm, &claims());
        assert_eq!(verify(&jwt, &token).as_deref(), Ok("acme acme"), "{algorithm:?}");
        for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
            let token = signer.token(other, &claims());
            assert_eq!(verify(&jwt, &token), Err(Reason::Algorithm), "{algorithm:?} {other:?}");
            // Called by the name that is allowed, with the key that is, and signed by another.
            let id = Signer::key_id(algorithm);
            let header = json!({ "alg": algorithm.name(), "kid": id }).to_string();
            let token = signer.sign(other, &header, &claims().to_string());
            assert_eq!(verify(&jwt, &token), Err(Reason::Signature), "{algorithm:?} {other:?}");
        }
    }
}

#[test]
fn a_token_without_a_signature_is_refused() {
    let signer = Signer::new();
    let jwt = jwt(vec![settings(&signer, &Algorithm::ALL)]).unwrap();
    let payload = encode(claims().to_string().as_bytes());
    for name in ["none", "None", "NONE", "nOnE", "", "rs256", "ES512", "A256GCM", "EdDSA "] {
        let header = encode(json!({ "alg": name }).to_string().as_bytes());
        for signature in ["AA", &encode(&[0; 64])] {
            let token = format!("{header}.{payload}.{signature}");
            assert_eq!(verify(&jwt, &token), Err(Reason::Algorithm), "{name}");
        }
        assert_eq!(verify(&jwt, &format!("{header}.{payload}.")), Err(Reason::Algorithm), "{name}");
    }
    let whole = signer.token(Algorithm::RS256, &claims());
    let (signed, signature) = whole.rsplit_once('.').unwrap();
    for stripped in [format!("{signed}."), signed.to_owned(), format!("{whole}."), "..".to_owned()]
    {
        assert_eq!(verify(&jwt, &stripped), Err(Reason::Malformed), "{stripped}");
    }
    // Zeros are a signature of many a broken verifier.
    for length in [1, 32, 64, 96, 256] {
        let zeros = encode(&vec![0; length]);
        for algorithm in Algorithm::ALL {
            let token = signer.token(algorithm, &claims());
            let (signed, _) = token.rsplit_once('.').unwrap();
            let token = format!("{signed}.{zeros}");
            assert_eq!(verify(&jwt, &token), Err(Reason::Signature), "{algorithm:?} {length}");
        }
    }
    // A signature over other claims.
    let other = encode(with("sub", json!("globex")).to_string().as_bytes());
    let header = signed.split('.').next().unwrap();
    let token = format!("{header}.{other}.{signature}");
    assert_eq!(verify(&jwt, &token), Err(Reason::Signature));
}

#[test]
fn a_public_key_is_not_taken_for_a_secret() {
    let signer = Signer::new();
    let rsa = signer.rsa_public();
    let jwk = signer.keys()["keys"][1].to_string();
    let secrets = [rsa.n.clone(), encode(&rsa.n).into_bytes(), jwk.into_bytes(), vec![]];
    let forge = |header: Value, secret: &[u8]| {
        let header = encode(header.to_string().as_bytes());
        let signed = format!("{header}.{}", encode(claims().to_string().as_bytes()));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        format!("{signed}.{}", encode(tag.as_ref()))
    };
    let only_rsa = jwt(vec![settings(&signer, &[Algorithm::RS256])]).unwrap();
    let both = jwt(vec![settings(&signer, &[Algorithm::RS256, Algorithm::HS256])]).unwrap();
    for secret in &secrets {
        let token = forge(json!({ "alg": "HS256", "kid": "rsa" }), secret);
        assert_eq!(verify(&only_rsa, &token), Err(Reason::Algorithm));
        assert_eq!(verify(&both, &token), Err(Reason::NoSuchKey));
        let token = forge(json!({ "alg": "HS256" }), secret);
        assert_eq!(verify(&only_rsa, &token), Err(Reason::Algorithm));
        assert_eq!(verify(&both, &token), Err(Reason::Signature));
    }
}

#[test]
fn the_header_says_what_it_may_say() {
    let signer = Signer::new();
    let jwt = jwt(vec![settings(&signer, &[Algorithm::EdDsa, Algorithm::ES256])]).unwrap();
    let own_key = signer.keys()["keys"][4].clone();
    let url = json!("https://evil.example/keys.json");
    let cases = [
        (json!({ "alg": "EdDSA", "kid": "ed" }), Ok("acme acme")),
        (json!({ "alg": "EdDSA" }), Ok("acme acme")),
        (json!({ "alg": "EdDSA", "typ": "jwt", "x5t": "AA", "more": 1 }), Ok("acme acme")),
        (json!({ "alg": "EdDSA", "typ": "application/at+JWT" }), Ok("acme acme")),
        // Which key it is.
        (json!({ "alg": "EdDSA", "kid": "unknown" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": "p256" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": "" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": "ED" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": "../../../../dev/null" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": "/etc/passwd\0ed" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": "x' UNION SELECT 'key' --" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": "x; sleep 9" }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": url }), Err(Reason::NoSuchKey)),
        (json!({ "alg": "EdDSA", "kid": ["ed"] }), Err(Reason::Malformed)),
        (json!({ "alg": "EdDSA", "kid": null }), Err(Reason::Malformed)),
        // A key, or where to get one, even if it is the right one.
        (json!({ "alg": "EdDSA", "kid": "ed", "jwk": own_key }), Err(Reason::KeyInToken)),
        (json!({ "alg": "EdDSA", "kid": "ed", "jku": url }), Err(Reason::KeyInToken)),
        (json!({ "alg": "EdDSA", "kid": "ed", "x5u": url }), Err(Reason::KeyInToken)),
        (json!({ "alg": "EdDSA", "kid": "ed", "x5c": ["AA"] }), Err(Reason::KeyInToken)),
        (json!({ "alg": "EdDSA", "kid": "ed", "jku": null }), Err(Reason::KeyInToken)),
        // Something that must be understood.
        (json!({ "alg": "EdDSA", "crit": ["exp"] , "exp": 1 }), Err(Reason::CriticalExtension)),
        (json!({ "alg": "EdDSA", "crit": ["b64"], "b64": true }), Err(Reason::CriticalExtension)),
        (json!({ "alg": "EdDSA", "crit": [] }), Err(Reason::CriticalExtension)),
        (json!({ "alg": "EdDSA", "crit": null }), Err(Reason::CriticalExtension)),
        // Another type of token, or none of text.
        (json!({ "alg": "EdDSA", "typ": "logout+jwt" }), Err(Reason::TokenType)),
        (json!({ "alg": "EdDSA", "typ": "dpop+jwt" }), Err(Reason::TokenType)),
        (json!({ "alg": "EdDSA", "typ": "" }), Err(Reason::TokenType)),
        (json!({ "alg": "EdDSA", "typ": "application/x/jwt" }), Err(Reason::TokenType)),
        (json!({ "alg": "EdDSA", "typ": 1 }), Err(Reason::Malformed)),
        (json!({ "alg": "EdDSA", "typ": null }), Err(Reason::Malformed)),
        // No algorithm, or none of text.
        (json!({ "kid": "ed" }), Err(Reason::Algorithm)),
        (json!({ "alg": ["EdDSA"] }), Err(Reason::Malformed)),
        (json!({ "alg": null }), Err(Reason::Malformed)),
        (json!({ "ALG": "EdDSA" }), Err(Reason::Algorithm)),
        (json!([]), Err(Reason::NotStrictJson)),
    ];
    for (header, expected) in cases {
        let token = signer.sign(Algorithm::EdDsa, &header.to_string(), &claims().to_string());
        assert_eq!(verify(&jwt, &token), expected.map(str::to_owned), "{header}");
    }
}

#[test]
fn the_claims_hold_and_are_of_their_type() {
    check_claims([
        (claims(), Ok("acme acme")),
        (with("aud", json!(["other", "refunds"])), Ok("acme acme")),
        // Issuer.
        (with("iss", Value::Null), Err(Reason::Issuer)),
        (with("iss", json!("https://evil.example")), Err(Reason::Issuer)),
        (with("iss", json!("https://id.example/")), Err(Reason::Issuer)),
        (with("iss", json!("https://ID.example")), Err(Reason::Issuer)),
        (with("iss", json!([ISSUER])), Err(Reason::Issuer)),
        (with("iss", json!("")), Err(Reason::Issuer)),
        // Audience.
        (with("aud", Value::Null), Err(Reason::Audience)),
        (with("aud", json!("other")), Err(Reason::Audience)),
        (with("aud", json!("Payments")), Err(Reason::Audience)),
        (with("aud", json!("payments ")), Err(Reason::Audience)),
        (with("aud", json!("")), Err(Reason::Audience)),
        (with("aud", json!([])), Err(Reason::Audience)),
        (with("aud", json!(["other"])), Err(Reason::Audience)),
        (with("aud", json!(["payments", 1])), Err(Reason::Audience)),
        (with("aud", json!([["payments"]])), Err(Reason::Audience)),
        (with("aud", json!({ "payments": true })), Err(Reason::Audience)),
        (with("aud", json!(true)), Err(Reason::Audience)),
    ]);
}

#[test]
fn the_times_hold_and_are_numbers() {
    check_claims([
        (with("exp", Value::Null), Err(Reason::TimeInvalid)),
        (with("exp", json!((NOW + 60).to_string())), Err(Reason::TimeInvalid)),
        (with("exp", json!([NOW + 60])), Err(Reason::TimeInvalid)),
        (with("exp", json!(true)), Err(Reason::TimeInvalid)),
        (with("exp", json!(-1)), Err(Reason::TimeInvalid)),
        (with("exp", json!(0)), Err(Reason::Expired)),
        (with("exp", json!(NOW - 31)), Err(Reason::Expired)),
        // The leeway's last moment is past: a token holds before `exp`, not at it.
        (with("exp", json!(NOW - 30)), Err(Reason::Expired)),
        (with("exp", json!(NOW - 29)), Ok("acme acme")),
        (with("exp", json!(1_000_000.5)), Ok("acme acme")),
        (with("exp", json!(1e300)), Ok("acme acme")),
        (with("exp", json!(u64::MAX)), Ok("acme acme")),
        (with("nbf", json!(NOW)), Ok("acme acme")),
        (with("nbf", json!(NOW + 30)), Ok("acme acme")),
        (with("nbf", json!(NOW + 31)), Err(Reason::NotYet)),
        (with("nbf", json!(1e300)), Err(Reason::NotYet)),
        (with("nbf", json!("0")), Err(Reason::TimeInvalid)),
        (with("nbf", json!(false)), Err(Reason::TimeInvalid)),
        (with("nbf", json!(-1)), Err(Reason::TimeInvalid)),
        (with("iat", json!(NOW)), Ok("acme acme")),
        (with("iat", json!("1000000")), Err(Reason::TimeInvalid)),
    ]);
    let signer = Signer::new();
    let jwt = jwt(vec![settings(&signer, &[Algorithm::EdDsa])]).unwrap();
    // Named with the value null: there, and of the wrong type.
    for name in ["exp", "nbf", "iat"] {
        let mut claims = claims();
        claims[name] = Value::Null;
        let token = signer.token(Algorithm::EdDsa, &claims);
        assert_eq!(verify(&jwt, &token), Err(Reason::TimeInvalid), "{name}");
    }
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    let token = signer.token(Algorithm::EdDsa, &claims());
    assert_eq!(jwt.verify(token.as_bytes(), before), Err(Reason::Clock));
}

#[test]
fn nothing_stands_twice_or_beside_the_object() {
    let signer = Signer::new();
    let jwt = jwt(vec![settings(&signer, &[Algorithm::EdDsa])]).unwrap();
    let header = r#"{"alg":"EdDSA","kid":"ed"}"#;
    let plain = claims().to_string();
    let twice = |text: &str| plain.replacen('{', &format!("{{{text},"), 1);
    let payloads = [
        twice(r#""sub":"globex""#),
        twice(r#""sub":"acme""#),
        twice(r#""s\u0075b":"globex""#),
        twice(r#""exp":9999999"#),
        twice(r#""aud":"payments""#),
        twice(r#""iss":"https://evil.example""#),
        twice(r#""org":{"id":1,"id":2}"#),
        format!("{plain}{plain}"),
        format!("[{plain}]"),
        format!("{plain}x"),
        "acme".to_owned(),
    ];
    for payload in payloads {
        let token = signer.sign(Algorithm::EdDsa, header, &payload);
        assert_eq!(verify(&jwt, &token), Err(Reason::NotStrictJson), "{payload}");
    }
    for header in [r#"{"alg":"EdDSA","alg":"none"}"#, r#"{"alg":"none","alg":"EdDSA"}"#] {
        let token = signer.sign(Algorithm::EdDsa, header, &plain);
        assert_eq!(verify(&jwt, &token), Err(Reason::NotStrictJson), "{header}");
    }
}

#[test]
fn a_token_has_one_spelling() {
    let signer = Signer::new();
    let jwt = jwt(vec![settings(&signer, &[Algorithm::EdDsa])]).unwrap();
    let token = signer.token(Algorithm::EdDsa, &claims());
    assert_eq!(verify(&jwt, &token).as_deref(), Ok("acme acme"));
    let (signed, signature) = token.rsplit_once('.').unwrap();
    // 64 bytes leave four bits of the last letter unused; setting one makes another spelling.
    let (front, last) = signature.split_at(signature.len() - 1);
    let next = char::from(last.as_bytes()[0] + 1);
    let spellings = [
        format!("{token}="),
        format!("{token}=="),
        format!(" {token}"),
        format!("{token} "),
        format!("{token}\n"),
        format!("{signed}.{front}{next}"),
        format!("{signed}. {signature}"),
        format!("{signed}.{}", signature.replacen(front, &format!("{front}+"), 1)),
        format!("{token}, {token}"),
        format!("{{\"token\":\"{token}\"}}"),
        token.replace('.', "%2E"),
    ];
    for spelling in spellings {
        assert_eq!(verify(&jwt, &spelling), Err(Reason::Malformed), "{spelling}");
    }
}

#[test]
fn a_token_over_8_kib_is_refused() {
    let signer = Signer::new();
    let jwt = jwt(vec![settings(&signer, &[Algorithm::EdDsa])]).unwrap();
    let header = r#"{"alg":"EdDSA","typ":"JWT"}"#;
    let token_of = |padding: usize| {
        let claims = with("padding", json!("x".repeat(padding)));
        signer.sign(Algorithm::EdDsa, header, &claims.to_string())
    };
    let overhead = token_of(1).len();
    // Three bytes are four letters: near the limit, some length is reached exactly.
    let near = (8192 - overhead) / 4 * 3;
    let lengths: Vec<usize> = (near - 6..near + 12).map(|it| token_of(it).len()).collect();
    assert!(lengths.contains(&8192) && lengths.contains(&8194), "{lengths:?}");
    for padding in near - 6..near + 12 {
        let token = token_of(padding);
        let expected =
            if token.len() <= 8192 { Ok("acme acme".to_owned()) } else { Err(Reason::TooLong) };
        assert_eq!(verify(&jwt, &token), expected, "{}", token.len());
    }
    assert_eq!(verify(&jwt, &token_of(64 * 1024)), Err(Reason::TooLong));
    assert_eq!(verify(&jwt, &"a".repeat(64 * 1024)), Err(Reason::TooLong));
}

#[test]
fn the_settings_say_which_claims_name_somebody() {
    let signer = Signer::new();
    let check = |tenant: &str, principal: &str, expected: Result<&str, Reason>| {
        let settings = JwtSettings {
            tenant: tenant.to_owned(),
            principal: principal.to_owned(),
            ..settings(&signer, &[Algorithm::EdDsa])
        };
        let mut claims = with("org", json!({ "id": "globex", "a/b": "x", "number": 1 }));
        claims["https://id.example/tenant"] = json!("initech");
        claims["empty"] = json!("");
        claims["control"] = json!("a\nb");
        claims["long"] = json!("x".repeat(256));
        claims["reserved"] = json!("auth-0123456789abcdef01234567");
        let token = signer.token(Algorithm::EdDsa, &claims);
        let found = verify(&jwt(vec![settings]).unwrap(), &token);
        assert_eq!(found, expected.map(str::to_owned), "{tenant} {principal}");
    };
    check("sub", "sub", Ok("acme acme"));
    check("/org/id", "sub", Ok("globex acme"));
    check("/org/a~1b", "sub", Ok("x acme"));
    check("https://id.example/tenant", "sub", Ok("initech acme"));
    check("sub", "missing", Ok("acme -"));
    check("sub", "/org/number", Err(Reason::ClaimInvalid));
    check("missing", "sub", Err(Reason::ClaimInvalid));
    check("org", "sub", Err(Reason::ClaimInvalid));
    check("/org/number", "sub", Err(Reason::ClaimInvalid));
    check("/org/missing", "sub", Err(Reason::ClaimInvalid));
    check("empty", "sub", Err(Reason::NameInvalid));
    check("control", "sub", Err(Reason::NameInvalid));
    check("long", "sub", Err(Reason::NameInvalid));
    check("sub", "empty", Err(Reason::NameInvalid));
    check("reserved", "sub", Err(Reason::NameReserved));
}

#[test]
fn each_issuer_has_its_own_keys_algorithms_and_names() {
    let (ours, theirs) = (Signer::new(), Signer::new());
    let issuer = |name: &str, signer: &Signer, algorithm| JwtSettings {
        issuer: name.to_owned(),
        namespace: Some(format!("{name}:")),
        ..settings(signer, &[algorithm])
    };
    let jwt =
        jwt(vec![issuer("a", &ours, Algorithm::EdDsa), issuer("b", &theirs, Algorithm::ES256)])
            .unwrap();
    let check = |signer: &Signer, algorithm, name: &str, expected: Result<&str, Reason>| {
        let token = signer.token(algorithm, &with("iss", json!(name)));
        assert_eq!(verify(&jwt, &token), expected.map(str::to_owned), "{algorithm:?} {name}");
    };
    check(&ours, Algorithm::EdDsa, "a", Ok("a:acme acme"));
    check(&theirs, Algorithm::ES256, "b", Ok("b:acme acme"));
    // Signed by one in the name of the other.
    check(&theirs, Algorithm::EdDsa, "a", Err(Reason::Signature));
    check(&theirs, Algorithm::ES256, "a", Err(Reason::Algorithm));
    check(&ours, Algorithm::ES256, "b", Err(Reason::Signature));
    check(&ours, Algorithm::EdDsa, "c", Err(Reason::Issuer));
}

#[test]
fn settings_name_what_is_wrong() {
    let signer = Signer::new();
    let check = |change: fn(&mut JwtSettings), expected: &str| {
        let mut settings = settings(&signer, &[Algorithm::RS256]);
        change(&mut settings);
        let problem = jwt(vec![settings]).unwrap_err().to_string();
        assert!(problem.starts_with(expected), "{problem}");
    };
    check(|it| it.issuer.clear(), "sources[0].issuer: ");
    check(|it| it.audience.clear(), "sources[0].audience: ");
    check(|it| it.audience.push(String::new()), "sources[0].audience: ");
    check(|it| it.algorithms.clear(), "sources[0].algorithms: ");
    check(|it| it.types.clear(), "sources[0].types: ");
    check(|it| it.tenant.clear(), "sources[0].tenant: ");
    check(|it| it.principal.clear(), "sources[0].principal: ");
    check(|it| it.leeway = Duration::from_secs(301), "sources[0].leeway: at most five minutes");
    check(|it| it.jwks = Document::Text("{}".to_owned()), "sources[0].jwks: a JWK set is needed");
    let unread = |it: &mut JwtSettings| it.jwks = Document::File("keys.json".to_owned());
    check(unread, "sources[0].jwks: the file keys.json was not read");
    let twice = vec![settings(&signer, &[Algorithm::RS256]); 2];
    assert!(jwt(twice).unwrap_err().to_string().starts_with("sources[1].issuer: another source"));
}
