//! The same work on every store: keys reserved and completed, and replays, each beside what the same server takes
//! of plain inserts of rows or values of the same size, in one interleaved run with durable commits.
//!
//! A key that is reserved and completed is two steps, each of them durable before the next, so its ratio is that of
//! steps to plain inserts. Ratios are taken within a round. Stores have their default settings; whose server is not
//! named in the environment is left out. Where a store puts many callers' rows into one commit, so does the plain
//! insert.
//!
//! `cargo xtask bench stores [--seconds 1] [--rounds 3] [--clients 64] [--only redis]`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

#[path = "stores/raw.rs"]
mod raw;
mod rounds;

use std::fmt::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Completed, Reserved};
use firstwrite_core::{
    BodyForm, BoxFuture, Fingerprint, KeptHeaders, Key, Outcome, PartDigests, Policy, RecordId,
    Request, Store, Tenant, Verdict,
};
use http::StatusCode;
use raw::{Raw, Subject};
use rounds::{Operate, Plan};

/// Of an outcome's body; what is inserted plainly is as long as a completed record of it.
const BODY_BYTES: usize = 300;
const RECORD_BYTES: usize = BODY_BYTES + 180;
/// Keys that are asked for again and again.
const KNOWN: usize = 1000;

fn main() {
    let Some(plan) = Plan::from_args(1.0, 3) else {
        println!("measures only when run by `cargo bench`");
        return;
    };
    let clients = rounds::whole(plan.number("--clients", 64.0)).max(1);
    let runtime = rounds::runtime();
    println!(
        "{clients} clients at once, {} interleaved rounds of {} s; rates are medians, ratios are taken within a\n\
         round: median (least..greatest). steps/raw: two steps for each key that is reserved and completed.\n",
        plan.rounds, plan.seconds
    );
    println!(
        "{:<9} {:<42} {:>8} {:>8} {:>18} {:>9} {:>18}",
        "store",
        "raw: plain writes of the same size",
        "raw/s",
        "keys/s",
        "steps/raw",
        "replays/s",
        "replays/raw"
    );
    for (name, open) in raw::SUBJECTS {
        if plan.word("--only").is_some_and(|only| only != *name) {
            continue;
        }
        match runtime.block_on(open(clients)) {
            Some(subject) => print!("{}", lines(name, &runtime, &plan, clients, &subject)),
            None => println!("{name:<9} its server is not named in the environment"),
        }
    }
}

/// Measures one store: its lines of the table, one for each way to write plainly.
fn lines(
    name: &str,
    runtime: &tokio::runtime::Runtime,
    plan: &Plan,
    clients: usize,
    subject: &Subject,
) -> String {
    let policy = Arc::new(Policy::default());
    let known = Arc::new(runtime.block_on(known(&subject.store, &policy)));
    let rate = |concurrency: usize, operate: &Operate| {
        let began_at = rounds::stopwatch();
        let done = runtime.block_on(rounds::load(concurrency, operate, plan.seconds));
        rounds::as_f64(done.len() as u64) / began_at.elapsed().as_secs_f64()
    };
    let mut work: Vec<(usize, f64, Operate)> = Vec::new();
    for Raw { concurrency, rows, operate, .. } in &subject.raws {
        work.push((*concurrency, rounds::as_f64(*rows as u64), Arc::clone(operate)));
    }
    work.push((clients, 1.0, keys(&subject.store, &policy)));
    work.push((clients, 1.0, replays(&subject.store, &policy, &known)));
    let mut figures = vec![Vec::<f64>::new(); work.len()];
    for round in 0..plan.rounds {
        let mut order: Vec<usize> = (0..work.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for place in order {
            let (concurrency, rows, operate) = &work[place];
            if let Some(reset) = subject.raws.get(place).and_then(|raw| raw.reset.as_ref()) {
                runtime.block_on(reset());
            }
            figures[place].push(rate(*concurrency, operate) * rows);
        }
        eprintln!("{name}: round {} of {}", round + 1, plan.rounds);
    }
    let count = subject.raws.len();
    let (keys, replays) = (&figures[count], &figures[count + 1]);
    let median = |of: &[f64]| rounds::median(of.iter().copied());
    let mut text = String::new();
    for (raw, rates) in subject.raws.iter().zip(&figures) {
        let steps = Spread::of(keys.iter().zip(rates).map(|(keys, raw)| 2.0 * keys / raw));
        let again = Spread::of(replays.iter().zip(rates).map(|(replays, raw)| replays / raw));
        let goal = subject.goal.map_or(String::new(), |goal| {
            format!("  goal {goal:.1}: {}", if steps.median >= goal { "met" } else { "missed" })
        });
        writeln!(
            text,
            "{name:<9} {:<42} {:>8.0} {:>8.0} {steps:>18} {:>9.0} {again:>18}{goal}",
            raw.name,
            median(rates),
            median(keys),
            median(replays),
        )
        .expect("a string takes everything");
    }
    text
}

/// Of ratios over the rounds.
struct Spread {
    median: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn of(ratios: impl Iterator<Item = f64> + Clone) -> Self {
        let least = ratios.clone().fold(f64::INFINITY, f64::min);
        let greatest = ratios.clone().fold(0.0, f64::max);
        Self { median: rounds::median(ratios), least, greatest }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, greatest } = self;
        f.pad(&format!("{median:.2} ({least:.2}..{greatest:.2})"))
    }
}

fn keys(store: &Arc<dyn Store>, policy: &Arc<Policy>) -> Operate {
    let (store, policy) = (Arc::clone(store), Arc::clone(policy));
    Arc::new(move || {
        let (store, policy) = (Arc::clone(&store), Arc::clone(&policy));
        Box::pin(async move { one(&*store, &policy, &request()).await })
    })
}

fn replays(store: &Arc<dyn Store>, policy: &Arc<Policy>, known: &Arc<Vec<Request>>) -> Operate {
    let (store, policy, known) = (Arc::clone(store), Arc::clone(policy), Arc::clone(known));
    Arc::new(move || -> BoxFuture<'static, ()> {
        let (store, policy, known) = (Arc::clone(&store), Arc::clone(&policy), Arc::clone(&known));
        Box::pin(async move {
            let request = fastrand::choice(known.iter()).expect("there are some");
            let reserved = protocol::reserve(&*store, request, &policy, fastrand::u64(..)).await;
            let Ok(Reserved::Refused(Verdict::Replay { .. }, ..)) = reserved else {
                panic!("a known key: {reserved:?}")
            };
        })
    })
}

/// Keys that are completed.
async fn known(store: &Arc<dyn Store>, policy: &Policy) -> Vec<Request> {
    let requests: Vec<Request> = (0..KNOWN).map(|_| request()).collect();
    for chunk in requests.chunks(100) {
        let all = chunk.iter().map(|request| one(&**store, policy, request));
        futures_util::future::join_all(all).await;
    }
    requests
}

async fn one(store: &dyn Store, policy: &Policy, request: &Request) {
    let reserved = protocol::reserve(store, request, policy, fastrand::u64(..)).await;
    let Ok(Reserved::Granted(reservation)) = reserved else { panic!("a fresh key: {reserved:?}") };
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let outcome = Outcome::new(StatusCode::CREATED, KeptHeaders::default(), body);
    let completed = protocol::complete(store, reservation, outcome).await;
    assert!(matches!(completed, Ok(Completed::Kept { .. })), "{completed:?}");
}

fn request() -> Request {
    let tenant = Tenant::new("acme").expect("a tenant");
    let key = Key::new(&format!("{:032x}", fastrand::u128(..))).expect("a key");
    let mut digest = [0; 32];
    fastrand::fill(&mut digest);
    let parts = PartDigests::from_bytes(&fastrand::u64(..).to_be_bytes()).expect("four parts");
    Request {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Canonical, digest, parts),
    }
}
