//! Extractors for axum handlers: the attempt that a handler runs in, and the atomic transaction.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::IntoResponse;
use firstwrite_core::{AsyncTransactionalStore, TransactionalStore};
use http::request::Parts;

use crate::atomic::{Atomic, Slot, Transaction};
use crate::attempt::Attempt;
use crate::respond;

/// A handler asked for something that the layer around it does not provide: a mistake in how the
/// application is put together. The client gets a bare 500; the reason goes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtractorError {
    /// The route is not protected: no layer around it, or no policy for it, or the request needed
    /// no key.
    NoAttempt,
    /// The route's policy is not atomic.
    NotAtomic,
    /// The layer was built over another type of store, or for the other kind of transaction.
    OtherStore,
    /// The handler asked for its transaction twice.
    Taken,
}

impl<State: Sync> FromRequestParts<State> for Attempt {
    type Rejection = ExtractorError;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, ExtractorError> {
        parts.extensions.get::<Self>().cloned().ok_or(ExtractorError::NoAttempt)
    }
}

impl<State: Sync, S: TransactionalStore + Clone> FromRequestParts<State> for Atomic<S> {
    type Rejection = ExtractorError;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, ExtractorError> {
        Self::of(slot(parts)?).ok_or(ExtractorError::OtherStore)
    }
}

impl<State: Sync, S: AsyncTransactionalStore> FromRequestParts<State> for Transaction<S> {
    type Rejection = ExtractorError;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, ExtractorError> {
        Self::of(slot(parts)?)
    }
}

/// Returns the slot that the layer left for a handler in atomic mode.
fn slot(parts: &Parts) -> Result<&Arc<Slot>, ExtractorError> {
    parts.extensions.get::<Arc<Slot>>().ok_or_else(|| {
        if parts.extensions.get::<Attempt>().is_some() {
            ExtractorError::NotAtomic
        } else {
            ExtractorError::NoAttempt
        }
    })
}

impl std::fmt::Display for ExtractorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoAttempt => "the handler needs a protected route, and this one is not",
            Self::NotAtomic => "the handler needs a policy in atomic mode, and this route's is not",
            Self::OtherStore => {
                "the handler needs the type of store, and the kind of transaction, that the layer \
                 was built over: `Transaction` goes with `IdempotencyLayer::held`, `Atomic` with \
                 `IdempotencyLayer::transactional`"
            }
            Self::Taken => "the handler needs its transaction once, and asked for it again",
        })
    }
}

impl std::error::Error for ExtractorError {}

impl IntoResponse for ExtractorError {
    fn into_response(self) -> axum::response::Response {
        tracing::error!(problem = %self, "the application is put together wrongly");
        respond::misconfigured().map(axum::body::Body::new)
    }
}
