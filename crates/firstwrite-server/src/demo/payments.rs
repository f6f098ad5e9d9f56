//! Payments: made by an atomic handler, listed and looked up by plain ones.

use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::header::{HeaderValue, LOCATION};
use axum::http::{self, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use firstwrite::Attempt;
use firstwrite_core::Tenant;
use serde_json::{Map, Value};

use super::faults::Fault;
use super::ledger::{Books, Job, Ledger, Work};
use super::problem::{Failure, Problem};

/// What a caller wants to be paid; checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) customer: String,
}

/// Under a million in most currencies: a demo need not move more.
const AMOUNT_MAX: i64 = 99_999_999;
/// As long as the identifiers of any payment provider.
const CUSTOMER_CHARACTERS_MAX: usize = 64;
/// What a person can look through.
const PAGE_DEFAULT: usize = 100;
/// What one answer can carry.
const PAGE_MAX: usize = 1000;

/// `POST /payments`: the payment, its receipt's message and the outcome in one commit.
pub(super) async fn create(
    Extension(fault): Extension<Fault>,
    work: Work,
    body: Bytes,
) -> Result<Response, Failure> {
    fault.before_work().await;
    // Read here, on the caller's own time; answered inside, so that a refusal is kept as well.
    let order = Order::parse(&body);
    let response = work.run(Pay { order, fault }).await?;
    fault.after_commit();
    Ok(response)
}

/// Making a payment.
struct Pay {
    order: Result<Order, Problem>,
    fault: Fault,
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
        let receipt = serde_json::json!({
            "payment": payment.id,
            "customer": payment.customer,
            "amount": payment.amount,
            "currency": payment.currency,
        });
        let receipt = attempt.message("receipt", "mailer", receipt.to_string().into())?;
        ledger.enqueue(&receipt).await?;
        if let Some(trouble) = self.fault.before_commit() {
            return Ok(trouble);
        }
        let mut response = firstwrite::json(StatusCode::CREATED, &payment);
        let location = HeaderValue::try_from(format!("/payments/{}", payment.id))
            .expect("an id is made of letters and digits");
        response.headers_mut().insert(LOCATION, location);
        Ok(response)
    }
}

/// `GET /payments`: a page of the tenant's payments, newest first.
pub(super) async fn list(
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
pub(super) async fn show(
    State(books): State<Books>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(match books.payment(tenant, id).await? {
        Some(payment) => axum::Json(payment).into_response(),
        None => Problem::no_payment().into_response(),
    })
}

/// The members of a JSON object; an empty body counts as an empty object.
pub(super) fn members(body: &[u8]) -> Result<Map<String, Value>, Problem> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(Problem::field("body", "The body must be a JSON object.")),
        Err(error) => Err(Problem::field("body", format!("The body is not JSON: {error}."))),
    }
}

/// An amount in the smallest unit of its currency.
pub(super) fn amount(value: &Value) -> Result<i64, Problem> {
    value.as_i64().filter(|amount| (1..=AMOUNT_MAX).contains(amount)).ok_or_else(|| {
        let detail = format!("amount must be a whole number from 1 to {AMOUNT_MAX}.");
        Problem::field("amount", detail)
    })
}

impl Order {
    fn parse(body: &[u8]) -> Result<Self, Problem> {
        let members = members(body)?;
        let member = |name: &str| members.get(name).unwrap_or(&Value::Null);
        Ok(Self {
            amount: amount(member("amount"))?,
            currency: currency(member("currency"))?,
            customer: customer(member("customer"))?,
        })
    }
}

fn currency(value: &Value) -> Result<String, Problem> {
    match value.as_str() {
        Some(code) if code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            Ok(code.to_owned())
        }
        Some(_) | None => {
            Err(Problem::field("currency", "currency must be three capital letters, such as EUR."))
        }
    }
}

fn customer(value: &Value) -> Result<String, Problem> {
    match value.as_str() {
        Some(name)
            if (1..=CUSTOMER_CHARACTERS_MAX).contains(&name.chars().count())
                && !name.chars().any(char::is_control) =>
        {
            Ok(name.to_owned())
        }
        Some(_) | None => {
            let detail = format!(
                "customer must be 1 to {CUSTOMER_CHARACTERS_MAX} characters without control \
                 characters."
            );
            Err(Problem::field("customer", detail))
        }
    }
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

    fn field(body: &str) -> Option<String> {
        let refused = Order::parse(body.as_bytes()).err()?;
        let document: Value = serde_json::from_slice(refused.to_response().body()).unwrap();
        Some(document["field"].as_str().unwrap().to_owned())
    }

    #[test]
    fn an_order_is_accepted_at_its_limits() {
        let order = |amount: i64, customer: &str| {
            format!(r#"{{"amount":{amount},"currency":"EUR","customer":"{customer}"}}"#)
        };
        assert_eq!(field(&order(1, "c")), None);
        assert_eq!(field(&order(AMOUNT_MAX, &"ü".repeat(CUSTOMER_CHARACTERS_MAX))), None);
        assert_eq!(field(&order(0, "c")).as_deref(), Some("amount"));
        assert_eq!(field(&order(-1, "c")).as_deref(), Some("amount"));
        assert_eq!(field(&order(AMOUNT_MAX + 1, "c")).as_deref(), Some("amount"));
        assert_eq!(field(&order(1, "")).as_deref(), Some("customer"));
        let long = "ü".repeat(CUSTOMER_CHARACTERS_MAX + 1);
        assert_eq!(field(&order(1, &long)).as_deref(), Some("customer"));
    }

    #[test]
    fn a_refusal_names_the_field() {
        for (body, expected) in [
            ("", "amount"),
            ("{", "body"),
            ("[]", "body"),
            ("\"x\"", "body"),
            ("{}", "amount"),
            (r#"{"amount":"1","currency":"EUR","customer":"c"}"#, "amount"),
            (r#"{"amount":1.5,"currency":"EUR","customer":"c"}"#, "amount"),
            (r#"{"amount":1e3,"currency":"EUR","customer":"c"}"#, "amount"),
            (r#"{"amount":99999999999999999999,"currency":"EUR","customer":"c"}"#, "amount"),
            (r#"{"amount":null,"currency":"EUR","customer":"c"}"#, "amount"),
            (r#"{"amount":1,"currency":"eur","customer":"c"}"#, "currency"),
            (r#"{"amount":1,"currency":"EURO","customer":"c"}"#, "currency"),
            (r#"{"amount":1,"currency":978,"customer":"c"}"#, "currency"),
            (r#"{"amount":1,"customer":"c"}"#, "currency"),
            (r#"{"amount":1,"currency":"EUR"}"#, "customer"),
            (r#"{"amount":1,"currency":"EUR","customer":["c"]}"#, "customer"),
            (r#"{"amount":1,"currency":"EUR","customer":"a\nb"}"#, "customer"),
        ] {
            assert_eq!(field(body).as_deref(), Some(expected), "{body}");
        }
    }

    #[test]
    fn a_deeply_nested_body_is_refused_and_not_followed() {
        assert_eq!(field(&"[".repeat(100_000)).as_deref(), Some("body"));
    }

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
