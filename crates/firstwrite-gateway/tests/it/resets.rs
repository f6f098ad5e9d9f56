//! Answers of the API over HTTP/2 whose stream or connection ends before its end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use firstwrite_gateway::{Calling, Gateway, Rules, Target};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::client::{ask, post};
use crate::cuts::{LEAVES_OPEN, NOTHING_RAN};
use crate::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS,
    block, frame,
};
use crate::gateway::{rules, start};
use crate::wire::Message;

/// How an answer ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// As it should.
    Whole,
    /// As it should; at the same moment the server says that it needs no more of the request.
    WholeThenReset,
    /// As it should, before the request's body has come; the server then resets the stream with this code.
    WholeEarlyThenReset(LastFrame, u32),
    /// The stream is reset with this code.
    Reset(u32),
    /// The connection ends with this code.
    GoAway(u32),
    /// The connection ends without a word.
    HangUp,
}

/// Frame that ends an answer's stream.
#[derive(Clone, Copy, Debug)]
enum LastFrame {
    Data,
    EmptyData,
    Trailers,
}

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

/// Every way to cut an answer off.
const CUTS: [End; 6] = [
    End::Reset(NO_ERROR),
    End::Reset(INTERNAL_ERROR),
    End::Reset(CANCEL),
    End::GoAway(NO_ERROR),
    End::GoAway(INTERNAL_ERROR),
    End::HangUp,
];

/// An answer with four bytes of a body.
#[derive(Clone)]
struct Answer {
    status: String,
    declared: Option<usize>,
    end: End,
}

/// An API that speaks HTTP/2 and answers every request in the same way.
struct Api {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    asked: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Api {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Answer { status: String::new(), declared: None, end: End::Whole };
        let answer = Arc::new(Mutex::new(answer));
        let asked = Arc::new(Mutex::new(0));
        let serving = (Arc::clone(&answer), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, asked) = serving.clone();
                connections.spawn(serve(stream, answer, asked));
            }
        });
        Self { address, answer, asked, task }
    }

    /// From now on answers like this.
    fn does(&self, status: &str, declared: Option<usize>, end: End) {
        let status = status[..3].to_owned();
        *self.answer.lock().unwrap() = Answer { status, declared, end };
    }

    fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    async fn gateway(&self) -> Gateway {
        let usual = rules(&[]);
        let calling = Calling { http2: true, ..usual.calling.clone() };
        let upstreams = vec![Target::new(&format!("http://{}", self.address)).unwrap()];
        start(Rules { upstreams, calling, ..usual }).await
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<Mutex<Answer>>, asked: Arc<Mutex<usize>>) {
    let mut preface = [0; PREFACE.len()];
    if stream.read_exact(&mut preface).await.is_err() {
        return;
    }
    let mut frames = Frames(stream);
    frames.send(&[&frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, ACK, 0, &[])]).await;
    while let Some(found) = frames.read().await {
        let Answer { status, declared, end } = answer.lock().unwrap().clone();
        let is_due = if matches!(end, End::WholeEarlyThenReset(..)) {
            found.kind == HEADERS
        } else {
            matches!(found.kind, HEADERS | DATA) && found.flags & END_STREAM != 0
        };
        if !is_due {
            continue;
        }
        *asked.lock().unwrap() += 1;
        let id = found.stream;
        let length = declared.map(|length| length.to_string());
        let mut fields = vec![(":status", status.as_str())];
        fields.extend(length.as_deref().map(|length| ("content-length", length)));
        let ends_with_data = matches!(
            end,
            End::Whole | End::WholeThenReset | End::WholeEarlyThenReset(LastFrame::Data, _)
        );
        let last = if ends_with_data { END_STREAM } else { 0 };
        let mut sent = frame(HEADERS, END_HEADERS, id, &block(&fields));
        sent.extend(frame(DATA, last, id, b"half"));
        let goaway = |code: u32| [id.to_be_bytes(), code.to_be_bytes()].concat();
        match end {
            End::Whole | End::HangUp => {}
            End::WholeThenReset => sent.extend(frame(RST_STREAM, 0, id, &NO_ERROR.to_be_bytes())),
            End::WholeEarlyThenReset(last, code) => {
                match last {
                    LastFrame::Data => {}
                    LastFrame::EmptyData => sent.extend(frame(DATA, END_STREAM, id, b"")),
                    LastFrame::Trailers => {
                        let trailers = block(&[("x-sum", "1")]);
                        sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, &trailers));
                    }
                }
                sent.extend(frame(RST_STREAM, 0, id, &code.to_be_bytes()));
            }
            End::Reset(code) => sent.extend(frame(RST_STREAM, 0, id, &code.to_be_bytes())),
            End::GoAway(code) => sent.extend(frame(GOAWAY, 0, 0, &goaway(code))),
        }
        frames.send(&[&sent]).await;
        if matches!(end, End::HangUp | End::GoAway(_)) {
            return;
        }
    }
}

fn told(message: &Message) -> (u16, String) {
    (message.status(), message.code())
}

#[tokio::test]
async fn an_answer_whose_stream_ends_early_is_lost_unless_its_status_says_that_nothing_ran() {
    let api = Api::start().await;
    let gateway = api.gateway().await;
    let mut key = 0;
    for end in CUTS {
        for declared in [None, Some(9)] {
            for status in LEAVES_OPEN.into_iter().chain(NOTHING_RAN) {
                key += 1;
                let (request, asked) = (post(&format!("k{key}"), "{}"), api.asked());
                let is_open = LEAVES_OPEN.contains(&status);
                api.does(status, declared, end);
                let first = told(&ask(gateway.address(), &request).await);
                api.does("201", Some(4), End::Whole);
                let retry = told(&ask(gateway.address(), &request).await);
                let expected = if is_open {
                    [(504, "outcome-unknown".to_owned()), (409, "outcome-unknown".to_owned())]
                } else {
                    [(500, "attempt-failed".to_owned()), (201, String::new())]
                };
                assert_eq!([first, retry], expected, "{status} {end:?} {declared:?}");
                assert_eq!(api.asked() - asked, if is_open { 1 } else { 2 });
            }
        }
    }
}

#[tokio::test]
async fn an_answer_that_came_whole_is_kept_whatever_follows() {
    let api = Api::start().await;
    let gateway = api.gateway().await;
    // A reset without an end is hidden by a length that is met.
    for (key, declared, end) in [
        ("a", None, End::Whole),
        ("b", Some(4), End::Whole),
        ("c", Some(4), End::WholeThenReset),
        ("d", Some(4), End::Reset(NO_ERROR)),
        ("e", None, End::WholeThenReset),
    ] {
        api.does("201", declared, end);
        let first = ask(gateway.address(), &post(key, "{}")).await;
        assert_eq!((first.status(), first.text().as_str()), (201, "half"), "{end:?}");
        assert!(ask(gateway.address(), &post(key, "{}")).await.is_replay(), "{end:?}");
    }
}

#[tokio::test]
async fn an_answer_that_came_whole_before_the_request_was_sent_is_kept() {
    let api = Api::start().await;
    let gateway = api.gateway().await;
    // More than the API takes of a stream before it grants more.
    let large = format!("\"{}\"", "x".repeat(200_000));
    let mut key = 0;
    for last in [LastFrame::Data, LastFrame::EmptyData, LastFrame::Trailers] {
        for declared in [None, Some(4)] {
            for code in [NO_ERROR, CANCEL] {
                key += 1;
                let asks = format!("{last:?} {declared:?} {code}");
                let request = post(&format!("k{key}"), &large);
                api.does("201", declared, End::WholeEarlyThenReset(last, code));
                let first = ask(gateway.address(), &request).await;
                assert_eq!((first.status(), first.text().as_str()), (201, "half"), "{asks}");
                assert!(ask(gateway.address(), &request).await.is_replay(), "{asks}");
                let passed = request.replacen("POST", "PUT", 1);
                let passed = ask(gateway.address(), &passed).await;
                assert_eq!((passed.status(), passed.text().as_str()), (201, "half"), "{asks}");
            }
        }
    }
}

#[tokio::test]
async fn what_passes_through_is_cut_for_the_client_too() {
    let api = Api::start().await;
    let gateway = api.gateway().await;
    for end in CUTS {
        for declared in [None, Some(9)] {
            api.does("200", declared, end);
            let get = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
            let mut client = crate::client::Client::connect(gateway.address()).await;
            client.send(get).await;
            let read = client.read().await;
            assert!(read.is_none(), "{end:?} {declared:?}: {read:?}");
        }
    }
}
