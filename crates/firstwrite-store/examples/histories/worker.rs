//! One of the processes: opens the store, and for each round records its part and writes it to its output.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{BoxError, Store};
use firstwrite_store::{
    MysqlOptions, MysqlStore, PostgresOptions, PostgresStore, RedisOptions, RedisStore,
};
use firstwrite_testkit::history::{Part, record, to_line};
use rustix::time::{ClockId, clock_gettime};

use crate::{Options, STEPS};

/// What a process says when it is ready, and at the end of each round.
pub(crate) const READY: &str = "ready";

/// Time limit of a store's step and of a new connection: shorter than the defaults, so that partitions outlast it.
const STEP_WITHIN: Duration = Duration::from_secs(1);
/// `PostgreSQL` enforces the limit of a statement itself; the store waits for three of them, and this much longer.
const POSTGRES_GRACE: Duration = Duration::from_secs(5);

/// A server that is away is tried for half a minute.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
const TRIES_MAX: u32 = 600;

/// Records one round for each line of its input.
pub(crate) async fn run(options: &Options, process: u64) -> Result<(), BoxError> {
    let store = patiently(async || open(&options.url).await).await?;
    say(&format!("{READY}\n"))?;
    while let Some(round) = tokio::task::spawn_blocking(next_round).await?? {
        let parts: Vec<_> = (0..options.groups)
            .map(|group| {
                let name = format!("history-{:08x}-{round}-{group}", options.run);
                let seed = options.seed ^ (round << 32) ^ group;
                let (processes, mistake) = (options.processes, options.mistake);
                let part = Part { name, seed, process, processes, options: STEPS, mistake };
                let store = Arc::clone(&store);
                tokio::spawn(async move { record(store, &part, Box::new(monotonic_nanos)).await })
            })
            .collect();
        let mut text = String::new();
        for part in parts {
            for (id, steps) in part.await?? {
                for step in steps {
                    writeln!(text, "{}", to_line(id, &step))?;
                }
            }
        }
        writeln!(text, "{READY}")?;
        say(&text)?;
    }
    Ok(())
}

/// The next line of the input, until it ends.
fn next_round() -> io::Result<Option<u64>> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(line.trim().parse().ok())
}

fn say(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Creates the store on an empty server.
pub(crate) async fn prepare(url: &str) -> Result<(), BoxError> {
    if url.starts_with("postgres") {
        PostgresStore::migrate(url, PostgresOptions::default()).await?;
    } else if url.starts_with("mysql") {
        MysqlStore::migrate(url, MysqlOptions::default()).await?;
    } else {
        RedisStore::migrate(url, RedisOptions::default()).await?;
    }
    Ok(())
}

/// Time for which a store waits for an answer that does not come.
pub(crate) fn patience(url: &str) -> Duration {
    if url.starts_with("postgres") { STEP_WITHIN * 3 + POSTGRES_GRACE } else { STEP_WITHIN }
}

async fn open(url: &str) -> Result<Arc<dyn Store>, BoxError> {
    Ok(if url.starts_with("postgres") {
        let mut options = PostgresOptions::default();
        // A history removes completed records within their retention, which nobody does: only a store that did it
        // itself forgets them in memory.
        options.cache_bytes_max = 0;
        options.statement_timeout = STEP_WITHIN;
        options.connect_for = STEP_WITHIN;
        Arc::new(PostgresStore::connect_with(url, options).await?)
    } else if url.starts_with("mysql") {
        let mut options = MysqlOptions::default();
        options.statement_timeout = STEP_WITHIN;
        options.connect_for = STEP_WITHIN;
        Arc::new(MysqlStore::connect_with(url, options).await?)
    } else {
        let mut options = RedisOptions::default();
        options.answer_for = STEP_WITHIN;
        options.connect_for = STEP_WITHIN;
        Arc::new(RedisStore::connect_with(url, options).await?)
    })
}

/// Fails if the store suspected that history was lost: nothing was, and an alarm that is false once is not read the
/// second time.
pub(crate) async fn expect_no_doubt(url: &str) -> Result<(), BoxError> {
    let look = async || {
        Ok(if url.starts_with("postgres") {
            PostgresStore::connect(url).await?.history_losses().await?
        } else if url.starts_with("mysql") {
            MysqlStore::connect(url).await?.history_losses().await?
        } else {
            RedisStore::connect(url).await?.history_losses().await?
        })
    };
    match patiently(look).await?.first() {
        None => Ok(()),
        Some(loss) => {
            Err(format!("lost history reported, and none was lost: {}", loss.detail).into())
        }
    }
}

/// Tries again while the server is away: it may just have been killed.
pub(crate) async fn patiently<T>(
    attempt: impl AsyncFn() -> Result<T, BoxError>,
) -> Result<T, BoxError> {
    for _ in 1..TRIES_MAX {
        if let Ok(done) = attempt().await {
            return Ok(done);
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    attempt().await
}

/// The machine's clock that all processes on it share and nobody sets.
fn monotonic_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000_000 + nanos.unwrap_or(0)
}
