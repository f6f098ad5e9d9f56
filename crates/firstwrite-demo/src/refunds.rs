//! Refunds: of a payment of the same tenant, and never of more than is left.

use axum::extract::{Extension, Path};
use axum::http::{self, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use firstwrite::Attempt;
use serde_json::Value;

use crate::faults::Fault;
use crate::ledger::{Job, Ledger, Work};
use crate::order::{amount, members};
use crate::problem::{Failure, Problem};

/// `POST /payments/{id}/refunds`: an amount, or all that is left.
pub(crate) async fn create(
    Extension(fault): Extension<Fault>,
    Path(id): Path<String>,
    work: Work,
    body: Bytes,
) -> Result<Response, Failure> {
    fault.before_work().await;
    let response = work.run(PayBack { id, wanted: wanted(&body), fault }).await?;
    fault.after_commit();
    Ok(response)
}

/// Refunding a payment.
struct PayBack {
    id: String,
    wanted: Result<Option<i64>, Problem>,
    fault: Fault,
}

impl Job for PayBack {
    async fn run<L: Ledger>(
        self,
        ledger: &mut L,
        attempt: &Attempt,
    ) -> Result<http::Response<Bytes>, Failure> {
        let wanted = match self.wanted {
            Ok(wanted) => wanted,
            Err(problem) => return Ok(problem.to_response()),
        };
        let Some(payment) = ledger.payment_to_refund(attempt.tenant(), &self.id).await? else {
            return Ok(Problem::no_payment().to_response());
        };
        let left = payment.amount - payment.refunded;
        let amount = wanted.unwrap_or(left);
        if left == 0 || amount > left {
            let detail = format!("amount must not be over what is left of the payment, {left}.");
            return Ok(Problem::field("amount", detail).to_response());
        }
        let refund = ledger.insert_refund(&payment.id, amount).await?;
        if let Some(trouble) = self.fault.before_commit() {
            return Ok(trouble);
        }
        Ok(firstwrite::json(StatusCode::CREATED, &refund))
    }
}

/// The amount asked for; `None` for all that is left.
fn wanted(body: &[u8]) -> Result<Option<i64>, Problem> {
    match members(body)?.get("amount") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => amount(value).map(Some),
    }
}
