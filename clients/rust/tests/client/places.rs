//! Places among the running lanes: a lane holds one while it works, and none while it waits.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::transport::{Failure, Reply};
use firstwrite_client::{
    BoxFuture, Client, Clock as _, EndKind, MemoryStorage, Queue, State, Transport,
};
use http::{HeaderMap, HeaderValue, Request, StatusCode};

use crate::queue::enqueue;
use crate::world::{TestClock, always, seconds};

/// The deed of the server with the intents of a lane that is not healthy.
#[derive(Clone, Copy, Debug)]
enum Ill {
    Answer(u16, Option<u64>),
    NotSent,
    Lost,
}

/// A server that answers by the name in the body.
#[derive(Debug)]
struct Server {
    clock: TestClock,
    /// The deed with names that begin with `ill`; `None`: they are healthy too.
    ill: Mutex<Option<Ill>>,
    /// The time that each request takes.
    takes: Duration,
    /// Names and times of requests, as they arrive.
    seen: Mutex<Vec<(String, Duration)>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl Transport for Server {
    fn send(&self, request: Request<Bytes>, _: usize) -> BoxFuture<'_, Result<Reply, Failure>> {
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        let name = body["name"].as_str().unwrap().to_owned();
        let ill = self.ill.lock().unwrap().filter(|_| name.starts_with("ill"));
        self.seen.lock().unwrap().push((name, self.clock.elapsed()));
        let count = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(count, Ordering::Relaxed);
        Box::pin(async move {
            if !self.takes.is_zero() {
                self.clock.wait(self.takes).await;
            }
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            match ill {
                None => Ok(reply(201, None)),
                Some(Ill::Answer(status, after)) => Ok(reply(status, after)),
                Some(Ill::NotSent) => Err(Failure::NotSent("refused".into())),
                Some(Ill::Lost) => Err(Failure::Lost("reset".into())),
            }
        })
    }
}

fn reply(status: u16, after: Option<u64>) -> Reply {
    let after = after.map(|after| (http::header::RETRY_AFTER, HeaderValue::from(after)));
    Reply {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::from_iter(after),
        body: Bytes::new(),
        is_cut: false,
        is_hidden: false,
    }
}

/// A server with one client and its queue of two places.
fn queue_at(ill: Option<Ill>, takes: Duration) -> (Arc<Server>, Client, Queue) {
    let server = Arc::new(Server {
        clock: TestClock::new(),
        ill: Mutex::new(ill),
        takes,
        seen: Mutex::default(),
        under_way: AtomicUsize::default(),
        most_under_way: AtomicUsize::default(),
    });
    let builder = Client::builder(MemoryStorage::new(), Arc::clone(&server));
    // Without luck the back-off is short, so that the budget of retries is soon used up and waited for.
    let client = builder.clock(server.clock.clone()).randomness(keys_and_no_luck()).build();
    let queue = client.queue(()).lanes_max(2);
    (server, client, queue)
}

/// Keys that differ, and the lowest draw at each wait.
fn keys_and_no_luck() -> impl Fn(&mut [u8]) -> Result<(), firstwrite_client::BoxError> + Send + Sync
{
    let (keys, luck) = (crate::world::seeded(1), always(0.0));
    move |bytes| if bytes.len() > 4 { keys(bytes) } else { luck(bytes) }
}

async fn pass(time: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
}

async fn state(client: &Client, name: &str) -> (State, Option<EndKind>) {
    let snapshot = client.find(name).await.unwrap().unwrap().snapshot().await.unwrap();
    (snapshot.state, snapshot.end.map(|end| end.kind()))
}

#[tokio::test(start_paused = true)]
async fn lanes_that_only_wait_take_no_place_from_a_healthy_one() {
    let ills = [
        Ill::Answer(429, Some(600)),
        Ill::Answer(503, Some(600)),
        Ill::Answer(503, None),
        Ill::NotSent,
        Ill::Lost,
    ];
    for ill in ills {
        let (server, client, queue) = queue_at(Some(ill), Duration::ZERO);
        for number in 0..16 {
            enqueue(&client, &queue, &format!("ill{number}"), &format!("ill{number}")).await;
        }
        let healthy: Vec<String> = (0..5).map(|number| format!("well{number}")).collect();
        for name in &healthy {
            enqueue(&client, &queue, "well", name).await;
        }
        let stop = async {
            pass(seconds(60)).await;
            for name in &healthy {
                assert_eq!(state(&client, name).await.1, Some(EndKind::Done), "{ill:?}: {name}");
            }
            // One that comes now, in a lane of its own, is sent at once.
            let before = server.clock.elapsed();
            enqueue(&client, &queue, "late", "well-late").await;
            pass(Duration::from_millis(10)).await;
            let seen = server.seen.lock().unwrap().clone();
            let late = seen.iter().find(|(name, _)| name == "well-late").unwrap();
            assert!(late.1 < before + Duration::from_millis(5), "{ill:?}: {late:?}");
            *server.ill.lock().unwrap() = None;
            pass(Duration::from_mins(11)).await;
        };
        queue.run(stop).await.unwrap();
        for number in 0..16 {
            let (_, end) = state(&client, &format!("ill{number}")).await;
            assert_eq!(end, Some(EndKind::Done), "{ill:?}: {number}");
        }
        let seen = server.seen.lock().unwrap();
        let well: Vec<_> = seen.iter().filter(|(name, _)| name.starts_with("well")).collect();
        assert!(well[..5].iter().all(|(_, at)| at.is_zero()), "{ill:?}: {well:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_that_work_are_no_more_than_their_places() {
    let (server, client, queue) = queue_at(None, seconds(3));
    for number in 0..7 {
        for name in ["a", "b"] {
            enqueue(&client, &queue, &format!("{number}"), &format!("{number}{name}")).await;
        }
    }
    assert_eq!(queue.run_once().await.unwrap(), Vec::<String>::new());
    assert_eq!(server.most_under_way.load(Ordering::Relaxed), 2);
    // Two lanes of two requests in six seconds.
    assert_eq!(server.clock.elapsed_seconds(), 24);
    let seen = server.seen.lock().unwrap();
    let names: BTreeSet<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((seen.len(), names.len()), (14, 14));
}

#[tokio::test(start_paused = true)]
async fn one_run_sends_healthy_lanes_while_others_wait() {
    let (server, client, queue) = queue_at(Some(Ill::Answer(429, Some(600))), Duration::ZERO);
    for name in ["ill0", "ill1", "ill2", "well0", "well1"] {
        enqueue(&client, &queue, name, name).await;
    }
    let (ran, ()) = tokio::join!(queue.run_once(), async {
        pass(seconds(1)).await;
        assert_eq!(state(&client, "well1").await.1, Some(EndKind::Done));
        *server.ill.lock().unwrap() = None;
    });
    assert_eq!(ran.unwrap(), Vec::<String>::new());
    assert_eq!(state(&client, "ill2").await, (State::Ended, Some(EndKind::Done)));
}
