//! The path of one request through the demo, and what each operation promises.

use std::time::Duration;

use anyhow::Context as _;
use axum::extract::Request;
use axum::handler::Handler as _;
use axum::http::header::{HOST, HeaderValue};
use axum::http::{Method, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use firstwrite::carrier::http::SigningSecret;
use firstwrite::{Policies, Routes};
use firstwrite_core::{FingerprintRules, Mode, Policy};

use super::faults::{self, Faults};
use super::ledger::Books;
use super::payments::WaitFor;
use super::problem::Problem;
use super::webhooks::Hooks;
use super::{payments, refunds, tenants, webhooks};

/// What callers may expect.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) faults: Faults,
    /// How long an outcome is replayed.
    pub(super) retention: Duration,
    /// How long a caller is kept waiting for the provider's word.
    pub(super) wait_for: Duration,
    /// What the provider signs its webhooks with.
    pub(super) secret: SigningSecret,
}

/// The routes, and around them, outermost first: whose request it is, what trouble it asks for,
/// and the protection of what changes something.
pub(super) fn router(books: &Books, setup: Setup) -> anyhow::Result<Router> {
    let Setup { faults, retention, wait_for, secret } = setup;
    let policies = Policies::new()
        .operation(Method::POST, "/payments", policy(books.mode(), retention))
        .operation(Method::POST, "/payments/{id}/refunds", policy(books.mode(), retention))
        // Every route that changes something is named, or the start fails.
        .without_default();
    let idempotency = books.layer();
    let no_route = async || Problem::no_route();
    let router = Routes::new()
        .get("/payments", payments::list)
        .post("/payments", payments::create)
        .get("/payments/{id}", payments::show)
        .post("/payments/{id}/refunds", refunds::create)
        .finish(policies.clone(), idempotency.clone())
        .context("cannot protect the demo's routes")?
        // The layer answers for the status of a key, which stands under no route.
        .fallback(no_route.layer(idempotency.policies(policies)))
        .method_not_allowed_fallback(async || Problem::no_method())
        .layer(from_fn(under_one_name))
        .layer(Extension(WaitFor(wait_for)))
        .layer(from_fn_with_state(faults, faults::read))
        .layer(from_fn(tenants::require))
        .route("/healthz", get(async || "ok\n"))
        // The provider is no tenant, and sends no key: its signature says who it is, and the inbox
        // that a notice counts once.
        .route(webhooks::PATH, post(webhooks::receive).layer(Extension(Hooks::new(secret))))
        .with_state(books.clone());
    Ok(router)
}

/// What both operations promise: one commit for everything where the store can, and an answer that is kept.
pub(super) fn policy(mode: Mode, retention: Duration) -> Policy {
    // The demo keeps no secret of anybody, so a mismatch may say what differs.
    let fingerprint = FingerprintRules { explain: true, ..FingerprintRules::default() };
    Policy { mode, retention, fingerprint, ..Policy::default() }
}

/// Gives every request the same host, which is part of what a fingerprint covers.
///
/// The demo is one service whatever it is called by: a retry after a restart on another port, or
/// to `localhost` instead of `127.0.0.1`, asks for the same.
async fn under_one_name(mut request: Request, next: Next) -> Response {
    request.headers_mut().insert(HOST, HeaderValue::from_static("firstwrite-demo"));
    if let Some(path) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(path);
    }
    next.run(request).await
}
