//! Which headers pass to an upstream and back, and what the gateway says of itself.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod names;
mod origin;

use firstwrite::{
    Attempt, Effect, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_INTERIM, IDEMPOTENCY_OUTCOME,
    IDEMPOTENT_REPLAYED,
};
use firstwrite_core::{Rejection, RejectionKind};
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use http_body::Body as _;

use crate::body::RequestBody;
use crate::head::tokens;
use crate::peer::Peer;
use crate::stack::Calls;
use crate::tenants::Network;
use crate::upgrade::Upgrades;
use crate::upstream::Calling;
pub(crate) use names::Names;

/// Which record an upstream may complete itself: its id, and what `firstwrite.complete` takes.
pub const FIRSTWRITE_RECORD: HeaderName = HeaderName::from_static("firstwrite-record");
/// Whose record it is.
pub const FIRSTWRITE_TENANT: HeaderName = HeaderName::from_static("firstwrite-tenant");
/// Under which key the client sent it.
pub const FIRSTWRITE_KEY: HeaderName = HeaderName::from_static("firstwrite-key");
/// The fence of this attempt.
pub const FIRSTWRITE_FENCE: HeaderName = HeaderName::from_static("firstwrite-fence");

/// Header by which an upstream that answers with an error states its effect: `none` or `happened`. The gateway
/// removes it from every answer.
pub const FIRSTWRITE_EFFECT: HeaderName = HeaderName::from_static("firstwrite-effect");

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The step by which the key of the forwarded call is derived from the client's.
pub const STEP: &str = "forward";

/// Headers that are about one connection. Their meaning ends here.
static HOP_BY_HOP: [HeaderName; 10] = [
    CONNECTION,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
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

/// Settings for forwarding requests.
#[derive(Clone, Debug, Default)]
pub struct Forwarding {
    /// Which key the upstream sees.
    pub key: ForwardedKey,
    /// If true, the upstream is told which record it may complete.
    pub tells_record: bool,
    /// The protocols that connections may change to.
    pub upgrades: Upgrades,
    /// Proxies in front whose word of the client's address, scheme and host is passed on.
    pub trusted_proxies: Vec<Network>,
}

/// Tells whether a request says that a body follows, be it an empty one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsFramed(bool);

/// Makes a client's request one of ours to an upstream. Its own framing ends here, and is told.
pub(crate) fn request(parts: &mut Parts, calls: &Calls) -> IsFramed {
    let framings = [CONTENT_LENGTH, TRANSFER_ENCODING];
    let is_framed = IsFramed(framings.iter().any(|name| parts.headers.contains_key(name)));
    let Calls { forwarding, tenants, names, .. } = calls;
    let host = host(parts);
    let peer = parts.extensions.remove::<Peer>();
    let trailers = tokens(&parts.headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    drop_named(&mut parts.headers, |name| names.is_droppable(name));
    for name in tenants.untrusted_headers(peer.as_ref()) {
        parts.headers.remove(name);
    }
    drop_where(&mut parts.headers, |name| is_dropped_from_requests(name, names));
    if trailers {
        parts.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    join_crumbs(&mut parts.headers);
    origin::tell(&mut parts.headers, peer.as_ref(), host.as_ref(), &forwarding.trusted_proxies);
    if let Some(attempt) = parts.extensions.get::<Attempt>() {
        say_which_record(&mut parts.headers, attempt, forwarding);
    } else if forwarding.key == ForwardedKey::Nothing {
        parts.headers.remove(IDEMPOTENCY_KEY);
    }
    if let Some(host) = host {
        parts.headers.insert(HOST, host);
    }
    // A target that ends behind its host (`http://a#b`) has a path without a letter: upstreams get a slash.
    let target = parts.uri.path_and_query().filter(|target| target.as_str() != "/").cloned();
    parts.uri = Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
    parts.version = Version::HTTP_11;
    is_framed
}

/// Says that a body follows where the client side of HTTP/1.1 would not: it takes it that GET and HEAD have none
/// unless its length is known, and sends no length with an empty one, which some servers refuse with 411.
pub(crate) fn frame(parts: &mut Parts, is_framed: IsFramed, body: &RequestBody, calling: &Calling) {
    let has_body_by_custom = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    match body.size_hint().exact() {
        Some(0) if is_framed.0 || has_body_by_custom => {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        None if matches!(parts.method, Method::GET | Method::HEAD) && !calling.http2 => {
            parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Some(_) | None => {}
    }
}

/// Tells whether a field of a request ends here, be it a header or a trailer.
fn is_dropped_from_requests(name: &HeaderName, names: &Names) -> bool {
    // The body knows its length; a second opinion could differ. What the client expects of the next hop was
    // answered here.
    *name == CONTENT_LENGTH
        || *name == EXPECT
        || HOP_BY_HOP.contains(name)
        || is_ours(name)
        || names.is_misread(name)
}

/// Tells whether a field of an answer ends here, be it a header or a trailer.
fn is_dropped_from_answers(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || is_ours(name)
}

/// Removes trailers of a client that would not pass as headers, or that mean something in a head alone, since
/// some servers read trailers as headers.
pub(crate) fn trailers(trailers: &mut HeaderMap, names: &Names) {
    drop_where(trailers, |name| {
        is_dropped_from_requests(name, names) || !names.may_be_trailer(name)
    });
}

/// The same for the trailers of an answer, of which nothing was believed.
pub(crate) fn answer_trailers(trailers: &mut HeaderMap) {
    drop_where(trailers, |name| is_dropped_from_answers(name) || Names::is_head_only(name));
}

/// HTTP/2 may send a cookie in crumbs, one field each; HTTP/1.1 knows one field (RFC 9113, section 8.2.3).
fn join_crumbs(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        headers.insert(COOKIE, cookie);
    }
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

/// Tells whether the gateway alone may set this field. A client's or an upstream's is forged.
fn is_ours(name: &HeaderName) -> bool {
    *name == IDEMPOTENT_REPLAYED
        || *name == IDEMPOTENCY_EXPIRES
        || *name == IDEMPOTENCY_INTERIM
        || *name == IDEMPOTENCY_OUTCOME
        || name.as_str().starts_with("firstwrite-")
}

/// Tells whether the gateway sets this field on the way to upstreams or clients, whatever was sent.
pub(crate) fn is_set_here(name: &HeaderName) -> bool {
    is_ours(name) || Names::is_for_whom(name) || HOP_BY_HOP.contains(name) || *name == VIA
}

/// Makes an upstream's answer one of ours to a client.
pub(crate) fn response(headers: &mut HeaderMap) {
    drop_named(headers, Names::is_droppable_from_answers);
    let has_two_framings = has_two_framings(headers);
    drop_where(headers, |name| {
        is_dropped_from_answers(name) || (has_two_framings && name == CONTENT_LENGTH)
    });
}

/// Returns true if a message has both a length and a transfer coding, of which the coding counts (RFC 9112,
/// 6.3).
pub(crate) fn has_two_framings(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH)
}

/// Checks the key of a request that is not protected, which passes as it is: one that the gateway could have
/// derived for somebody else's request would get that one's answer from the upstream.
pub(crate) fn check_key(headers: &HeaderMap, forwarded: ForwardedKey) -> Result<(), Rejection> {
    if forwarded == ForwardedKey::Nothing {
        return Ok(());
    }
    let refused = |detail| Err(Rejection::new(RejectionKind::KeyInvalid).detail(detail));
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    match (keys.next(), keys.next()) {
        (_, Some(_)) => refused("There is more than one Idempotency-Key."),
        (Some(key), None) if has_derived(key) => {
            refused("The key has the form of those that this gateway makes itself.")
        }
        (_, None) => Ok(()),
    }
}

/// Returns true if a key as [`Attempt::wire_key`] makes it for [`STEP`] stands somewhere in a value, however it
/// is quoted and in whatever case: an API may compare keys without it.
fn has_derived(value: &HeaderValue) -> bool {
    let is_hex =
        |text: &[u8], length| text.len() == length && text.iter().all(u8::is_ascii_hexdigit);
    let is_derived = |text: &[u8]| {
        let Some(colon) = text.iter().rposition(|byte| *byte == b':') else { return false };
        let (front, back) = (&text[..colon], &text[colon + 1..]);
        let is_step = |text: &[u8]| text.eq_ignore_ascii_case(STEP.as_bytes());
        let is_of_step = front.rsplitn(2, |byte| *byte == b':').next().is_some_and(is_step)
            && front.len() > STEP.len();
        (is_hex(back, 16) && is_of_step) || (is_hex(front, 32) && is_step(back))
    };
    value.as_bytes().split(|byte| b"\"'`\\,; \t".contains(byte)).any(is_derived)
}

/// The host that was asked for, wherever it was named.
fn host(parts: &Parts) -> Option<HeaderValue> {
    let named = parts.uri.authority().and_then(|named| HeaderValue::from_str(named.as_str()).ok());
    named.or_else(|| parts.headers.get(HOST).cloned())
}

/// Drops what `Connection` names, if it may be: it is about one connection, too.
fn drop_named(headers: &mut HeaderMap, is_droppable: impl Fn(&HeaderName) -> bool) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| token.parse().ok())
        .filter(is_droppable)
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
