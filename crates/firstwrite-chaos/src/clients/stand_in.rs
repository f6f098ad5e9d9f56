//! A stand-in for the demo in the tests of the tasks: one that is right, and several that are not.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::http::{read_exactly, read_line};

/// Number of the newest payments that a kill loses, unless the test sets another end of the history.
const TAIL: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    Right,
    /// Forgets at each start which keys it has seen.
    PaysTwice,
    /// Forgets the payments at each start, not the keys.
    LosesPayments,
    /// Puts the time of day into a replay, so to speak.
    ChangesAnswers,
    /// Looks up keys without looking at the tenant.
    MixesTenants,
    /// Accepts payments that are never settled.
    LeavesPending,
    /// Says 409 for ever.
    NeverSettles,
    /// Forgets the newest keys and their payments at each death, and does not know it.
    LosesTail,
    /// The same, but answers `outcome-unknown` to keys it does not know, until an operator clears that.
    Doubts,
    /// The same, but does not even replay what it knows.
    DoubtsAll,
    /// The same as `Doubts`, but cannot be cleared.
    DoubtsForEver,
}

/// State that survives a kill.
struct Books {
    habit: Habit,
    /// Tenant, id, customer.
    payments: Vec<(String, usize, String)>,
    answers: HashMap<(String, String), usize>,
    served: usize,
    /// Ids are never given twice, also not after a loss.
    paid: usize,
    is_history_lost: bool,
    /// Number of payments in the copy that survives, if copying has stopped.
    copied: Option<usize>,
}

/// A server of threads; killing it cuts its connections.
pub(crate) struct StandIn {
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
        let is_known = self.answers.contains_key(&name);
        if self.is_history_lost && (!is_known || self.habit == Habit::DoubtsAll) {
            let problem = r#"{"type":"https://example.org/problems/outcome-unknown"}"#;
            return answer("409 Conflict\r\ncontent-type: application/problem+json", problem);
        }
        let id = *self.answers.entry(name).or_insert(self.paid + 1);
        if !is_known {
            self.paid += 1;
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
            .map(|(_, id, customer)| {
                let is_left = self.habit == Habit::LeavesPending;
                let status = if is_left { "pending" } else { "settled" };
                serde_json::json!({"id": format!("pay_{id}"), "customer": customer, "status": status})
            })
            .collect();
        let body = serde_json::json!({"count": payments.len(), "payments": payments, "next": next});
        answer("200 OK", &body.to_string())
    }

    fn forget(&mut self) {
        match self.habit {
            Habit::PaysTwice => self.answers.clear(),
            Habit::LosesPayments => self.payments.clear(),
            Habit::LosesTail | Habit::Doubts | Habit::DoubtsAll | Habit::DoubtsForEver => {
                let kept = self.payments.len().saturating_sub(TAIL);
                let tail = self.payments.split_off(self.copied.take().unwrap_or(kept));
                self.answers.retain(|_, id| tail.iter().all(|(_, lost, _)| lost != id));
                self.is_history_lost = self.habit != Habit::LosesTail;
            }
            Habit::Right
            | Habit::ChangesAnswers
            | Habit::MixesTenants
            | Habit::LeavesPending
            | Habit::NeverSettles => {}
        }
    }
}

fn answer(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

impl StandIn {
    pub(crate) fn new(habit: Habit) -> Self {
        let (payments, answers) = (Vec::new(), HashMap::new());
        let (served, paid, is_history_lost, copied) = (0, 0, false, None);
        let books = Books { habit, payments, answers, served, paid, is_history_lost, copied };
        Self {
            books: Arc::new(Mutex::new(books)),
            is_dead: Arc::default(),
            streams: Arc::default(),
            address: None,
        }
    }

    pub(crate) fn listen(&mut self) -> anyhow::Result<SocketAddr> {
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

    pub(crate) fn die(&mut self) {
        self.is_dead.store(true, Ordering::SeqCst);
        // Wakes the listener, so that it sees that it is dead.
        drop(self.address.take().map(TcpStream::connect));
        for stream in self.streams.lock().unwrap().drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
        self.books.lock().unwrap().forget();
    }

    /// From now on nothing is copied to where it would survive.
    pub(crate) fn cut_off(&mut self) {
        let mut books = self.books.lock().unwrap();
        books.copied = Some(books.payments.len());
    }

    pub(crate) fn clear_history_loss(&mut self) {
        let mut books = self.books.lock().unwrap();
        books.is_history_lost = books.habit == Habit::DoubtsForEver;
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
