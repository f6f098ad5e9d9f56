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
    /// What it decides.
    pub(crate) checks: &'static [&'static str],
    pub(crate) run: Run,
}

/// In this order: what others depend on first, what breaks things last.
pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "retry", checks: replay::CHECKS, run: |probe| Box::pin(replay::run(probe)) },
    Scene { name: "key", checks: key::CHECKS, run: |probe| Box::pin(key::run(probe)) },
    Scene { name: "race", checks: race::CHECKS, run: |probe| Box::pin(race::run(probe)) },
    Scene { name: "two bodies", checks: race::BODIES, run: |probe| Box::pin(race::bodies(probe)) },
    Scene { name: "in flight", checks: flight::CHECKS, run: |probe| Box::pin(flight::run(probe)) },
    Scene {
        name: "other request",
        checks: other::CHECKS,
        run: |probe| Box::pin(other::run(probe)),
    },
    Scene { name: "json", checks: json::CHECKS, run: |probe| Box::pin(json::run(probe)) },
    Scene {
        name: "other tenant",
        checks: tenant::CHECKS,
        run: |probe| Box::pin(tenant::run(probe)),
    },
    Scene { name: "timing", checks: tenant::TIMING, run: |probe| Box::pin(tenant::timing(probe)) },
    Scene {
        name: "credentials",
        checks: credentials::CHECKS,
        run: |probe| Box::pin(credentials::run(probe)),
    },
    Scene { name: "failure", checks: failure::CHECKS, run: |probe| Box::pin(failure::run(probe)) },
    Scene {
        name: "connection",
        checks: connection::CHECKS,
        run: |probe| Box::pin(connection::run(probe)),
    },
    Scene {
        name: "operations",
        checks: operations::CHECKS,
        run: |probe| Box::pin(operations::run(probe)),
    },
    Scene { name: "later", checks: later::CHECKS, run: |probe| Box::pin(later::run(probe)) },
    Scene { name: "restart", checks: restart::CHECKS, run: |probe| Box::pin(restart::run(probe)) },
    Scene { name: "store", checks: failure::STORE, run: |probe| Box::pin(failure::store(probe)) },
    Scene {
        name: "revoked",
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
