//! A payment, and what a caller has to say to get one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::problem::Problem;

/// The amount that is always declined, whatever the behaviour: a permanent no on demand.
pub const DECLINED_AMOUNT: u64 = 666;

/// Largest amount: ten digits before the decimal point in most currencies, more than any single payment.
pub(crate) const AMOUNT_MAX: u64 = 999_999_999_999;
/// A common limit among payment providers.
const REFERENCE_CHARACTERS_MAX: usize = 255;
/// The same, for keys.
const KEY_BYTES_MAX: usize = 255;

/// One payment: an effect in the world, as this provider keeps and reports it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// The provider's own id, `pay_…`.
    pub id: String,
    /// In minor units.
    pub amount: u64,
    /// Three capital letters.
    pub currency: String,
    /// The caller's reference.
    pub reference: Option<String>,
    /// The key it was made under, if there was one.
    pub idempotency_key: Option<String>,
    /// Time at which it was made.
    pub created_at: Moment,
}

/// A call for a payment, checked.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) amount: u64,
    pub(crate) currency: String,
    #[serde(default)]
    pub(crate) reference: Option<String>,
}

impl Payment {
    /// The id of the payment with this number, counted from one.
    pub(crate) fn id_of(number: usize) -> String {
        format!("pay_{number:08}")
    }

    /// The number in an id, counted from one; `None` if it is no id of ours.
    pub(crate) fn number_of(id: &str) -> Option<usize> {
        let number = id.strip_prefix("pay_")?.parse().ok()?;
        (number > 0 && Self::id_of(number) == id).then_some(number)
    }

    /// Returns true if `wanted` asks for this very payment.
    pub(crate) fn is_what(&self, wanted: &Wanted) -> bool {
        self.amount == wanted.amount
            && self.currency == wanted.currency
            && self.reference == wanted.reference
    }
}

impl fmt::Debug for Payment {
    /// Neither the key nor the reference: both are the caller's own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payment")
            .field("id", &self.id)
            .field("amount", &self.amount)
            .field("currency", &self.currency)
            .field("created_at", &self.created_at)
            .finish_non_exhaustive()
    }
}

impl Wanted {
    /// Reads a body. Members that are not known here are passed over, as most providers do.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let wanted: Self = serde_json::from_slice(body)
            .map_err(|error| Problem::bad_request("body-invalid", error.to_string()))?;
        wanted.check().map_err(|detail| Problem::bad_request("field-invalid", detail))?;
        Ok(wanted)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1..=AMOUNT_MAX).contains(&self.amount) {
            return Err(format!("amount: from 1 to {AMOUNT_MAX} minor units"));
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_uppercase())
        {
            return Err("currency: three capital letters, such as EUR".to_owned());
        }
        let characters = self.reference.as_ref().map_or(0, |text| text.chars().count());
        if characters > REFERENCE_CHARACTERS_MAX {
            return Err(format!("reference: at most {REFERENCE_CHARACTERS_MAX} characters"));
        }
        Ok(())
    }
}

/// Reads the value of `Idempotency-Key`: as it stands, or quoted like a string of structured fields.
pub(crate) fn parse_key(value: &[u8]) -> Result<String, Problem> {
    let invalid = || {
        let detail = format!("Idempotency-Key: 1 to {KEY_BYTES_MAX} visible ASCII characters");
        Problem::bad_request("key-invalid", detail)
    };
    let text = std::str::from_utf8(value).ok().map(str::trim).ok_or_else(invalid)?;
    let key = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .filter(|text| !text.contains(['"', '\\']))
        .unwrap_or(text);
    let is_visible = key.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if key.is_empty() || key.len() > KEY_BYTES_MAX || !is_visible {
        return Err(invalid());
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_told_from_its_number_and_back() {
        assert_eq!(Payment::id_of(42), "pay_00000042");
        for (id, number) in [
            ("pay_00000042", Some(42)),
            ("pay_123456789", Some(123_456_789)),
            ("pay_00000000", None),
            ("pay_42", None),
            ("pay_", None),
            ("evt_00000042", None),
        ] {
            assert_eq!(Payment::number_of(id), number, "{id}");
        }
    }

    #[test]
    fn a_key_is_taken_bare_or_quoted() {
        assert_eq!(parse_key(b"order-1:charge").unwrap(), "order-1:charge");
        assert_eq!(parse_key(b"\"order-1\"").unwrap(), "order-1");
        for bad in [&b""[..], b"\"\"", b"\xff", b"a\tb", &[b'k'; 256]] {
            assert!(parse_key(bad).is_err());
        }
    }

    #[test]
    fn what_cannot_be_paid_is_refused() {
        for bad in [
            "",
            "[]",
            r#"{"amount":0,"currency":"EUR"}"#,
            r#"{"amount":-5,"currency":"EUR"}"#,
            r#"{"amount":1.5,"currency":"EUR"}"#,
            r#"{"amount":"5","currency":"EUR"}"#,
            r#"{"amount":1000000000000,"currency":"EUR"}"#,
            r#"{"amount":5,"currency":"eur"}"#,
            r#"{"amount":5}"#,
        ] {
            assert!(Wanted::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Wanted::parse(br#"{"amount":5,"currency":"EUR","colour":"red"}"#).is_ok());
    }
}
