//! Actions of the outbox model, and their effects.

use firstwrite_core::outbox::{Probed, Step};
use stateright::{Model, Property};

use super::Delivering;
use super::OutboxDesign;
use super::destination::Deed;
use super::operator::Word;
use super::promises::{self, Sight};
use super::time::tick_of;
use super::world::{History, Told, Worker, World, Written};

/// A possible next action. Workers and strays are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutboxAction {
    /// The transaction that wrote the message commits.
    Commit,
    /// It rolls back.
    RollBack,
    /// A worker claims the message.
    Claim(usize),
    /// A worker looks at what it claimed, and settles, holds, asks or begins to send.
    Start(usize),
    /// A worker that has asked begins to send.
    Begin(usize),
    /// A worker finds no connection.
    NotReached(usize),
    /// A worker asks and is not told.
    ProbeSilent(usize),
    /// A delivery under way reaches the destination.
    Arrive(usize, Deed),
    /// A worker hears the answer.
    Hear(usize),
    /// A worker gives its delivery up.
    GiveUp(usize),
    /// A delivery that was given up reaches the destination.
    ArriveLate(usize, Deed),
    /// A worker writes the provider's id down.
    WriteReceipt(usize),
    /// A worker writes down how its claim ended.
    Settle(usize),
    /// A worker dies, and begins anew.
    Crash(usize),
    /// Time passes.
    Tick,
    /// Other messages' failures make all workers leave the destination alone.
    LeaveAlone,
    /// An operator looks at the message and the ledger.
    Look,
    /// The operator says what it saw.
    Say(Word),
    /// An operator puts a dead letter back.
    Redrive,
    /// A long time passes in which nothing is done.
    WaitLong,
    /// The store is copied.
    Copy,
    /// The copy is put back in its place, which is noticed.
    PutBack,
    /// An operator clears the history loss.
    ClearLoss,
    /// From here on nothing goes wrong: every worker is new.
    Calm,
}

use OutboxAction as Action;

impl Model for Delivering {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.kind, self.is_awaited)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.calm_steps > 0 {
            actions.extend(self.calm_action(world));
            return;
        }
        if world.written == Written::Open {
            actions.extend([Action::Commit, Action::RollBack]);
            if self.design != OutboxDesign::SendsUncommitted {
                return;
            }
        }
        let busy = world.workers.iter().filter(|worker| **worker != Worker::Idle).count();
        let mut idle_seen = busy >= self.limits.workers;
        for (number, worker) in world.workers.iter().enumerate() {
            match worker {
                // Workers that do nothing are alike.
                Worker::Idle if idle_seen => {}
                Worker::Idle => {
                    idle_seen = true;
                    if self.is_claimable(world) {
                        actions.push(Action::Claim(number));
                    }
                }
                Worker::Claimed(_) | Worker::Asked(_) | Worker::Sending { .. } => {
                    self.under_way(world, number, actions);
                }
                Worker::Ended { owes_receipt: true, .. } => {
                    actions.push(Action::WriteReceipt(number));
                }
                Worker::Ended { .. } => actions.push(Action::Settle(number)),
            }
            if *worker != Worker::Idle && world.spent.crashes < self.limits.crashes {
                actions.push(Action::Crash(number));
            }
        }
        for number in 0..world.destination.strays.len() {
            if world.destination.strays[number].is_some() {
                let deeds = self.deeds(world);
                actions.extend(deeds.map(|deed| Action::ArriveLate(number, deed)));
            }
        }
        self.people(world, actions);
        self.losing(world, actions);
        self.passing(world, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        if next.calm_steps > 0 {
            next.calm_steps += 1;
        }
        let is_possible = self.take(&mut next, action);
        let next = next.canonical();
        (is_possible && next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::properties()
    }
}

impl Delivering {
    /// Returns the actions of the destination on an arriving delivery that the limits still allow.
    fn deeds(&self, world: &World) -> impl Iterator<Item = Deed> {
        let (spent, limits) = (world.spent, self.limits);
        let deeds = world.destination.deeds(world.kind, world.now).iter().copied();
        deeds.filter(move |deed| match deed {
            Deed::Act | Deed::Repeat => true,
            Deed::Refuse => spent.refusals < limits.refusals,
            Deed::PutOff | Deed::Miss => spent.put_offs < limits.put_offs,
        })
    }

    fn under_way(&self, world: &World, number: usize, actions: &mut Vec<Action>) {
        let may_lose = world.spent.losses < self.limits.losses;
        let may_miss = world.spent.put_offs < self.limits.put_offs;
        match &world.workers[number] {
            Worker::Claimed(claim) => {
                actions.push(Action::Start(number));
                match self.step(world, claim) {
                    Step::Send if may_miss => actions.push(Action::NotReached(number)),
                    Step::Ask if may_lose => actions.push(Action::ProbeSilent(number)),
                    Step::Send | Step::Ask | Step::Settle(_) | Step::Hold(_) => {}
                }
            }
            Worker::Asked(_) => {
                actions.push(Action::Begin(number));
                if may_miss {
                    actions.push(Action::NotReached(number));
                }
            }
            Worker::Sending { began, reply, .. } => {
                if reply.is_some() {
                    actions.push(Action::Hear(number));
                } else if Self::can_arrive(*began, world.now) {
                    actions.extend(self.deeds(world).map(|deed| Action::Arrive(number, deed)));
                }
                if may_lose || self.is_overdue(world, *began) {
                    actions.push(Action::GiveUp(number));
                }
            }
            Worker::Idle | Worker::Ended { .. } => {}
        }
    }

    fn people(&self, world: &World, actions: &mut Vec<Action>) {
        let (spent, limits) = (world.spent, self.limits);
        if world.history == History::Lost {
            return;
        }
        match world.look {
            Some(look) => {
                actions.extend(Self::words(world, look).iter().copied().map(Action::Say));
            }
            None if spent.words < limits.words && Self::is_looked_at(world) => {
                actions.push(Action::Look);
            }
            None => {}
        }
        if spent.redrives < limits.redrives && self.is_redrivable(world) {
            actions.push(Action::Redrive);
        }
    }

    fn passing(&self, world: &World, actions: &mut Vec<Action>) {
        let (spent, limits) = (world.spent, self.limits);
        let is_over = world.message.state.is_final()
            && world.workers.iter().all(|worker| *worker == Worker::Idle)
            && world.destination.strays == [None; 2];
        if is_over || world.written != Written::Committed {
            return;
        }
        if spent.openings < limits.openings && world.open_until.is_none() {
            actions.push(Action::LeaveAlone);
        }
        if world.has_ended() && spent.words < limits.words && spent.waits == 0 {
            actions.push(Action::WaitLong);
        }
        if spent.ticks < limits.ticks {
            actions.push(Action::Tick);
        } else if !world.has_ended() && world.history != History::Lost {
            actions.push(Action::Calm);
        }
    }

    /// Returns the next action when nothing goes wrong.
    fn calm_action(&self, world: &World) -> Option<Action> {
        let busy = world.workers.iter().position(|worker| *worker != Worker::Idle);
        let Some(number) = busy else {
            if world.has_ended() {
                return None;
            }
            return Some(if self.is_claimable(world) { Action::Claim(0) } else { Action::Tick });
        };
        let recognised = world.destination.deeds(world.kind, world.now)[0];
        Some(match &world.workers[number] {
            Worker::Claimed(_) => Action::Start(number),
            Worker::Asked(_) => Action::Begin(number),
            Worker::Sending { reply: None, .. } => Action::Arrive(number, recognised),
            Worker::Sending { .. } => Action::Hear(number),
            Worker::Ended { owes_receipt: true, .. } => Action::WriteReceipt(number),
            Worker::Ended { .. } => Action::Settle(number),
            Worker::Idle => return None,
        })
    }

    /// Does what happens. `false` if it cannot.
    fn take(&self, world: &mut World, action: Action) -> bool {
        match action {
            Action::Commit => {
                world.written = Written::Committed;
                world.told = if world.is_awaited { Told::Interim } else { Told::Nothing };
            }
            Action::RollBack => {
                world.written = Written::RolledBack;
                self.sights.note(Sight::RolledBack);
            }
            Action::Claim(worker) => self.claim(world, worker),
            Action::Start(worker) => self.start(world, worker),
            Action::Begin(worker) => {
                if let Worker::Asked(claim) = world.workers[worker] {
                    self.begin(world, worker, claim, true);
                }
            }
            Action::NotReached(worker) => {
                world.spent.put_offs += 1;
                self.not_reached(world, worker);
            }
            Action::ProbeSilent(worker) => {
                world.spent.losses += 1;
                if let Worker::Claimed(claim) = world.workers[worker] {
                    self.asked(world, worker, claim, &Probed::Silent(String::new()));
                }
            }
            Action::Arrive(worker, deed) => {
                Self::arrive(world, worker, deed);
                world.spend(deed);
            }
            Action::Hear(worker) => self.hear(world, worker),
            Action::GiveUp(worker) => {
                if let Worker::Sending { began, .. } = world.workers[worker]
                    && !self.is_overdue(world, began)
                {
                    world.spent.losses += 1;
                }
                return self.give_up(world, worker);
            }
            Action::ArriveLate(number, deed) => {
                self.sights.note(Sight::ArrivedLate);
                world.destination.take_stray(number);
                world.destination.arrive(world.kind, deed, world.now);
                world.spend(deed);
            }
            Action::WriteReceipt(worker) => self.write_receipt(world, worker),
            Action::Settle(worker) => {
                self.settle(world, worker);
                if world.calm_steps > 0 && world.has_ended() {
                    self.sights.note(Sight::EndedInCalm);
                }
            }
            Action::Crash(worker) => {
                world.spent.crashes += 1;
                return self.crash(world, worker);
            }
            Action::Tick
            | Action::LeaveAlone
            | Action::Look
            | Action::Say(_)
            | Action::Redrive
            | Action::WaitLong
            | Action::Copy
            | Action::PutBack
            | Action::ClearLoss
            | Action::Calm => self.befall(world, action),
        }
        true
    }

    /// Applies an action that no worker takes: time, other messages, people.
    fn befall(&self, world: &mut World, action: Action) {
        match action {
            Action::Tick if world.calm_steps > 0 => {
                let next = world.next_instant().map_or(world.now, tick_of);
                world.now = world.now.max(next).max(world.open_until.unwrap_or(0));
                world.destination.pass(world.now);
            }
            Action::Tick => {
                world.now += 1;
                world.spent.ticks += 1;
                world.destination.pass(world.now);
            }
            Action::LeaveAlone => {
                world.spent.openings += 1;
                world.open_until = Some(world.now + 1);
            }
            Action::Look => Self::look(world),
            Action::Say(word) => self.say(world, word),
            Action::Redrive => self.redrive(world),
            Action::WaitLong => Self::wait(world),
            Action::Copy => Self::copy(world),
            Action::PutBack => Self::put_back(world),
            Action::ClearLoss => self.clear_loss(world),
            Action::Calm => {
                world.calm_steps = 1;
                world.workers = [Worker::Idle, Worker::Idle];
                world.destination.strays = [None; 2];
                world.look = None;
            }
            Action::Commit
            | Action::RollBack
            | Action::Claim(_)
            | Action::Start(_)
            | Action::Begin(_)
            | Action::NotReached(_)
            | Action::ProbeSilent(_)
            | Action::Arrive(..)
            | Action::Hear(_)
            | Action::GiveUp(_)
            | Action::ArriveLate(..)
            | Action::WriteReceipt(_)
            | Action::Settle(_)
            | Action::Crash(_) => {}
        }
    }
}

impl World {
    fn spend(&mut self, deed: Deed) {
        match deed {
            Deed::Refuse => self.spent.refusals += 1,
            Deed::PutOff | Deed::Miss => self.spent.put_offs += 1,
            Deed::Act | Deed::Repeat => {}
        }
    }
}
