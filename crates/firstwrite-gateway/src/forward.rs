//! Which headers pass to an upstream and back, and what the gateway says of itself.

use std::fmt::Write as _;
use std::net::IpAddr;

use firstwrite::Attempt;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, FORWARDED, HOST,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};

use crate::head::tokens;
use crate::peer::Peer;
use crate::tenants::Tenants;

/// Which record an upstream may complete itself: its id, and what `firstwrite.complete` takes.
pub const FIRSTWRITE_RECORD: HeaderName = HeaderName::from_static("firstwrite-record");
/// Whose record it is.
pub const FIRSTWRITE_TENANT: HeaderName = HeaderName::from_static("firstwrite-tenant");
/// Under which key the client sent it.
pub const FIRSTWRITE_KEY: HeaderName = HeaderName::from_static("firstwrite-key");
/// The fence of this attempt.
pub const FIRSTWRITE_FENCE: HeaderName = HeaderName::from_static("firstwrite-fence");

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The step by which the key of the forwarded call is derived from the client's.
pub(crate) const STEP: &str = "forward";

/// Headers that are about one connection. Their meaning ends here.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Headers that nobody can have dropped by naming them in `Connection`.
const END_TO_END: [HeaderName; 6] =
    [AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, IDEMPOTENCY_KEY];

/// What only the gateway says; from a client it is a lie.
const OURS: [HeaderName; 10] = [
    FIRSTWRITE_RECORD,
    FIRSTWRITE_TENANT,
    FIRSTWRITE_KEY,
    FIRSTWRITE_FENCE,
    FORWARDED,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    X_FORWARDED_PORT,
    X_REAL_IP,
];

/// Which key an upstream sees where the gateway keeps one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedKey {
    /// One that is made of the client's and a mark of its tenant: constant over all attempts, and
    /// never another tenant's.
    #[default]
    Derived,
    /// The client's own.
    Original,
    /// None.
    Nothing,
}

/// How requests are passed on.
#[derive(Clone, Debug, Default)]
pub struct Forwarding {
    /// Which key the upstream sees.
    pub key: ForwardedKey,
    /// Whether the upstream is told which record it may complete.
    pub tells_record: bool,
}

/// Makes a client's request one of ours to an upstream.
pub(crate) fn request(parts: &mut Parts, forwarding: &Forwarding, tenants: &Tenants) {
    let host = host(parts);
    let peer = parts.extensions.get::<Peer>().cloned();
    let trailers = tokens(&parts.headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    drop_hop_by_hop(&mut parts.headers);
    for name in OURS.iter().chain(tenants.untrusted_headers(peer.as_ref())) {
        parts.headers.remove(name);
    }
    // The body knows its length; a second opinion could differ.
    parts.headers.remove(CONTENT_LENGTH);
    if trailers {
        parts.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(peer) = &peer {
        say_for_whom(&mut parts.headers, peer, host.as_ref());
    }
    if let Some(attempt) = parts.extensions.get::<Attempt>().cloned() {
        say_which_record(&mut parts.headers, &attempt, forwarding);
    }
    if let Some(host) = host {
        parts.headers.insert(HOST, host);
    }
    let target = parts.uri.path_and_query().cloned();
    parts.uri = Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
    parts.version = Version::HTTP_11;
}

/// Makes an upstream's answer one of ours to a client.
pub(crate) fn response(headers: &mut HeaderMap) {
    drop_hop_by_hop(headers);
}

/// The host that was asked for, wherever it was named.
fn host(parts: &Parts) -> Option<HeaderValue> {
    let named = parts.uri.authority().and_then(|named| HeaderValue::from_str(named.as_str()).ok());
    named.or_else(|| parts.headers.get(HOST).cloned())
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
            .filter_map(|token| token.parse().ok())
            .filter(|name| !END_TO_END.contains(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

fn say_for_whom(headers: &mut HeaderMap, peer: &Peer, host: Option<&HeaderValue>) {
    let proto = if peer.is_secure { "https" } else { "http" };
    let mut forwarded = match peer.address {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    };
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let is_plain =
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        let written = if is_plain {
            write!(forwarded, ";host={host}")
        } else {
            write!(forwarded, ";host=\"{}\"", host.replace(['"', '\\'], ""))
        };
        debug_assert!(written.is_ok(), "a string takes what is written to it");
    }
    forwarded.push_str(";proto=");
    forwarded.push_str(proto);
    let address = peer.address.to_string();
    for (name, value) in [(FORWARDED, forwarded), (X_FORWARDED_FOR, address)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
    if let Some(host) = host {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    headers.append(VIA, HeaderValue::from_static("1.1 firstwrite"));
}

fn say_which_record(headers: &mut HeaderMap, attempt: &Attempt, forwarding: &Forwarding) {
    match forwarding.key {
        ForwardedKey::Original => {}
        ForwardedKey::Nothing => {
            headers.remove(IDEMPOTENCY_KEY);
        }
        ForwardedKey::Derived => {
            headers.remove(IDEMPOTENCY_KEY);
            if let Ok(key) = attempt.wire_key(STEP)
                && let Ok(value) = HeaderValue::try_from(key)
            {
                headers.insert(IDEMPOTENCY_KEY, value);
            }
        }
    }
    if !forwarding.tells_record {
        return;
    }
    let fence = attempt.fence().map(|fence| fence.as_u64().cast_signed().to_string());
    for (name, value) in [
        (FIRSTWRITE_RECORD, Some(attempt.record_id().to_string())),
        (FIRSTWRITE_TENANT, Some(attempt.tenant().as_str().to_owned())),
        (FIRSTWRITE_KEY, Some(attempt.key().as_str().to_owned())),
        (FIRSTWRITE_FENCE, fence),
    ] {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests;
