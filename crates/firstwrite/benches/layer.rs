//! What the layer costs: CPU time per request of a protected handler against a bare one.
//!
//! ```text
//! cargo bench -p firstwrite --bench layer -- --seconds 3 --rounds 7
//! ```
//!
//! The server runs in a process of its own, so that the load generator is not counted; its CPU time
//! is what the kernel's scheduler says of its threads. 64 keep-alive connections over loopback send
//! a 1 KiB JSON body, each request under a fresh key (replays: each connection under one). Each slice starts a new server, so no store
//! fills up; rounds are interleaved, and every second one runs in reverse, so that a drift of the
//! machine meets all variants alike.

#![expect(clippy::print_stdout, reason = "a bench shows what it found")]

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use firstwrite::{BodyForm, FingerprintRules, IdempotencyLayer, Policy, Tenant, memory_store};
use firstwrite_core::BoxError;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// The allocator that busy services use; all variants alike.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// No layer.
    Bare,
    /// The body enters the fingerprint as it is.
    Raw,
    /// A JSON body enters the fingerprint in exact canonical form: the default.
    Canonical,
    /// The same, and what is sent was answered before: out of memory, as every store answers it that
    /// keeps completed records there.
    Replay,
}

/// What one slice of one variant measured.
#[derive(Clone, Copy, Debug)]
struct Slice {
    cpu_micros: f64,
    requests_per_second: f64,
}

/// What was asked for on the command line.
struct Plan {
    seconds: f64,
    rounds: usize,
}

const VARIANTS: [Variant; 4] = [Variant::Bare, Variant::Raw, Variant::Canonical, Variant::Replay];
/// Of the bare handler's rate: what a replay out of memory should reach.
const REPLAY_GOAL: f64 = 0.85;
const CONNECTION_COUNT: usize = 64;
/// The allocator, the store's map and the branch predictor have settled by then.
const WARM_UP: Duration = Duration::from_millis(500);

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(variant) = VARIANTS.into_iter().find(|variant| {
        arguments.first().is_some_and(|first| first == "--serve")
            && arguments.get(1).is_some_and(|name| name == variant.name())
    }) {
        return serve(variant);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("measures only when run by `cargo bench`");
        return Ok(());
    }
    let number = |name: &str, default: f64| -> Result<f64, BoxError> {
        let at = arguments.iter().position(|argument| argument == name);
        Ok(match at.and_then(|at| arguments.get(at + 1)) {
            Some(text) => text.parse()?,
            None => default,
        })
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let rounds = number("--rounds", 5.0)?.max(1.0) as usize;
    measure(&Plan { seconds: number("--seconds", 2.0)?, rounds })
}

/// Runs every variant once in each round and prints the medians.
fn measure(plan: &Plan) -> Result<(), BoxError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut rounds: Vec<[Slice; 4]> = Vec::new();
    for round in 0..plan.rounds {
        let mut slices = [Slice { cpu_micros: 0.0, requests_per_second: 0.0 }; 4];
        let mut order = [0, 1, 2, 3];
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let server = Server::start(VARIANTS[index])?;
            slices[index] = runtime.block_on(load(&server, VARIANTS[index], plan.seconds))?;
        }
        rounds.push(slices);
    }
    println!("{} rounds of {} s, {CONNECTION_COUNT} connections", plan.rounds, plan.seconds);
    println!(
        "{:<10} {:>12} {:>12} {:>8} {:>6}  requests/s",
        "variant", "CPU µs/req", "adds µs", "goal", ""
    );
    for (index, variant) in VARIANTS.into_iter().enumerate() {
        let cpu = median(rounds.iter().map(|round| round[index].cpu_micros));
        let adds = median(rounds.iter().map(|round| round[index].cpu_micros - round[0].cpu_micros));
        let rate = median(rounds.iter().map(|round| round[index].requests_per_second));
        let (goal, verdict) = match variant.goal() {
            Some(goal) => (format!("≤ {goal}"), if adds <= goal { "pass" } else { "miss" }),
            None => (String::new(), ""),
        };
        println!(
            "{:<10} {cpu:>12.2} {adds:>12.2} {goal:>8} {verdict:>6}  {rate:.0}",
            variant.name()
        );
    }
    let ratios = rounds.iter().map(|round| {
        let [bare, .., replay] = round;
        replay.requests_per_second / bare.requests_per_second
    });
    let ratio = median(ratios);
    let verdict = if ratio >= REPLAY_GOAL { "met" } else { "missed" };
    println!("replays / bare handler: {ratio:.2}, goal {REPLAY_GOAL}: {verdict}");
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Raw => "raw",
            Self::Canonical => "canonical",
            Self::Replay => "replay",
        }
    }

    /// How many microseconds of CPU a request may cost beyond the bare handler's.
    fn goal(self) -> Option<f64> {
        match self {
            Self::Bare | Self::Replay => None,
            Self::Raw => Some(8.0),
            Self::Canonical => Some(18.0),
        }
    }

    fn router(self) -> Router {
        let handler = |body: Bytes| async move {
            (StatusCode::CREATED, format!("{{\"bytes\":{}}}", body.len()))
        };
        let router = Router::new().route("/payments", post(handler));
        let body = match self {
            Self::Bare => return router,
            Self::Raw => BodyForm::Raw,
            Self::Canonical | Self::Replay => BodyForm::Canonical,
        };
        let fingerprint = FingerprintRules { body, ..FingerprintRules::default() };
        let layer = IdempotencyLayer::new(Arc::new(memory_store()))
            .policy(Policy::default().fingerprint(fingerprint))
            .expect("the policy fits")
            .single_tenant(Tenant::new("acme").expect("a plain name"));
        router.layer(layer)
    }
}

/// The server's side: says its address on standard output and serves until it is killed.
fn serve(variant: Variant) -> Result<(), BoxError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        axum::serve(listener, variant.router()).await?;
        Ok(())
    })
}

/// A server in a process of its own, killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(variant: Variant) -> Result<Self, BoxError> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--serve", variant.name()])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("the server has no standard output")?;
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address)?;
        Ok(Self { process, address: address.trim().to_owned() })
    }

    /// CPU time of all its threads so far, in nanoseconds.
    fn cpu_nanos(&self) -> Result<u64, BoxError> {
        let mut total = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let schedule = std::fs::read_to_string(task?.path().join("schedstat"))?;
            let on_cpu = schedule.split_whitespace().next().ok_or("an empty schedstat")?;
            total += on_cpu.parse::<u64>()?;
        }
        Ok(total)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The load generator: all connections send as fast as they are answered.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
async fn load(server: &Server, variant: Variant, seconds: f64) -> Result<Slice, BoxError> {
    let answered = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut connections = Vec::new();
    for number in 0..CONNECTION_COUNT {
        let stream = TcpStream::connect(&server.address).await?;
        stream.set_nodelay(true)?;
        connections.push(tokio::spawn(send(
            stream,
            (variant, number),
            Arc::clone(&answered),
            Arc::clone(&stop),
        )));
    }
    sleep(WARM_UP).await;
    let (began, before, cpu_before) =
        (Instant::now(), answered.load(Ordering::Relaxed), server.cpu_nanos()?);
    sleep(Duration::from_secs_f64(seconds)).await;
    let (elapsed, after, cpu_after) =
        (began.elapsed(), answered.load(Ordering::Relaxed), server.cpu_nanos()?);
    stop.store(true, Ordering::Relaxed);
    for connection in connections {
        connection.await??;
    }
    let requests = (after - before) as f64;
    Ok(Slice {
        cpu_micros: (cpu_after - cpu_before) as f64 / 1000.0 / requests,
        requests_per_second: requests / elapsed.as_secs_f64(),
    })
}

/// One connection's requests, each under a fresh key, unless they are to be replayed.
async fn send(
    mut stream: TcpStream,
    (variant, connection): (Variant, usize),
    answered: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Result<(), BoxError> {
    let body = body();
    let mut buffer = vec![0; 16 * 1024];
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let number = if variant == Variant::Replay { 0 } else { number };
        let request = format!(
            "POST /payments HTTP/1.1\r\nhost: bench.test\r\ncontent-type: application/json\r\n\
             idempotency-key: {connection:08x}-{number:016x}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut filled = 0;
        while !is_whole(&buffer[..filled])? {
            let read = stream.read(&mut buffer[filled..]).await?;
            if read == 0 {
                return Err("the server hung up".into());
            }
            filled += read;
        }
        if !buffer.starts_with(b"HTTP/1.1 201") {
            return Err(String::from_utf8_lossy(&buffer[..filled]).into_owned().into());
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether an answer has come to its end.
fn is_whole(answer: &[u8]) -> Result<bool, BoxError> {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(false);
    };
    let text = std::str::from_utf8(&answer[..head])?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.ok_or("an answer without a length")?.parse()?;
    Ok(answer.len() >= head + 4 + length)
}

/// An order of one kibibyte: names, numbers, nesting and text, as they come.
fn body() -> String {
    let item = |number: u32| {
        format!(
            "{{\"sku\":\"article-{number:04}\",\"quantity\":{number},\"price\":\"{number}.95\",\
             \"taxes\":[0.07,0.19],\"gift\":false}}"
        )
    };
    let items: Vec<String> = (1..=9).map(item).collect();
    let mut body = format!(
        "{{\"customer\":\"c-1029384756\",\"currency\":\"EUR\",\"items\":[{}],\"note\":\"",
        items.join(",")
    );
    while body.len() < 1022 {
        body.push('x');
    }
    body.push_str("\"}");
    body
}
