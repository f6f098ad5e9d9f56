//! A small API for gateways to stand in front of. It counts what it did, and can be held up at any
//! moment of a request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// The API. It knows no keys: whatever it is asked for twice, it does twice, but under `/recognised`,
/// where a key that it has seen changes nothing.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

/// Something that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// From 1, in order.
    pub(crate) number: usize,
    /// The key that the gateway sent along.
    pub(crate) key: String,
}

/// Where a request can be held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Its head has come, and nothing was done.
    Head,
    /// It was done, and nobody was told.
    Done,
    /// All of the answer but its last byte is on its way.
    Answering,
}

/// What is answered, as bytes, when this was done.
type Answers = Box<dyn Fn(&Effect) -> Vec<u8> + Send + Sync>;

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    answers: Answers,
}

#[derive(Default)]
struct State {
    heads: usize,
    effects: Vec<Effect>,
    held_at: Option<Moment>,
    /// How often somebody was let go.
    releases: usize,
    /// Who waits to be let go.
    waiting: usize,
    connections: usize,
}

/// Far longer than anything takes here; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The body of the usual answer, with its members in alphabetical order.
pub(crate) fn made(effect: &Effect) -> String {
    format!(r#"{{"id":{},"key":"{}"}}"#, effect.number, effect.key)
}

/// An answer with a length.
pub(crate) fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

impl Effect {
    /// The key that the client sent, of which the gateway made another.
    pub(crate) fn client_key(&self) -> &str {
        self.key.split(':').next().unwrap_or_default()
    }
}

impl Upstream {
    /// Answers 201 with what it made, which is never the same twice.
    pub(crate) fn start() -> Self {
        let headers = "content-type: application/json\r\n";
        Self::answering(move |effect| answer("201 Created", headers, made(effect).as_bytes()))
    }

    pub(crate) fn answering(answers: impl Fn(&Effect) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { state, changed, answers: Box::new(answers) });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let shared = Arc::clone(&serving);
                shared.change(|state| state.connections += 1);
                thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    while shared.serve(&mut stream).is_some() {}
                    shared.change(|state| state.connections -= 1);
                });
            }
        });
        Self { address, shared }
    }

    /// How many requests for something to be done began to arrive.
    pub(crate) fn heads(&self) -> usize {
        self.shared.state().heads
    }

    /// Waits until so many have.
    pub(crate) fn wait_heads(&self, count: usize) {
        self.shared.wait("too few requests arrive", |state| state.heads >= count);
    }

    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.shared.state().effects.clone()
    }

    /// From now on requests wait at this moment.
    pub(crate) fn hold(&self, at: Moment) {
        self.shared.change(|state| state.held_at = Some(at));
    }

    /// Whoever is held up stays so; others pass.
    pub(crate) fn hold_nobody_else(&self) {
        self.shared.change(|state| state.held_at = None);
    }

    /// Waits until a request is held up.
    pub(crate) fn wait_held(&self) {
        self.shared.wait("nothing is held up", |state| state.waiting > 0);
    }

    /// Lets go whoever is held up, and holds up nobody else.
    pub(crate) fn release(&self) {
        self.shared.change(|state| {
            state.held_at = None;
            state.releases += 1;
        });
    }

    /// Waits until everybody who was connected has gone, and what they sent was taken in.
    pub(crate) fn wait_alone(&self) {
        self.shared.wait("somebody stays connected", |state| state.connections == 0);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.release();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        changed
    }

    fn wait(&self, complaint: &str, is_so: impl Fn(&State) -> bool) {
        let state = self.state();
        let (state, waited) =
            self.changed.wait_timeout_while(state, PATIENCE, |state| !is_so(state)).unwrap();
        // A panic under the lock would poison it, and end every test of this program with it.
        drop(state);
        assert!(!waited.timed_out(), "{complaint}");
    }

    fn pass(&self, moment: Moment) {
        let mut state = self.state();
        if state.held_at != Some(moment) {
            return;
        }
        let releases = state.releases;
        state.waiting += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.releases == releases).unwrap();
        state.waiting -= 1;
    }

    /// Answers the next request of a connection; none when there is no other.
    fn serve(&self, stream: &mut BufReader<TcpStream>) -> Option<()> {
        let head = read_head(stream)?;
        let mut words = head.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        if method == "GET" {
            let found = self.found(target);
            return stream.get_mut().write_all(&found).ok();
        }
        self.change(|state| state.heads += 1);
        self.pass(Moment::Head);
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        // One that breaks off is not carried out.
        stream.read_exact(&mut vec![0; length]).ok()?;
        let key = header(&head, "idempotency-key").unwrap_or_default();
        let effect = self.change(|state| state.effect(key, target.starts_with("/recognised")));
        self.pass(Moment::Done);
        let answer = (self.answers)(&effect);
        let (most, last) = answer.split_at(answer.len() - 1);
        stream.get_mut().write_all(most).ok()?;
        self.pass(Moment::Answering);
        stream.get_mut().write_all(last).ok()
    }

    /// What was made under the key that a target ends in.
    fn found(&self, target: &str) -> Vec<u8> {
        let key = target.split_once('=').map_or("", |(_, key)| key).replace("%3A", ":");
        let effects = self.state().effects.clone();
        let found: Vec<String> =
            effects.iter().filter(|effect| effect.key == key).map(made).collect();
        let body = format!(r#"{{"data":[{}]}}"#, found.join(","));
        answer("200 OK", "content-type: application/json\r\n", body.as_bytes())
    }
}

impl State {
    fn effect(&mut self, key: String, is_recognised: bool) -> Effect {
        if let Some(known) = self.effects.iter().find(|effect| effect.key == key && is_recognised) {
            return known.clone();
        }
        let effect = Effect { number: self.effects.len() + 1, key };
        self.effects.push(effect.clone());
        effect
    }
}

fn read_head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// The value of a header, without the quotes it may stand in.
fn header(head: &str, name: &str) -> Option<String> {
    let value = head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })?;
    Some(value.trim_matches('"').to_owned())
}
