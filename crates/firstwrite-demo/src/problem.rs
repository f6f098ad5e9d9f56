//! The application's own refusals and failures, as problem documents.
//!
//! A [`Problem`] is an answer: inside an atomic handler it is kept and replayed like any 4xx. A
//! [`Failure`] is ours: everything is rolled back, and the caller learns only that.

use std::fmt;

use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use firstwrite_core::{BoxError, MessageError, StoreError};
use firstwrite_store::{deadpool_postgres, mysql_async, rusqlite, tokio_postgres};
use serde::Serialize;

/// Reason for which the application refuses a request.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
}

/// Reason for which the application could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    Store(StoreError),
    /// The driver's error, whichever driver it is.
    Sql(BoxError),
    Message(MessageError),
}

impl Problem {
    /// A field of the request that cannot be accepted.
    pub(crate) fn field(field: &'static str, detail: impl Into<String>) -> Self {
        let problem = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "field-invalid",
            "A field of the request cannot be accepted",
            detail,
        );
        Self { field: Some(field), ..problem }
    }

    /// There is no such payment, or it is another tenant's: the answer must not tell.
    pub(crate) fn no_payment() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "payment-unknown",
            "There is no such payment",
            "Check the id; GET /payments lists what there is.",
        )
    }

    /// The provider will not make this payment.
    pub(crate) fn declined(payment: &str) -> Self {
        Self::new(
            StatusCode::PAYMENT_REQUIRED,
            "payment-declined",
            "The provider declined the payment",
            format!("Payment {payment} is not made. Pay in another way, under a new key."),
        )
    }

    /// A notice that is not signed by the provider.
    pub(crate) fn not_signed(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "signature-invalid",
            "The notice is not the provider's",
            detail,
        )
    }

    /// There is no such route.
    pub(crate) fn no_route() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "route-unknown",
            "There is nothing at this path",
            "Try GET /payments or POST /payments.",
        )
    }

    /// The route is there, but not for this method.
    pub(crate) fn no_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "This path does not take this method",
            "The Allow header names the methods it takes.",
        )
    }

    /// Something about the request itself, outside its body, makes no sense.
    pub(crate) fn request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, "The request cannot be understood", detail)
    }

    /// Our own trouble; says nothing about its cause.
    pub(crate) fn internal(status: StatusCode, detail: impl Into<String>) -> Self {
        Self::new(status, "internal", "Something went wrong on this side", detail)
    }

    /// The whole response.
    pub(crate) fn to_response(&self) -> Response<Bytes> {
        let body = serde_json::to_vec(self).expect("strings and numbers can be written as JSON");
        let mut response = Response::new(body.into());
        *response.status_mut() =
            StatusCode::from_u16(self.status).expect("it was made from a status");
        let problem = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, problem);
        response
    }

    fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        let status = status.as_u16();
        Self { kind: "about:blank", title, status, detail: detail.into(), code, field: None }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.to_response().map(axum::body::Body::from)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> axum::response::Response {
        tracing::error!(error = %self, "a request failed");
        Problem::internal(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Nothing was kept. Retry with the same key.",
        )
        .into_response()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Sql(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error.into())
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error.into())
    }
}

impl From<deadpool_postgres::PoolError> for Failure {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        Self::Sql(error.into())
    }
}

impl From<mysql_async::Error> for Failure {
    fn from(error: mysql_async::Error) -> Self {
        Self::Sql(error.into())
    }
}

impl From<mysql_async::FromRowError> for Failure {
    fn from(error: mysql_async::FromRowError) -> Self {
        Self::Sql(error.into())
    }
}

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Self {
        Self::Message(error)
    }
}
