//! The clients: threads that pay, lose their connection, and try again with the same key.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::Duration;

use anyhow::Context;

use super::ledger::{Answer, Fault, KeyId, Ledger, Tenant};
use crate::clock::{Deadline, pause};
use crate::http::{Client, Request};
use crate::random::Random;

pub(crate) const CLIENTS: usize = 8;
/// Bounds every connect, write and read.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Interval at which clients try to connect while the demo is down.
const KNOCK: Duration = Duration::from_millis(3);
/// Longest Retry-After that clients obey.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);
/// Time for which one key may be told to wait in the last round before that is a finding.
const SETTLE_KEY_MAX: Duration = Duration::from_secs(45);
/// Time the provider gets to answer before the key is sent again; a claim that died with its worker is free after 20
/// seconds.
const ACCEPTED_PAUSE: Duration = Duration::from_millis(100);
/// Number of times a connection may break in the last round, when nothing is killed any more.
const BROKEN_MAX: u32 = 5;

/// All clients of a run, and where they send.
pub(crate) struct Clients<'a> {
    ledger: &'a Ledger,
    target: Mutex<Option<SocketAddr>>,
    is_over: AtomicBool,
}

/// Ends the clients' work when dropped, so that a panic elsewhere does not leave them waiting for each other.
pub(crate) struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Result of sending a key once.
enum Sent {
    Answered,
    /// Answered, and the final answer is still to come.
    Accepted,
    /// Told to come again, after this long.
    Refused(Duration),
    /// The connection broke: it is unknown whether the request was carried out.
    Unknown,
    /// The connection was refused: not a byte was sent.
    Unreachable,
}

/// One client: its own keys, its own tenant.
struct Worker<'a> {
    number: usize,
    ledger: &'a Ledger,
    random: Random,
    /// Kept while the demo stays where it is.
    client: Option<Client>,
    keys: Vec<KeyId>,
    /// Keys whose last answer was lost; the most interesting ones to retry.
    unsure: Vec<KeyId>,
    /// True if the last request reached no server. Then the client takes no new keys: they could not be sent.
    is_knocking: bool,
}

impl<'a> Clients<'a> {
    pub(crate) fn new(ledger: &'a Ledger) -> Self {
        Self { ledger, target: Mutex::new(None), is_over: AtomicBool::new(false) }
    }

    /// Sets all clients to work; they stop when the returned value is dropped.
    pub(crate) fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, random: &mut Random) -> Stop<'s> {
        for number in 0..CLIENTS {
            let random = random.branch();
            scope.spawn(move || self.work(number, random));
        }
        Stop(&self.is_over)
    }

    /// From now on, new connections go here.
    pub(crate) fn aim_at(&self, address: SocketAddr) {
        *self.target.lock().expect("taking aim does not panic") = Some(address);
    }

    fn target(&self) -> Option<SocketAddr> {
        *self.target.lock().expect("taking aim does not panic")
    }

    fn work(&self, number: usize, random: Random) {
        let mut worker = Worker::new(number, self.ledger, random);
        while !self.is_over.load(Ordering::Relaxed) {
            match self.target() {
                Some(address) => worker.turn(address),
                None => pause(KNOCK),
            }
        }
    }
}

impl<'a> Worker<'a> {
    fn new(number: usize, ledger: &'a Ledger, random: Random) -> Self {
        let (keys, unsure) = (Vec::new(), Vec::new());
        Self { number, ledger, random, client: None, keys, unsure, is_knocking: false }
    }

    /// One action: a new payment or a retry, now and then by two threads at once.
    fn turn(&mut self, address: SocketAddr) {
        let mut client = match self.client.take() {
            Some(client) if client.address() == address => client,
            _ => Client::new(address, ANSWER_MAX),
        };
        let Some(id) = self.choose() else { return pause(KNOCK) };
        let sent = if self.random.once_in(6) {
            let mut rival = Client::new(address, ANSWER_MAX);
            std::thread::scope(|scope| {
                scope.spawn(|| send(&mut rival, &id, self.ledger));
                send(&mut client, &id, self.ledger)
            })
        } else {
            send(&mut client, &id, self.ledger)
        };
        self.client = Some(client);
        self.is_knocking = matches!(sent, Sent::Unreachable);
        match sent {
            Sent::Answered => {}
            Sent::Accepted | Sent::Refused(_) | Sent::Unknown => self.unsure.push(id),
            Sent::Unreachable => {
                self.unsure.push(id);
                pause(KNOCK);
            }
        }
    }

    fn choose(&mut self) -> Option<KeyId> {
        if (self.is_knocking || self.random.once_in(2))
            && let Some(id) = self.unsure.pop()
        {
            return Some(id);
        }
        if self.random.once_in(3)
            && let Some(id) = self.random.pick(&self.keys)
        {
            return Some(id.clone());
        }
        // Two neighbours use the same texts under two tenants: that must be two payments.
        let tenant = Tenant::ALL[self.number % 2];
        let (seed, pair, count) = (self.ledger.seed, self.number / 2, self.keys.len());
        let id = KeyId { tenant, key: format!("cus_{seed:x}_{pair}_{count}") };
        if self.ledger.open(&id) {
            self.keys.push(id.clone());
            return Some(id);
        }
        self.random.pick(&self.keys).cloned()
    }
}

/// Sends every key until it is answered, while nothing is killed.
pub(crate) fn retry_all(
    address: SocketAddr,
    ledger: &Ledger,
    deadline: Deadline,
) -> anyhow::Result<()> {
    let ids: Vec<KeyId> = ledger.entries().into_iter().map(|(id, _)| id).collect();
    let share = ids.len().div_ceil(CLIENTS).max(1);
    std::thread::scope(|scope| {
        for part in ids.chunks(share) {
            scope.spawn(move || {
                let mut client = Client::new(address, ANSWER_MAX);
                for id in part {
                    if deadline.is_over() {
                        return;
                    }
                    settle(&mut client, id, ledger, SETTLE_KEY_MAX.min(deadline.left()));
                }
            });
        }
    });
    (!deadline.is_over()).then_some(()).context("the last round did not end in time")
}

/// Sends one key until it is answered, or `limit` has passed: that is a finding.
pub(crate) fn settle(client: &mut Client, id: &KeyId, ledger: &Ledger, limit: Duration) {
    let deadline = Deadline::after(limit);
    let mut broken = 0;
    loop {
        let reason = match send(client, id, ledger) {
            Sent::Answered => return,
            Sent::Accepted => {
                pause(ACCEPTED_PAUSE);
                "gets no final answer"
            }
            Sent::Refused(retry_after) => {
                pause(retry_after.min(RETRY_AFTER_MAX));
                "is told to wait"
            }
            Sent::Unknown | Sent::Unreachable => {
                broken += 1;
                pause(KNOCK);
                "breaks the connection"
            }
        };
        if deadline.is_over() || broken > BROKEN_MAX {
            return ledger.fault(Fault::Missing, format!("{id}: {reason} until we gave up"));
        }
    }
}

fn send(client: &mut Client, id: &KeyId, ledger: &Ledger) -> Sent {
    let response = match client.send(&payment(id)) {
        Ok(response) => response,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Sent::Unreachable,
        Err(_) => {
            ledger.cut_off();
            return Sent::Unknown;
        }
    };
    if asks_to_come_again(response.status) {
        ledger.refused();
        let seconds = response.header("retry-after").and_then(|text| text.parse().ok());
        return Sent::Refused(seconds.map_or(KNOCK, Duration::from_secs));
    }
    let answer = Answer::of(response);
    let is_interim = answer.is_interim();
    ledger.answered(id, answer);
    if is_interim { Sent::Accepted } else { Sent::Answered }
}

/// Returns true if a status asks to retry; any other status is the answer, and must stay the same.
pub(crate) fn asks_to_come_again(status: u16) -> bool {
    matches!(status, 408 | 409 | 425 | 429 | 500..)
}

/// The payment of a key; its customer is the key itself, so that the books can be read by key.
pub(crate) fn payment(id: &KeyId) -> Request {
    let body = format!(r#"{{"amount":4990,"currency":"EUR","customer":"{}"}}"#, id.key);
    Request {
        method: "POST",
        path: "/payments".to_owned(),
        headers: vec![
            ("authorization", id.tenant.credentials()),
            ("idempotency-key", format!("\"{}\"", id.key)),
            ("content-type", "application/json".to_owned()),
        ],
        body: body.into_bytes(),
    }
}
