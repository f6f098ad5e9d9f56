//! The whole check against a stand-in for the demo: one that is right, and several that are not.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::ledger::Fault;
use super::*;
use crate::http::{Client, read_exactly, read_line};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Right,
    /// Forgets at each start which keys it has seen.
    PaysTwice,
    /// Forgets the payments at each start, not the keys.
    LosesPayments,
    /// Puts the time of day into a replay, so to speak.
    ChangesAnswers,
    /// Looks up keys without looking at the tenant.
    MixesTenants,
    /// Says 409 for ever.
    NeverSettles,
}

/// What survives a kill.
struct Books {
    habit: Habit,
    /// Tenant, id, customer.
    payments: Vec<(String, usize, String)>,
    answers: HashMap<(String, String), usize>,
    served: usize,
}

/// A server of threads; killing it cuts its connections.
struct StandIn {
    books: Arc<Mutex<Books>>,
    is_dead: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    address: Option<SocketAddr>,
}

impl Books {
    fn pay(&mut self, tenant: &str, key: &str) -> String {
        self.served += 1;
        let scope = if self.habit == Habit::MixesTenants { "all" } else { tenant };
        let name = (scope.to_owned(), key.to_owned());
        let fresh = self.payments.len() + 1;
        let id = *self.answers.entry(name).or_insert(fresh);
        if id == fresh {
            self.payments.push((tenant.to_owned(), id, key.to_owned()));
        }
        let note = if self.habit == Habit::ChangesAnswers { self.served } else { 0 };
        let body = format!(r#"{{"id":"pay_{id}","note":{note}}}"#);
        if self.habit == Habit::NeverSettles {
            return answer("409 Conflict\r\nretry-after: 0", "{}");
        }
        answer(&format!("201 Created\r\nlocation: /payments/pay_{id}"), &body)
    }

    /// Newest first, three to a page, so that there are pages to follow.
    fn list(&self, tenant: &str, path: &str) -> String {
        let after = path.split_once("after=").and_then(|(_, id)| id.parse().ok());
        let before = |id: usize| after.is_none_or(|after: usize| id < after);
        let mut page: Vec<_> =
            self.payments.iter().rev().filter(|(own, ..)| own == tenant).collect();
        page.retain(|&&(_, id, _)| before(id));
        let next = page.get(3).map(|_| page[2].1.to_string());
        page.truncate(3);
        let payments: Vec<_> = page
            .iter()
            .map(|(_, id, customer)| serde_json::json!({"id": format!("pay_{id}"), "customer": customer}))
            .collect();
        let body = serde_json::json!({"count": payments.len(), "payments": payments, "next": next});
        answer("200 OK", &body.to_string())
    }
}

fn answer(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

impl StandIn {
    fn new(habit: Habit) -> Self {
        let books = Books { habit, payments: Vec::new(), answers: HashMap::new(), served: 0 };
        Self {
            books: Arc::new(Mutex::new(books)),
            is_dead: Arc::default(),
            streams: Arc::default(),
            address: None,
        }
    }
}

impl Victim for StandIn {
    fn start(&mut self) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        self.address = Some(address);
        self.is_dead = Arc::default();
        self.streams = Arc::default();
        let (books, is_dead, streams) =
            (self.books.clone(), self.is_dead.clone(), self.streams.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_dead.load(Ordering::SeqCst) {
                    return;
                }
                streams.lock().unwrap().push(stream.try_clone().unwrap());
                let books = books.clone();
                // Ends with an error when its connection is cut, as it should.
                std::thread::spawn(move || serve(stream, &books));
            }
        });
        Ok(address)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.is_dead.store(true, Ordering::SeqCst);
        // Wakes the listener, so that it sees that it is dead.
        drop(self.address.take().map(TcpStream::connect));
        for stream in self.streams.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
        let mut books = self.books.lock().unwrap();
        match books.habit {
            Habit::PaysTwice => books.answers.clear(),
            Habit::LosesPayments => books.payments.clear(),
            Habit::Right | Habit::ChangesAnswers | Habit::MixesTenants | Habit::NeverSettles => {}
        }
        Ok(())
    }
}

fn serve(stream: TcpStream, books: &Mutex<Books>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let request = read_line(&mut stream)?;
        let mut headers = HashMap::new();
        loop {
            let line = read_line(&mut stream)?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_owned(), value.to_owned());
        }
        let length = headers.get("content-length").and_then(|text| text.parse().ok());
        read_exactly(&mut stream, length.unwrap_or(0))?;
        let path = request.split(' ').nth(1).unwrap_or_default();
        let tenant = headers["authorization"].as_str();
        let text = if request.starts_with("POST") {
            books.lock().unwrap().pay(tenant, headers["idempotency-key"].trim_matches('"'))
        } else {
            books.lock().unwrap().list(tenant, path)
        };
        stream.get_mut().write_all(text.as_bytes())?;
    }
}

fn report(habit: Habit) -> Report {
    let plan = Plan {
        live_for: (Duration::from_millis(20), Duration::from_millis(60)),
        key_count_max: 60,
        seed: 7,
        ..Plan::of(4, Build::Debug)
    };
    crash(&mut StandIn::new(habit), &plan).unwrap()
}

#[test]
fn a_server_that_is_right_passes() {
    let report = report(Habit::Right);
    report.judge().unwrap_or_else(|error| panic!("{error}\n{report}"));
}

#[test]
fn two_payments_for_one_key_are_found() {
    let report = report(Habit::PaysTwice);
    assert!(report.count(Fault::Duplicate) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn a_payment_that_a_client_was_told_of_and_is_gone_is_found() {
    let report = report(Habit::LosesPayments);
    assert!(report.count(Fault::Lost) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn an_answer_that_changes_is_found() {
    let report = report(Habit::ChangesAnswers);
    assert!(report.count(Fault::Changed) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn a_key_shared_by_two_tenants_is_found() {
    let report = report(Habit::MixesTenants);
    assert!(report.count(Fault::Lost) > 0, "{report}");
    assert!(report.judge().is_err());
}

#[test]
fn a_key_that_never_settles_is_found() {
    let ledger = Ledger::new(7, 1);
    let mut stand_in = StandIn::new(Habit::NeverSettles);
    let address = stand_in.start().unwrap();
    let id = ledger::KeyId { tenant: ledger::Tenant::Acme, key: "cus_1".to_owned() };
    assert!(ledger.open(&id));
    let gave_up = load::retry_all(address, &ledger, Deadline::after(Duration::ZERO));
    assert!(gave_up.is_err(), "a round without time cannot end well");
    let mut client = Client::new(address, load::ANSWER_MAX);
    load::settle(&mut client, &id, &ledger, Duration::from_millis(20));
    stand_in.kill().unwrap();
    let report = ledger.report(1, 0.0);
    assert_eq!(report.count(Fault::Missing), 1, "{report}");
}
