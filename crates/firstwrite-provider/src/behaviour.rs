//! What the provider does with calls, besides what they ask for.

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

/// How the provider behaves. The default behaves well.
///
/// The faults apply to `POST /v1/payments`; an outage and a rate limit to everything below `/v1`.
/// In JSON a member that is left out has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// What `Idempotency-Key` is to it.
    pub keys: Keys,
    /// How long it takes.
    pub delay: Delay,
    /// Says 503 before anything is done.
    pub fail_before_effect: Chance,
    /// Says 500 after a payment was made; a replay is answered as it should be.
    pub fail_after_effect: Chance,
    /// Makes or replays the payment and hangs up without an answer.
    pub lose_answers: Chance,
    /// Says 503 to a question about payments.
    pub fail_lookups: Chance,
    /// How long after it was made a payment is reported: until then, every question about it is
    /// answered as if it were not there.
    #[serde(with = "duration")]
    pub report_lag: Duration,
    /// Whether it is there at all.
    pub outage: Outage,
    /// How many calls it takes in a second before it says 429.
    pub requests_per_second: Option<u32>,
    /// Whom it tells of payments.
    pub webhooks: Option<Webhooks>,
}

/// What a key is to the provider. In JSON: `"honour"`, `"ignore"`, `{"forget_after": "24h"}`.
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

/// How long a payment takes. A caller who hangs up meanwhile changes nothing.
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

/// Whether the provider is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outage {
    /// It is.
    #[default]
    None,
    /// It says 503 to everything.
    Unavailable,
    /// It hangs up on everything.
    HangUp,
}

/// Where webhooks go, and how badly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhooks {
    /// `http://` and a loopback host.
    pub url: String,
    /// What they are signed with. It is never shown; a new behaviour that leaves it out keeps the
    /// one before.
    #[serde(default, skip_serializing)]
    pub secret: Option<Secret>,
    /// How often each is sent.
    #[serde(default = "one")]
    pub duplicates: u32,
    /// Holds so many back and sends them in reverse; 1 keeps the order.
    #[serde(default = "one")]
    pub out_of_order: u32,
    /// How long an incomplete group is held back for.
    #[serde(default = "second", with = "duration")]
    pub hold_for: Duration,
    /// How often one is tried until it is answered with 2xx.
    #[serde(default = "five")]
    pub tries_max: u32,
    /// How long it waits before the second try; twice as long before each further one, up to 5 s.
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
