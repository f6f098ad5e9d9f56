//! A process that pays: opens intents, sends them, writes down how they ended, acknowledges them; and dies at a step.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::rules::Timestamp;
use firstwrite_client::transport::{Failure, HyperTransport, Reply};
use firstwrite_client::{
    Ask, BoxError, BoxFuture, Builder, Client, Clock, End, Error, FileStorage, SqliteStorage, Step,
    SystemClock, Transport,
};
use http::{HeaderMap, HeaderValue, Method, Request};
use hyper_util::client::legacy::connect::HttpConnector;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The environment variable in which a victim finds its task.
const TASK: &str = "FIRSTWRITE_CLIENT_VICTIM";

/// Task of a victim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    pub(crate) storage: Kind,
    pub(crate) intents: Vec<Payment>,
    /// The step at which it dies, and the how manieth of its kind. At `sent` it waits to be killed.
    pub(crate) dies_at: Option<(String, u32)>,
    pub(crate) acknowledges: bool,
    /// Bytes by which each request is longer.
    pub(crate) padding: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    File,
    Sqlite,
}

/// An intent. The demo refuses an amount of zero.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Payment {
    pub(crate) name: String,
    pub(crate) amount: u32,
}

/// Time that passes twenty times as fast, so that waits are real and short.
#[derive(Debug, Default)]
pub(crate) struct FastClock(SystemClock);

const FASTER: u32 = 20;

impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed() * FASTER
    }

    fn wait(&self, time: Duration) -> BoxFuture<'static, ()> {
        self.0.wait(time / FASTER)
    }
}

/// Sends, and for one of its requests never says how that ended: the process stays at `sent` until it is killed.
#[derive(Debug)]
struct Stays {
    inner: HyperTransport<HttpConnector>,
    /// The number of that request; 0 for none.
    at: u32,
    sent: AtomicU32,
}

impl Transport for Stays {
    fn send(
        &self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>> {
        let is_post = request.method() == Method::POST;
        let is_it = is_post && self.sent.fetch_add(1, Ordering::Relaxed) + 1 == self.at;
        Box::pin(async move {
            let answer = self.inner.send(request, answer_bytes_max).await;
            if is_it { std::future::pending().await } else { answer }
        })
    }
}

impl Task {
    /// A process that does this.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "victim::act", "--nocapture", "--test-threads=1"]);
        command.env(TASK, serde_json::to_string(self).unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Returns the lines that victims wrote down, in order: a name and an end.
    pub(crate) fn results(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(results(&self.folder)).unwrap_or_default();
        let pair =
            |line: &str| line.split_once(' ').map(|(name, end)| (name.to_owned(), end.to_owned()));
        text.lines().filter_map(pair).collect()
    }

    pub(crate) fn builder(&self) -> Builder {
        let stays = self.dies_at.as_ref().filter(|(step, _)| step == Step::Sent.as_str());
        let transport = Stays {
            inner: HyperTransport::plain(),
            at: stays.map_or(0, |(_, at)| *at),
            sent: AtomicU32::new(0),
        };
        let builder = match self.storage {
            Kind::File => {
                Client::builder(FileStorage::open(self.folder.join("intents")).unwrap(), transport)
            }
            Kind::Sqlite => Client::builder(
                SqliteStorage::open(self.folder.join("intents.db")).unwrap(),
                transport,
            ),
        };
        builder.credentials(token).clock(FastClock::default())
    }

    async fn carry_out(&self) {
        let client = self.deadly(self.builder()).build();
        let mut file =
            OpenOptions::new().create(true).append(true).open(results(&self.folder)).unwrap();
        for payment in &self.intents {
            self.pay(&client, payment, &mut file).await;
        }
    }

    /// A client that dies at the step.
    fn deadly(&self, builder: Builder) -> Builder {
        let Some((step, at)) = self.dies_at.clone() else { return builder };
        let seen = AtomicU32::new(0);
        builder.on_event(move |event| {
            if event.step != Step::Sent
                && event.step.as_str() == step
                && seen.fetch_add(1, Ordering::Relaxed) + 1 == at
            {
                kill_myself();
            }
        })
    }

    async fn pay(&self, client: &Client, payment: &Payment, file: &mut File) {
        let Payment { name, amount } = payment;
        let is_known = self.results().iter().any(|(known, _)| known == name);
        if is_known {
            // The application knows how it ended, and may have died before it said so.
            if let Some(intent) = client.find(name).await.unwrap().filter(|_| self.acknowledges) {
                intent.acknowledge().await.unwrap();
            }
            return;
        }
        let note = "x".repeat(self.padding);
        let order = json!({"amount": amount, "currency": "EUR", "customer": name, "note": note});
        let opened = client.intent(name).post_json(&self.url, &order).open().await;
        let intent = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
        let end = loop {
            match intent.send().await {
                Ok(end) => break end,
                Err(Error::Pending(_)) => {}
                Err(error) => panic!("{name}: {error}"),
            }
        };
        // One write of one line: a victim beside this one writes into the same file.
        file.write_all(format!("{name} {}\n", end.kind()).as_bytes()).unwrap();
        file.sync_all().unwrap();
        if let End::Done(done) = &end {
            let customer = done.answer.json::<serde_json::Value>().unwrap()["customer"].clone();
            assert_eq!(customer, json!(name), "the answer is that of this intent");
        }
        if self.acknowledges {
            intent.acknowledge().await.unwrap();
        }
    }
}

/// The demo's token, for each attempt.
pub(crate) async fn token(_: Ask) -> Result<HeaderMap, BoxError> {
    let token = HeaderValue::from_static("Bearer demo-acme");
    Ok(HeaderMap::from_iter([(http::header::AUTHORIZATION, token)]))
}

fn results(folder: &Path) -> PathBuf {
    folder.join("results")
}

fn kill_myself() {
    let myself = rustix::process::getpid();
    rustix::process::kill_process(myself, rustix::process::Signal::KILL).unwrap();
    // The signal may take a moment; nothing may happen in it.
    loop {
        std::thread::park();
    }
}

/// Does what the environment says; without a task it is a test that has nothing to do.
#[test]
fn act() {
    let Ok(task) = std::env::var(TASK) else { return };
    let task: Task = serde_json::from_str(&task).unwrap();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(task.carry_out());
}
