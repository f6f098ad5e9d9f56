//! How much of the bodies of protected requests is held at the same time, by all clients together: each has
//! a cap of its own, but there can be many of them, and they can be slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all of them hold.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: AtomicUsize,
    bytes_max: usize,
}

/// What one of them holds, until it was passed on or is refused.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Held>,
    bytes: AtomicUsize,
}

/// What every body may have without being counted: small ones are taken in, however many large ones wait.
/// How many there can be is a matter of connections.
const FREE_BYTES: usize = 16 * 1024;

/// A part of a request, for as long as its body is there: a clone is in the request's extensions.
pub(crate) type Shared = Arc<Share>;

impl Held {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), bytes_max })
    }

    pub(crate) fn share(self: &Arc<Self>) -> Shared {
        Arc::new(Share { of: Arc::clone(self), bytes: AtomicUsize::new(0) })
    }
}

impl Share {
    /// Whether there is room for more, which is then taken.
    pub(crate) fn grow(&self, count: usize) -> bool {
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        let counted = counted(before.saturating_add(count)) - counted(before);
        if counted == 0 {
            return true;
        }
        let others = self.of.bytes.fetch_add(counted, Ordering::Relaxed);
        others.saturating_add(counted) <= self.of.bytes_max
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(counted(*self.bytes.get_mut()), Ordering::Relaxed);
    }
}

fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_shared_and_given_back() {
        let held = Held::new(100);
        let (one, two) = (held.share(), held.share());
        assert!(one.grow(FREE_BYTES - 5) && one.grow(65) && two.grow(FREE_BYTES + 40));
        assert!(!two.grow(1));
        let small = held.share();
        assert!(small.grow(FREE_BYTES), "small ones are always taken in");
        drop(two);
        assert!(one.grow(40));
        drop((one, small));
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
    }
}
