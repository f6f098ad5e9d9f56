//! gRPC, as far as it concerns a gateway: calls that are not protected pass with their trailers where the
//! upstream is spoken to in HTTP/2; others are refused in words that gRPC clients understand.

use bytes::Bytes;
use firstwrite_core::codec::percent;
use firstwrite_core::{Rejection, RejectionKind};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, Version};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// The status UNIMPLEMENTED, "not supported or enabled in this service": no client retries it by itself.
const UNIMPLEMENTED: HeaderValue = HeaderValue::from_static("12");

/// Returns true if a request is a gRPC or gRPC-Web call, by its content type.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().any(|value| kind(value).is_some())
}

/// Returns true if a call's status stands in trailers. That of gRPC-Web is part of the body.
pub(crate) fn needs_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().filter_map(kind).any(|kind| !is_web(kind))
}

fn is_web(kind: &[u8]) -> bool {
    kind.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"-web"))
}

/// Returns the part after `application/grpc` of a content type: nothing, or the name of a form of gRPC or of
/// its messages.
fn kind(content_type: &HeaderValue) -> Option<&[u8]> {
    const GRPC: &[u8] = b"application/grpc";
    let value = content_type.as_bytes().trim_ascii_start();
    let (start, rest) = value.split_at_checked(GRPC.len())?;
    let ends = matches!(rest.first(), None | Some(b'+' | b'-' | b';' | b' ' | b'\t'));
    (start.eq_ignore_ascii_case(GRPC) && ends).then_some(rest)
}

/// Returns the refusal of a gRPC call to a protected operation.
pub(crate) fn protected(request: &Parts) -> Rejection {
    let operation = firstwrite::escape_path(request.uri.path());
    let (place, http2) = if needs_trailers(&request.headers) {
        ("in trailers, which a kept answer does not hold", " (with http2 = true in [gateway])")
    } else {
        ("in the body, which is not read, so that a failed call would be kept as a success", "")
    };
    let detail = format!(
        "A protected operation cannot be called over gRPC, whose status stands {place}; nothing was run. In \
         the gateway's file, under [[gateway.operations]], set operation = \"POST {operation}\" and \
         unprotected = \"gRPC\" to let it pass without protection{http2}, or offer the action over plain HTTP."
    );
    Rejection::new(RejectionKind::GrpcUnsupported).detail(detail)
}

/// Returns the refusal of a gRPC call to an upstream over HTTP/1.1, where its trailers would be dropped.
pub(crate) fn without_trailers() -> Rejection {
    Rejection::new(RejectionKind::GrpcUnsupported).detail(
        "A gRPC call ends with trailers, which pass only where the upstream is spoken to in HTTP/2; nothing was \
         sent. Set http2 = true under [gateway] in the gateway's file.",
    )
}

/// The refusal as gRPC clients read it: a response that consists of trailers only. They take an HTTP status
/// other than 200 for a failure of the transport, and show neither code nor message.
///
/// Returns `None` if the client could not read it so: gRPC needs HTTP/2, gRPC-Web does not.
pub(crate) fn trailers_only(request: &Parts, refusal: &Rejection) -> Option<Response<Bytes>> {
    let content_type = request.headers.get(CONTENT_TYPE)?;
    if request.version < Version::HTTP_2 && !is_web(kind(content_type)?) {
        return None;
    }
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(GRPC_STATUS, UNIMPLEMENTED);
    if let Ok(message) = HeaderValue::try_from(encoded(refusal.to_detail())) {
        headers.insert(GRPC_MESSAGE, message);
    }
    Some(response)
}

/// Text as `grpc-message` holds it: what is not printable ASCII, and the percent sign, by its bytes.
fn encoded(text: &str) -> String {
    percent::encode_unless(text, |character| matches!(character, ' '..='~') && character != '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_its_content_type() {
        for (value, expected) in [
            ("application/grpc", true),
            ("Application/gRPC+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web+proto", true),
            ("application/grpcx", false),
            ("application/json", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(is_call(&headers), expected, "{value}");
        }
    }

    #[test]
    fn a_message_is_printable() {
        assert_eq!(encoded("a%b\né"), "a%25b%0A%C3%A9");
    }
}
