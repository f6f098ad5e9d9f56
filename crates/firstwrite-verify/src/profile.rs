//! Profiles of expectations where conforming APIs differ.

use std::str::FromStr;

/// A set of expectations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// The seventh draft of the `Idempotency-Key` header.
    #[default]
    Draft07,
    /// As Stripe documents its API: keys are optional and bare, a mismatch is 400, errors are kept.
    Stripe,
    /// The draft, and beyond it what firstwrite itself does: limits, markers, and no 5xx kept.
    Strict,
}

impl Profile {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Draft07 => "draft-07",
            Self::Stripe => "stripe",
            Self::Strict => "strict",
        }
    }

    /// Writes a key as the profile spells it in the header.
    pub(crate) fn spelled(self, key: &str) -> String {
        match self {
            Self::Draft07 | Self::Strict => format!("\"{key}\""),
            Self::Stripe => key.to_owned(),
        }
    }

    pub(crate) fn requires_keys(self) -> bool {
        self != Self::Stripe
    }

    /// Returns the status for a different request under a used key.
    pub(crate) fn mismatch(self) -> u16 {
        if self == Self::Stripe { 400 } else { 422 }
    }

    /// Returns true if the profile limits keys to 255 characters.
    pub(crate) fn limits_keys(self) -> bool {
        self != Self::Draft07
    }

    /// Returns true if quotes are not part of a key.
    pub(crate) fn reads_quotes(self) -> bool {
        self != Self::Stripe
    }

    pub(crate) fn marks_replays(self) -> bool {
        self != Self::Draft07
    }

    pub(crate) fn tells_expiry(self) -> bool {
        self == Self::Strict
    }

    pub(crate) fn asks_for_retry_after(self) -> bool {
        self == Self::Strict
    }

    /// Returns true if the server may store a 5xx as the final response.
    pub(crate) fn may_keep_failures(self) -> bool {
        self != Self::Strict
    }
}

impl FromStr for Profile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Draft07, Self::Stripe, Self::Strict]
            .into_iter()
            .find(|profile| profile.name() == text)
            .ok_or("draft-07, stripe or strict")
    }
}
