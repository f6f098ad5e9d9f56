//! Problem documents of firstwrite in answers.

use serde::Deserialize;
use serde_json::Value;

/// A refusal in firstwrite's own words.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Problem {
    pub(crate) code: String,
    pub(crate) retryable: bool,
    pub(crate) safe_new_key: bool,
    #[serde(default, deserialize_with = "number")]
    pub(crate) retry_after: Option<f64>,
    #[serde(default, deserialize_with = "status")]
    pub(crate) first_status: Option<u16>,
}

/// Codes that are firstwrite's, and not retryable as such.
const FINAL: [&str; 16] = [
    "key-missing",
    "key-invalid",
    "request-too-old",
    "body-too-large",
    "tenant-unknown",
    "request-malformed",
    "target-too-long",
    "head-too-large",
    "method-not-allowed",
    "not-found",
    "key-unknown",
    "upgrade-refused",
    "grpc-unsupported",
    "misconfigured",
    "key-reused",
    "key-expired",
];

/// Codes that say that something is under way, was lost, or is not served at the moment.
const PASSING: [&str; 10] = [
    "in-progress",
    "outcome-unknown",
    "answer-not-kept",
    "answer-lost",
    "rate-limited",
    "store-unavailable",
    "overloaded",
    "upstream-unreachable",
    "request-timeout",
    "attempt-failed",
];

impl Problem {
    /// Reads a body. One that lacks the members, or has others under their names, is no problem of ours.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        // Most answers are none; a look at the first byte spares reading megabytes of them.
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace())?;
        if *first != b'{' {
            return None;
        }
        serde_json::from_slice(body).ok()
    }

    /// True of the codes by which a new key, or a repetition that looks harmless, may carry an action out twice.
    pub(crate) fn tells_what_stands_under_the_key(&self) -> bool {
        const CODES: [&str; 4] =
            ["answer-not-kept", "key-expired", "key-reused", "outcome-unknown"];
        CODES.contains(&self.code.as_str())
    }

    /// True of the codes of this version.
    pub(crate) fn is_known(&self) -> bool {
        FINAL.contains(&self.code.as_str()) || PASSING.contains(&self.code.as_str())
    }
}

/// A number; anything else counts as not there.
fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Value::deserialize(deserializer).map(|value| value.as_f64())
}

/// A status; anything else counts as not there.
fn status<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let number = Value::deserialize(deserializer)?.as_u64();
    let number = number.and_then(|number| u16::try_from(number).ok());
    Ok(number.filter(|number| (100..600).contains(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_another_kind_make_no_problem_and_odd_times_are_not_read() {
        let read = |text: &str| Problem::read(text.as_bytes());
        assert!(read(r#" {"code":"a","retryable":true,"safe_new_key":false}"#).is_some());
        for text in [
            "",
            "[]",
            r#"{"code":1,"retryable":true,"safe_new_key":false}"#,
            r#"{"code":"a","retryable":"true","safe_new_key":false}"#,
            r#"{"code":"a","retryable":true}"#,
            r#"{"code":"a","retryable":true,"safe_new_key":false"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        let odd = r#"{"code":"a","retryable":true,"safe_new_key":false,"retry_after":"soon"}"#;
        assert_eq!(read(odd).unwrap().retry_after, None);
    }
}
