//! Configurable behaviour of the provider: faults, delays, outages, rate limits and webhooks.

mod duration;

use std::time::Duration;

use axum::http::Uri;
use serde::{Deserialize, Serialize};

use crate::chance::Chance;
use crate::error::{ErrorKind, ProviderError};
use crate::webhook::Secret;

/// A caller that waits longer than this has other trouble; and a stop need not wait for it.
const DELAY_MAX: Duration = Duration::from_mins(10);
/// Enough to show that order and number of webhooks are not to be relied on.
const WEBHOOK_GROUP_MAX: u32 = 100;

/// Behaviour of the provider. The default has no faults.
///
/// The faults apply to `POST /v1/payments`; an outage and a rate limit to everything below `/v1`.
/// In JSON a member that is left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Treatment of `Idempotency-Key`.
    pub keys: Keys,
    /// Delay of a payment.
    pub delay: Delay,
    /// Says 503 before anything is done.
    pub fail_before_effect: Chance,
    /// Says 500 after a payment was made; a replay is answered as it should be.
    pub fail_after_effect: Chance,
    /// Makes or replays the payment and hangs up without an answer.
    pub lose_answers: Chance,
    /// Says 503 to a question about payments.
    pub fail_lookups: Chance,
    /// Time after which a payment is reported: until then, every look-up answers as if it did not exist.
    #[serde(with = "duration")]
    pub report_lag: Duration,
    /// Outage, if any.
    pub outage: Outage,
    /// Calls per second above which the provider responds with 429.
    pub requests_per_second: Option<u32>,
    /// Receiver of webhooks about payments, if any.
    pub webhooks: Option<Webhooks>,
}

/// Treatment of keys. In JSON: `"honour"`, `"ignore"`, `{"forget_after": "24h"}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// One key, one payment; the same answer again.
    #[default]
    Honour,
    /// Every call is a payment.
    Ignore,
    /// One key, one payment, and after so long the key is as good as new.
    ForgetAfter(#[serde(with = "duration")] Duration),
}

/// Delay of a payment. A caller who disconnects meanwhile changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delay {
    /// Before it is made: a caller who gave up and asks is told that there is no payment, and then
    /// there is one.
    #[serde(with = "duration")]
    pub before_effect: Duration,
    /// After it was made, before it is answered.
    #[serde(with = "duration")]
    pub after_effect: Duration,
}

/// Outage of the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outage {
    /// No outage.
    #[default]
    None,
    /// It responds with 503 to everything.
    Unavailable,
    /// It closes every connection without a response.
    HangUp,
}

/// Receiver of webhooks, and the faults of their delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhooks {
    /// `http://` and a loopback host.
    pub url: String,
    /// Secret that signs webhooks. It is never shown; a new behaviour without one keeps the previous secret.
    #[serde(default, skip_serializing)]
    pub secret: Option<Secret>,
    /// Number of times each webhook is sent.
    #[serde(default = "one")]
    pub duplicates: u32,
    /// Holds so many back and sends them in reverse; 1 keeps the order.
    #[serde(default = "one")]
    pub out_of_order: u32,
    /// Time for which an incomplete group is held back.
    #[serde(default = "second", with = "duration")]
    pub hold_for: Duration,
    /// Largest number of tries until the receiver responds with 2xx.
    #[serde(default = "five")]
    pub tries_max: u32,
    /// Pause before the second try; it doubles before each further one, up to 5 s.
    #[serde(default = "half_second", with = "duration")]
    pub retry_after: Duration,
}

fn one() -> u32 {
    1
}

fn five() -> u32 {
    5
}

fn second() -> Duration {
    Duration::from_secs(1)
}

fn half_second() -> Duration {
    Duration::from_millis(500)
}

impl Behaviour {
    pub(crate) fn check(&self) -> Result<(), ProviderError> {
        self.fail_before_effect.check("fail_before_effect")?;
        self.fail_after_effect.check("fail_after_effect")?;
        self.lose_answers.check("lose_answers")?;
        self.fail_lookups.check("fail_lookups")?;
        if self.delay.before_effect.max(self.delay.after_effect) > DELAY_MAX {
            return Err(refused(format!("delay: at most {}", DELAY_MAX.as_secs()) + " seconds"));
        }
        self.webhooks.as_ref().map_or(Ok(()), Webhooks::check)
    }
}

impl Webhooks {
    /// Signed with `secret` to `url`; once each, in order.
    pub fn new(url: impl Into<String>, secret: Secret) -> Self {
        Self {
            url: url.into(),
            secret: Some(secret),
            duplicates: one(),
            out_of_order: one(),
            hold_for: second(),
            tries_max: five(),
            retry_after: half_second(),
        }
    }

    fn check(&self) -> Result<(), ProviderError> {
        let is_loopback = self.url.parse::<Uri>().is_ok_and(|url| {
            url.scheme_str() == Some("http") && url.host().is_some_and(is_loopback)
        });
        if !is_loopback {
            return Err(refused("webhooks.url: http:// and a loopback host"));
        }
        for (name, value) in [("duplicates", self.duplicates), ("out_of_order", self.out_of_order)]
        {
            if !(1..=WEBHOOK_GROUP_MAX).contains(&value) {
                return Err(refused(format!("webhooks.{name}: from 1 to {WEBHOOK_GROUP_MAX}")));
            }
        }
        if !(1..=10).contains(&self.tries_max) {
            return Err(refused("webhooks.tries_max: from 1 to 10"));
        }
        if self.hold_for.max(self.retry_after) > DELAY_MAX {
            return Err(refused("webhooks: hold_for and retry_after are too long"));
        }
        Ok(())
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

fn refused(detail: impl Into<String>) -> ProviderError {
    ProviderError::new(ErrorKind::Behaviour, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let read: Behaviour = serde_json::from_str(
            r#"{"keys":{"forget_after":"1m"},"delay":{"before_effect":"250ms"},"outage":"hang_up"}"#,
        )
        .unwrap();
        let meant = Behaviour {
            keys: Keys::ForgetAfter(Duration::from_mins(1)),
            delay: Delay { before_effect: Duration::from_millis(250), ..Delay::default() },
            outage: Outage::HangUp,
            ..Behaviour::default()
        };
        assert_eq!(read, meant);
        let text = serde_json::to_string(&meant).unwrap();
        assert_eq!(serde_json::from_str::<Behaviour>(&text).unwrap(), meant);
    }

    #[test]
    fn a_misspelt_member_is_not_passed_over() {
        assert!(serde_json::from_str::<Behaviour>(r#"{"loose_answers":"always"}"#).is_err());
    }

    #[test]
    fn webhooks_stay_on_this_machine() {
        for (url, is_fine) in [
            ("http://127.0.0.1:8080/hooks", true),
            ("http://[::1]:8080/hooks", true),
            ("http://localhost/hooks", true),
            ("https://127.0.0.1/hooks", false),
            ("http://example.com/hooks", false),
            ("http://127.0.0.1.example.com/", false),
            ("/hooks", false),
        ] {
            let webhooks = Webhooks::new(url, Secret::new("whsec_c2VjcmV0").unwrap());
            assert_eq!(webhooks.check().is_ok(), is_fine, "{url}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new("whsec_c2VjcmV0").unwrap();
        let behaviour = Behaviour {
            webhooks: Some(Webhooks::new("http://localhost/", secret)),
            ..Behaviour::default()
        };
        let shown = serde_json::to_string(&behaviour).unwrap() + &format!("{behaviour:?}");
        assert!(!shown.contains("c2VjcmV0"), "{shown}");
    }
}
