//! An API that does what it is told, and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::wire::{self, Message};

/// What it does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Script {
    /// Answers with these bytes.
    Answer(String),
    /// The same, when [`Upstream::release`] says so.
    AnswerLater(String),
    /// Hangs up without an answer.
    HangUp,
    /// Answers with these bytes and hangs up.
    AnswerAndHangUp(String),
    /// Hangs up on a POST, and answers anything else with these bytes.
    LosePosts(String),
    /// Answers with these bytes as soon as it has seen a head.
    AnswerEarly(String),
    /// Agrees to this protocol, and then repeats what it hears, in capitals.
    Shout(&'static str),
}

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Vec<Message>>,
    connections: Mutex<usize>,
    arrived: Semaphore,
    released: Notify,
}

/// An answer with a length.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

impl Upstream {
    /// Makes something of every request, and says what.
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub(crate) async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(Script::Answer(answer(
                "201 Created",
                "content-type: text/plain\r\nlocation: /made/1\r\nset-cookie: a=b\r\n",
                "made",
            ))),
            seen: Mutex::default(),
            connections: Mutex::default(),
            arrived: Semaphore::new(0),
            released: Notify::new(),
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *serving.connections.lock().unwrap() += 1;
                connections.spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Self { address, shared, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn does(&self, script: Script) {
        *self.shared.script.lock().unwrap() = script;
    }

    /// What it was asked so far.
    pub(crate) fn seen(&self) -> Vec<Message> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.shared.connections.lock().unwrap()
    }

    /// Waits for the next request.
    pub(crate) async fn arrived(&self) {
        self.shared.arrived.acquire().await.unwrap().forget();
    }

    /// Lets one answer go that waits.
    pub(crate) fn release(&self) {
        self.shared.released.notify_one();
    }

    /// Closes the port and every connection.
    pub(crate) async fn stop(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    let script = shared.script.lock().unwrap().clone();
    if let Script::AnswerEarly(text) = script {
        let head = wire::read_head(&mut stream).await.unwrap().unwrap();
        shared.seen.lock().unwrap().push(head);
        stream.write_all(text.as_bytes()).await.unwrap();
        // Whatever else comes is read and not answered.
        while stream.read_u8().await.is_ok() {}
        return;
    }
    while let Ok(Some(request)) = wire::read(&mut stream).await {
        let is_post = request.start.starts_with("POST ");
        shared.seen.lock().unwrap().push(request);
        shared.arrived.add_permits(1);
        let script = shared.script.lock().unwrap().clone();
        let text = match script {
            Script::LosePosts(_) if is_post => return,
            Script::Answer(text) | Script::LosePosts(text) => text,
            Script::AnswerLater(text) => {
                shared.released.notified().await;
                text
            }
            Script::HangUp => return,
            Script::AnswerAndHangUp(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                return;
            }
            Script::Shout(token) => return shout(stream, token).await,
            Script::AnswerEarly(_) => unreachable!("it was answered before"),
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn shout(mut stream: BufReader<TcpStream>, token: &str) {
    let agreed = format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: {token}\r\n\r\n"
    );
    stream.write_all(agreed.as_bytes()).await.unwrap();
    while let Ok(byte) = stream.read_u8().await {
        stream.write_u8(byte.to_ascii_uppercase()).await.unwrap();
    }
}
