//! Views of records for operators: stable field names for machines, short words for people.

use std::time::Duration;

use firstwrite_core::{Record, State, Timestamp};
use serde::Serialize;

/// A record without the body of its outcome.
#[derive(Debug, Serialize)]
pub(super) struct RecordView {
    pub(super) record_id: String,
    pub(super) tenant: String,
    pub(super) key: String,
    pub(super) state: &'static str,
    pub(super) operation: String,
    /// Number of the attempt that last owned the record, from 1.
    pub(super) attempt: u64,
    pub(super) created_at: String,
    /// The status every retry is answered with, once completed.
    pub(super) status: Option<u16>,
    /// True if completed with an answer that stands until a final one replaces it.
    pub(super) is_interim: bool,
    /// Until when the outcome is replayed, once completed with a final answer.
    pub(super) retained_until: Option<String>,
    /// Until when the lease holds, while reserved.
    pub(super) lease_until: Option<String>,
    /// Time since which the outcome of the attempt is unknown, while uncertain.
    pub(super) uncertain_since: Option<String>,
}

impl RecordView {
    pub(super) fn of(record: &Record) -> Self {
        let (status, retained_until) = match &record.state {
            State::Completed { outcome, .. } if outcome.is_interim => {
                (Some(outcome.status.as_u16()), None)
            }
            State::Completed { outcome, retained_until, .. } => {
                (Some(outcome.status.as_u16()), Some(instant(*retained_until)))
            }
            State::Reserved(_) | State::Uncertain { .. } => (None, None),
        };
        let uncertain_since = match &record.state {
            State::Uncertain { since } => Some(instant(*since)),
            State::Reserved(_) | State::Completed { .. } => None,
        };
        Self {
            record_id: record.id.to_string(),
            tenant: record.tenant.to_string(),
            key: record.key.as_str().to_owned(),
            state: if is_released(&record.state) {
                "released"
            } else {
                record.state.kind().as_str()
            },
            operation: record.operation.to_string(),
            attempt: record.fence.count(),
            created_at: instant(record.created_at),
            status,
            is_interim: is_interim(&record.state),
            retained_until,
            lease_until: record.state.lease_until().map(instant),
            uncertain_since,
        }
    }
}

/// Returns true if the record is only a note that the attempt was released.
fn is_released(state: &State) -> bool {
    matches!(state, State::Completed { outcome, .. } if outcome.is_release_note())
}

/// Returns true if the record holds an answer that a message will replace; until then it does not expire.
fn is_interim(state: &State) -> bool {
    matches!(state, State::Completed { outcome, .. } if outcome.is_interim)
}

/// Describes when the record's answer or lease ends.
pub(super) fn expiry(state: &State, now: Timestamp) -> String {
    match state {
        state if is_released(state) => "free".to_owned(),
        state if is_interim(state) => "when final".to_owned(),
        State::Completed { retained_until, .. } if *retained_until <= now => "expired".to_owned(),
        State::Completed { retained_until, .. } => {
            format!("in {}", brief(retained_until.since(now)))
        }
        State::Reserved(lease) if lease.until <= now => "lease ran out".to_owned(),
        State::Reserved(lease) => format!("lease, {}", brief(lease.until.since(now))),
        State::Uncertain { .. } => "when settled".to_owned(),
    }
}

/// An instant in RFC 3339, in UTC.
pub(crate) fn instant(at: Timestamp) -> String {
    /// The last millisecond that the format can write; a damaged store may hold a later one.
    const LAST: Timestamp = Timestamp::from_millis(253_402_300_799_999);
    humantime::format_rfc3339_millis(at.min(LAST).to_system_time()).to_string()
}

/// A length of time in its two largest units.
pub(crate) fn brief(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut rest = duration.as_secs();
    let mut words = Vec::new();
    for (seconds, unit) in UNITS {
        let count = rest / seconds;
        rest %= seconds;
        if count > 0 {
            words.push(format!("{count}{unit}"));
        }
        // After the first unit only the very next one matters: "3d 0h" is "3d".
        if words.len() == 2 || (count == 0 && words.len() == 1) {
            break;
        }
    }
    if words.is_empty() { "0s".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_short() {
        for (seconds, expected) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m 1s"),
            (3600, "1h"),
            (3601, "1h"),
            (86_399, "23h 59m"),
            (90_061, "1d 1h"),
        ] {
            assert_eq!(brief(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn an_interim_answer_ends_when_a_final_one_comes() {
        let outcome = firstwrite_core::Outcome::new(
            axum::http::StatusCode::ACCEPTED,
            firstwrite_core::HeaderPolicy::default().keep(&axum::http::HeaderMap::new()),
            bytes::Bytes::new(),
        );
        let until = Timestamp::from_millis(i64::MAX);
        let state = State::Completed {
            outcome: outcome.interim(),
            retained_until: until,
            kept_until: until,
        };
        assert_eq!(expiry(&state, Timestamp::from_millis(0)), "when final");
    }

    #[test]
    fn any_stored_instant_can_be_written() {
        assert_eq!(instant(Timestamp::from_millis(1500)), "1970-01-01T00:00:01.500Z");
        assert_eq!(instant(Timestamp::from_millis(i64::MAX)), "9999-12-31T23:59:59.999Z");
        assert_eq!(instant(Timestamp::from_millis(i64::MIN)), "1970-01-01T00:00:00.000Z");
    }
}
