//! Refuses requests by their head alone, before any other check.

use firstwrite_core::codec::path::is_misread;
use firstwrite_core::{Rejection, RejectionKind};
use http::header::{AUTHORIZATION, COOKIE, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Version};

use crate::path;

/// Longer targets are mistakes or attacks; what needs room belongs in a body.
const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Maximum size of the whole head.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most headers that a request may have. Over HTTP/1.1 it is the parser's own limit.
const HEADERS_MAX: usize = 100;

/// Methods that servers know: those of HTTP and of `WebDAV` (RFC 3253, 3648, 3744, 4437, 4791, 4918, 5323, 5842). Some
/// servers know them in any case.
const METHODS: [&str; 39] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "QUERY",
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPFIND",
    "PROPPATCH",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// Says whether a request's head makes sense. What breaks framing does not come this far: the parser
/// refuses it.
pub(crate) fn check(request: &Parts) -> Result<(), Rejection> {
    if request.method == Method::CONNECT {
        let refusal = Rejection::new(RejectionKind::MethodNotAllowed);
        return Err(refusal.detail("CONNECT is not for a gateway to an API."));
    }
    check_method(&request.method, METHODS)?;
    let target = request.uri.path_and_query().map_or("", |target| target.as_str());
    if target.len() > TARGET_BYTES_MAX {
        return Err(Rejection::new(RejectionKind::TargetTooLong));
    }
    if head_bytes(&request.headers) > HEAD_BYTES_MAX || count(&request.headers) > HEADERS_MAX {
        return Err(Rejection::new(RejectionKind::HeadTooLarge));
    }
    if request.version == Version::HTTP_2 && has_padded_values(&request.headers) {
        return Err(malformed("A header begins or ends with white space."));
    }
    check_form(request)?;
    check_path(request.uri.path())?;
    check_framing(request)?;
    check_authorization(&request.headers)?;
    check_host(request)
}

/// Returns true if a field begins or ends with white space, which is malformed in HTTP/2 (RFC 9113, section
/// 8.2.1). Many servers take it off, so that one credential would have many spellings. The parser of HTTP/1.1
/// takes it off itself.
pub(crate) fn has_padded_values(fields: &HeaderMap) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let mut values = fields.values().map(HeaderValue::as_bytes);
    values.any(|value| is_space(value.first()) || is_space(value.last()))
}

/// Of two credentials the gateway may believe one and the upstream the other.
fn check_authorization(headers: &HeaderMap) -> Result<(), Rejection> {
    if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Err(malformed("There is more than one Authorization."));
    }
    Ok(())
}

/// Returns the size of the headers on the wire. The parser checks its buffer only while a head is incomplete,
/// so a head that arrives in one piece may be larger.
fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

/// Counts headers. The crumbs of a cookie (HTTP/2) are one: they are joined before they are passed on.
fn count(headers: &HeaderMap) -> usize {
    // Most heads have few, and their cookies are not looked for.
    match headers.len() {
        few @ ..=HEADERS_MAX => few,
        many => many + 1 - headers.get_all(COOKIE).iter().count().max(1),
    }
}

pub(crate) fn malformed(detail: &'static str) -> Rejection {
    Rejection::new(RejectionKind::RequestMalformed).detail(detail)
}

/// Methods are case-sensitive, but not to every server: `post` would pass unprotected here and be a POST
/// there.
pub(crate) fn check_method<'a>(
    method: &Method,
    known: impl IntoIterator<Item = &'a str>,
) -> Result<(), Rejection> {
    let method = method.as_str();
    let is_misspelt = |known: &str| method != known && method.eq_ignore_ascii_case(known);
    if known.into_iter().any(is_misspelt) {
        return Err(malformed("The method is spelt in another case than it has."));
    }
    Ok(())
}

/// A path, an address of HTTP, or the asterisk where it has a meaning.
fn check_form(request: &Parts) -> Result<(), Rejection> {
    let uri = &request.uri;
    let is_http =
        uri.scheme().is_none_or(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let is_bare_authority = uri.scheme().is_none() && uri.authority().is_some();
    let is_whole_server = uri.path() == "*" && request.method != Method::OPTIONS;
    if is_http && !is_bare_authority && !is_whole_server {
        return Ok(());
    }
    Err(malformed("The target is neither a path nor an address of HTTP."))
}

/// A path must be the same to every server: one that is shortened or cut on the way would be of another
/// operation there than here. What is the gateway's own goes nowhere, and keys may hold anything.
fn check_path(path: &str) -> Result<(), Rejection> {
    if is_misread(path) && !path::is_own(path) {
        return Err(malformed(
            "The path has a segment of dots, a backslash or a control character.",
        ));
    }
    Ok(())
}

/// The parser looks at the last coding alone. With another one beneath it the body would reach the
/// upstream as something that it is not, and a coding that stands there twice is read in two ways.
fn check_framing(request: &Parts) -> Result<(), Rejection> {
    let mut lines = request.headers.get_all(TRANSFER_ENCODING).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(()),
        (Some(line), None) if line.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        (Some(_), _) => Err(malformed("A body may be chunked, once, and no more.")),
    }
}

/// One host, and no two that differ: what is behind us must not be asked for another than what was
/// compared.
fn check_host(request: &Parts) -> Result<(), Rejection> {
    let bad = |detail| Err(malformed(detail));
    let mut hosts = request.headers.get_all(HOST).iter();
    let named = request.uri.authority();
    match (hosts.next(), hosts.next(), named) {
        (_, Some(_), _) => bad("There is more than one Host."),
        (None, None, None) if request.version == Version::HTTP_10 => Ok(()),
        (None, None, None) => bad("There is no Host."),
        (_, None, Some(named)) if !is_host(named.as_str().as_bytes()) => {
            bad("The target names no host.")
        }
        (None, None, Some(_)) => Ok(()),
        (Some(host), None, Some(named)) if host.as_bytes() != named.as_str().as_bytes() => {
            bad("Host and target name different hosts.")
        }
        (Some(host), None, _) if is_host(host.as_bytes()) => Ok(()),
        (Some(_), None, _) => bad("Host is no host."),
    }
}

/// Accepts a name or an address with an optional port: nothing that could be read as a list, a user or a path.
fn is_host(text: &[u8]) -> bool {
    let (name, port) = match text.iter().rposition(|byte| *byte == b':') {
        Some(colon) if !text[colon..].contains(&b']') => (&text[..colon], &text[colon + 1..]),
        Some(_) | None => (text, &[][..]),
    };
    let is_address = |name: &[u8]| {
        let is_part = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        let inner = name.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
        inner.is_some_and(|inner| !inner.is_empty() && inner.iter().all(is_part))
    };
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%".contains(byte);
    let is_name = !name.is_empty() && name.iter().all(is_part);
    let number = std::str::from_utf8(port).map(str::parse::<u16>);
    let is_port =
        port.iter().all(u8::is_ascii_digit) && (port.is_empty() || matches!(number, Ok(Ok(_))));
    (is_name || is_address(name)) && is_port
}

/// The members of a comma-separated field, over all its lines.
pub(crate) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &http::HeaderName,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let lines = headers.get_all(name).iter().filter_map(|line: &HeaderValue| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(target: &str, headers: &[(&'static str, &str)]) -> Parts {
        let mut request = Request::post(target).body(()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
        }
        request.into_parts().0
    }

    fn status(parts: &Parts) -> u16 {
        check(parts).map_or_else(|refused| refused.status().as_u16(), |()| 200)
    }

    #[test]
    fn there_is_exactly_one_host() {
        assert_eq!(status(&head("/a", &[("host", "shop.example:8080")])), 200);
        assert_eq!(status(&head("http://shop.example/a", &[("host", "shop.example")])), 200);
        assert_eq!(status(&head("http://shop.example/a", &[])), 200);
        assert_eq!(status(&head("http://u:p@shop.example/a", &[])), 400);
        assert_eq!(status(&head("http://u@a/", &[("host", "u@a")])), 400);
        for headers in [&[][..], &[("host", "a"), ("host", "a")]] {
            assert_eq!(status(&head("/a", headers)), 400, "{headers:?}");
        }
        for fine in ["a", "a.b-c_d", "127.0.0.1:80", "[::1]", "[::1]:8080", "a:", "a%20b"] {
            assert_eq!(status(&head("/a", &[("host", fine)])), 200, "{fine}");
        }
        for wrong in
            ["", ":80", "a b", "a/b", "a,b", "u@a", "a:b", "a:65536", "[::1", "[]", "a?b", "[a]b"]
        {
            assert_eq!(status(&head("/a", &[("host", wrong)])), 400, "{wrong}");
        }
        assert_eq!(status(&head("http://shop.example/a", &[("host", "bank.example")])), 400);
    }

    #[test]
    fn a_body_is_chunked_once_or_not_at_all() {
        let framed = |values: &[&'static str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(values.iter().map(|value| ("transfer-encoding", *value)));
            status(&head("/a", &headers))
        };
        assert_eq!((framed(&["chunked"]), framed(&["Chunked"])), (200, 200));
        for wrong in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &[",chunked"],
            &["chunked", "chunked"],
            &["x", "chunked"],
            &[""],
        ] {
            assert_eq!(framed(wrong), 400, "{wrong:?}");
        }
    }

    #[test]
    fn a_target_is_a_path_or_an_address_of_http() {
        for (target, expected) in
            [("/a", 200), ("https://a/b", 200), ("ftp://a/b", 400), ("a:80", 400), ("*", 400)]
        {
            assert_eq!(status(&head(target, &[("host", "a")])), expected, "{target}");
        }
        let mut all = head("*", &[("host", "a")]);
        all.method = Method::OPTIONS;
        assert_eq!(status(&all), 200);
    }

    #[test]
    fn over_http2_no_value_begins_or_ends_with_white_space() {
        for value in [" a", "a ", "\ta", "a\t", " ", "\t"] {
            let mut parts = head("/a", &[("host", "a"), ("x-a", value)]);
            assert_eq!(status(&parts), 200, "the parser of HTTP/1.1 takes it off: {value:?}");
            parts.version = Version::HTTP_2;
            assert_eq!(status(&parts), 400, "{value:?}");
        }
        let mut parts = head("/a", &[("host", "a"), ("x-a", "a \tb"), ("x-b", "")]);
        parts.version = Version::HTTP_2;
        assert_eq!(status(&parts), 200);
    }

    #[test]
    fn there_is_one_authorization_at_the_most() {
        let one = ("authorization", "Bearer a");
        assert_eq!(status(&head("/a", &[("host", "a"), one])), 200);
        assert_eq!(status(&head("/a", &[("host", "a"), one, one])), 400);
    }

    #[test]
    fn a_target_has_a_limit() {
        let long = format!("/{}", "a".repeat(TARGET_BYTES_MAX - 1));
        assert_eq!(status(&head(&long, &[("host", "a")])), 200);
        assert_eq!(status(&head(&format!("{long}b"), &[("host", "a")])), 414);
    }

    #[test]
    fn a_head_has_a_limit() {
        let of = |count: usize| "a".repeat(count - "host: a\r\n".len() - "x-a: \r\n".len());
        assert_eq!(status(&head("/", &[("host", "a"), ("x-a", &of(HEAD_BYTES_MAX))])), 200);
        assert_eq!(status(&head("/", &[("host", "a"), ("x-a", &of(HEAD_BYTES_MAX + 1))])), 431);
    }

    #[test]
    fn connect_is_refused_and_methods_have_one_case() {
        let mut parts = head("/", &[("host", "a")]);
        parts.method = Method::CONNECT;
        assert_eq!(status(&parts), 405);
        for (method, expected) in [
            ("POST", 200),
            ("post", 400),
            ("Query", 400),
            ("QUERY", 200),
            ("PropFind", 400),
            ("mkcol", 400),
            ("MKCOL", 200),
            ("mine", 200),
        ] {
            parts.method = method.parse().unwrap();
            assert_eq!(status(&parts), expected, "{method}");
        }
    }
}
