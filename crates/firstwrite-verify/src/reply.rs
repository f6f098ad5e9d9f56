//! The result of one request.

use std::time::Duration;

use crate::call::shown;
use crate::wire::{Answer, Silence};

/// A response, or the reason why there is none, and its duration.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) result: Result<Answer, Silence>,
    /// From the last byte of the request to the first of the answer.
    pub(crate) took: Duration,
}

impl Reply {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.result.as_ref().ok()
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.answer().map(|answer| answer.status)
    }

    pub(crate) fn is_success(&self) -> bool {
        self.answer().is_some_and(Answer::is_success)
    }

    pub(crate) fn is_refusal(&self) -> bool {
        self.answer().is_some_and(Answer::is_refusal)
    }

    /// Returns true if the status tells the client to retry because the key is in use.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.status(), Some(409 | 423 | 425))
    }

    /// Returns true if both are responses and equal.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self.answer(), other.answer()) {
            (Some(one), Some(other)) => one.equals(other),
            (None, _) | (_, None) => false,
        }
    }

    /// Returns true if this is a valid response to a retry of `first`: by the number of effects if they are
    /// counted, else by comparing the responses. Other checks judge how well the responses agree.
    pub(crate) fn retries(&self, first: &Self, effects: Option<u64>) -> bool {
        let is_marked = self.answer().is_some_and(Answer::is_marked);
        let is_answered = self.is_success() || self.repeats(first);
        is_answered && effects.map_or(is_marked || self.equals(first), |count| count == 1)
    }

    /// Returns true if it repeats the content of the first response, even under another status.
    pub(crate) fn repeats(&self, first: &Self) -> bool {
        match (self.answer(), first.answer()) {
            (Some(one), Some(first)) => {
                one.equals(first) || (!first.body.is_empty() && one.body == first.body)
            }
            (None, _) | (_, None) => false,
        }
    }

    /// Returns the error type of a problem document, so that two refusals can be told apart.
    pub(crate) fn kind(&self) -> Option<String> {
        let document: serde_json::Value = serde_json::from_slice(&self.answer()?.body).ok()?;
        ["/type", "/code", "/error/type", "/error/code", "/error", "/title", "/message", "/detail"]
            .iter()
            .find_map(|place| document.pointer(place)?.as_str().map(str::to_owned))
    }

    /// Returns a one-line summary of the response.
    pub(crate) fn summary(&self) -> String {
        match &self.result {
            Err(silence) => silence.to_string(),
            Ok(answer) => {
                let mut parts = vec![answer.status.to_string()];
                if answer.is_marked() {
                    parts.push("marked as a replay".to_owned());
                }
                if let Some(after) = answer.header("retry-after") {
                    parts.push(format!("Retry-After: {}", shown(after.as_bytes())));
                }
                if !answer.body.is_empty() {
                    parts.push(shown(&answer.body));
                }
                parts.join(", ")
            }
        }
    }
}

/// Counts the replies by kind of response.
pub(crate) fn tally(replies: &[Reply]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for reply in replies {
        let kind = match &reply.result {
            Ok(answer) => answer.status.to_string(),
            Err(silence) => silence.to_string(),
        };
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let lines: Vec<String> =
        kinds.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    lines.join(", ")
}
