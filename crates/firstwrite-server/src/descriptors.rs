//! Limit on the files and sockets that the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the store, the operator's listener, threads and files.
const OTHERS: usize = 128;

/// Raises the limit to the maximum that the system grants, and returns the new limit. Shells often start
/// programs with a limit of about a thousand, for compatibility with old programs.
pub(crate) fn raise() -> u64 {
    let granted = getrlimit(Resource::Nofile);
    let current = granted.current.unwrap_or(u64::MAX);
    let raised = Rlimit { current: granted.maximum, maximum: granted.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => granted.maximum.unwrap_or(u64::MAX),
        Err(error) => {
            tracing::warn!(%error, current, "no more files can be had open than there are");
            current
        }
    }
}

/// Returns the number of clients that can be connected, at most half of `descriptors`, because each client may
/// need a connection to an upstream too. If that is less than the default, it is logged for debugging; if it is
/// less than the operator asked for, it is logged as a warning.
pub(crate) fn connections(descriptors: u64, asked_for: Option<usize>, default: usize) -> usize {
    let possible = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
    let wanted = asked_for.unwrap_or(default);
    if asked_for.is_none() && possible < wanted {
        tracing::debug!(descriptors, connections_max = possible, "as many as the system grants");
    } else if possible < wanted {
        tracing::warn!(
            descriptors,
            connections_max = possible,
            "fewer connections are taken at a time than connections_max says: raise the limit of open files"
        );
    }
    possible.min(wanted).max(1)
}

/// Returns the number of connections to upstreams that are left of `descriptors` beside `connections` of clients,
/// the store and open files.
pub(crate) fn upstream_connections(descriptors: u64, connections: usize) -> usize {
    let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
    let others = OTHERS.min(descriptors / 8);
    descriptors.saturating_sub(connections).saturating_sub(others).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_them_are_for_upstreams() {
        assert_eq!(connections(1024, None, 20_000), 512);
        assert_eq!(connections(65_536, None, 20_000), 20_000);
        assert_eq!(connections(u64::MAX, None, 20_000), 20_000);
        assert_eq!(connections(1, None, 20_000), 1);
        assert_eq!(connections(1024, Some(600), 20_000), 512);
        assert_eq!(connections(1024, Some(100), 20_000), 100);
        assert!(raise() >= 1);
    }

    #[test]
    fn what_is_left_is_for_upstreams() {
        assert_eq!(upstream_connections(1024, 512), 384);
        assert_eq!(upstream_connections(1024, 100), 796);
        assert_eq!(upstream_connections(65_536, 20_000), 45_408);
        assert_eq!(upstream_connections(64, 32), 24);
        assert_eq!(upstream_connections(1, 1), 1);
    }
}
