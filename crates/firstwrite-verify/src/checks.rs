//! The checks, scene by scene: a scene sends some requests and says what they show about several checks.

mod connection;
mod credentials;
mod failure;
mod flight;
mod json;
mod key;
mod later;
mod operations;
mod other;
mod race;
mod refusal;
mod replay;
mod restart;
mod tenant;

use futures_util::future::BoxFuture;

use crate::probe::{Probe, Stop};

type Run = for<'a> fn(&'a mut Probe) -> BoxFuture<'a, Result<(), Stop>>;

/// Requests that belong together.
pub(crate) struct Scene {
    /// For the progress line and the timeline.
    pub(crate) name: &'static str,
    /// Ids of the checks that this scene decides.
    pub(crate) checks: &'static [&'static str],
    /// True if its checks mean nothing on a server that runs a plain retry again.
    pub(crate) needs_retries: bool,
    pub(crate) run: Run,
}

/// Reason given for skipping the checks that build on retries.
pub(crate) const NO_RETRIES: &str = "a plain retry runs again already: mend replay-effects first";

/// The scenes in running order: first those that others depend on, last those that break things.
pub(crate) const SCENES: &[Scene] = &[
    Scene {
        name: "retry",
        needs_retries: false,
        checks: replay::CHECKS,
        run: |probe| Box::pin(replay::run(probe)),
    },
    Scene {
        name: "key",
        needs_retries: false,
        checks: key::CHECKS,
        run: |probe| Box::pin(key::run(probe)),
    },
    Scene {
        name: "race",
        needs_retries: true,
        checks: race::CHECKS,
        run: |probe| Box::pin(race::run(probe)),
    },
    Scene {
        name: "two bodies",
        needs_retries: true,
        checks: race::BODIES,
        run: |probe| Box::pin(race::bodies(probe)),
    },
    Scene {
        name: "in flight",
        needs_retries: true,
        checks: flight::CHECKS,
        run: |probe| Box::pin(flight::run(probe)),
    },
    Scene {
        name: "other request",
        needs_retries: true,
        checks: other::CHECKS,
        run: |probe| Box::pin(other::run(probe)),
    },
    Scene {
        name: "json",
        needs_retries: true,
        checks: json::CHECKS,
        run: |probe| Box::pin(json::run(probe)),
    },
    Scene {
        name: "other tenant",
        needs_retries: false,
        checks: tenant::CHECKS,
        run: |probe| Box::pin(tenant::run(probe)),
    },
    Scene {
        name: "timing",
        needs_retries: false,
        checks: tenant::TIMING,
        run: |probe| Box::pin(tenant::timing(probe)),
    },
    Scene {
        name: "credentials",
        needs_retries: false,
        checks: credentials::CHECKS,
        run: |probe| Box::pin(credentials::run(probe)),
    },
    Scene {
        name: "failure",
        needs_retries: false,
        checks: failure::CHECKS,
        run: |probe| Box::pin(failure::run(probe)),
    },
    Scene {
        name: "connection",
        needs_retries: true,
        checks: connection::CHECKS,
        run: |probe| Box::pin(connection::run(probe)),
    },
    Scene {
        name: "operations",
        needs_retries: false,
        checks: operations::CHECKS,
        run: |probe| Box::pin(operations::run(probe)),
    },
    Scene {
        name: "later",
        needs_retries: true,
        checks: later::CHECKS,
        run: |probe| Box::pin(later::run(probe)),
    },
    Scene {
        name: "restart",
        needs_retries: true,
        checks: restart::CHECKS,
        run: |probe| Box::pin(restart::run(probe)),
    },
    Scene {
        name: "store",
        needs_retries: true,
        checks: failure::STORE,
        run: |probe| Box::pin(failure::store(probe)),
    },
    Scene {
        name: "revoked",
        needs_retries: false,
        checks: credentials::REVOKED,
        run: |probe| Box::pin(credentials::revoked(probe)),
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::catalogue::CHECKS;

    #[test]
    fn every_check_is_decided_by_one_scene() {
        let decided: Vec<&str> = SCENES.iter().flat_map(|scene| scene.checks).copied().collect();
        let unique: BTreeSet<&str> = decided.iter().copied().collect();
        assert_eq!(unique.len(), decided.len(), "a check is decided twice");
        assert_eq!(unique, CHECKS.iter().map(|check| check.id).collect());
    }
}
