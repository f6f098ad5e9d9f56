//! Payment orders of callers, and their fields.

use serde_json::{Map, Value};

use crate::problem::Problem;

/// Payment that a caller asks for; validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) customer: String,
}

/// Under a million in most currencies: a demo need not move more.
const AMOUNT_MAX: i64 = 99_999_999;
/// As long as the identifiers of any payment provider.
const CUSTOMER_CHARACTERS_MAX: usize = 64;
/// The members of a JSON object; an empty body counts as an empty object.
pub(crate) fn members(body: &[u8]) -> Result<Map<String, Value>, Problem> {
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
pub(crate) fn amount(value: &Value) -> Result<i64, Problem> {
    value.as_i64().filter(|amount| (1..=AMOUNT_MAX).contains(amount)).ok_or_else(|| {
        let detail = format!("amount must be a whole number from 1 to {AMOUNT_MAX}.");
        Problem::field("amount", detail)
    })
}

impl Order {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
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
}
