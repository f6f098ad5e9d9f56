//! Tests several sources together: their order, refusals, and what is never shown.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstwrite::Policies;
use http::{HeaderValue, Method, Request};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;

use super::jwt::signer::Signer;
use super::settings::{
    Algorithm, ApiKey, ApiKeySettings, AuthorizationSettings, Carrier, CertificateName,
    CertificateSettings, Document, HeaderSettings, JwtSettings, KeyDigest,
};
use super::*;

const NOW: u64 = 1_000_000;

fn clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

fn jwt(signer: &Signer) -> Source {
    Source::Jwt(JwtSettings {
        issuer: "i".to_owned(),
        audience: vec!["payments".to_owned()],
        algorithms: vec![Algorithm::EdDsa],
        jwks: Document::Text(signer.keys().to_string()),
        tenant: "sub".to_owned(),
        principal: "sub".to_owned(),
        leeway: Duration::ZERO,
        types: vec!["JWT".to_owned()],
        namespace: None,
    })
}

fn api_keys() -> Source {
    Source::ApiKeys(ApiKeySettings {
        keys: vec![ApiKey {
            sha256: KeyDigest::of(b"sk_1"),
            tenant: "by-key".to_owned(),
            principal: Some("ci".to_owned()),
        }],
        table: None,
        accept: vec![Carrier::Bearer, Carrier::Basic],
        header: Some("x-api-key".to_owned()),
        starts_with: "sk_".to_owned(),
    })
}

fn header() -> Source {
    Source::Header(HeaderSettings {
        tenant: "x-tenant".to_owned(),
        principal: Some("x-user".to_owned()),
        peers: vec!["10.0.0.0/8".to_owned()],
        namespace: String::new(),
    })
}

fn certificate() -> Source {
    Source::Certificate(CertificateSettings {
        tenant: CertificateName::CommonName,
        principal: None,
        namespace: String::new(),
    })
}

fn digest() -> Source {
    Source::Authorization(AuthorizationSettings::default())
}

fn tenants(sources: Vec<Source>, anonymous: Anonymous) -> Tenants {
    Tenants::new(&Settings { anonymous, sources }, clock).unwrap()
}

fn request(peer: Option<Peer>, sent: &[(&str, &str)]) -> Parts {
    let mut request = Request::post("/payments").body(()).unwrap();
    for (name, value) in sent {
        let name = HeaderName::try_from(*name).unwrap();
        request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
    }
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    request.into_parts().0
}

fn peer(address: &str, common_name: Option<&str>) -> Peer {
    let certificate = common_name.map(|name| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec().into()
    });
    Peer::new(address.parse().unwrap(), true, certificate)
}

fn ask(tenants: &Tenants, request: &Parts) -> Result<String, Refusal> {
    tenants.ask(request).map(|identity| identity.tenant.as_str().to_owned())
}

fn refused(reason: Reason, challenge: Option<&'static str>) -> Refusal {
    Refusal { reason, challenge }
}

#[test]
fn the_first_source_with_a_credential_decides() {
    let signer = Signer::new();
    let claims = json!({ "iss": "i", "aud": "payments", "exp": NOW + 1, "sub": "by-token" });
    let token = format!("Bearer {}", signer.token(Algorithm::EdDsa, &claims));
    let basic = format!("Basic {}", STANDARD.encode("sk_1:"));
    let sources = vec![certificate(), jwt(&signer), api_keys(), header(), digest()];
    let tenants = tenants(sources, Anonymous::Never);
    let proxy = || Some(peer("10.1.2.3", None));
    let cases = [
        (Some(peer("1.2.3.4", Some("by-name"))), vec![("authorization", &*token)], "by-name"),
        (None, vec![("authorization", &*token), ("x-api-key", "sk_1")], "by-token"),
        (None, vec![("authorization", "Bearer sk_1")], "by-key"),
        (None, vec![("authorization", &*basic)], "by-key"),
        (proxy(), vec![("x-api-key", "sk_1"), ("x-tenant", "by-header")], "by-key"),
        (proxy(), vec![("x-tenant", "by-header"), ("authorization", "Other x")], "by-header"),
        (
            Some(peer("11.1.2.3", None)),
            vec![("x-tenant", "by-header"), ("authorization", "ApiKey x")],
            "auth-",
        ),
    ];
    for (peer, sent, expected) in cases {
        let found = ask(&tenants, &request(peer, &sent)).unwrap();
        assert!(found.starts_with(expected), "{found} {expected}");
    }
}

#[test]
fn a_credential_that_does_not_hold_is_a_refusal_and_no_other_is_asked() {
    let signer = Signer::new();
    let claims = json!({ "iss": "i", "aud": "payments", "exp": NOW - 1, "sub": "by-token" });
    let expired = format!("Bearer {}", signer.token(Algorithm::EdDsa, &claims));
    let wrong_basic = format!("Basic {}", STANDARD.encode("sk_2:"));
    let sources = vec![certificate(), jwt(&signer), api_keys(), header(), digest()];
    // Even where no credential is needed, and with a proxy that vouches for the caller.
    let tenants = tenants(sources, Anonymous::Everywhere);
    let bearer = Some("Bearer error=\"invalid_token\"");
    let cases = [
        (vec![("authorization", &*expired)], refused(Reason::Expired, bearer)),
        (vec![("authorization", "Bearer")], refused(Reason::Malformed, bearer)),
        (vec![("authorization", "bearer x")], refused(Reason::Malformed, bearer)),
        (vec![("authorization", "Bearer\tx")], refused(Reason::Malformed, bearer)),
        (vec![("authorization", "Bearer sk_2")], refused(Reason::KeyUnknown, bearer)),
        (vec![("authorization", &*wrong_basic)], refused(Reason::KeyUnknown, Some("Bearer"))),
        (vec![("x-api-key", "sk_2")], refused(Reason::KeyUnknown, Some("Bearer"))),
        (vec![("x-tenant", "anonymous")], refused(Reason::NameReserved, Some("Bearer"))),
        (
            vec![("authorization", "Bearer sk_1"), ("authorization", "Bearer sk_1")],
            refused(Reason::SeveralValues, Some("Bearer")),
        ),
    ];
    for (mut sent, expected) in cases {
        if sent[0].0 != "x-tenant" {
            sent.push(("x-tenant", "by-header"));
        }
        let request = request(Some(peer("10.1.2.3", None)), &sent);
        assert_eq!(ask(&tenants, &request), Err(expected), "{sent:?}");
        let refusal = tenants.resolve(&request).unwrap_err();
        assert_eq!(
            (refusal.kind(), refusal.status().as_u16()),
            (RejectionKind::TenantUnknown, 401)
        );
    }
    let named_twice =
        Peer { certificate: Some(b"no certificate".to_vec().into()), ..peer("10.1.2.3", None) };
    let request = request(Some(named_twice), &[("x-api-key", "sk_1")]);
    assert_eq!(ask(&tenants, &request), Err(refused(Reason::Certificate, Some("Bearer"))));
}

#[test]
fn nobody_is_anonymous_unless_the_settings_say_so() {
    let nobody = request(None, &[]);
    let never = tenants(vec![digest()], Anonymous::Never);
    assert_eq!(ask(&never, &nobody), Err(refused(Reason::NoCredential, None)));
    let everywhere = tenants(vec![digest()], Anonymous::Everywhere);
    assert_eq!(ask(&everywhere, &nobody).as_deref(), Ok("anonymous"));
    assert!(everywhere.identify(&nobody).unwrap().bound().is_err());

    let names = BTreeSet::from(["POST /payments/{id}/refunds".to_owned()]);
    let some = || tenants(vec![digest()], Anonymous::Operations(names.clone()));
    let policies = Policies::new().operation(
        Method::POST,
        "/payments/{id}/refunds",
        firstwrite::Policy::default(),
    );
    let check = |tenants: &Tenants, method: Method, path: &str, expected: bool| {
        let (mut request, ()) = Request::new(()).into_parts();
        (request.method, request.uri) = (method, path.parse().unwrap());
        assert_eq!(tenants.identify(&request).is_ok(), expected, "{path}");
    };
    let named = some().operations_from(policies);
    check(&named, Method::POST, "/payments/7/refunds", true);
    check(&named, Method::POST, "/payments", false);
    check(&named, Method::POST, "/payments/7/refunds/1", false);
    check(&named, Method::GET, "/payments/7/refunds", false);
    check(&named, Method::GET, "/.firstwrite/operations/key", false);
    // Without a table of operations there are no names to go by.
    check(&some(), Method::POST, "/payments/7/refunds", false);
}

#[test]
fn nobody_is_anonymous_by_a_credential_that_no_source_claims() {
    let open = tenants(vec![api_keys(), header()], Anonymous::Everywhere);
    let from = |address: &str, sent: &[(&str, &str)]| {
        ask(&open, &request(Some(peer(address, None)), sent))
    };
    let unclaimed = || Err(refused(Reason::Unclaimed, Some("Bearer")));
    for value in ["Bearer foo", "Basic eDp5", "Digest a=b", "ApiKey x", "foo", ""] {
        assert_eq!(from("11.1.2.3", &[("authorization", value)]), unclaimed(), "{value:?}");
    }
    // A listed proxy that names a principal and no tenant.
    assert_eq!(from("10.1.2.3", &[("x-user", "alice")]), unclaimed());
    // From others these headers are not read.
    let unread = [("x-user", "alice"), ("x-tenant", "acme")];
    assert_eq!(from("11.1.2.3", &unread).as_deref(), Ok("anonymous"));
    assert_eq!(from("11.1.2.3", &[]).as_deref(), Ok("anonymous"));
    let closed = tenants(vec![certificate()], Anonymous::Everywhere);
    let sent = request(None, &[("authorization", "Bearer foo")]);
    assert_eq!(ask(&closed, &sent), Err(refused(Reason::Unclaimed, None)));
}

#[test]
fn by_authorization_a_caller_without_one_is_refused() {
    let tenants = Tenants::new(&Settings::authorization(), clock).unwrap();
    let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
    let resolve = |sent: &[(&'static str, &str)]| tenants.resolve(&request(None, sent)).ok();
    assert_eq!(resolve(&[]), None);
    assert!(resolve(&twice[..1]).unwrap().as_str().starts_with("auth-"));
    assert_ne!(resolve(&twice[..1]), resolve(&twice[1..]));
    for sent in [&twice[..], &[("authorization", "")]] {
        assert_eq!(resolve(sent), None, "{sent:?}");
    }
}

#[test]
fn a_single_tenant_is_whoever_calls() {
    let tenants = Tenants::new(&Settings::single(), clock).unwrap();
    for sent in [&[][..], &[("authorization", "Bearer a")], &[("authorization", "")]] {
        assert_eq!(tenants.resolve(&request(None, sent)).unwrap().as_str(), "single", "{sent:?}");
    }
    let beside = Settings {
        sources: vec![digest(), Settings::single().sources.remove(0)],
        ..Settings::single()
    };
    assert!(Tenants::new(&beside, clock).unwrap_err().to_string().contains("stands alone"));
    let open = Settings { anonymous: Anonymous::Everywhere, ..Settings::single() };
    assert!(Tenants::new(&open, clock).unwrap_err().to_string().contains("nobody is anonymous"));
}

#[test]
fn a_credential_that_changes_is_refused_by_the_name_of_the_setting() {
    let tenants = Tenants::new(&Settings::authorization(), clock).unwrap();
    let token = request(None, &[("authorization", "Bearer eyJh.e30.c2ln")]);
    let refusal = tenants.resolve(&token).unwrap_err();
    assert_eq!(refusal.kind(), RejectionKind::TenantUnknown);
    assert!(refusal.to_detail().contains("accept_changing"), "{}", refusal.to_detail());
}

#[test]
fn a_refusal_says_which_credentials_are_asked_for() {
    let signer = Signer::new();
    let basic_only = || {
        let Source::ApiKeys(settings) = api_keys() else { panic!("they are API keys") };
        Source::ApiKeys(ApiKeySettings { accept: vec![Carrier::Basic], ..settings })
    };
    let cases = [
        (vec![jwt(&signer)], Some("Bearer")),
        (vec![api_keys()], Some("Bearer")),
        (vec![basic_only()], Some("Basic realm=\"gateway\"")),
        (vec![basic_only(), jwt(&signer)], Some("Bearer")),
        (vec![header(), certificate(), digest()], None),
    ];
    for (sources, expected) in cases {
        let refusal = tenants(sources, Anonymous::Never).identify(&request(None, &[])).unwrap_err();
        let response = refusal.to_response();
        let found = response.headers().get("www-authenticate").map(|it| it.to_str().unwrap());
        assert_eq!(found, expected);
    }
}

#[test]
fn headers_that_a_peer_may_not_set_are_named() {
    let tenants = tenants(vec![header(), digest()], Anonymous::Never);
    let names = |peer: Option<Peer>| -> Vec<String> {
        tenants.untrusted_headers(peer.as_ref()).map(ToString::to_string).collect()
    };
    assert_eq!(names(Some(peer("11.0.0.1", None))), ["x-tenant", "x-user"]);
    assert_eq!(names(None), ["x-tenant", "x-user"]);
    assert!(names(Some(peer("10.0.0.1", None))).is_empty());
    assert!(names(Some(peer("::ffff:10.0.0.1", None))).is_empty());
    assert_eq!(tenants.trusted_headers().count(), 2);
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn no_credential_is_logged_shown_or_sent_back() {
    let signer = Signer::new();
    let sources = vec![jwt(&signer), api_keys(), header(), digest()];
    let tenants = tenants(sources, Anonymous::Never);
    let claims = json!({ "iss": "i", "aud": "payments", "exp": 1, "sub": "canary-subject" });
    let token = format!("Bearer {}", signer.token(Algorithm::EdDsa, &claims));
    let basic = format!("Basic {}", STANDARD.encode("sk_canary:"));
    let secrets = ["canary", &token[7..], &basic[6..], &STANDARD.encode("canary")];
    let sent = [
        ("authorization", &*token),
        ("authorization", "Bearer canary.canary.canary"),
        ("authorization", "Bearer sk_canary"),
        ("authorization", &*basic),
        ("x-api-key", "canary"),
        ("x-tenant", "canary,canary"),
    ];
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // With only one subscriber, a thread without one may reach the callsite first and disable it for all
    // threads.
    let _second = tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
    tracing::subscriber::with_default(subscriber, || {
        for header in sent {
            let request = request(Some(peer("10.0.0.1", None)), &[header]);
            let refusal = tenants.identify(&request).unwrap_err();
            let shown = format!("{refusal:?} {refusal} {:?} {tenants:?}", refusal.to_response());
            assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
        }
    });
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(logged.lines().count(), sent.len(), "{logged}");
    assert!(secrets.iter().all(|secret| !logged.contains(secret)), "{logged}");
    // Who verifies it elsewhere is named by a digest.
    let digest = ask(&tenants, &request(None, &[("authorization", "Token canary")])).unwrap();
    assert!(!digest.contains("anary"), "{digest}");
}
