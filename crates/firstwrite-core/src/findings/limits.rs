//! Length limits for the texts of findings.

use std::fmt;

use super::NewFinding;

/// Owner of a finding: 1 to 100 bytes without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(String);

/// Way in which a finding is closed, with the operator's explanation: 1 to 2000 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closing {
    /// It was put right. Seen again, it is open again.
    Fixed(String),
    /// It is known and stays as it is. It is open again only if something about it changes.
    Accepted(String),
}

/// A text that is too long, empty, or not for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingError(&'static str);

impl Owner {
    /// A name, an address or a team.
    pub const BYTES_MAX: usize = 100;

    /// Checks the length and the characters of `name`.
    pub fn new(name: &str) -> Result<Self, FindingError> {
        let is_name = (1..=Self::BYTES_MAX).contains(&name.len())
            && !name.chars().any(char::is_control)
            && !name.trim().is_empty();
        if !is_name {
            return Err(FindingError("an owner is 1 to 100 bytes without control characters"));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Closing {
    /// A page of explanation is a document, and can be linked to.
    pub const TEXT_BYTES_MAX: usize = 2000;

    /// Closes a finding as fixed; `text` says how.
    pub fn fixed(text: &str) -> Result<Self, FindingError> {
        Self::check(text).map(Self::Fixed)
    }

    /// Closes a finding as accepted; `text` says why.
    pub fn accepted(text: &str) -> Result<Self, FindingError> {
        Self::check(text).map(Self::Accepted)
    }

    /// From what a document says.
    pub fn from_stored(word: &str, text: String) -> Option<Self> {
        match word {
            "fixed" => Some(Self::Fixed(text)),
            "accepted" => Some(Self::Accepted(text)),
            _ => None,
        }
    }

    /// The word used in documents and listings.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Accepted(_) => "accepted",
        }
    }

    /// Returns the operator's explanation.
    pub fn text(&self) -> &str {
        match self {
            Self::Fixed(text) | Self::Accepted(text) => text,
        }
    }

    fn check(text: &str) -> Result<String, FindingError> {
        let is_text = (1..=Self::TEXT_BYTES_MAX).contains(&text.len()) && !text.trim().is_empty();
        // A NUL cannot be stored by every database.
        if !is_text || text.contains('\0') {
            return Err(FindingError("a resolution is 1 to 2000 bytes of text"));
        }
        Ok(text.to_owned())
    }
}

impl NewFinding {
    /// A line on a screen.
    pub const SUBJECT_BYTES_MAX: usize = 300;
    /// A few lines on a screen.
    pub const DETAIL_BYTES_MAX: usize = 1000;
    /// Providers' ids are short.
    pub const PROVIDER_ID_BYTES_MAX: usize = 255;

    /// Cuts the texts to the lengths above, and replaces control characters.
    #[must_use]
    pub fn within_limits(mut self) -> Self {
        tidy(&mut self.subject, Self::SUBJECT_BYTES_MAX);
        tidy(&mut self.detail, Self::DETAIL_BYTES_MAX);
        if let Some(provider_id) = &mut self.provider_id {
            tidy(provider_id, Self::PROVIDER_ID_BYTES_MAX);
        }
        self
    }
}

fn tidy(text: &mut String, bytes_max: usize) {
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, "\u{fffd}");
    }
    text.truncate(text.floor_char_boundary(bytes_max));
}

impl fmt::Display for FindingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for FindingError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FindingKind;

    #[test]
    fn owners_and_resolutions_are_bounded() {
        for bad in ["", " ", "a\nb", &"x".repeat(101)] {
            assert!(Owner::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Owner::new("billing team").unwrap().as_str(), "billing team");
        for bad in ["", "\n", "a\0b", &"x".repeat(2001)] {
            assert!(Closing::fixed(bad).is_err() && Closing::accepted(bad).is_err(), "{bad:?}");
        }
        assert!(Closing::fixed("refunded\nby hand").is_ok());
    }

    #[test]
    fn what_a_provider_calls_things_is_cut_to_what_is_kept() {
        let found = NewFinding {
            kind: FindingKind::MissingHere,
            subject: "ä".repeat(200),
            detail: "a\u{1b}[31m\0".to_owned(),
            record: None,
            message: None,
            provider_id: Some("p".repeat(300)),
        };
        let found = found.within_limits();
        assert_eq!(found.subject, "ä".repeat(150));
        assert_eq!(found.detail, "a\u{fffd}[31m\u{fffd}");
        assert_eq!(found.provider_id.unwrap().len(), 255);
    }
}
