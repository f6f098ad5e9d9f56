//! The behaviour in force: its dice, and how many calls this second had.

use std::sync::Arc;

use fastrand::Rng;

use crate::behaviour::{Behaviour, Outage, Webhooks};
use crate::chance::Dice;
use crate::clock::Moment;
use crate::error::{ErrorKind, ProviderError};

/// A behaviour with what it remembers. A new behaviour begins anew, dice included.
#[derive(Debug)]
pub(crate) struct Conduct {
    pub(crate) behaviour: Behaviour,
    pub(crate) fail_before_effect: Dice,
    pub(crate) fail_after_effect: Dice,
    pub(crate) lose_answers: Dice,
    pub(crate) fail_lookups: Dice,
    /// The behaviour's own, shared with what waits to be sent.
    pub(crate) webhooks: Option<Arc<Webhooks>>,
    /// This second, and how many calls came in it.
    second: (u64, u32),
    seed: u64,
}

/// Decision about a call before a handler sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    Unavailable,
    HangUp,
    TooMany,
}

impl Conduct {
    pub(crate) fn new(behaviour: Behaviour, seed: u64) -> Result<Self, ProviderError> {
        behaviour.check()?;
        if behaviour.webhooks.as_ref().is_some_and(|webhooks| webhooks.secret.is_none()) {
            return Err(ProviderError::new(ErrorKind::Behaviour, "webhooks.secret: is needed"));
        }
        // Each fault draws from a sequence of its own: one more fault leaves the others' luck alone.
        let mut random = Rng::with_seed(seed);
        Ok(Self {
            fail_before_effect: Dice::new(behaviour.fail_before_effect, random.fork()),
            fail_after_effect: Dice::new(behaviour.fail_after_effect, random.fork()),
            lose_answers: Dice::new(behaviour.lose_answers, random.fork()),
            fail_lookups: Dice::new(behaviour.fail_lookups, random.fork()),
            webhooks: behaviour.webhooks.clone().map(Arc::new),
            second: (0, 0),
            seed,
            behaviour,
        })
    }

    /// Takes on another behaviour.
    pub(crate) fn change(&mut self, mut behaviour: Behaviour) -> Result<(), ProviderError> {
        if let Some(webhooks) = &mut behaviour.webhooks
            && webhooks.secret.is_none()
        {
            webhooks.secret = self.webhooks.as_ref().and_then(|before| before.secret.clone());
        }
        *self = Self::new(behaviour, self.seed)?;
        Ok(())
    }

    pub(crate) fn admit(&mut self, now: Moment) -> Admission {
        match self.behaviour.outage {
            Outage::None => {}
            Outage::Unavailable => return Admission::Unavailable,
            Outage::HangUp => return Admission::HangUp,
        }
        let second = now.as_seconds();
        if self.second.0 != second {
            self.second = (second, 0);
        }
        let count_max = self.behaviour.requests_per_second;
        if count_max.is_some_and(|count_max| self.second.1 >= count_max) {
            return Admission::TooMany;
        }
        self.second.1 = self.second.1.saturating_add(1);
        Admission::Admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_takes_so_many_calls_and_the_next_one_as_many_again() {
        let behaviour = Behaviour { requests_per_second: Some(2), ..Behaviour::default() };
        let mut conduct = Conduct::new(behaviour, 1).unwrap();
        let mut admit = |millis| conduct.admit(Moment::from_millis(millis));
        assert_eq!(admit(1_000), Admission::Admitted);
        assert_eq!(admit(1_500), Admission::Admitted);
        assert_eq!(admit(1_999), Admission::TooMany);
        assert_eq!(admit(2_000), Admission::Admitted);
    }
}
