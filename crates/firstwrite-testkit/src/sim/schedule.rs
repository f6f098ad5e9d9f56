//! The scheduler: the seed alone decides which task runs, which one crashes, and when the clock jumps.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use firstwrite_core::Policy;

use super::attempt::{Reply, client, operate, reap, serve, sweep};
use super::cast::{RECORDS, Role, Way};
use super::log::Log;
use super::store::SimStore;
use super::{Ended, Event, Plan};

/// Steps of the bad times; what is still running then goes on in the good times.
const STEPS_MAX: u64 = 70;
/// Steps of the good times before a task counts as stuck.
const HEALED_STEPS_MAX: u64 = 2000;

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    /// Whose request it is and how often it may still be sent, for clients.
    role: Option<(Role, u8)>,
}

struct Scheduler {
    store: SimStore,
    plan: Plan,
    rng: fastrand::Rng,
    tasks: Vec<Task>,
    roles: Vec<Role>,
    steps: u64,
}

/// Runs the history of one seed.
pub(super) fn run(seed: u64, plan: Plan) -> Ended {
    let mut scheduler = Scheduler::new(seed, plan);
    scheduler.bad_times();
    scheduler.good_times();
    let Scheduler { store, steps, .. } = scheduler;
    let mut shared = store.shared();
    Ended {
        events: shared.log.events.clone(),
        steps,
        violation: shared.log.violation.take(),
        trace: std::mem::take(&mut shared.log.lines),
    }
}

impl Scheduler {
    fn new(seed: u64, plan: Plan) -> Self {
        // Neighbouring seeds must not give neighbouring histories.
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let ways: [Way; RECORDS] = std::array::from_fn(|_| match rng.u8(..3) {
            0 => Way::Atomic,
            1 => Way::Uncertain,
            _ => Way::Resend,
        });
        let log = Log::new(ways, plan.trace);
        let store = SimStore::new(rng.fork(), log, plan.defect);
        // Few keys and several clients: most requests are duplicates.
        let first = rng.usize(..RECORDS);
        let second = rng.usize(..RECORDS);
        let roles: Vec<Role> = (0..rng.usize(2..=5))
            .map(|_| Role {
                record: if rng.u8(..4) == 0 { second } else { first },
                variant: u8::from(rng.u8(..10) == 0),
            })
            .collect();
        let mut scheduler = Self { store, plan, rng, tasks: Vec::new(), roles, steps: 0 };
        for role in scheduler.roles.clone() {
            scheduler.spawn_client(role, 3);
        }
        scheduler
    }

    fn bad_times(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.tasks.is_empty() || self.is_over() {
                return;
            }
            match self.rng.u8(..100) {
                0..4 => self.crash(),
                4..9 => self.jump(),
                9..13 => self.spawn(sweep(self.store.clone(), self.plan)),
                13..17 => self.spawn(operate(self.store.clone())),
                17..19 => self.spawn(reap(self.store.clone())),
                19..22 => self.store.let_one_arrive(),
                _ => {
                    let at = self.rng.usize(..self.tasks.len());
                    self.step(at);
                }
            }
        }
    }

    /// The network is good again: everything comes to its end, and every key gets its answer.
    fn good_times(&mut self) {
        self.store.shared().healed = true;
        self.store.shared().log.line(|| "the network is good again".to_owned());
        self.run_out();
        while self.rng.bool() {
            self.store.let_one_arrive();
        }
        self.store.clock.advance(Policy::LEASE_DEFAULT);
        self.spawn(sweep(self.store.clone(), self.plan));
        self.run_out();
        self.spawn(operate(self.store.clone()));
        self.run_out();
        for role in self.roles.clone() {
            if self.is_over() {
                return;
            }
            self.last_request(role);
        }
    }

    /// A request in good times is answered, unless the key belongs to another request.
    fn last_request(&mut self, role: Role) {
        let mut future = Box::pin(serve(&self.store, self.plan, role));
        for _ in 0..HEALED_STEPS_MAX {
            self.steps += 1;
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => {}
                Poll::Ready(Reply::Answer(_) | Reply::Mismatch) => return,
                Poll::Ready(Reply::NotNow) => {
                    let words = format!("{role:?} gets no answer although all is well");
                    self.store.shared().log.broken(words);
                    return;
                }
            }
        }
        self.store.shared().log.broken(format!("{role:?} is stuck although all is well"));
    }

    fn run_out(&mut self) {
        for _ in 0..HEALED_STEPS_MAX {
            if self.tasks.is_empty() || self.is_over() {
                return;
            }
            let at = self.rng.usize(..self.tasks.len());
            self.step(at);
        }
        self.store.shared().log.broken("a task is stuck although all is well".to_owned());
    }

    fn is_over(&self) -> bool {
        self.store.shared().log.violation.is_some()
    }

    fn step(&mut self, at: usize) {
        self.steps += 1;
        let task = &mut self.tasks[at];
        if task.future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            drop(self.tasks.swap_remove(at));
        }
    }

    fn crash(&mut self) {
        let at = self.rng.usize(..self.tasks.len());
        let task = self.tasks.swap_remove(at);
        let role = task.role;
        drop(task);
        let mut shared = self.store.shared();
        shared.log.note(Event::Crashed);
        shared.log.line(|| format!("crash of {role:?}"));
        drop(shared);
        // The client does not know and asks again.
        if let Some((role, tries)) = role.filter(|(_, tries)| *tries > 0) {
            self.spawn_client(role, tries - 1);
        }
    }

    fn jump(&mut self) {
        let (by, event) = match self.rng.u8(..8) {
            0..3 => (Duration::from_secs(9), None),
            3..6 => (Policy::LEASE_DEFAULT, Some(Event::LeaseJump)),
            6 => (Policy::RETENTION_DEFAULT, Some(Event::RetentionJump)),
            _ => {
                let whole = Policy::RETENTION_DEFAULT + Policy::SLACK_DEFAULT;
                (whole, Some(Event::RetentionJump))
            }
        };
        self.store.clock.advance(by);
        if event == Some(Event::RetentionJump) {
            self.store.give_up_late_steps();
        }
        let mut shared = self.store.shared();
        shared.log.line(|| format!("the clock jumps by {by:?}"));
        if let Some(event) = event {
            shared.log.note(event);
        }
    }

    fn spawn_client(&mut self, role: Role, tries: u8) {
        let future = Box::pin(client(self.store.clone(), self.plan, role, tries));
        self.tasks.push(Task { future, role: Some((role, tries)) });
    }

    fn spawn(&mut self, future: impl Future<Output = ()> + 'static) {
        self.tasks.push(Task { future: Box::pin(future), role: None });
    }
}
