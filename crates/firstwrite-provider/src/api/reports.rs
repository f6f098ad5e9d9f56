//! Questions about payments: one by its id, those of a key, those of a time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;

use super::json;
use crate::book::{Place, Question};
use crate::clock::Moment;
use crate::problem::Problem;
use crate::shared::Shared;

/// Default page size: a length that a person can look through.
const PAGE_DEFAULT: usize = 100;
/// Largest page size: fits into one response.
const PAGE_MAX: usize = 1000;

/// Query parameters of a list of payments.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    idempotency_key: Option<String>,
    from: Option<Moment>,
    until: Option<Moment>,
    limit: Option<usize>,
    after: Option<String>,
}

pub(super) async fn fetch(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Response<Body>, Problem> {
    may_answer(&shared)?;
    let too_late = too_late(&shared);
    let payment = shared
        .book()
        .payment(&id)
        .filter(|payment| too_late.is_none_or(|too_late| payment.created_at < too_late))
        .ok_or_else(Problem::unknown_payment)?;
    Ok(json(StatusCode::OK, &payment))
}

pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response<Body>, Problem> {
    may_answer(&shared)?;
    let Query(asked) = asked.map_err(|error| not_understood(&error))?;
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        let detail = format!("limit: from 1 to {PAGE_MAX}");
        return Err(Problem::bad_request("query-invalid", detail));
    }
    let (payments, next) = shared.book().list(&asked.question(&shared)?, limit);
    let page = serde_json::json!({ "data": payments, "next": next.map(cursor) });
    Ok(json(StatusCode::OK, &page))
}

impl Asked {
    pub(super) fn question(self, shared: &Shared) -> Result<Question, Problem> {
        let after = self.after.map(|text| place(&text)).transpose()?;
        let until = self.until.into_iter().chain(too_late(shared)).min();
        Ok(Question { key: self.idempotency_key, from: self.from, until, after })
    }
}

/// Returns an error if this look-up is to fail.
pub(super) fn may_answer(shared: &Shared) -> Result<(), Problem> {
    if shared.conduct().fail_lookups.roll() {
        return Err(Problem::unavailable("Questions are not answered at the moment."));
    }
    Ok(())
}

pub(super) fn not_understood(error: &QueryRejection) -> Problem {
    Problem::bad_request("query-invalid", error.body_text())
}

/// The first moment whose payments are not reported yet.
fn too_late(shared: &Shared) -> Option<Moment> {
    let lag = shared.conduct().behaviour.report_lag;
    let now = shared.clock.now();
    (!lag.is_zero()).then(|| now.minus(lag).plus(Duration::from_millis(1)))
}

/// A place in a report as text; opaque to callers.
fn cursor(place: Place) -> String {
    format!("{}.{}", place.0.as_millis(), place.1)
}

fn place(text: &str) -> Result<Place, Problem> {
    text.split_once('.')
        .and_then(|(millis, number)| {
            Some((Moment::from_millis(millis.parse().ok()?), number.parse().ok()?))
        })
        .ok_or_else(|| Problem::bad_request("query-invalid", "after: a value of `next`"))
}
