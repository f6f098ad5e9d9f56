//! Lines of the log that requests repeat: overload, a store that is away, an API that hangs up.

use firstwrite_core::{RecordId, StoreError};
use firstwrite_wrappers::Seldom;

/// One for each line, of a layer. Each is written every ten seconds at the most; what is left out is at debug.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(crate) too_many: Seldom,
    pub(crate) no_room: Seldom,
    not_reserved: Seldom,
    not_looked_up: Seldom,
    not_freed: Seldom,
    pub(crate) no_answer: Seldom,
    pub(crate) panicked: Seldom,
    pub(crate) short: Seldom,
    pub(crate) broken_off: Seldom,
    reserved_late: Seldom,
    pub(crate) lease_lost: Seldom,
    pub(crate) not_renewed: Seldom,
    pub(crate) not_written: Seldom,
    pub(crate) given_up: Seldom,
    pub(crate) freed_later: Seldom,
    pub(crate) uncertain: Seldom,
    pub(crate) not_marked: Seldom,
    pub(crate) ended_late: Seldom,
    pub(crate) transaction_failed: Seldom,
    pub(crate) not_committed: Seldom,
    pub(crate) not_as_committed: Seldom,
    pub(crate) no_final: Seldom,
}

/// Writes a line at its level, with how often it was left out, or else at debug:
/// `say!(lines.uncertain, error, %record_id, "an attempt was left to proof")`.
macro_rules! say {
    ($line:expr, $level:ident, $($said:tt)+) => {
        if let Some(left_out) = $line.now() {
            tracing::$level!(left_out, $($said)+);
        } else {
            tracing::debug!($($said)+);
        }
    };
}
pub(crate) use say;

impl Lines {
    pub(crate) fn not_reserved(&self, error: &StoreError, record_id: RecordId) {
        say!(self.not_reserved, error, %error, %record_id, "a key could not be reserved");
    }

    pub(crate) fn not_looked_up(&self, error: &StoreError, record_id: Option<RecordId>) {
        let record_id = record_id.map(tracing::field::display);
        say!(self.not_looked_up, error, %error, record_id, "a key could not be looked up");
    }

    pub(crate) fn not_freed(&self, record_id: RecordId, why: &'static str) {
        say!(self.not_freed, error, %record_id, why, "a key is left to its lease");
    }

    pub(crate) fn reserved_late(&self, record_id: RecordId) {
        say!(self.reserved_late, error, %record_id, "a key was reserved too late to begin");
    }

    pub(crate) fn not_written(&self, error: &StoreError, record_id: RecordId) {
        say!(self.not_written, error, %error, %record_id, "an outcome could not be written");
    }
}
