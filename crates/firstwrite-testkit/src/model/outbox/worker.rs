//! Workers' actions (claim, ask, send, receive the answer, settle) and their crashes.

use firstwrite_core::outbox::{
    Cause, Delivery, Ending, Gate, MessageState, Moment, MoveGuard, Next, Probed, Settlement, Step,
    Terms, after_probe, after_settlement, given_back,
};

use super::destination::{Deed, Reply, arrives_before};
use super::promises::Sight;
use super::time::{TICK, at, tick_of, ticks};
use super::world::{Claim, History, Told, Worker, World, Written, receipt};
use super::{Delivering, OutboxDesign};

/// Number of ticks that the breaker stays open after a failed trial.
const LEFT_ALONE: u16 = 2;

impl Delivering {
    pub(super) fn terms(&self, world: &World) -> Terms {
        world.kind.terms(self.limits.deliveries)
    }

    /// Returns true if an idle worker can claim the message.
    pub(super) fn is_claimable(&self, world: &World) -> bool {
        let is_visible = match world.written {
            Written::Committed => true,
            Written::Open => self.design == OutboxDesign::SendsUncommitted,
            Written::RolledBack => false,
        };
        let has_lapsed = world.message.state == MessageState::Sending;
        is_visible
            && world.history != History::Lost
            && !(has_lapsed && self.design == OutboxDesign::ClaimsOnce)
            && Gate::of(world.open_until.map(at), at(world.now)) != Gate::Closed
            && world.message.claimable_since(at(world.now)).is_some()
    }

    pub(super) fn claim(&self, world: &mut World, worker: usize) {
        let is_trial = Gate::of(world.open_until.map(at), at(world.now)) == Gate::Trial;
        let before = world.message;
        let lease_until = at(world.now).plus(self.design.lease_for(&self.terms(world)));
        let fence = world.message.claim(0, at(world.now), lease_until);
        if self.design == OutboxDesign::LapseLeavesNoDoubt {
            world.message.maybe_sent_at = before.maybe_sent_at;
        }
        if is_trial {
            world.open_until = Some(tick_of(lease_until));
            self.sights.note(Sight::Trial);
        }
        world.workers[worker] = Worker::Claimed(Claim {
            fence,
            claimed_at: world.now,
            delivery_count: world.message.delivery_count,
            lapse_count: world.message.lapse_count,
            maybe_sent_at: world.message.maybe_sent_at,
            is_trial,
            has_receipt: world.has_receipt,
        });
    }

    /// Returns the next step of a worker with its claim.
    pub(super) fn step(&self, world: &World, claim: &Claim) -> Step {
        self.design.next_step(&world.claimed_message(claim), &self.terms(world), world.now)
    }

    /// Does what is to be done with a claim. The destination, if it is asked, tells what its ledger has
    /// at this moment.
    pub(super) fn start(&self, world: &mut World, worker: usize) {
        let Worker::Claimed(claim) = world.workers[worker] else { return };
        match self.step(world, &claim) {
            Step::Settle(receipt) => {
                self.sights.note(Sight::ReceiptSettled);
                world.workers[worker] = ended(claim, Next::Delivered(receipt), None);
            }
            Step::Hold(why) => {
                if self.terms(world).dedupe_for > TICK {
                    self.sights.note(Sight::HeldAfterWindow);
                }
                world.workers[worker] = ended(claim, Next::Unknown(why), None);
            }
            Step::Send => self.begin(world, worker, claim, false),
            Step::Ask if world.destination.effects > 0 => {
                self.sights.note(Sight::ProbeSaidYes);
                self.asked(world, worker, claim, &Probed::Happened(receipt()));
            }
            Step::Ask => {
                self.sights.note(Sight::ProbeSaidNo);
                self.asked(world, worker, claim, &Probed::NotHappened);
            }
        }
    }

    pub(super) fn asked(&self, world: &mut World, worker: usize, claim: Claim, probed: &Probed) {
        let terms = self.terms(world);
        let moment = Moment { now: at(world.now), random: 0.0 };
        let was_there = Some(matches!(probed, Probed::Happened(_) | Probed::NotHappened));
        world.workers[worker] =
            match after_probe(&world.claimed_message(&claim), &terms, probed, moment) {
                Some(next) => ended(claim, next, was_there),
                None => Worker::Asked(claim),
            };
    }

    /// Begins a delivery, unless too little of the lease is left.
    pub(super) fn begin(&self, world: &mut World, worker: usize, claim: Claim, is_proven: bool) {
        let elapsed = TICK * u32::from(world.now - claim.claimed_at);
        world.workers[worker] = if self.design.may_send_after(&self.terms(world), elapsed) {
            if claim.maybe_sent_at.is_some() && !is_proven {
                self.sights.note(Sight::ResentInWindow);
            }
            Worker::Sending { claim, began: world.now, is_proven, reply: None }
        } else {
            self.sights.note(Sight::NotEnoughLease);
            ended(claim, given_back(is_proven), None)
        };
    }

    /// The destination could not be reached: certainly nothing was sent.
    pub(super) fn not_reached(&self, world: &mut World, worker: usize) {
        let (claim, is_proven) = match world.workers[worker] {
            Worker::Claimed(claim) => (claim, false),
            Worker::Asked(claim) => (claim, true),
            Worker::Idle | Worker::Sending { .. } | Worker::Ended { .. } => return,
        };
        self.delivered(world, worker, (claim, is_proven), Ending::Retry);
    }

    /// A delivery under way reaches the destination.
    pub(super) fn arrive(world: &mut World, worker: usize, deed: Deed) {
        let (kind, now) = (world.kind, world.now);
        if let Worker::Sending { reply, .. } = &mut world.workers[worker] {
            *reply = Some(world.destination.arrive(kind, deed, now));
        }
    }

    /// The worker hears what the destination said.
    pub(super) fn hear(&self, world: &mut World, worker: usize) {
        let Worker::Sending { claim, is_proven, reply: Some(reply), .. } = world.workers[worker]
        else {
            return;
        };
        let ending = match reply {
            Reply::Done => Ending::Delivered(receipt()),
            Reply::Refused => Ending::Refused,
            Reply::PutOff => Ending::Retry,
            Reply::NotThere => Ending::NotThere,
        };
        self.delivered(world, worker, (claim, is_proven), ending);
    }

    /// The worker hears nothing, and gives the delivery up. It may still be under way.
    pub(super) fn give_up(&self, world: &mut World, worker: usize) -> bool {
        let Worker::Sending { claim, began, is_proven, reply } = world.workers[worker] else {
            return false;
        };
        if reply.is_none() && !world.destination.stray(began, world.now) {
            return false;
        }
        self.sights.note(Sight::GivenUp);
        self.delivered(world, worker, (claim, is_proven), Ending::Unknown);
        true
    }

    fn delivered(
        &self,
        world: &mut World,
        worker: usize,
        (claim, is_proven): (Claim, bool),
        ending: Ending,
    ) {
        let terms = self.terms(world);
        let moment = Moment { now: at(world.now), random: 0.0 };
        let delivery = Delivery::new(ending, "");
        let claimed_message = world.claimed_message(&claim);
        let next =
            self.design.after_delivery(&claimed_message, &terms, (&delivery, is_proven), moment);
        let is_doubtful = claim.maybe_sent_at.is_some() && !is_proven;
        match (&delivery.ending, &next) {
            (Ending::Refused, Next::Refused | Next::Dead(_)) => {
                self.sights.note(if is_doubtful {
                    Sight::RefusedByKey
                } else {
                    Sight::RefusedAtOnce
                });
            }
            (Ending::Refused, _) => self.sights.note(Sight::RefusedInDoubt),
            (Ending::NotThere, _) if is_doubtful => self.sights.note(Sight::NotThereInDoubt),
            (_, Next::Dead(Cause::Exhausted)) => self.sights.note(Sight::Exhausted),
            _ => {}
        }
        let was_there = Some(matches!(delivery.ending, Ending::Delivered(_) | Ending::Refused));
        let owes_receipt = matches!(delivery.ending, Ending::Delivered(_));
        world.workers[worker] = Worker::Ended { claim, next, owes_receipt, was_there };
    }

    /// Writes the receipt down, whether or not the claim still holds.
    pub(super) fn write_receipt(&self, world: &mut World, worker: usize) {
        if let Worker::Ended { claim, owes_receipt, .. } = &mut world.workers[worker] {
            *owes_receipt = false;
            if !world.message.holds(MoveGuard::Claimed(claim.fence), at(world.now)) {
                self.sights.note(Sight::LateReceiptKept);
            }
            world.has_receipt = true;
        }
    }

    /// Writes down how the claim ended, if it still holds.
    pub(super) fn settle(&self, world: &mut World, worker: usize) {
        let ended = std::mem::replace(&mut world.workers[worker], Worker::Idle);
        let Worker::Ended { claim, next, was_there, .. } = ended else { return };
        let holds = world.message.holds(MoveGuard::Claimed(claim.fence), at(world.now));
        if holds || self.design == OutboxDesign::SettlesWithoutFence {
            let claim = world.claimed_message(&claim).claim();
            let settlement = Settlement { claim, delivery: None, next: next.clone(), answer: None };
            world.message.take(&after_settlement(&settlement).becomes, at(world.now));
            world.has_receipt |= matches!(next, Next::Delivered(_));
        } else {
            self.sights.note(Sight::LateSettlementRefused);
        }
        if holds && world.told == Told::Interim || self.design == OutboxDesign::AnswersWithoutClaim
        {
            world.answer(&next);
        }
        self.sights.note_told(world.told);
        if claim.is_trial {
            world.open_until = match was_there {
                Some(true) => None,
                Some(false) => Some(world.now + LEFT_ALONE),
                // Nothing was asked of it: the trial is still to be made.
                None => Some(world.now),
            };
        }
    }

    /// A worker dies, and begins anew.
    pub(super) fn crash(&self, world: &mut World, worker: usize) -> bool {
        if let Worker::Sending { began, reply: None, .. } = world.workers[worker]
            && !world.destination.stray(began, world.now)
        {
            return false;
        }
        self.sights.note(Sight::Crashed);
        world.workers[worker] = Worker::Idle;
        true
    }

    /// Returns true if a delivery under way can still arrive.
    pub(super) fn can_arrive(began: u16, now: u16) -> bool {
        now < arrives_before(began)
    }

    /// Returns true if a worker that is not suspended has given the delivery up by now.
    pub(super) fn is_overdue(&self, world: &World, began: u16) -> bool {
        world.now >= began + ticks(self.terms(world).timeout)
    }
}

fn ended(claim: Claim, next: Next, was_there: Option<bool>) -> Worker {
    Worker::Ended { claim, next, owes_receipt: false, was_there }
}
