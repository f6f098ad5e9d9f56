//! What is refused by a request's head alone, before anything else looks at it.

use http::header::{CONNECTION, HOST, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};

/// Longer targets are mistakes or attacks; what needs room belongs in a body.
const TARGET_BYTES_MAX: usize = 8 * 1024;

/// Why a request goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unacceptable {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
}

/// Says whether a request's head makes sense. What breaks framing does not come this far: the parser
/// refuses it.
pub(crate) fn check(request: &Parts) -> Result<(), Unacceptable> {
    if request.method == Method::CONNECT {
        return Err(Unacceptable {
            status: StatusCode::METHOD_NOT_ALLOWED,
            detail: "CONNECT is not for a gateway to an API.",
        });
    }
    let target = request.uri.path_and_query().map_or("", |target| target.as_str());
    if target.len() > TARGET_BYTES_MAX {
        return Err(Unacceptable {
            status: StatusCode::URI_TOO_LONG,
            detail: "The target is longer than 8 KiB.",
        });
    }
    check_host(request)
}

/// One host, and no two that differ: what is behind us must not be asked for another than what was
/// compared.
fn check_host(request: &Parts) -> Result<(), Unacceptable> {
    let bad = |detail| Err(Unacceptable { status: StatusCode::BAD_REQUEST, detail });
    let mut hosts = request.headers.get_all(HOST).iter();
    let named = request.uri.authority();
    match (hosts.next(), hosts.next(), named) {
        (_, Some(_), _) => bad("There is more than one Host."),
        (None, None, None) if request.version == Version::HTTP_10 => Ok(()),
        (None, None, None) => bad("There is no Host."),
        (None, None, Some(_)) => Ok(()),
        (Some(host), None, Some(named)) if host.as_bytes() != named.as_str().as_bytes() => {
            bad("Host and target name different hosts.")
        }
        (Some(host), None, _) => match host.to_str().map(str::parse::<http::uri::Authority>) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => bad("Host is no host."),
        },
    }
}

/// Whether a request wants to leave HTTP for another protocol.
pub(crate) fn is_upgrade(request: &Parts) -> bool {
    request.version == Version::HTTP_11
        && request.headers.contains_key(UPGRADE)
        && tokens(&request.headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
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
        check(parts).map_or_else(|refused| refused.status.as_u16(), |()| 200)
    }

    #[test]
    fn there_is_exactly_one_host() {
        assert_eq!(status(&head("/a", &[("host", "shop.example:8080")])), 200);
        assert_eq!(status(&head("http://shop.example/a", &[("host", "shop.example")])), 200);
        assert_eq!(status(&head("http://shop.example/a", &[])), 200);
        for headers in
            [&[][..], &[("host", "a"), ("host", "a")], &[("host", "a b")], &[("host", "a/b")]]
        {
            assert_eq!(status(&head("/a", headers)), 400, "{headers:?}");
        }
        assert_eq!(status(&head("http://shop.example/a", &[("host", "bank.example")])), 400);
    }

    #[test]
    fn a_target_has_a_limit() {
        let long = format!("/{}", "a".repeat(TARGET_BYTES_MAX - 1));
        assert_eq!(status(&head(&long, &[("host", "a")])), 200);
        assert_eq!(status(&head(&format!("{long}b"), &[("host", "a")])), 414);
    }

    #[test]
    fn connect_is_refused_and_upgrades_are_seen() {
        let mut parts = head("/", &[("host", "a")]);
        parts.method = Method::CONNECT;
        assert_eq!(status(&parts), 405);
        let upgrade =
            [("host", "a"), ("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        assert!(is_upgrade(&head("/", &upgrade)));
        assert!(!is_upgrade(&head("/", &upgrade[..2])));
        assert!(!is_upgrade(&head("/", &[("upgrade", "h2c")])));
    }
}
