//! The control routes: the operator of the simulator uses them from another process.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde::de::DeserializeOwned;

use super::{json, read_body};
use crate::behaviour::Behaviour;
use crate::error::{ErrorKind, ProviderError};
use crate::plant::Plant;
use crate::problem::Problem;
use crate::shared::Shared;

pub(super) async fn show(State(shared): State<Arc<Shared>>) -> Response<Body> {
    let behaviour = shared.conduct().behaviour.clone();
    json(StatusCode::OK, &behaviour)
}

pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response<Body>, Problem> {
    let behaviour: Behaviour = read(request).await?;
    shared.conduct().change(behaviour).map_err(|error| refusal(&error))?;
    Ok(show(State(shared)).await)
}

pub(super) async fn requests(State(shared): State<Arc<Shared>>) -> Response<Body> {
    let (requests, webhooks) = (shared.requests.read(), shared.mailbox.counts());
    json(StatusCode::OK, &serde_json::json!({ "requests": requests, "webhooks": webhooks }))
}

pub(super) async fn plant(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response<Body>, Problem> {
    let plant: Plant = read(request).await?;
    let payment = shared.writer.plant(plant).await.map_err(|error| refusal(&error))?;
    Ok(json(StatusCode::CREATED, &payment))
}

async fn read<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    let body = read_body(request.into_body()).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request("body-invalid", error.to_string()))
}

fn refusal(error: &ProviderError) -> Problem {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::Behaviour => Problem::bad_request("behaviour-invalid", detail),
        ErrorKind::Plant => Problem::bad_request("plant-invalid", detail),
        ErrorKind::Full => Problem::full(),
        ErrorKind::Ledger
        | ErrorKind::Corrupt
        | ErrorKind::InUse
        | ErrorKind::Listen
        | ErrorKind::Stopped => Problem::internal(&detail),
    }
}
