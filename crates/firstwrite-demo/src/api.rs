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
use firstwrite::Policies;
use firstwrite::carrier::http::SigningSecret;
use firstwrite_core::{FingerprintRules, Mode, Policy};

use crate::faults::{self, Faults};
use crate::ledger::Books;
use crate::payments::WaitFor;
use crate::problem::Problem;
use crate::webhooks::Hooks;
use crate::{payments, refunds, tenants, webhooks};

/// Settings of the demo's API.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) faults: Faults,
    /// Time for which an outcome is replayed.
    pub(crate) retention: Duration,
    /// Longest time that a caller waits for the provider's answer.
    pub(crate) wait_for: Duration,
    /// Secret with which the provider signs its webhooks.
    pub(crate) secret: SigningSecret,
}

/// Builds the routes. Around them are, outermost first: authentication of the tenant, injection of the faults
/// that a request asks for, and protection of the routes that change something.
pub(crate) fn router(books: &Books, setup: Setup) -> anyhow::Result<Router> {
    let Setup { faults, retention, wait_for, secret } = setup;
    let policies = Policies::new()
        .operation(Method::POST, "/payments", policy(books.mode(), retention))
        .operation(Method::POST, "/payments/{id}/refunds", policy(books.mode(), retention))
        // Every route that changes something is named, or the start fails.
        .without_default();
    let idempotency = books.layer().policies(policies)?;
    let routes = [
        (Method::GET, "/payments", get(payments::list)),
        (Method::POST, "/payments", post(payments::create)),
        (Method::GET, "/payments/{id}", get(payments::show)),
        (Method::POST, "/payments/{id}/refunds", post(refunds::create)),
    ];
    idempotency
        .check_routes(routes.iter().map(|(method, path, _)| (method.clone(), *path)))
        .context("cannot protect the demo's routes")?;
    let no_route = async || Problem::no_route();
    let router = routes
        .into_iter()
        .fold(Router::new(), |router, (_, path, handler)| router.route(path, handler))
        .layer(idempotency.clone())
        // The layer answers for the status of a key, which stands under no route.
        .fallback(no_route.layer(idempotency))
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

/// Policy of both operations: one commit for everything if the store can do that, and an answer that is kept.
pub(crate) fn policy(mode: Mode, retention: Duration) -> Policy {
    // The demo holds no secrets, so a mismatch may say what differs.
    let fingerprint = FingerprintRules { explain: true, ..FingerprintRules::default() };
    Policy::default().mode(mode).retention(retention).fingerprint(fingerprint)
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
