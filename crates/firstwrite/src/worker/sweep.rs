//! Sweep: find leases that ran out, and free their keys or mark their records uncertain.

use std::time::Duration;

use firstwrite_core::protocol::Swept;
pub use firstwrite_core::protocol::sweep_once;

use super::Load;

/// A lapsed key is also judged when a request uses it; the sweep is for keys that are not requested again.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Each record is one small write, and a turn should not hold others up.
pub const SWEEP_LIMIT: usize = 100;

pub(super) fn say(swept: &Swept) {
    let Swept { freed, uncertain, moved } = *swept;
    if uncertain > 0 {
        tracing::warn!(freed, uncertain, moved, "leases ran out; some records wait for proof");
    } else if freed > 0 {
        tracing::info!(freed, moved, "leases ran out; their keys are free");
    }
}

pub(super) fn load(swept: &Swept) -> Load {
    // Records that moved on by themselves count: they filled the batch too.
    if swept.freed + swept.uncertain + swept.moved < SWEEP_LIMIT { Load::Light } else { Load::Full }
}
