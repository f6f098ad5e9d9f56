//! Terms that every kind of destination declares: time limits, tries, and how long it recognises a key.

use std::time::Duration;

use firstwrite::worker::SLOT_COUNT;
use firstwrite_core::outbox::Terms;
use serde::Deserialize;

use super::super::Span;

/// The settings that every kind of destination knows.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TermsSection {
    /// Time limit of a delivery, at most 10 minutes; with brokers, of connecting and again of the answer.
    /// Default: 30 s by HTTP, 10 s with brokers.
    pub(super) timeout: Option<Span>,
    /// Time for which the destination recognises a key, at least `timeout`. It runs from the delivery: `retention`
    /// is longer by as much as a message may wait. Default: 1 h with Redis, otherwise not at all.
    pub(super) dedupe_for: Option<Span>,
    /// Declares that every refusal is the destination's answer under the key. Needs `dedupe_for`.
    #[serde(default)]
    answers_refusals_by_key: bool,
    /// Deliveries before a message becomes a dead letter. Default: `25`.
    delivery_count_max: Option<u32>,
    /// Length that the first pause is drawn from. Default: `"1s"`.
    pause_first: Option<Span>,
    /// Greatest length that a pause is drawn from. Default: `"1h"`.
    pause_max: Option<Span>,
    /// Deliveries under way at the same time in one worker, at most 256. Default: `32`.
    concurrency_max: Option<u32>,
}

impl TermsSection {
    /// The names of its settings.
    pub(super) const KEYS: [&str; 7] = [
        "timeout",
        "dedupe_for",
        "answers_refusals_by_key",
        "delivery_count_max",
        "pause_first",
        "pause_max",
        "concurrency_max",
    ];

    /// The terms, with what is right where nothing is declared.
    pub(super) fn terms(&self) -> Result<Terms, String> {
        let usual = Terms::default();
        let span = |span: Option<Span>, usual| span.map_or(usual, |span: Span| span.0);
        let terms = Terms {
            timeout: span(self.timeout, usual.timeout),
            dedupe_for: span(self.dedupe_for, usual.dedupe_for),
            can_be_asked: false,
            answers_refusals_by_key: self.answers_refusals_by_key,
            delivery_count_max: self.delivery_count_max.unwrap_or(usual.delivery_count_max),
            pause_first: span(self.pause_first, usual.pause_first),
            pause_max: span(self.pause_max, usual.pause_max),
            concurrency_max: self.concurrency_max.unwrap_or(usual.concurrency_max),
        };
        let wrong = [
            (terms.timeout.is_zero(), "timeout is longer than zero"),
            (terms.timeout > TIMEOUT_MAX, "timeout is at most 10 minutes"),
            (terms.delivery_count_max == 0, "delivery_count_max is at least 1"),
            (terms.concurrency_max == 0, "concurrency_max is at least 1"),
            (
                usize::try_from(terms.concurrency_max).unwrap_or(usize::MAX) > SLOT_COUNT,
                "concurrency_max is at most 256: a worker has no more slots",
            ),
            (terms.pause_first > terms.pause_max, "pause_first is at most pause_max"),
        ];
        match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, message)) => Err(message.to_owned()),
            None => Ok(terms),
        }
    }
}

/// A claim stands for as long as its delivery may take; whatever a dead worker held waits for that.
const TIMEOUT_MAX: Duration = Duration::from_mins(10);
