//! The gateway's own answers: problem documents without a page of their own (RFC 9457).

use bytes::Bytes;
use firstwrite::Effect;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

pub(crate) fn answer(status: StatusCode, detail: &str) -> Response<Bytes> {
    let document = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Refused"),
        "status": status.as_u16(),
        "detail": detail,
    });
    let mut response = Response::new(Bytes::from(document.to_string()));
    *response.status_mut() = status;
    let problem = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, problem);
    response
}

/// No upstream could be reached: the request had no effect, and may be sent again.
pub(crate) fn not_sent() -> Response<Bytes> {
    let detail = "The upstream could not be reached; nothing was sent. Retry.";
    let mut response = answer(StatusCode::BAD_GATEWAY, detail);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    // Its status alone would say that an answer was lost.
    response.extensions_mut().insert(Effect::None);
    response
}
