//! Refusals, as problem documents.

use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;

/// A problem document: the reason why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    status: u16,
    code: &'static str,
    detail: String,
    #[serde(skip)]
    retry_after_seconds: Option<u64>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status: status.as_u16(), code, detail, retry_after_seconds: None }
    }

    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(crate) fn declined() -> Self {
        Self::new(StatusCode::PAYMENT_REQUIRED, "declined", "The payment was declined for good.")
    }

    pub(crate) fn key_reused() -> Self {
        let detail = "This key was used for another payment.";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", detail)
    }

    pub(crate) fn unknown_payment() -> Self {
        Self::new(StatusCode::NOT_FOUND, "payment-unknown", "There is no such payment.")
    }

    pub(crate) fn full() -> Self {
        let detail = "The ledger is full; start with another one.";
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "ledger-full", detail)
    }

    /// Before anything was done.
    pub(crate) fn unavailable(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    /// At a point at which a caller cannot know what was done.
    pub(crate) fn internal(detail: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    pub(crate) fn too_many(retry_after_seconds: u64) -> Self {
        let detail = "Too many calls in one second.";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", detail);
        Self { retry_after_seconds: Some(retry_after_seconds), ..problem }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<axum::body::Body> {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
