//! Refunds: of a payment of the same tenant, and never of more than is left.

use axum::extract::{Extension, Path};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use firstwrite::Atomic;
use firstwrite_store::SqliteStore;
use serde_json::Value;

use super::faults::Fault;
use super::payments::{amount, members};
use super::problem::{Failure, Problem};
use super::tables;

/// `POST /payments/{id}/refunds`: an amount, or all that is left.
pub(super) async fn create(
    Extension(fault): Extension<Fault>,
    Path(id): Path<String>,
    atomic: Atomic<SqliteStore>,
    body: Bytes,
) -> Result<Response, Failure> {
    fault.before_work().await;
    let wanted = wanted(&body);
    let response = atomic
        .run(move |tx, attempt| {
            let wanted = match wanted {
                Ok(wanted) => wanted,
                Err(problem) => return Ok(problem.to_response()),
            };
            let Some(payment) = tables::payment(tx, attempt.tenant(), &id)? else {
                return Ok(Problem::no_payment().to_response());
            };
            let left = payment.amount - payment.refunded;
            let amount = wanted.unwrap_or(left);
            if left == 0 || amount > left {
                let detail =
                    format!("amount must not be over what is left of the payment, {left}.");
                return Ok(Problem::field("amount", detail).to_response());
            }
            let refund = tables::insert_refund(tx, &payment.id, amount)?;
            if let Some(trouble) = fault.before_commit() {
                return Ok(trouble);
            }
            Ok::<_, Failure>(firstwrite::json(StatusCode::CREATED, &refund))
        })
        .await?;
    fault.after_commit();
    Ok(response)
}

/// The amount asked for; `None` for all that is left.
fn wanted(body: &[u8]) -> Result<Option<i64>, Problem> {
    match members(body)?.get("amount") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => amount(value).map(Some),
    }
}
