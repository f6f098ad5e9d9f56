//! Whose turn it is: deficit round robin over the destinations of one worker.
//!
//! All deliveries of a worker share a number of slots. In each round every destination that has work
//! earns the same, and takes slots for what it has earned; what it could not use for want of messages
//! is lost, what it could not use for want of slots is kept. A destination that holds more than an
//! equal share gets none of the last slots, so that a slow one cannot hold them all.

/// The slots of a worker, and who holds them.
#[derive(Clone, Debug)]
pub struct Turns {
    slot_count: usize,
    lanes: Vec<Lane>,
    /// Number of the destination that comes first in the next round.
    first: usize,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    earned: usize,
    held: usize,
}

/// Number of slots that a destination can use now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Which destination, by its number.
    pub lane: usize,
    /// At most this many.
    pub count_max: usize,
}

impl Turns {
    /// Slots that a destination earns in a round: a batch worth the cost of a claim.
    const QUANTUM: usize = 8;
    /// Of the slots, this part is kept for destinations below their equal share, or one for each.
    const RESERVED_PART: usize = 4;

    /// `slot_count` slots for destinations numbered from 0 to `lane_count`.
    pub fn new(slot_count: usize, lane_count: usize) -> Self {
        let lanes = vec![Lane::default(); lane_count.max(1)];
        Self { slot_count: slot_count.max(lane_count).max(1), lanes, first: 0 }
    }

    /// Returns the number of free slots.
    pub fn free(&self) -> usize {
        self.slot_count.saturating_sub(self.lanes.iter().map(|lane| lane.held).sum())
    }

    /// Returns the number of slots that this destination holds.
    pub fn held(&self, lane: usize) -> usize {
        self.lanes.get(lane).map_or(0, |lane| lane.held)
    }

    /// Grants slots to those that wish for some; they hold them until [`Self::release`].
    pub fn grant(&mut self, wishes: &[Wish]) -> Vec<Wish> {
        let mut granted: Vec<Wish> = Vec::new();
        let mut wishes: Vec<Wish> =
            wishes.iter().copied().filter(|wish| wish.lane < self.lanes.len()).collect();
        wishes.sort_by_key(|wish| (wish.lane + self.lanes.len() - self.first) % self.lanes.len());
        loop {
            let mut moved = false;
            for wish in &mut wishes {
                if wish.count_max == 0 {
                    continue;
                }
                let room = self.room(wish.lane);
                let lane = &mut self.lanes[wish.lane];
                lane.earned += Self::QUANTUM;
                let count = wish.count_max.min(lane.earned).min(room);
                lane.earned = (lane.earned - count).min(Self::QUANTUM);
                lane.held += count;
                wish.count_max -= count;
                if count > 0 {
                    moved = true;
                    match granted.iter_mut().find(|grant| grant.lane == wish.lane) {
                        Some(grant) => grant.count_max += count,
                        None => granted.push(Wish { lane: wish.lane, count_max: count }),
                    }
                }
            }
            if !moved {
                break;
            }
        }
        self.first = (self.first + 1) % self.lanes.len();
        granted
    }

    /// A destination gives slots back. `had_no_more`: it had fewer messages than it was granted slots, so
    /// what it has earned is lost.
    pub fn release(&mut self, lane: usize, count: usize, had_no_more: bool) {
        let Some(lane) = self.lanes.get_mut(lane) else { return };
        lane.held = lane.held.saturating_sub(count);
        if had_no_more {
            lane.earned = 0;
        }
    }

    /// Returns the number of further slots that this destination may hold.
    fn room(&self, lane: usize) -> usize {
        let free = self.free();
        let share = (self.slot_count / self.lanes.len()).max(1);
        let below_share = share.saturating_sub(self.lanes[lane].held).min(free);
        let reserve = (self.slot_count / Self::RESERVED_PART).max(self.lanes.len() - 1);
        below_share.max(free.saturating_sub(reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(lane: usize, count_max: usize) -> Wish {
        Wish { lane, count_max }
    }

    #[test]
    fn equal_wishes_get_equal_shares() {
        let mut turns = Turns::new(64, 4);
        let mut granted = turns.grant(&[0, 1, 2, 3].map(|lane| wish(lane, 100)));
        granted.sort_by_key(|grant| grant.lane);
        assert_eq!(granted, [0, 1, 2, 3].map(|lane| wish(lane, 16)));
        assert_eq!(turns.free(), 0);
    }

    #[test]
    fn one_that_holds_on_cannot_hold_everything() {
        let mut turns = Turns::new(64, 4);
        let granted = turns.grant(&[wish(0, 1000)]);
        assert_eq!(granted, [wish(0, 48)]);
        assert_eq!(turns.grant(&[wish(0, 1000)]), []);
        assert_eq!(turns.grant(&[wish(1, 1000)]), [wish(1, 16)]);
    }

    #[test]
    fn small_wishes_are_met_and_the_rest_is_shared() {
        let mut turns = Turns::new(64, 2);
        let mut granted = turns.grant(&[wish(0, 3), wish(1, 100)]);
        granted.sort_by_key(|grant| grant.lane);
        assert_eq!(granted, [wish(0, 3), wish(1, 45)]);
    }

    #[test]
    fn slots_come_back() {
        let mut turns = Turns::new(8, 1);
        assert_eq!(turns.grant(&[wish(0, 100)]), [wish(0, 8)]);
        turns.release(0, 5, false);
        assert_eq!((turns.free(), turns.held(0)), (5, 3));
        assert_eq!(turns.grant(&[wish(0, 100)]), [wish(0, 5)]);
    }

    #[test]
    fn there_is_a_slot_for_every_destination() {
        let mut turns = Turns::new(2, 5);
        let granted = turns.grant(&[0, 1, 2, 3, 4].map(|lane| wish(lane, 9)));
        assert_eq!(granted.len(), 5);
    }

    #[test]
    fn nobody_is_always_first() {
        let mut turns = Turns::new(3, 3);
        let mut firsts = Vec::new();
        for _ in 0..3 {
            let granted = turns.grant(&[0, 1, 2].map(|lane| wish(lane, 1)));
            firsts.push(granted[0].lane);
            for grant in granted {
                turns.release(grant.lane, grant.count_max, false);
            }
        }
        assert_eq!(firsts, [0, 1, 2]);
    }
}
