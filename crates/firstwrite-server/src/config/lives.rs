//! Compares how long destinations and APIs recognise a key with how long a key lives here.

use std::time::Duration;

use firstwrite::worker::Destination;
use firstwrite::{AfterRetention, Policy};

use super::{File, UsageError};

impl File {
    /// Refuses a destination that recognises a key for longer than the key lives here: a later request under
    /// the same key would be answered with the effect of the earlier one.
    pub(crate) fn check_lives(&self, destinations: &[Destination]) -> Result<(), UsageError> {
        let shortest = self.shortest_life()?;
        match destinations.iter().find(|one| one.terms().dedupe_for > shortest) {
            None => Ok(()),
            Some(one) => Err(UsageError::new(format!(
                "destination {}: {} (under [gateway.default], also for the operations of an application of your own)",
                one.name(),
                outlived(one.terms().dedupe_for, shortest)
            ))),
        }
    }

    /// Names the destinations that recognise a key for exactly as long as it lives here: their memory runs from the
    /// delivery, so one that is late is remembered in the key's next life.
    pub(crate) fn without_room_to_wait(
        &self,
        destinations: &[Destination],
    ) -> Result<Vec<String>, UsageError> {
        let shortest = self.shortest_life()?;
        let tight = destinations.iter().filter(|one| one.terms().dedupe_for == shortest);
        Ok(tight.map(|one| format!("destination {}", one.name())).collect())
    }

    fn shortest_life(&self) -> Result<Duration, UsageError> {
        let lives = self.gateway.policies()?;
        Ok(lives.iter().map(key_life).min().unwrap_or(Policy::RETENTION_DEFAULT))
    }
}

/// Returns the time from an answer until its key is free again.
pub(super) fn key_life(policy: &Policy) -> Duration {
    match policy.after_retention {
        AfterRetention::Fresh => policy.retention,
        AfterRetention::Refuse(span) => policy.retention.saturating_add(span),
    }
}

/// The complaint about an API or a destination that recognises a key for longer than it lives.
pub(super) fn outlived(dedupe_for: Duration, life: Duration) -> String {
    format!(
        "dedupe_for is {}, and a key is free again after {}: a second order under it would be answered with the \
         first one's payment; make retention at least as long",
        humantime::format_duration(dedupe_for),
        humantime::format_duration(life)
    )
}
