//! Seeded randomness (the sequence called `splitmix64`), so that a schedule can be repeated.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A sequence of numbers that depends on its seed only.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

/// Returns a random seed, drawn from the random keys of the standard library's hash maps.
pub(crate) fn fresh_seed() -> u64 {
    // Short enough to be typed again.
    RandomState::new().build_hasher().finish() >> 32
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// An independent sequence for one of several threads.
    pub(crate) fn branch(&mut self) -> Self {
        Self { state: self.next() }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        debug_assert!(limit > 0, "there is no number below zero");
        self.next() % limit
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let width = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX);
        from + Duration::from_micros(self.below(width.max(1)))
    }

    /// One of `items`, unless there is none.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(items.len()).ok().filter(|&count| count > 0)?;
        items.get(usize::try_from(self.below(count)).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence_and_branches_differ() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        assert_eq!(a.next(), b.next());
        assert_ne!(a.branch().next(), a.branch().next());
    }

    #[test]
    fn nothing_can_be_picked_from_nothing() {
        assert_eq!(Random::new(1).pick::<u8>(&[]), None);
        assert_eq!(Random::new(1).pick(&[5]), Some(&5));
    }
}
