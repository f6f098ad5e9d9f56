//! Extractors for axum handlers: the attempt that a handler runs in, and the atomic transaction.

use axum::extract::FromRequestParts;
use axum::response::IntoResponse;
use firstwrite_core::{AsyncTransactionalStore, TransactionalStore};
use http::request::Parts;

use crate::atomic::{Atomic, ExtractorError, Transaction};
use crate::attempt::Attempt;

impl<State: Sync> FromRequestParts<State> for Attempt {
    type Rejection = ExtractorError;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, ExtractorError> {
        parts.extensions.get::<Self>().cloned().ok_or(ExtractorError::NoAttempt)
    }
}

impl<State: Sync, S: TransactionalStore + Clone> FromRequestParts<State> for Atomic<S> {
    type Rejection = ExtractorError;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, ExtractorError> {
        Self::from_extensions(&parts.extensions)
    }
}

impl<State: Sync, S: AsyncTransactionalStore> FromRequestParts<State> for Transaction<S> {
    type Rejection = ExtractorError;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, ExtractorError> {
        Self::from_extensions(&parts.extensions)
    }
}

impl IntoResponse for ExtractorError {
    fn into_response(self) -> axum::response::Response {
        self.response().map(axum::body::Body::new)
    }
}
