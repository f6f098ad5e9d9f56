//! Tracks which message numbers may not have been taken in yet.
//!
//! Numbers are given out before their transactions commit, so a lower one may become visible after a higher one, or
//! never. Numbers that were seen are removed from the ranges; the gaps in between are looked at again until it is
//! certain that they stay empty.

/// Ranges in rising order, of which the last one has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    gaps: Vec<Gap>,
    /// First number from which on none was seen.
    tail: i64,
}

/// Numbers from `start` to `stop`, both included, of which none was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: i64,
    stop: i64,
}

/// Ranges as a statement takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges {
    pub(super) starts: Vec<i64>,
    pub(super) stops: Vec<i64>,
    /// True if these are all the ranges.
    pub(super) is_all: bool,
}

/// Number of gaps that every claim looks at: the youngest, since these may still close.
const YOUNG_MAX: usize = 64;

/// Maximum number of ranges that are stored. Older ones beyond it are merged, so that some numbers are looked at
/// twice.
const KEPT_MAX: usize = 1000;

impl Numbers {
    /// Reads stored ranges. Returns `None` if they are malformed.
    pub(super) fn new(starts: &[i64], stops: &[i64]) -> Option<Self> {
        let (tail, starts) = starts.split_last()?;
        if starts.len() + 1 != stops.len() {
            return None;
        }
        let gaps = starts.iter().zip(stops).map(|(&start, &stop)| Gap { start, stop }).collect();
        Some(Self { gaps, tail: *tail })
    }

    /// Returns the number from which on none was seen.
    pub(super) fn tail(&self) -> i64 {
        self.tail
    }

    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// `seen`, in rising order, need not be looked at again.
    pub(super) fn remove(&mut self, seen: &[i64]) {
        let behind = seen.partition_point(|number| *number < self.tail);
        let (inside, behind) = seen.split_at(behind);
        if !inside.is_empty() {
            let mut inside = inside.iter().copied().peekable();
            let mut left = Vec::with_capacity(self.gaps.len());
            for gap in std::mem::take(&mut self.gaps) {
                let mut start = gap.start;
                while let Some(number) = inside.next_if(|number| *number <= gap.stop) {
                    push(&mut left, start, number - 1);
                    start = start.max(number.saturating_add(1));
                }
                push(&mut left, start, gap.stop);
            }
            self.gaps = left;
        }
        for number in behind {
            push(&mut self.gaps, self.tail, number - 1);
            self.tail = number.saturating_add(1);
        }
    }

    /// Drops the gaps below `end`: numbers that are still missing there never appear.
    pub(super) fn give_up_below(&mut self, end: i64) {
        self.gaps.retain_mut(|gap| {
            gap.start = gap.start.max(end);
            gap.start <= gap.stop
        });
    }

    /// Returns the ranges to look at: all of them, or the youngest gaps and the tail.
    pub(super) fn ranges(&self, all: bool) -> Ranges {
        let skipped = if all { 0 } else { self.gaps.len().saturating_sub(YOUNG_MAX) };
        self.spelt(&self.gaps[skipped..], skipped == 0)
    }

    /// Returns the ranges to store, which cover at least all gaps.
    pub(super) fn kept(&self) -> Ranges {
        let Some(more) = self.gaps.len().checked_sub(KEPT_MAX).filter(|more| *more > 0) else {
            return self.spelt(&self.gaps, true);
        };
        let (old, young) = self.gaps.split_at(more + 1);
        let (start, stop) = (old[0].start, old[more].stop);
        self.spelt(&[&[Gap { start, stop }], young].concat(), true)
    }

    fn spelt(&self, gaps: &[Gap], is_all: bool) -> Ranges {
        let starts = gaps.iter().map(|gap| gap.start).chain([self.tail]).collect();
        let stops = gaps.iter().map(|gap| gap.stop).chain([i64::MAX]).collect();
        Ranges { starts, stops, is_all }
    }
}

fn push(gaps: &mut Vec<Gap>, start: i64, stop: i64) {
    if start <= stop {
        gaps.push(Gap { start, stop });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn new() -> Numbers {
        Numbers::new(&[0], &[i64::MAX]).unwrap()
    }

    fn shown(numbers: &Numbers) -> String {
        let gaps: Vec<String> =
            numbers.gaps.iter().map(|gap| format!("{}-{}", gap.start, gap.stop)).collect();
        format!("{} {}-", gaps.join(" "), numbers.tail)
    }

    #[test]
    fn what_was_skipped_stays_open_until_it_is_seen_or_given_up() {
        let mut numbers = new();
        numbers.remove(&[0, 1, 2, 5, 9]);
        assert_eq!(shown(&numbers), "3-4 6-8 10-");
        numbers.remove(&[4, 7, 10]);
        assert_eq!(shown(&numbers), "3-3 6-6 8-8 11-");
        numbers.give_up_below(7);
        assert_eq!(shown(&numbers), "8-8 11-");
        numbers.remove(&[8]);
        assert!(!numbers.has_gaps());
        assert_eq!(numbers.tail(), 11);
    }

    #[test]
    fn only_the_youngest_gaps_are_looked_at_every_time() {
        let mut numbers = new();
        numbers.remove(&(0..200).map(|at| at * 2).collect::<Vec<_>>());
        let young = numbers.ranges(false);
        assert_eq!((young.starts.len(), young.starts[0], young.is_all), (65, 271, false));
        assert_eq!(young.stops.last(), Some(&i64::MAX));
        let all = numbers.ranges(true);
        assert_eq!((all.starts.len(), all.is_all), (200, true));
    }

    #[test]
    fn what_is_written_down_covers_what_is_left() {
        let mut numbers = new();
        numbers.remove(&(0..5000).map(|at| at * 2).collect::<Vec<_>>());
        let kept = numbers.kept();
        assert_eq!((kept.starts.len(), kept.starts[0]), (1001, 1));
        let again = Numbers::new(&kept.starts, &kept.stops).unwrap();
        assert_eq!(again.tail(), numbers.tail());
        for gap in &numbers.gaps {
            assert!(again.gaps.iter().any(|one| one.start <= gap.start && gap.stop <= one.stop));
        }
        assert_eq!(Numbers::new(&[], &[]), None);
        assert_eq!(Numbers::new(&[1, 2], &[1]), None);
    }

    #[test]
    fn ranges_agree_with_a_plain_set() {
        let seed = firstwrite_testkit::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut numbers, mut left, mut end) = (new(), BTreeSet::new(), 0);
        for _ in 0..300 {
            let more = random.i64(0..20);
            left.extend(end..end + more);
            end += more;
            let mut seen: Vec<i64> = left.iter().copied().filter(|_| random.bool()).collect();
            seen.dedup();
            left.retain(|number| !seen.contains(number));
            numbers.remove(&seen);
            let open: BTreeSet<i64> = numbers
                .gaps
                .iter()
                .flat_map(|gap| gap.start..=gap.stop)
                .chain(numbers.tail..end)
                .collect();
            assert_eq!(open, left);
        }
    }
}
