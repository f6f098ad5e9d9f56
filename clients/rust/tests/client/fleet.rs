//! A thousand clients after an outage: they come back spread out, none before its time and none long after it.

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
    /// Keys that were told a time, with the number of their requests and the time before which they must not come back.
    told: BTreeMap<String, (u32, Duration)>,
    too_early: u64,
    too_late: u64,
}

/// The longest back-off beside a time that the server named.
fn back_off_max(attempt: u32) -> Duration {
    let half_seconds = 1_u64 << attempt.saturating_sub(1).min(16);
    Duration::from_millis(500 * half_seconds).min(seconds(30))
}

impl Transport for Service {
    fn send(&self, request: Request<Bytes>, _: usize) -> BoxFuture<'_, Result<Reply, Failure>> {
        use firstwrite_client::Clock as _;

        let now = self.clock.elapsed();
        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
        let mut arrivals = self.arrivals.lock().unwrap();
        let attempt = if let Some((attempt, until)) = arrivals.told.get(&key).copied() {
            arrivals.too_early += u64::from(now < until);
            // A millisecond is what the clock of this world is exact to.
            let latest = until + back_off_max(attempt) + Duration::from_millis(1);
            arrivals.too_late += u64::from(now > latest);
            attempt + 1
        } else {
            1
        };
        let since = now.checked_sub(self.outage);
        arrivals.after.extend(since.map(|since| since.as_millis()));
        let answer = match (since, self.down) {
            (Some(_), _) => Ok(reply(201, None)),
            (None, Down::Refused) => Err(Failure::NotSent("refused".into())),
            (None, Down::Says(wait)) => {
                arrivals.told.insert(key, (attempt, now + seconds(wait)));
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

/// Runs a fleet through an outage; returns the rates per second: the highest of one second, of five, and the mean.
async fn rates(down: Down, outage: Duration, seed: u64) -> [f64; 3] {
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
    let wrong = (arrivals.too_early, arrivals.too_late);
    assert_eq!(wrong, (0, 0), "{down:?}, seed {seed}: came back too early, too late");
    let count = u32::try_from(arrivals.after.len()).unwrap();
    assert!(count == CLIENTS, "one request each, once the service is back");
    let (first, last) = (arrivals.after.iter().min(), arrivals.after.iter().max());
    let lasted = u32::try_from(last.unwrap() - first.unwrap()).unwrap();
    let mean = f64::from(count) * 1000.0 / f64::from(lasted);
    [highest(&arrivals.after, 1), highest(&arrivals.after, 5), mean]
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
    // Where a time is named, its back-off is wide, so the rate falls from 1.6 times the mean on, and a second holds so
    // few clients that their number varies by chance: twice the mean holds over five seconds.
    let cases = [
        (Down::Refused, 30, 2.0),
        (Down::Refused, 60, 2.0),
        (Down::Refused, 300, 2.0),
        (Down::Says(5), 300, 2.5),
        (Down::Says(30), 300, 2.5),
    ];
    for ((down, outage, second_max), seed) in cases.into_iter().zip(1..) {
        let [second, five, mean] = rates(down, seconds(outage), seed).await;
        let told = format!(
            "{down:?} for {outage} s: mean {mean:.1}/s, in a second {:.2} of it, in five {:.2}",
            second / mean,
            five / mean
        );
        println!("{told}");
        // All at once would be a short recovery, with a mean as high as its peak.
        assert!(second <= 0.1 * f64::from(CLIENTS), "{told}");
        assert!(second <= second_max * mean && five <= 2.0 * mean, "{told}");
    }
}
