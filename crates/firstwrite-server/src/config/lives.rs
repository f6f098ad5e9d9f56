//! Time that a key lives here, and the destinations that recognise it for longer.

use std::time::Duration;

use firstwrite::worker::Destination;
use firstwrite::{AfterRetention, Policy};

use super::{File, UsageError};

/// Time from an answer until its key is free again.
pub(super) fn of_key(policy: &Policy) -> Duration {
    match policy.after_retention {
        AfterRetention::Fresh => policy.retention,
        AfterRetention::Refuse(span) => policy.retention.saturating_add(span),
    }
}

impl File {
    /// Refuses a destination that recognises a key for longer than the key lives here: a later request under
    /// the same key would be answered with the effect of the earlier one.
    pub(crate) fn check_lives(&self, destinations: &[Destination]) -> Result<(), UsageError> {
        let lives = self.gateway.policies()?.into_iter().map(|policy| of_key(&policy));
        let shortest = lives.min().unwrap_or(Policy::RETENTION_DEFAULT);
        match destinations.iter().find(|one| one.terms().dedupe_for > shortest) {
            None => Ok(()),
            Some(one) => Err(UsageError::new(format!(
                "destination {}: dedupe_for is {}, and a key is free again after {}: a second order under it \
                 would be answered with the first one's payment; make retention at least as long (under \
                 [gateway.default], also for the operations of an application of your own)",
                one.name(),
                humantime::format_duration(one.terms().dedupe_for),
                humantime::format_duration(shortest)
            ))),
        }
    }
}
