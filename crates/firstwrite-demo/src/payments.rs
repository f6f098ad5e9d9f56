//! Payments: made by an atomic handler, listed and looked up by plain ones.

use std::time::Duration;

use axum::extract::{Extension, Path, RawQuery, State};
use axum::http;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use firstwrite::Attempt;
use firstwrite_core::Tenant;

use crate::charge;
use crate::faults::Fault;
use crate::ledger::{Books, Job, Ledger, Work};
use crate::order::Order;
use crate::problem::{Failure, Problem};

/// Longest time that a caller waits for the provider's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitFor(pub(crate) Duration);

/// Default page size: as many as a person can look through.
const PAGE_DEFAULT: usize = 100;
/// Largest page size: as many as one answer can carry.
const PAGE_MAX: usize = 1000;

/// `POST /payments`: the payment, the message to the provider and the interim answer in one commit.
pub(crate) async fn create(
    Extension(fault): Extension<Fault>,
    Extension(wait_for): Extension<WaitFor>,
    work: Work,
    body: Bytes,
) -> Result<Response, Failure> {
    fault.before_work().await;
    // Read here, on the caller's own time; answered inside, so that a refusal is kept as well.
    let order = Order::parse(&body);
    let response = work.run(Pay { order, fault, wait_for: wait_for.0 }).await?;
    fault.after_commit();
    Ok(response)
}

/// Making a payment.
struct Pay {
    order: Result<Order, Problem>,
    fault: Fault,
    wait_for: Duration,
}

impl Job for Pay {
    async fn run<L: Ledger>(
        self,
        ledger: &mut L,
        attempt: &Attempt,
    ) -> Result<http::Response<Bytes>, Failure> {
        let order = match self.order {
            Ok(order) => order,
            Err(problem) => return Ok(problem.to_response()),
        };
        let payment = ledger.insert_payment(attempt.tenant(), &order).await?;
        ledger.enqueue(&charge::message(attempt, &payment)?).await?;
        if let Some(trouble) = self.fault.before_commit() {
            return Ok(trouble);
        }
        Ok(charge::interim(&payment, self.wait_for))
    }
}

/// `GET /payments`: a page of the tenant's payments, newest first.
pub(crate) async fn list(
    State(books): State<Books>,
    Extension(tenant): Extension<Tenant>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let Page { limit, after } = match Page::parse(query.as_deref().unwrap_or_default()) {
        Ok(page) => page,
        Err(problem) => return Ok(problem.into_response()),
    };
    Ok(match books.payments(tenant, limit, after).await? {
        Some(page) => axum::Json(page).into_response(),
        None => Page::unknown_cursor().into_response(),
    })
}

/// `GET /payments/{id}`: one payment of the tenant.
pub(crate) async fn show(
    State(books): State<Books>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(match books.payment(tenant, id).await? {
        Some(payment) => axum::Json(payment).into_response(),
        None => Problem::no_payment().into_response(),
    })
}

/// Which page of a listing is wanted.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    limit: usize,
    after: Option<String>,
}

impl Page {
    /// Reads `limit` and `after`. Neither needs percent-encoding, so none is undone.
    fn parse(query: &str) -> Result<Self, Problem> {
        let mut page = Self { limit: PAGE_DEFAULT, after: None };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("limit", value) => {
                    page.limit = value
                        .parse()
                        .ok()
                        .filter(|limit| (1..=PAGE_MAX).contains(limit))
                        .ok_or_else(|| {
                            let detail = format!("limit must be a number from 1 to {PAGE_MAX}.");
                            Problem::request("query-invalid", detail)
                        })?;
                }
                ("after", value) => page.after = Some(value.to_owned()),
                _ => {
                    let detail = "Only limit and after are understood here.";
                    return Err(Problem::request("query-invalid", detail));
                }
            }
        }
        Ok(page)
    }

    fn unknown_cursor() -> Problem {
        Problem::request("query-invalid", "after must be the `next` of an earlier page.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_bounded() {
        let parsed = |query| Page::parse(query).ok().map(|page| (page.limit, page.after));
        assert_eq!(parsed(""), Some((PAGE_DEFAULT, None)));
        assert_eq!(parsed("limit=1000&after=pay_1"), Some((1000, Some("pay_1".to_owned()))));
        for wrong in ["limit=0", "limit=1001", "limit=x", "limit=", "offset=3"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
