//! `POST /v1/payments`: making a payment, and everything that can go wrong with it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode};

use super::{json, read_body};
use crate::payment::{DECLINED_AMOUNT, Payment, Wanted, parse_key};
use crate::problem::Problem;
use crate::serving::hang_up;
use crate::shared::Shared;
use crate::writer::Paid;

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response<Body>, Problem> {
    let key = request.headers().get("idempotency-key");
    let key = key.map(|value| parse_key(value.as_bytes())).transpose()?;
    let wanted = Wanted::parse(&read_body(request.into_body()).await?)?;
    let place = Arc::clone(&shared.places)
        .try_acquire_owned()
        .map_err(|_full| Problem::unavailable("Too many payments are under way."))?;
    // In a task of its own: a caller who hangs up does not take the payment back.
    let payment = tokio::spawn(async move {
        let response = pay(&shared, key, wanted).await;
        drop(place);
        response
    });
    payment.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a payment broke off");
        Err(Problem::internal("The payment broke off."))
    })
}

/// The life of a payment, with all its accidents in their order.
async fn pay(
    shared: &Shared,
    key: Option<String>,
    wanted: Wanted,
) -> Result<Response<Body>, Problem> {
    if shared.conduct().fail_before_effect.roll() {
        return Err(Problem::unavailable("The provider is not available; nothing was done."));
    }
    let delay = shared.conduct().behaviour.delay;
    if !shared.wait(delay.before_effect).await {
        return Ok(hang_up());
    }
    if wanted.amount == DECLINED_AMOUNT {
        return Err(Problem::declined());
    }
    let (keys, webhooks) = {
        let conduct = shared.conduct();
        (conduct.behaviour.keys, conduct.webhooks.clone())
    };
    let paid = shared.writer.pay(key, wanted, keys, webhooks.is_some()).await.map_err(|error| {
        tracing::error!(%error, "a payment cannot be written down");
        Problem::internal("The ledger cannot be written.")
    })?;
    let (payment, is_replay) = match paid {
        Paid::Made(payment) => (payment, false),
        Paid::Replayed(payment) => (payment, true),
        Paid::Mismatch => return Err(Problem::key_reused()),
        Paid::Full => return Err(Problem::full()),
    };
    if !is_replay && let Some(webhooks) = webhooks {
        shared.mailbox.settled(&payment, webhooks);
    }
    if !shared.wait(delay.after_effect).await {
        return Ok(hang_up());
    }
    let (is_lost, is_failed) = {
        let mut conduct = shared.conduct();
        // Answers are lost on their way, whatever they say; the failure is in making a payment.
        (conduct.lose_answers.roll(), !is_replay && conduct.fail_after_effect.roll())
    };
    if is_lost {
        return Ok(hang_up());
    }
    if is_failed {
        return Err(Problem::internal("Something went wrong."));
    }
    Ok(answer(&payment, is_replay))
}

fn answer(payment: &Payment, is_replay: bool) -> Response<Body> {
    let mut response = json(StatusCode::CREATED, payment);
    if is_replay {
        response.headers_mut().insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    response
}
