//! Fair share of delivery slots: deficit round robin over the destinations of one worker.
//!
//! All deliveries of a worker share a number of slots. In each round every destination that has work
//! earns the same, and takes slots for what it has earned; what it could not use for want of messages
//! is lost, what it could not use for want of slots is kept. A destination that holds more than an
//! equal share gets none of the last slots, so that a slow one cannot hold them all.

/// The slots of a worker, and how many each destination holds.
#[derive(Clone, Debug)]
pub struct FairShare {
    slot_count: usize,
    shares: Vec<Share>,
    /// Number of the destination that comes first in the next round.
    first: usize,
}

#[derive(Clone, Debug, Default)]
struct Share {
    earned: usize,
    held: usize,
}

/// Number of slots that a destination can use now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// Which destination, by its number.
    pub destination: usize,
    /// At most this many.
    pub count_max: usize,
}

impl FairShare {
    /// Slots that a destination earns in a round: a batch worth the cost of a claim.
    const QUANTUM: usize = 8;
    /// Of the slots, this part is kept for destinations below their equal share, or one for each.
    const RESERVED_PART: usize = 4;

    /// `slot_count` slots for destinations numbered from 0 to `destination_count`.
    pub fn new(slot_count: usize, destination_count: usize) -> Self {
        let shares = vec![Share::default(); destination_count.max(1)];
        Self { slot_count: slot_count.max(destination_count).max(1), shares, first: 0 }
    }

    /// Returns the number of free slots.
    pub fn free(&self) -> usize {
        self.slot_count.saturating_sub(self.shares.iter().map(|share| share.held).sum())
    }

    /// Returns the number of slots that this destination holds.
    pub fn slots_of(&self, destination: usize) -> usize {
        self.shares.get(destination).map_or(0, |share| share.held)
    }

    /// Grants slots to the destinations that request some; they hold them until [`Self::release`].
    pub fn grant(&mut self, requests: &[SlotRequest]) -> Vec<SlotRequest> {
        let mut granted: Vec<SlotRequest> = Vec::new();
        let mut requests: Vec<SlotRequest> = requests
            .iter()
            .copied()
            .filter(|request| request.destination < self.shares.len())
            .collect();
        requests.sort_by_key(|request| {
            (request.destination + self.shares.len() - self.first) % self.shares.len()
        });
        loop {
            let mut moved = false;
            for request in &mut requests {
                if request.count_max == 0 {
                    continue;
                }
                let room = self.room(request.destination);
                let share = &mut self.shares[request.destination];
                share.earned += Self::QUANTUM;
                let count = request.count_max.min(share.earned).min(room);
                share.earned = (share.earned - count).min(Self::QUANTUM);
                share.held += count;
                request.count_max -= count;
                if count > 0 {
                    moved = true;
                    match granted.iter_mut().find(|grant| grant.destination == request.destination)
                    {
                        Some(grant) => grant.count_max += count,
                        None => granted.push(SlotRequest {
                            destination: request.destination,
                            count_max: count,
                        }),
                    }
                }
            }
            if !moved {
                break;
            }
        }
        self.first = (self.first + 1) % self.shares.len();
        granted
    }

    /// A destination gives slots back. `had_no_more`: it had fewer messages than it was granted slots, so
    /// what it has earned is lost.
    pub fn release(&mut self, destination: usize, count: usize, had_no_more: bool) {
        let Some(share) = self.shares.get_mut(destination) else { return };
        share.held = share.held.saturating_sub(count);
        if had_no_more {
            share.earned = 0;
        }
    }

    /// Returns the number of further slots that this destination may hold.
    fn room(&self, destination: usize) -> usize {
        let free = self.free();
        let share = (self.slot_count / self.shares.len()).max(1);
        let below_share = share.saturating_sub(self.shares[destination].held).min(free);
        let reserve = (self.slot_count / Self::RESERVED_PART).max(self.shares.len() - 1);
        below_share.max(free.saturating_sub(reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(destination: usize, count_max: usize) -> SlotRequest {
        SlotRequest { destination, count_max }
    }

    #[test]
    fn equal_requests_get_equal_shares() {
        let mut fair_share = FairShare::new(64, 4);
        let mut granted =
            fair_share.grant(&[0, 1, 2, 3].map(|destination| request(destination, 100)));
        granted.sort_by_key(|grant| grant.destination);
        assert_eq!(granted, [0, 1, 2, 3].map(|destination| request(destination, 16)));
        assert_eq!(fair_share.free(), 0);
    }

    #[test]
    fn one_that_holds_on_cannot_hold_everything() {
        let mut fair_share = FairShare::new(64, 4);
        let granted = fair_share.grant(&[request(0, 1000)]);
        assert_eq!(granted, [request(0, 48)]);
        assert_eq!(fair_share.grant(&[request(0, 1000)]), []);
        assert_eq!(fair_share.grant(&[request(1, 1000)]), [request(1, 16)]);
    }

    #[test]
    fn small_requests_are_met_and_the_rest_is_shared() {
        let mut fair_share = FairShare::new(64, 2);
        let mut granted = fair_share.grant(&[request(0, 3), request(1, 100)]);
        granted.sort_by_key(|grant| grant.destination);
        assert_eq!(granted, [request(0, 3), request(1, 45)]);
    }

    #[test]
    fn slots_come_back() {
        let mut fair_share = FairShare::new(8, 1);
        assert_eq!(fair_share.grant(&[request(0, 100)]), [request(0, 8)]);
        fair_share.release(0, 5, false);
        assert_eq!((fair_share.free(), fair_share.slots_of(0)), (5, 3));
        assert_eq!(fair_share.grant(&[request(0, 100)]), [request(0, 5)]);
    }

    #[test]
    fn there_is_a_slot_for_every_destination() {
        let mut fair_share = FairShare::new(2, 5);
        let granted = fair_share.grant(&[0, 1, 2, 3, 4].map(|destination| request(destination, 9)));
        assert_eq!(granted.len(), 5);
    }

    #[test]
    fn nobody_is_always_first() {
        let mut fair_share = FairShare::new(3, 3);
        let mut firsts = Vec::new();
        for _ in 0..3 {
            let granted = fair_share.grant(&[0, 1, 2].map(|destination| request(destination, 1)));
            firsts.push(granted[0].destination);
            for grant in granted {
                fair_share.release(grant.destination, grant.count_max, false);
            }
        }
        assert_eq!(firsts, [0, 1, 2]);
    }
}
