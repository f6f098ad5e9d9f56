//! Tells the upstream about the client's connection: `Forwarded`, `X-Forwarded-*` and `Via`.

use bytes::Bytes;
use http::header::{FORWARDED, VIA};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::names::Names;
use super::{X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, drop_where};
use crate::peer::Peer;
use crate::tenants::Network;

/// Says who asks. A peer that is no listed proxy speaks for itself alone: what it says of others is dropped.
/// What a listed proxy says is kept, and its own address added.
pub(super) fn tell(
    headers: &mut HeaderMap,
    peer: Option<&Peer>,
    host: Option<&HeaderValue>,
    proxies: &[Network],
) {
    let is_proxy =
        peer.is_some_and(|peer| proxies.iter().any(|network| network.contains(peer.address)));
    if !is_proxy {
        drop_where(headers, Names::is_for_whom);
    }
    let Some(peer) = peer else { return };
    let proto = if peer.is_secure { "https" } else { "http" };
    if let Ok(element) = HeaderValue::from_maybe_shared(Bytes::from(element(peer, host, proto))) {
        extend(headers, FORWARDED, &element);
    }
    extend(headers, X_FORWARDED_FOR, &peer.spelled);
    // How the client spoke to the first proxy, and which host it named, a later one does not know better.
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(proto));
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert(host.clone());
    }
    headers.append(VIA, HeaderValue::from_static("1.1 firstwrite"));
}

/// Adds to a list, in one line: servers that look at the first line alone would miss the rest.
fn extend(headers: &mut HeaderMap, name: HeaderName, last: &HeaderValue) {
    let given: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    let mut parts: Vec<&[u8]> = given.into_iter().filter(|part| !part.is_empty()).collect();
    parts.push(last.as_bytes());
    if let Ok(whole) = HeaderValue::from_maybe_shared(Bytes::from(parts.join(&b", "[..]))) {
        headers.insert(name, whole);
    }
}

/// One element of `Forwarded` (RFC 7239).
fn element(peer: &Peer, host: Option<&HeaderValue>, proto: &str) -> Vec<u8> {
    let mut element = Vec::with_capacity(128);
    let mut say = |parts: &[&[u8]]| parts.iter().for_each(|part| element.extend_from_slice(part));
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
    element
}
