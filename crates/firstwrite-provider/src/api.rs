//! The routes, and what every call below `/v1` passes first.

mod control;
mod csv;
mod payments;
mod reports;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;

use crate::conduct::Admission;
use crate::problem::Problem;
use crate::serving;
use crate::shared::Shared;

/// Many times the largest call that makes sense.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// By then another second has begun.
const RETRY_AFTER_SECONDS: u64 = 1;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/payments", get(reports::list).post(payments::create))
        .route("/v1/payments.csv", get(csv::export))
        .route("/v1/payments/{id}", get(reports::fetch))
        .route("/control", get(control::show).put(control::change))
        .route("/control/requests", get(control::requests))
        .route("/control/plant", post(control::plant))
        .fallback(async || {
            Problem::new(StatusCode::NOT_FOUND, "route-unknown", "There is nothing at this path.")
        })
        .method_not_allowed_fallback(async || {
            let detail = "This path does not take this method.";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), admit))
        .with_state(shared)
}

/// Applies outages and the rate limit. The control routes stay open, so that an outage can be ended.
async fn admit(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response<Body> {
    if !request.uri().path().starts_with("/v1") {
        return next.run(request).await;
    }
    shared.requests.arrived(request.method(), request.uri());
    let admission = shared.conduct().admit(shared.clock.now());
    match admission {
        Admission::Admitted => next.run(request).await,
        Admission::Unavailable => {
            shared.requests.met_outage();
            Problem::unavailable("The provider is not available.").into_response()
        }
        Admission::HangUp => {
            shared.requests.met_outage();
            serving::hang_up()
        }
        Admission::TooMany => {
            shared.requests.rate_limited();
            Problem::too_many(RETRY_AFTER_SECONDS).into_response()
        }
    }
}

async fn read_body(body: Body) -> Result<Bytes, Problem> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("At most {BODY_BYTES_MAX} bytes.");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", detail))
        }
        Err(error) => Err(Problem::bad_request("body-broken", error.to_string())),
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => Problem::internal(&error.to_string()).into_response(),
    }
}
