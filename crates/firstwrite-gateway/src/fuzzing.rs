//! Fuzz targets for input from the network, as functions of bytes: see `fuzz/`. They panic where a rule does
//! not hold.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use firstwrite::ResponseBody;
use firstwrite_core::codec::path::is_misread;
use http::header::{
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, HOST, ORIGIN, TRANSFER_ENCODING,
    VARY,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};

use crate::age::{AgeLimit, Signed};
use crate::cors::Cors;
use crate::forward::fuzzing::forwarded;
use crate::tenants::fuzzing::{claims, jwks, jws};
use crate::tenants::settings::Anonymous;
use crate::tenants::{Network, Settings};
use crate::{head, path};

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("head", request),
    ("jws", jws),
    ("claims", claims),
    ("jwks", jwks),
    ("network", network),
    ("tenants", tenants),
];

/// The origin whose pages may read answers.
const LISTED: &str = "https://shop.example";

/// The head of a request, a line with a method and a target, then headers: it is judged, its age and its origin
/// are looked at, and it is forwarded.
fn request(bytes: &[u8]) {
    let Some(request) = read(bytes) else { return };
    check_age(&request);
    check_origin(&request);
    if head::check(&request).is_err() {
        return;
    }
    let target = request.uri.path();
    assert!(path::is_own(target) || !is_misread(target), "a path that is read in two ways");
    assert!(request.headers.get_all(HOST).iter().count() <= 1, "more than one host");
    assert!(request.headers.get_all(TRANSFER_ENCODING).iter().count() <= 1, "two codings");
    forwarded(request);
}

/// A network by its address and length: it has its own address, and is not everybody.
fn network(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(network) = Network::parse(text) else { return };
    let first: Option<IpAddr> = text.split('/').next().and_then(|address| address.parse().ok());
    assert!(first.is_some_and(|first| network.contains(first)), "without its own address");
    let strangers: [IpAddr; 4] = [
        [0, 0, 0, 0].into(),
        [255, 255, 255, 255].into(),
        [0_u16; 8].into(),
        [0xffff_u16; 8].into(),
    ];
    assert!(!strangers.iter().all(|stranger| network.contains(*stranger)), "everybody");
}

/// The choice of a source in one line: what is taken has one source and lets nobody in without a credential.
fn tenants(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Settings>() {
        Ok(settings) => {
            assert_eq!((settings.sources.len(), &settings.anonymous), (1, &Anonymous::Never));
            drop(settings.check());
        }
        Err(error) => assert!(!error.to_string().trim().is_empty(), "refused without a word"),
    }
}

fn read(bytes: &[u8]) -> Option<Parts> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let mut words = first.splitn(3, |byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut request = Request::builder().method(method).uri(target).body(()).ok()?;
    for line in lines {
        let mut words = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (words.next()?, words.next()?);
        let name = HeaderName::from_bytes(name).ok()?;
        request.headers_mut().append(name, HeaderValue::from_bytes(value.trim_ascii()).ok()?);
    }
    Some(request.into_parts().0)
}

/// A request without a timestamp, or with two, has no age; one that nobody signed has none either.
fn check_age(request: &Parts) {
    let header = HeaderName::from_static("x-made-at");
    let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    let mut limit = AgeLimit { header, max: Duration::from_mins(10), signed: None };
    if limit.check(request, now).is_ok() {
        assert_eq!(request.headers.get_all(&limit.header).iter().count(), 1, "one timestamp");
    }
    let header = HeaderName::from_static("x-made-by");
    limit.signed = Some(Signed { header, secret: b"a secret of this target".to_vec() });
    assert!(limit.check(request, now).is_err(), "a timestamp that nobody signed");
}

/// Only pages of the listed origin are let in, and caches are told that it depends on the origin.
fn check_origin(request: &Parts) {
    let Ok(cors) = Cors::new(&[LISTED.to_owned()], true, &[]) else { return };
    let origin = request.headers.get(ORIGIN);
    let is_listed = origin.is_some_and(|origin| origin == LISTED);
    if let Some(answer) = cors.preflight(request) {
        let is_let_in = answer.headers().contains_key(ACCESS_CONTROL_ALLOW_METHODS);
        assert_eq!(is_let_in, is_listed, "a preflight of another origin");
    }
    let mut answer = Response::new(ResponseBody::from(Bytes::new()));
    *answer.headers_mut() = request.headers.clone();
    cors.allow(origin, &mut answer);
    let allowed = answer.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN);
    assert_eq!(allowed.is_some_and(|allowed| allowed == LISTED), is_listed);
    assert!(is_listed || allowed.is_none(), "an answer that another origin may read");
    assert!(answer.headers().get_all(VARY).iter().any(|names| names == "origin"));
}
