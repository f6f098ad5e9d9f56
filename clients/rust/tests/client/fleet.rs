//! A thousand clients after an outage: they come back spread out, and nobody before its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_client::transport::{Failure, Reply};
use firstwrite_client::{BoxFuture, Client, EndKind, MemoryStorage, Transport};
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Request, StatusCode};

use crate::world::{TestClock, open, seconds, seeded};

const CLIENTS: u32 = 1000;

/// Ways of a service to be down.
#[derive(Clone, Copy, Debug)]
enum Down {
    /// Nobody listens.
    Refused,
    /// A proxy in front of it answers, and names a time.
    Says(u64),
}

/// A service that is down at first and then answers every client.
#[derive(Debug)]
struct Service {
    clock: TestClock,
    down: Down,
    outage: Duration,
    arrivals: Mutex<Arrivals>,
}

#[derive(Debug, Default)]
struct Arrivals {
    /// Milliseconds of requests after the outage.
    after: Vec<u128>,
    /// The time before which a key must not come back.
    not_before: BTreeMap<String, Duration>,
    too_early: u64,
}

impl Transport for Service {
    fn send(&self, request: Request<Bytes>, _: usize) -> BoxFuture<'_, Result<Reply, Failure>> {
        use firstwrite_client::Clock as _;

        let now = self.clock.elapsed();
        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
        let mut arrivals = self.arrivals.lock().unwrap();
        if arrivals.not_before.get(&key).is_some_and(|until| now < *until) {
            arrivals.too_early += 1;
        }
        let since = now.checked_sub(self.outage);
        arrivals.after.extend(since.map(|since| since.as_millis()));
        let answer = match (since, self.down) {
            (Some(_), _) => Ok(reply(201, None)),
            (None, Down::Refused) => Err(Failure::NotSent("refused".into())),
            (None, Down::Says(wait)) => {
                arrivals.not_before.insert(key, now + seconds(wait));
                Ok(reply(503, Some(wait)))
            }
        };
        Box::pin(std::future::ready(answer))
    }
}

fn reply(status: u16, wait: Option<u64>) -> Reply {
    let wait = wait.map(|wait| (http::header::RETRY_AFTER, HeaderValue::from(wait)));
    Reply {
        status: StatusCode::from_u16(status).unwrap(),
        headers: HeaderMap::from_iter(wait),
        body: Bytes::new(),
        is_cut: false,
        is_hidden: false,
    }
}

/// Runs a fleet through an outage; returns the rates per second: the highest of `window` seconds, and the mean.
async fn rates(down: Down, outage: Duration, seed: u64, window: u32) -> (f64, f64) {
    let clock = TestClock::new();
    let arrivals = Mutex::default();
    let service = Arc::new(Service { clock: clock.clone(), down, outage, arrivals });
    let clients = (0..CLIENTS).map(|number| {
        let client = Client::builder(MemoryStorage::new(), Arc::clone(&service))
            .clock(clock.clone())
            .randomness(seeded(seed * 1_000_003 + u64::from(number)))
            .build();
        async move {
            // All of them are in the middle of something when the service goes down.
            let end = open(&client, "cart").await.send_for(Duration::from_mins(30)).await.unwrap();
            assert_eq!(end.kind(), EndKind::Done);
        }
    });
    join_all(clients).await;
    let arrivals = service.arrivals.lock().unwrap();
    assert_eq!(arrivals.too_early, 0, "{down:?}, seed {seed}: came back before its time");
    let count = u32::try_from(arrivals.after.len()).unwrap();
    assert!(count == CLIENTS, "one request each, once the service is back");
    let (first, last) = (arrivals.after.iter().min(), arrivals.after.iter().max());
    let lasted = u32::try_from(last.unwrap() - first.unwrap()).unwrap();
    (highest(&arrivals.after, window), f64::from(count) * 1000.0 / f64::from(lasted))
}

/// The highest rate per second over `window` seconds that begin at any arrival.
fn highest(arrivals: &[u128], window: u32) -> f64 {
    let mut sorted = arrivals.to_vec();
    sorted.sort_unstable();
    let within = |at: usize| {
        let until = sorted[at] + u128::from(window) * 1000;
        u32::try_from(sorted.partition_point(|other| *other < until) - at).unwrap()
    };
    let most = (0..sorted.len()).map(within).max().unwrap_or(0);
    f64::from(most) / f64::from(window)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_clients_come_back_spread_out_and_nobody_too_early() {
    // Where a time is named, the fleet comes back over that time too, so a second holds few of them.
    let cases = [
        (Down::Refused, 30, 1),
        (Down::Refused, 60, 1),
        (Down::Refused, 300, 1),
        (Down::Says(5), 300, 5),
        (Down::Says(30), 300, 5),
    ];
    for ((down, outage, window), seed) in cases.into_iter().zip(1..) {
        let (peak, mean) = rates(down, seconds(outage), seed, window).await;
        let ratio = peak / mean;
        println!("{down:?} for {outage} s: peak {peak:.1}/s, mean {mean:.1}/s, {ratio:.2}");
        // All at once would be a short recovery, with a mean as high as its peak.
        assert!(peak <= 0.1 * f64::from(CLIENTS), "{down:?}: {peak:.1}/s at a time");
        assert!(ratio <= 2.0, "{down:?}: {peak:.1}/s after a mean of {mean:.1}/s");
    }
}
