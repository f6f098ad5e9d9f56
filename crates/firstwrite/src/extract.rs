//! What an axum handler names to take part: the attempt it runs in, and the atomic transaction.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::IntoResponse;
use firstwrite_core::TransactionalStore;
use http::request::Parts;
use http::{Response, StatusCode};

use crate::atomic::{Atomic, Slot};
use crate::attempt::Attempt;
use crate::respond;

/// A handler asked for something that the layer around it does not provide: a mistake in how the
/// application is put together. The client gets a bare 500; the reason goes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misconfigured {
    /// The route is not protected: no layer around it, or no policy for it, or the request needed
    /// no key.
    NoAttempt,
    /// The route's policy is not atomic.
    NotAtomic,
    /// The layer was built over another type of store.
    OtherStore,
}

impl<State: Sync> FromRequestParts<State> for Attempt {
    type Rejection = Misconfigured;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, Misconfigured> {
        parts.extensions.get::<Self>().cloned().ok_or(Misconfigured::NoAttempt)
    }
}

impl<State: Sync, S: TransactionalStore + Clone> FromRequestParts<State> for Atomic<S> {
    type Rejection = Misconfigured;

    async fn from_request_parts(parts: &mut Parts, _: &State) -> Result<Self, Misconfigured> {
        match parts.extensions.get::<Arc<Slot>>() {
            Some(slot) => Self::of(slot).ok_or(Misconfigured::OtherStore),
            None if parts.extensions.get::<Attempt>().is_some() => Err(Misconfigured::NotAtomic),
            None => Err(Misconfigured::NoAttempt),
        }
    }
}

impl std::fmt::Display for Misconfigured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoAttempt => "the handler needs a protected route, and this one is not",
            Self::NotAtomic => "the handler needs a policy in atomic mode, and this route's is not",
            Self::OtherStore => "the handler needs the type of store that the layer was built over",
        })
    }
}

impl std::error::Error for Misconfigured {}

impl IntoResponse for Misconfigured {
    fn into_response(self) -> axum::response::Response {
        tracing::error!(problem = %self, "the application is put together wrongly");
        let response: Response<_> =
            respond::problem(StatusCode::INTERNAL_SERVER_ERROR, &"The service is misconfigured.");
        response.map(axum::body::Body::new)
    }
}
