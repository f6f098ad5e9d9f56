//! Which headers pass to an upstream and back, and what the gateway says of itself.

use bytes::Bytes;
use firstwrite::{Attempt, Effect};
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

/// What an upstream that answers with an error knows about its effect: `none` or `happened`. The gateway
/// takes it off every answer.
pub const FIRSTWRITE_EFFECT: HeaderName = HeaderName::from_static("firstwrite-effect");

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
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
static HOP_BY_HOP: [HeaderName; 9] = [
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
static END_TO_END: [HeaderName; 6] =
    [AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, IDEMPOTENCY_KEY];

/// What only the gateway says; from a client it is a lie.
static OURS: [HeaderName; 10] = [
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
    let peer = parts.extensions.remove::<Peer>();
    let trailers = tokens(&parts.headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    drop_named(&mut parts.headers);
    for name in tenants.untrusted_headers(peer.as_ref()) {
        parts.headers.remove(name);
    }
    drop_where(&mut parts.headers, |name| {
        // The body knows its length; a second opinion could differ.
        *name == CONTENT_LENGTH || HOP_BY_HOP.contains(name) || OURS.contains(name)
    });
    if trailers {
        parts.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(peer) = &peer {
        say_for_whom(&mut parts.headers, peer, host.as_ref());
    }
    if let Some(attempt) = parts.extensions.get::<Attempt>() {
        say_which_record(&mut parts.headers, attempt, forwarding);
    }
    if let Some(host) = host {
        parts.headers.insert(HOST, host);
    }
    let target = parts.uri.path_and_query().cloned();
    parts.uri = Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
    parts.version = Version::HTTP_11;
}

/// Takes off an upstream's answer what it says about its effect. What is not understood is no proof that
/// nothing happened.
pub(crate) fn effect(headers: &mut HeaderMap) -> Option<Effect> {
    let mut said = headers.get_all(FIRSTWRITE_EFFECT).iter().peekable();
    said.peek()?;
    let is_none = said.all(|value| value == "none");
    headers.remove(FIRSTWRITE_EFFECT);
    Some(if is_none { Effect::None } else { Effect::Happened })
}

/// Makes an upstream's answer one of ours to a client.
pub(crate) fn response(headers: &mut HeaderMap) {
    drop_named(headers);
    let has_two_framings = has_two_framings(headers);
    drop_where(headers, |name| {
        HOP_BY_HOP.contains(name)
            || name == FIRSTWRITE_EFFECT
            || (has_two_framings && name == CONTENT_LENGTH)
    });
}

/// Whether a message has a length and a transfer coding, of which the coding counts (RFC 9112, 6.3).
pub(crate) fn has_two_framings(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

/// The host that was asked for, wherever it was named.
fn host(parts: &Parts) -> Option<HeaderValue> {
    let named = parts.uri.authority().and_then(|named| HeaderValue::from_str(named.as_str()).ok());
    named.or_else(|| parts.headers.get(HOST).cloned())
}

/// Drops what `Connection` names: it is about one connection, too.
fn drop_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| token.parse().ok())
        .filter(|name| !END_TO_END.contains(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// One look at each header that is there costs less than a look-up for each that might be.
fn drop_where(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let dropped: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name)).cloned().collect();
    for name in dropped {
        headers.remove(name);
    }
}

fn say_for_whom(headers: &mut HeaderMap, peer: &Peer, host: Option<&HeaderValue>) {
    let proto = if peer.is_secure { "https" } else { "http" };
    let mut forwarded = Vec::with_capacity(128);
    let mut say = |parts: &[&[u8]]| parts.iter().for_each(|part| forwarded.extend_from_slice(part));
    if peer.address.is_ipv6() {
        say(&[b"for=\"[", peer.spelled.as_bytes(), b"]\""]);
    } else {
        say(&[b"for=", peer.spelled.as_bytes()]);
    }
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let is_plain =
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if is_plain {
            say(&[b";host=", host.as_bytes()]);
        } else {
            say(&[b";host=\"", host.replace(['"', '\\'], "").as_bytes(), b"\""]);
        }
    }
    say(&[b";proto=", proto.as_bytes()]);
    if let Ok(forwarded) = HeaderValue::from_maybe_shared(Bytes::from(forwarded)) {
        headers.insert(FORWARDED, forwarded);
    }
    headers.insert(X_FORWARDED_FOR, peer.spelled.clone());
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
