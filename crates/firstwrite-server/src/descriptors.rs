//! How many files and sockets the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Asks for as many as the system grants: what a shell starts with is often a thousand, for the sake of
/// programs that are older than that. Says how many there are then.
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

/// How many clients can be connected: each may need a connection to an upstream, too.
pub(crate) fn connections(descriptors: u64, wanted: usize) -> usize {
    let possible = usize::try_from(descriptors / 2).unwrap_or(usize::MAX);
    if possible < wanted {
        tracing::warn!(
            descriptors,
            connections_max = possible,
            "fewer connections are taken at a time than could be: raise the limit of open files"
        );
    }
    possible.min(wanted).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_them_are_for_upstreams() {
        assert_eq!(connections(1024, 20_000), 512);
        assert_eq!(connections(65_536, 20_000), 20_000);
        assert_eq!(connections(u64::MAX, 20_000), 20_000);
        assert_eq!(connections(1, 20_000), 1);
        assert!(raise() >= 1);
    }
}
