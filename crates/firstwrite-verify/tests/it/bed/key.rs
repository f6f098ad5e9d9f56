//! The key of a request: what counts as one, and what is refused.

use super::defect::Defect;
use super::message::{Answer, Head};

const KEY_CHARACTERS_MAX: usize = 255;

/// What a request says about its key.
pub(super) enum Key {
    Given(String),
    /// None, where the server runs the request all the same.
    Unprotected,
    Refused(Answer),
}

impl Key {
    pub(super) fn of(head: &Head, defect: Option<Defect>) -> Self {
        let invalid = || Self::Refused(Answer::problem(400, "key-invalid"));
        let line = match (head.all("idempotency-key").as_slice(), defect) {
            ([], Some(Defect::MissingKeyRuns)) => return Self::Unprotected,
            ([], Some(Defect::MissingKey500)) => {
                return Self::Refused(Answer::problem(500, "internal-error"));
            }
            ([], _) => return Self::Refused(Answer::problem(400, "key-missing")),
            ([line], _) | ([line, ..], Some(Defect::FirstHeaderWins)) => *line,
            _ => return invalid(),
        };
        if line.iter().any(u8::is_ascii_control) && defect == Some(Defect::ControlCharacters500) {
            return Self::Refused(Answer::problem(500, "internal-error"));
        }
        let is_fit = |byte: &u8| (b' '..=b'~').contains(byte);
        let text = std::str::from_utf8(line).ok().filter(|_| line.iter().all(is_fit));
        let Some(text) = text.map(|text| text.trim_matches(' ')) else { return invalid() };
        let Some(mut key) = unquoted(text) else { return invalid() };
        let characters_max = match defect {
            Some(Defect::Refused255) => 128,
            Some(Defect::TruncatedKeys) => usize::MAX,
            _ => KEY_CHARACTERS_MAX,
        };
        let may_be_empty = defect == Some(Defect::EmptyKeyAccepted);
        // Every character is one byte here.
        if key.len() > characters_max || (key.is_empty() && !may_be_empty) {
            return invalid();
        }
        match defect {
            Some(Defect::TruncatedKeys) => key.truncate(200),
            Some(Defect::QuotedDiffers) => text.clone_into(&mut key),
            _ => {}
        }
        Self::Given(key)
    }
}

/// The text inside the quotes of a structured-field string, or a bare one as it is.
fn unquoted(text: &str) -> Option<String> {
    let Some(inside) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let mut key = String::new();
    let mut characters = inside.chars();
    loop {
        match characters.next()? {
            '"' => return characters.as_str().is_empty().then_some(key),
            '\\' => key.push(characters.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => key.push(c),
        }
    }
}
