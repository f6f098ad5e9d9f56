//! The world of a test: a clock, a server that follows a script, and what it saw.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::rules::Timestamp;
use firstwrite_client::transport::{Failure, Reply};
use firstwrite_client::{
    BoxError, BoxFuture, Builder, Client, Clock, Intent, MemoryStorage, Storage, Transport,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use serde_json::{Value, json};

/// The moment at which every test begins.
pub(crate) const NOON: Timestamp = Timestamp::from_millis(1_795_032_000_000);
pub(crate) const URL: &str = "https://api.example/payments";

/// Follows Tokio's paused time; its time of day can be set.
#[derive(Clone, Debug)]
pub(crate) struct TestClock {
    started: tokio::time::Instant,
    /// Milliseconds that the time of day is wrong by.
    wrong_by: Arc<AtomicI64>,
}

impl TestClock {
    pub(crate) fn new() -> Self {
        Self { started: tokio::time::Instant::now(), wrong_by: Arc::default() }
    }

    /// Sets the time of day forward, or back.
    pub(crate) fn step(&self, hours: i64) {
        self.wrong_by.fetch_add(hours * 3_600_000, Ordering::Relaxed);
    }

    pub(crate) fn elapsed_seconds(&self) -> u64 {
        self.elapsed().as_secs()
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.elapsed().as_millis()).unwrap();
        Timestamp::from_millis(NOON.to_millis() + passed + self.wrong_by.load(Ordering::Relaxed))
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        // Within the range of the machine's clock.
        let until = tokio::time::Instant::now() + time.min(Duration::from_hours(99_999));
        Box::pin(async move { tokio::time::sleep_until(until).await })
    }
}

/// The server's deed with a request.
#[derive(Debug)]
pub(crate) enum Act {
    Answer(Reply),
    NotSent,
    Lost,
    /// Does it only after so long.
    After(Duration, Box<Act>),
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Duration,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// The key as it was sent.
    pub(crate) fn key(&self) -> &str {
        self.headers["idempotency-key"].to_str().unwrap()
    }
}

/// A server that follows a script.
#[derive(Debug)]
pub(crate) struct Server {
    clock: TestClock,
    acts: Mutex<VecDeque<Act>>,
    seen: Mutex<Vec<Seen>>,
}

impl Server {
    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Milliseconds at which the requests arrived.
    pub(crate) fn times(&self) -> Vec<u128> {
        self.seen().iter().map(|seen| seen.at.as_millis()).collect()
    }
}

impl Transport for Server {
    fn send(
        &self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>> {
        let (head, body) = request.into_parts();
        self.seen.lock().unwrap().push(Seen {
            at: self.clock.elapsed(),
            method: head.method.to_string(),
            path: head.uri.to_string(),
            headers: head.headers,
            body,
        });
        let act = self.acts.lock().unwrap().pop_front();
        let mut act = act.unwrap_or_else(|| panic!("nobody expected another request"));
        Box::pin(async move {
            loop {
                match act {
                    Act::NotSent => return Err(Failure::NotSent("refused".into())),
                    Act::Lost => return Err(Failure::Lost("reset".into())),
                    Act::Answer(mut reply) => {
                        reply.is_cut = reply.body.len() > answer_bytes_max;
                        reply.body.truncate(answer_bytes_max);
                        return Ok(reply);
                    }
                    Act::After(time, then) => {
                        self.clock.wait(time).await;
                        act = *then;
                    }
                }
            }
        })
    }
}

/// A clock, a server, and the storage of one machine.
pub(crate) struct World {
    pub(crate) clock: TestClock,
    pub(crate) server: Arc<Server>,
    pub(crate) storage: Arc<MemoryStorage>,
    seed: AtomicU64,
}

impl World {
    pub(crate) fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let clock = TestClock::new();
        let server = Arc::new(Server {
            clock: clock.clone(),
            acts: Mutex::new(acts.into_iter().collect()),
            seen: Mutex::default(),
        });
        Self { clock, server, storage: Arc::default(), seed: AtomicU64::new(1) }
    }

    /// A process of this machine, with its settings.
    pub(crate) fn builder(&self) -> Builder {
        self.builder_on(Arc::clone(&self.storage))
    }

    pub(crate) fn builder_on(&self, storage: impl Storage) -> Builder {
        Client::builder(storage, Arc::clone(&self.server))
            .clock(self.clock.clone())
            .randomness(seeded(self.seed.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().build()
    }

    /// An intent that is open, in a process of its own.
    pub(crate) async fn open(&self, name: &str) -> Intent {
        open(&self.client(), name).await
    }
}

/// Opens a payment.
pub(crate) async fn open(client: &Client, name: &str) -> Intent {
    client.intent(name).post_json(URL, &order()).open().await.unwrap()
}

pub(crate) fn order() -> Value {
    json!({"amount": 4990, "currency": "EUR", "customer": "cus_1"})
}

/// Bytes that depend on a seed only.
pub(crate) fn seeded(seed: u64) -> impl Fn(&mut [u8]) -> Result<(), BoxError> + Send + Sync {
    let state = Mutex::new(seed);
    move |bytes| {
        let mut state = state.lock().unwrap();
        for byte in bytes {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *byte = mixed.to_be_bytes()[0];
        }
        Ok(())
    }
}

/// The same number at each draw, from 0 up to, but not, 1.
pub(crate) fn always(random: f64) -> impl Fn(&mut [u8]) -> Result<(), BoxError> + Send + Sync {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of the range"
    )]
    let drawn = (random * (f64::from(u32::MAX) + 1.0)) as u32;
    move |bytes| {
        let drawn = drawn.to_ne_bytes();
        bytes.iter_mut().zip(drawn.into_iter().cycle()).for_each(|(to, from)| *to = from);
        Ok(())
    }
}

/// An answer, with headers in turn: name, value.
pub(crate) fn answer(status: u16, headers: &[(&'static str, &str)]) -> Act {
    with_body(status, headers, &json!({"id": "pay_1"}))
}

/// A problem document of firstwrite, with its `Retry-After`.
pub(crate) fn problem(status: u16, code: &str, retryable: bool) -> Act {
    let document = json!({
        "code": code, "status": status, "retryable": retryable, "safe_new_key": false,
    });
    let headers: &[_] = if retryable { &[("retry-after", "1")] } else { &[] };
    with_body(status, headers, &document)
}

pub(crate) fn with_body(status: u16, headers: &[(&'static str, &str)], body: &Value) -> Act {
    let headers = headers.iter().map(|(name, value)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    });
    Act::Answer(Reply {
        status: StatusCode::from_u16(status).unwrap(),
        headers: headers.collect(),
        body: body.to_string().into(),
        is_cut: false,
        is_hidden: false,
    })
}

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
