//! What a key costs on Redis: reservations, completions and replays of concurrent requests against plain `SET NX` of
//! values of the same size, through the same driver, from as many clients, in one interleaved run with every write on
//! disk before it is acknowledged.
//!
//! `FIRSTWRITE_TEST_REDIS=redis://… cargo bench -p firstwrite-store --features redis --bench redis`
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Completed, Reserved};
use firstwrite_core::{
    BodyForm, Fingerprint, KeptHeaders, Key, Outcome, PartDigests, Policy, RecordId, Request,
    Tenant, Verdict,
};
use firstwrite_store::RedisStore;
use http::StatusCode;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

const BODY_BYTES: usize = 300;
const SLICE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
const AT_ONCE: [usize; 2] = [64, 256];
/// Keys that are asked for again and again.
const KNOWN: usize = 1000;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("measures only when run by `cargo bench`");
        return;
    }
    let url = std::env::var("FIRSTWRITE_TEST_REDIS").expect("FIRSTWRITE_TEST_REDIS names a server");
    tokio::runtime::Runtime::new().expect("a runtime starts").block_on(measure(&url));
}

async fn measure(url: &str) {
    let mut plain = connect(url).await;
    let store = RedisStore::connect(url).await.expect("a store is opened");
    let policy = Arc::new(Policy::default());
    for at_once in AT_ONCE {
        let mut figures: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            empty(&mut plain, &store).await;
            let known = Arc::new(known(&store, &policy).await);
            figures[0].push(plain_rate(&plain, at_once, &[]).await);
            figures[1].push(keys_rate(&store, &policy, at_once).await);
            let names: Vec<Vec<u8>> =
                known.iter().map(|request| name(request.key.as_str())).collect();
            for name in &names {
                set_new(&mut plain, name).await;
            }
            figures[2].push(plain_rate(&plain, at_once, &names).await);
            figures[3].push(replay_rate(&store, &policy, &known, at_once).await);
        }
        let [plain, keys, refused, replays] = figures.map(median);
        println!("{at_once} at once, median of {ROUNDS} rounds of {} s:", SLICE.as_secs());
        println!("  SET NX, new names                  {plain:8.0} /s");
        println!(
            "  reserve + complete, new keys       {keys:8.0} keys/s, {:8.0} steps/s",
            keys * 2.0
        );
        println!("  ratio of steps {:.2}, of keys {:.2}", keys * 2.0 / plain, keys / plain);
        println!("  SET NX, names that are taken       {refused:8.0} /s");
        println!(
            "  replays                            {replays:8.0} /s, ratio {:.2}",
            replays / refused
        );
    }
    empty(&mut plain, &store).await;
}

/// What the server takes from as many clients that share a connection: names of their own, or `taken` ones.
async fn plain_rate(plain: &MultiplexedConnection, at_once: usize, taken: &[Vec<u8>]) -> f64 {
    let (plain, taken) = (plain.clone(), Arc::new(taken.to_vec()));
    rate(at_once, move || {
        let (mut plain, taken) = (plain.clone(), Arc::clone(&taken));
        async move {
            match fastrand::choice(taken.iter()) {
                Some(name) => set_new(&mut plain, name).await,
                None => set_new(&mut plain, &name(&format!("{:032x}", fastrand::u128(..)))).await,
            }
        }
    })
    .await
}

async fn keys_rate(store: &RedisStore, policy: &Arc<Policy>, at_once: usize) -> f64 {
    let (store, policy) = (store.clone(), Arc::clone(policy));
    rate(at_once, move || {
        let (store, policy) = (store.clone(), Arc::clone(&policy));
        async move { one(&store, &policy, &request()).await }
    })
    .await
}

async fn replay_rate(
    store: &RedisStore,
    policy: &Arc<Policy>,
    known: &Arc<Vec<Request>>,
    at_once: usize,
) -> f64 {
    let (store, policy, known) = (store.clone(), Arc::clone(policy), Arc::clone(known));
    rate(at_once, move || {
        let (store, policy, known) = (store.clone(), Arc::clone(&policy), Arc::clone(&known));
        async move {
            let request = fastrand::choice(known.iter()).expect("there are some");
            let reserved = protocol::reserve(&store, request, &policy, fastrand::u64(..)).await;
            let Ok(Reserved::Refused(Verdict::Replay { .. }, _)) = reserved else {
                panic!("a known key: {reserved:?}")
            };
        }
    })
    .await
}

async fn rate<F>(at_once: usize, step: impl Fn() -> F + Send + Sync + Clone + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    let started = Instant::now();
    let clients: Vec<_> = (0..at_once)
        .map(|_| {
            let step = step.clone();
            tokio::spawn(async move {
                let mut count = 0_u32;
                while started.elapsed() < SLICE {
                    step().await;
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for client in clients {
        count += client.await.expect("a client ends");
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

/// Keys that are completed.
async fn known(store: &RedisStore, policy: &Policy) -> Vec<Request> {
    let requests: Vec<Request> = (0..KNOWN).map(|_| request()).collect();
    for chunk in requests.chunks(100) {
        futures_util::future::join_all(chunk.iter().map(|request| one(store, policy, request)))
            .await;
    }
    requests
}

async fn one(store: &RedisStore, policy: &Policy, request: &Request) {
    let reserved = protocol::reserve(store, request, policy, fastrand::u64(..)).await;
    let Ok(Reserved::Granted(reservation)) = reserved else { panic!("a fresh key: {reserved:?}") };
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let outcome = Outcome::new(StatusCode::CREATED, KeptHeaders::default(), body);
    let completed = protocol::complete(store, reservation, outcome, policy.retention()).await;
    assert!(matches!(completed, Ok(Completed::Kept { .. })), "{completed:?}");
}

fn request() -> Request {
    let tenant = Tenant::new("acme").expect("a tenant");
    let key = Key::new(&format!("{:032x}", fastrand::u128(..))).expect("a key");
    let mut digest = [0; 32];
    fastrand::fill(&mut digest);
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(
            1,
            BodyForm::Canonical,
            digest,
            PartDigests::from_bytes(&fastrand::u64(..).to_be_bytes()).expect("four parts"),
        ),
    }
}

fn name(key: &str) -> Vec<u8> {
    format!("plain:{key}").into_bytes()
}

/// As long as a completed record of this bench.
async fn set_new(plain: &mut MultiplexedConnection, name: &[u8]) {
    let value = [b'x'; BODY_BYTES + 180];
    let mut command = redis::cmd("SET");
    command.arg(name).arg(&value[..]).arg("NX");
    let _done: Option<String> = command.query_async(plain).await.expect("the server answers");
}

/// The history that the store knows is gone then, on purpose.
async fn empty(plain: &mut MultiplexedConnection, store: &RedisStore) {
    redis::cmd("FLUSHALL").query_async::<()>(plain).await.expect("it is emptied");
    store.clear_doubts("bench", "emptied on purpose").await.expect("it goes on");
}

async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("an address");
    client.get_multiplexed_async_connection().await.expect("a server")
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
