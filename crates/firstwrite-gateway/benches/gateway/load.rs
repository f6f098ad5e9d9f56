//! The load: connections that send as fast as they are answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use firstwrite_core::BoxError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::Variant;
use crate::processes::Proxy;

/// What one slice of one variant measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) per_second: f64,
    /// Of the proxy, for each request.
    pub(crate) cpu_micros: f64,
}

static SLICES: AtomicUsize = AtomicUsize::new(0);
const WARM_UP: Duration = Duration::from_millis(500);
const BODY: &str = r#"{"amount":4990,"currency":"EUR"}"#;

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) async fn run(proxy: &Proxy, variant: Variant, seconds: f64) -> Result<Slice, BoxError> {
    let answered = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    // A database outlives a slice: what was a new key in one is none in the next.
    let slice = SLICES.fetch_add(1, Ordering::Relaxed);
    let mut connections = Vec::new();
    for number in 0..variant.connections() {
        let stream = TcpStream::connect(&proxy.address).await?;
        stream.set_nodelay(true)?;
        let (answered, stop) = (Arc::clone(&answered), Arc::clone(&stop));
        connections.push(tokio::spawn(send(stream, variant, slice << 16 | number, answered, stop)));
    }
    sleep(WARM_UP).await;
    let (began, before, cpu) =
        (Instant::now(), answered.load(Ordering::Relaxed), proxy.cpu_nanos()?);
    sleep(Duration::from_secs_f64(seconds)).await;
    let (elapsed, after) = (began.elapsed(), answered.load(Ordering::Relaxed));
    let cpu = proxy.cpu_nanos()?.saturating_sub(cpu);
    stop.store(true, Ordering::Relaxed);
    for connection in connections {
        connection.await??;
    }
    let count = (after - before) as f64;
    Ok(Slice {
        per_second: count / elapsed.as_secs_f64(),
        cpu_micros: cpu as f64 / 1000.0 / count.max(1.0),
    })
}

async fn send(
    mut stream: TcpStream,
    variant: Variant,
    connection: usize,
    answered: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Result<(), BoxError> {
    let mut buffer = vec![0; 16 * 1024];
    for number in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (method, key) = match variant {
            Variant::Direct | Variant::Nginx | Variant::PassThrough => ("PUT", String::new()),
            Variant::FreshSqlite | Variant::FreshPostgres(_) | Variant::Naive(_) => {
                ("POST", format!("idempotency-key: {connection:08x}-{number:016x}\r\n"))
            }
            Variant::ReplaySqlite => ("POST", format!("idempotency-key: {connection:08x}\r\n")),
        };
        let request = format!(
            "{method} /pay HTTP/1.1\r\nhost: bench.test\r\ncontent-type: application/json\r\n{key}\
             content-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut filled = 0;
        while !is_whole(&buffer[..filled])? {
            let read = stream.read(&mut buffer[filled..]).await?;
            if read == 0 {
                return Err("the proxy hung up".into());
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
    let text = std::str::from_utf8(&answer[..head])?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.ok_or("an answer without a length")?.parse()?;
    Ok(answer.len() >= head + 4 + length)
}
