//! Requests on their way to an upstream, for [`crate::fuzzing`].

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use firstwrite_core::ProblemBase;
use http::header::{AUTHORIZATION, COOKIE, FORWARDED, HOST, TE};
use http::request::Parts;

use super::names::Names;
use super::{
    Calling, Calls, Forwarding, HeaderValue, IDEMPOTENCY_KEY, Peer, X_FORWARDED_FOR,
    X_FORWARDED_PROTO, host, is_dropped_from_requests,
};
use crate::operations::Operations;
use crate::stack::Lines;
use crate::tenants::settings::{HeaderSettings, Source};
use crate::tenants::{Settings, Tenants};
use crate::upstream::Upstreams;

/// Checks that an accepted request, sent by a stranger, says to the upstream nothing that only the gateway or a
/// trusted proxy may say, and keeps what it said about itself.
pub(crate) fn forwarded(request: Parts) {
    static CALLS: OnceLock<Option<Calls>> = OnceLock::new();
    let Some(calls) = CALLS.get_or_init(calls) else { return };
    let mut trailers = request.headers.clone();
    super::trailers(&mut trailers, &calls.names);
    for name in trailers.keys() {
        assert!(!is_dropped_from_requests(name, &calls.names), "{name} behind a body");
        assert!(!Names::is_head_only(name), "{name} behind a body");
    }

    let before = request.clone();
    let mut sent = request;
    let Ok(address) = "192.0.2.7".parse() else { return };
    sent.extensions.insert(Peer::new(address, true, None));
    let _is_framed = super::request(&mut sent, calls);
    let headers = &sent.headers;
    assert!(sent.uri.authority().is_none(), "a target of its own");
    assert_eq!(sent.uri.path(), before.uri.path(), "another path than was judged");
    assert_eq!(sent.uri.query(), before.uri.query(), "another query than was judged");
    for name in headers.keys().filter(|name| **name != TE) {
        assert!(!is_dropped_from_requests(name, &calls.names), "{name} is passed on");
    }
    assert!(headers.get_all(TE).iter().all(|value| value == "trailers"));
    assert!(!headers.contains_key("x-tenant"), "the tenant that a stranger names");
    assert_eq!(headers.get(X_FORWARDED_FOR).map(HeaderValue::as_bytes), Some(&b"192.0.2.7"[..]));
    assert_eq!(headers.get(X_FORWARDED_PROTO).map(HeaderValue::as_bytes), Some(&b"https"[..]));
    for name in [HOST, COOKIE, X_FORWARDED_FOR, FORWARDED] {
        assert!(headers.get_all(&name).iter().count() <= 1, "{name} stands there twice");
    }
    assert_eq!(headers.get(HOST), host(&before).as_ref(), "another host than was asked for");
    for name in [AUTHORIZATION, IDEMPOTENCY_KEY] {
        let (had, has) = (before.headers.get_all(&name), headers.get_all(&name));
        assert!(had.iter().eq(has.iter()), "{name} is another");
    }
}

/// A gateway that believes `X-Tenant` of peers in a network of its own.
fn calls() -> Option<Calls> {
    let source = Source::Header(HeaderSettings {
        tenant: "x-tenant".to_owned(),
        principal: None,
        peers: vec!["10.0.0.0/8".to_owned()],
        namespace: String::new(),
    });
    let tenants = Tenants::new(&Settings::of(source), || SystemTime::UNIX_EPOCH).ok()?;
    let operations = Operations::only_named();
    let names = Arc::new(Names::new(&tenants, &operations));
    let target = crate::Target::new("http://127.0.0.1:9").ok()?;
    Some(Calls {
        upstreams: Arc::new(Upstreams::new(&[target], Calling::default()).ok()?),
        forwarding: Forwarding::default(),
        operations: Arc::new(operations),
        tenants: Arc::new(tenants),
        names,
        cors: None,
        problem_base: ProblemBase::default(),
        metrics: None,
        tracer: None,
        clock: || SystemTime::UNIX_EPOCH,
        lines: Lines::default(),
        unprotected: crate::unprotected::Unprotected::default(),
    })
}
