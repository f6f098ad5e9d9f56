//! What the service answers when it will not or cannot, played by an impostor.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::{Certainty, Fence, Guard, Store as _, StoreErrorKind};
use firstwrite_store::DynamoStore;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::subject::{done, reserved};

/// Says that there is a table, and to everything else what it was told to say.
pub(crate) struct Impostor {
    said: Arc<Mutex<Said>>,
    listening: JoinHandle<()>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

#[derive(Default)]
struct Said {
    status: u16,
    body: String,
    date: Option<String>,
    asked: BTreeMap<String, usize>,
}

const META: &str = r#"{"Item":{"shard":{"S":"meta"},"id":{"B":"Zmlyc3R3cml0ZQ=="},"version":{"N":"1"},"shards":{"N":"3"}}}"#;

impl Impostor {
    pub(crate) fn on(listener: TcpListener) -> Self {
        let (said, connections) = (Arc::<Mutex<Said>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (telling, opened) = (Arc::clone(&said), Arc::clone(&connections));
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = tokio::spawn(serve(stream, Arc::clone(&telling)));
                opened.lock().unwrap().push(serving);
            }
        });
        Self { said, listening, connections }
    }

    async fn new() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("dynamodb:table?endpoint=http://{}", listener.local_addr().unwrap());
        (Self::on(listener), url)
    }

    fn say(&self, status: u16, body: &str) {
        let mut said = self.said.lock().unwrap();
        (said.status, said.body) = (status, body.to_owned());
        said.asked.clear();
    }

    fn refuse(&self, status: u16, code: &str) {
        let body =
            format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"no"}}"#);
        self.say(status, &body);
    }

    /// How often a kind of call was made since it was last told what to say.
    fn asked(&self, what: &str) -> usize {
        self.said.lock().unwrap().asked.get(what).copied().unwrap_or_default()
    }

    /// Goes away, with all its connections.
    pub(crate) async fn leave(self) {
        self.listening.abort();
        drop(self.listening.await);
        let connections = std::mem::take(&mut *self.connections.lock().unwrap());
        for connection in connections {
            connection.abort();
            drop(connection.await);
        }
    }
}

async fn serve(stream: TcpStream, said: Arc<Mutex<Said>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut length, mut target) = (0, String::new());
        loop {
            let mut line = String::new();
            match stream.read_line(&mut line).await {
                Ok(1..) => {}
                _ => return,
            }
            if line == "\r\n" {
                break;
            }
            let (name, value) = line.trim_end().split_once(": ").unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "x-amz-target" => target = value.rsplit('.').next().unwrap().to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let answer = {
            let mut said = said.lock().unwrap();
            *said.asked.entry(target.clone()).or_default() += 1;
            let is_meta = target == "GetItem" && String::from_utf8_lossy(&body).contains("meta");
            let (status, body) =
                if is_meta { (200, META) } else { (said.status, said.body.as_str()) };
            let mut answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
            answer.push_str("content-type: application/x-amz-json-1.0\r\n");
            if let Some(date) = &said.date {
                write!(answer, "date: {date}\r\n").unwrap();
            }
            write!(answer, "\r\n{body}").unwrap();
            answer
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn each_refusal_is_read_for_what_it_says_about_the_write() {
    use Certainty::{Definite, Indeterminate};
    use StoreErrorKind::{Unavailable, Unsupported};
    let (impostor, url) = Impostor::new().await;
    let store = DynamoStore::connect(&url).await.unwrap();
    let draft = reserved("k", Fence::first(1));
    for (status, code, kind, certainty) in [
        (400, "ProvisionedThroughputExceededException", Unavailable, Definite),
        (400, "ThrottlingException", Unavailable, Definite),
        (400, "RequestLimitExceeded", Unavailable, Definite),
        (400, "ExpiredTokenException", Unavailable, Definite),
        (400, "AccessDeniedException", Unsupported, Definite),
        (400, "ValidationException", Unsupported, Definite),
        (400, "ResourceNotFoundException", Unsupported, Definite),
        (500, "InternalServerError", Unavailable, Indeterminate),
        (503, "ServiceUnavailable", Unavailable, Indeterminate),
        (400, "SomethingNewException", Unavailable, Indeterminate),
    ] {
        impostor.refuse(status, code);
        let inserted = store.insert(&draft).await.unwrap_err();
        assert_eq!((inserted.kind(), inserted.certainty()), (kind, certainty), "{inserted}");
        // Nothing is repeated behind the caller's back.
        assert_eq!(impostor.asked("PutItem"), 1, "{code}");
        let guard = Guard::Owner(Fence::first(1));
        let swapped = store.swap(draft.id, guard, done(), None).await.unwrap_err();
        assert_eq!((swapped.kind(), swapped.certainty()), (kind, certainty), "{swapped}");
        assert_eq!(impostor.asked("UpdateItem"), 1, "{code}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_uncertain() {
    let (impostor, url) = Impostor::new().await;
    let store = DynamoStore::connect(&url).await.unwrap();
    impostor.say(500, "<html>a proxy was here</html>");
    let error = store.insert(&reserved("k", Fence::first(1))).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Indeterminate, "{error}");
}

/// Another transaction has the item in hand: a moment later it has not.
#[tokio::test]
async fn a_conflict_is_tried_again_and_then_told() {
    let (impostor, url) = Impostor::new().await;
    let store = DynamoStore::connect(&url).await.unwrap();
    impostor.refuse(400, "TransactionConflictException");
    let error = store.insert(&reserved("k", Fence::first(1))).await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Definite, "{error}");
    assert!(error.is_retryable() && impostor.asked("PutItem") > 1, "{error}");
}

/// What the service says about the time outweighs what this host says.
#[tokio::test]
async fn the_time_is_within_a_second_of_the_services() {
    let (impostor, url) = Impostor::new().await;
    // The first instant of 2100.
    impostor.said.lock().unwrap().date = Some("Fri, 01 Jan 2100 00:00:00 GMT".to_owned());
    let store = DynamoStore::connect(&url).await.unwrap();
    let now = store.now().await.unwrap();
    let truth = firstwrite_core::Timestamp::from_millis(4_102_444_800_000);
    assert!(now.since(truth) < Duration::from_secs(10), "{now}");
    assert!(truth.since(now) < Duration::from_secs(2), "{now}");
}

#[tokio::test]
async fn a_table_of_a_newer_build_is_refused() {
    let (impostor, url) = Impostor::new().await;
    // As a table that another build made; the impostor's own has version 1.
    drop(impostor);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let newer = META.replace(r#""version":{"N":"1"}"#, r#""version":{"N":"2"}"#);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 65_536];
        let _count = stream.read(&mut asked).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", newer.len());
        stream.write_all(format!("{head}{newer}").as_bytes()).await.unwrap();
    });
    let url = url.split("http://").next().unwrap().to_owned() + &format!("http://{address}");
    let error = DynamoStore::connect(&url).await.unwrap_err().to_string();
    assert!(error.contains("has version 2 and this build knows 1"), "{error}");
}
