//! The rules as tables.

use std::sync::Arc;

use firstwrite_core::ProblemBase;
use http::Request;
use http::header::{AUTHORIZATION, FORWARDED, VIA};

use super::*;
use crate::operations::Operations;
use crate::tenants::Settings;
use crate::tenants::Tenants;
use crate::tenants::settings::{HeaderSettings, Source};
use crate::upstream::Upstreams;

fn forwarded(headers: &[(&'static str, &str)]) -> HeaderMap {
    forwarded_by(Forwarding::default(), headers)
}

fn forwarded_by(forwarding: Forwarding, headers: &[(&'static str, &str)]) -> HeaderMap {
    let parts = forwarded_to("http://shop.example:8080/pay?a=1", forwarding, headers);
    assert_eq!(parts.uri, "/pay?a=1");
    assert_eq!(parts.version, Version::HTTP_11);
    parts.headers
}

fn forwarded_to(target: &str, forwarding: Forwarding, headers: &[(&'static str, &str)]) -> Parts {
    let mut request = Request::post(target).body(()).unwrap();
    for (name, value) in headers {
        request.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
    }
    let address = "192.0.2.7".parse().unwrap();
    request.extensions_mut().insert(Peer::new(address, true, None));
    let (mut parts, ()) = request.into_parts();
    let source = Source::Header(HeaderSettings {
        tenant: "x-tenant".to_owned(),
        principal: None,
        peers: vec!["10.0.0.0/8".to_owned()],
        namespace: String::new(),
    });
    let settings = Settings::of(source);
    let tenants = Tenants::new(&settings, || std::time::UNIX_EPOCH).unwrap();
    let operations = Operations::only_named();
    let names = Arc::new(Names::new(&tenants, &operations));
    let target = crate::Target::new("http://127.0.0.1:9").unwrap();
    let calls = Calls {
        upstreams: Arc::new(Upstreams::new(&[target], Calling::default()).unwrap()),
        forwarding,
        operations: Arc::new(operations),
        tenants: Arc::new(tenants),
        names,
        cors: None,
        problem_base: ProblemBase::default(),
        metrics: None,
        tracer: None,
        clock: || std::time::UNIX_EPOCH,
        lines: crate::stack::Lines::default(),
        unprotected: crate::unprotected::Unprotected::default(),
    };
    let _is_framed = super::request(&mut parts, &calls);
    parts
}

#[test]
fn a_target_that_ends_behind_its_host_is_a_slash() {
    for (target, expected) in [
        ("http://shop.example", "/"),
        ("http://shop.example#b", "/"),
        ("http://shop.example?a=1", "/?a=1"),
        ("http://shop.example/#b", "/"),
        ("/", "/"),
        ("*", "*"),
    ] {
        let parts = forwarded_to(target, Forwarding::default(), &[("host", "shop.example")]);
        assert_eq!(parts.uri.to_string(), expected, "{target}");
    }
}

#[test]
fn what_belongs_to_one_connection_stays_here() {
    let headers = forwarded(&[
        ("connection", "keep-alive, x-hop"),
        ("keep-alive", "timeout=5"),
        ("x-hop", "1"),
        ("te", "gzip"),
        ("trailer", "x-sum"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "Basic eA=="),
        ("content-length", "7"),
        ("x-end", "2"),
    ]);
    for gone in HOP_BY_HOP.iter().chain([&CONTENT_LENGTH, &HeaderName::from_static("x-hop")]) {
        assert!(!headers.contains_key(gone), "{gone}");
    }
    assert_eq!(headers["x-end"], "2");
    assert_eq!(forwarded(&[("te", "trailers, deflate")])[TE], "trailers");
}

#[test]
fn nobody_can_have_credentials_dropped() {
    let headers = forwarded(&[
        ("connection", "Authorization, Idempotency-Key, Host, Cookie"),
        ("authorization", "Bearer t"),
        ("idempotency-key", "k"),
        ("cookie", "a=b"),
    ]);
    assert_eq!(headers[AUTHORIZATION], "Bearer t");
    assert_eq!(
        (&headers[IDEMPOTENCY_KEY], &headers[COOKIE]),
        (&"k".parse().unwrap(), &"a=b".parse().unwrap())
    );
    assert_eq!(headers[HOST], "shop.example:8080");
}

#[test]
fn what_only_the_gateway_says_is_said_by_nobody_else() {
    let headers = forwarded(&[
        ("forwarded", "for=10.0.0.1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-host", "bank.example"),
        ("x-forwarded-proto", "gopher"),
        ("x-forwarded-port", "1"),
        ("x-real-ip", "10.0.0.1"),
        ("x-tenant", "acme"),
        ("firstwrite-record", "0"),
        ("firstwrite-fence", "1"),
        ("firstwrite-tenant", "acme"),
        ("firstwrite-key", "k"),
    ]);
    assert_eq!(headers[FORWARDED], "for=192.0.2.7;host=\"shop.example:8080\";proto=https");
    assert_eq!(headers[X_FORWARDED_FOR], "192.0.2.7");
    assert_eq!(headers[X_FORWARDED_HOST], "shop.example:8080");
    assert_eq!(headers[X_FORWARDED_PROTO], "https");
    for gone in ["x-forwarded-port", "x-real-ip", "x-tenant", "firstwrite-record"] {
        assert!(!headers.contains_key(gone), "{gone}");
    }
    for gone in [FIRSTWRITE_FENCE, FIRSTWRITE_TENANT, FIRSTWRITE_KEY] {
        assert!(!headers.contains_key(gone));
    }
    assert_eq!(headers[VIA], "1.1 firstwrite");
}

#[test]
fn what_a_listed_proxy_says_is_kept_and_its_own_address_added() {
    let said = [
        ("forwarded", "for=203.0.113.5;proto=https"),
        ("x-forwarded-for", "203.0.113.5"),
        ("x-forwarded-for", "198.51.100.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "api.shop.example"),
        ("x-real-ip", "203.0.113.5"),
    ];
    let trusted_proxies = vec![Network::parse("192.0.2.0/24").unwrap()];
    let headers = forwarded_by(Forwarding { trusted_proxies, ..Forwarding::default() }, &said);
    assert_eq!(
        headers[FORWARDED],
        "for=203.0.113.5;proto=https, for=192.0.2.7;host=\"shop.example:8080\";proto=https"
    );
    assert_eq!(headers[X_FORWARDED_FOR], "203.0.113.5, 198.51.100.1, 192.0.2.7");
    assert_eq!(headers.get_all(X_FORWARDED_FOR).iter().count(), 1);
    assert_eq!(headers[X_FORWARDED_PROTO], "https");
    assert_eq!(headers[X_FORWARDED_HOST], "api.shop.example");
    assert_eq!(headers[X_REAL_IP], "203.0.113.5");
    let trusted_proxies = vec![Network::parse("192.0.3.0/24").unwrap()];
    let headers = forwarded_by(Forwarding { trusted_proxies, ..Forwarding::default() }, &said);
    assert_eq!(headers[X_FORWARDED_FOR], "192.0.2.7");
    assert!(!headers.contains_key(X_REAL_IP));
}

#[test]
fn an_answer_keeps_what_is_for_the_client() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("set-cookie", "a=b"),
        ("content-length", "3"),
        ("transfer-encoding", "chunked"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let left = |mut headers: HeaderMap| {
        response(&mut headers);
        let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
        left.sort_unstable();
        left
    };
    assert_eq!(left(headers.clone()), ["set-cookie"], "of two framings the length does not count");
    headers.remove("transfer-encoding");
    assert_eq!(left(headers), ["content-length", "set-cookie"]);
}
