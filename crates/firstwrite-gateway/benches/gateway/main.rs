//! What a proxy costs: the gateway beside nginx, both in front of the same upstream.
//!
//! ```text
//! cargo xtask bench gateway --seconds 2 --rounds 5
//! ```
//!
//! Upstream, proxies and load generator are processes of their own; a proxy's CPU time is what the kernel's
//! scheduler says of its threads. 64 keep-alive connections over loopback (256 where it says so) send small
//! requests. On PostgreSQL the same gateway also runs over a store as one writes it by hand. Rounds are
//! interleaved, and every second one runs in reverse, so that a drift of the machine meets all alike.

#![expect(clippy::print_stdout, reason = "a bench shows what it found")]

mod load;
mod naive;
mod processes;

use firstwrite_core::BoxError;
use load::Slice;
use processes::{Proxy, Upstream};

/// The allocator that busy services use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Who stands between the load and the upstream, and what it has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Direct,
    Nginx,
    /// A request without a policy.
    PassThrough,
    /// Each request under a new key, in SQLite.
    FreshSqlite,
    /// Each connection under one key, in SQLite.
    ReplaySqlite,
    /// Each request under a new key, in PostgreSQL, from so many connections.
    FreshPostgres(usize),
    /// The same over a store that commits each statement alone.
    Naive(usize),
}

/// One ratio that there is a goal for.
struct Goal {
    of: Variant,
    to: Variant,
    at_least: f64,
}

const ALL: [Variant; 9] = [
    Variant::Direct,
    Variant::Nginx,
    Variant::PassThrough,
    Variant::FreshSqlite,
    Variant::ReplaySqlite,
    Variant::FreshPostgres(64),
    Variant::Naive(64),
    Variant::FreshPostgres(256),
    Variant::Naive(256),
];

const GOALS: [Goal; 5] = [
    Goal { of: Variant::PassThrough, to: Variant::Nginx, at_least: 0.90 },
    Goal { of: Variant::FreshSqlite, to: Variant::Nginx, at_least: 0.40 },
    Goal { of: Variant::ReplaySqlite, to: Variant::PassThrough, at_least: 0.80 },
    Goal { of: Variant::FreshPostgres(64), to: Variant::Naive(64), at_least: 2.0 },
    Goal { of: Variant::FreshPostgres(256), to: Variant::Naive(256), at_least: 4.0 },
];

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(role) = arguments.first().filter(|first| first.starts_with("--serve-")) {
        return processes::serve(role, &arguments[1..]);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("measures only when run by `cargo bench`");
        return Ok(());
    }
    let number = |name: &str, usual: f64| -> Result<f64, BoxError> {
        let at = arguments.iter().position(|argument| argument == name);
        Ok(match at.and_then(|at| arguments.get(at + 1)) {
            Some(text) => text.parse()?,
            None => usual,
        })
    };
    let (seconds, rounds) = (number("--seconds", 2.0)?, number("--rounds", 5.0)?.max(1.0));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    measure(seconds, rounds as usize)
}

fn measure(seconds: f64, rounds: usize) -> Result<(), BoxError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let upstream = Upstream::start()?;
    let variants: Vec<Variant> = ALL.into_iter().filter(|variant| variant.can_be_had()).collect();
    for missing in ALL.iter().filter(|variant| !variants.contains(variant)) {
        println!("skipped: {} (not there)", missing.name());
    }
    let mut found: Vec<Vec<Slice>> = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        println!("round {} of {rounds}", round + 1);
        let mut order: Vec<usize> = (0..variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let proxy = Proxy::start(variants[index], &upstream)?;
            found[index].push(runtime.block_on(load::run(&proxy, variants[index], seconds))?);
        }
    }
    say(&variants, &found);
    Ok(())
}

fn say(variants: &[Variant], found: &[Vec<Slice>]) {
    let of =
        |variant: Variant| variants.iter().position(|one| *one == variant).map(|at| &found[at]);
    let direct = &found[0];
    println!(
        "{:<24} {:>10} {:>10} {:>16}",
        "variant", "requests/s", "to direct", "proxy CPU µs/req"
    );
    for (variant, slices) in variants.iter().zip(found) {
        let rate = median(slices.iter().map(|slice| slice.per_second));
        let cpu = median(slices.iter().map(|slice| slice.cpu_micros));
        let ratio = median(ratios(slices, direct));
        println!("{:<24} {rate:>10.0} {ratio:>10.2} {cpu:>16.1}", variant.name());
    }
    for Goal { of: above, to, at_least } in GOALS {
        let (Some(one), Some(other)) = (of(above), of(to)) else { continue };
        let all: Vec<f64> = ratios(one, other).collect();
        let (middle, least) =
            (median(all.iter().copied()), all.iter().copied().fold(f64::MAX, f64::min));
        let most = all.iter().copied().fold(0.0, f64::max);
        let verdict = if middle >= at_least { "met" } else { "missed" };
        println!(
            "{} / {}: {middle:.2} ({least:.2}..{most:.2}), goal {at_least:.2}: {verdict}",
            above.name(),
            to.name()
        );
    }
}

fn ratios<'a>(one: &'a [Slice], other: &'a [Slice]) -> impl Iterator<Item = f64> + 'a {
    one.iter().zip(other).map(|(one, other)| one.per_second / other.per_second)
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
    fn connections(self) -> usize {
        match self {
            Self::FreshPostgres(connections) | Self::Naive(connections) => connections,
            Self::Direct
            | Self::Nginx
            | Self::PassThrough
            | Self::FreshSqlite
            | Self::ReplaySqlite => 64,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::PassThrough => "passed through",
            Self::FreshSqlite => "new key, SQLite",
            Self::ReplaySqlite => "replay, SQLite",
            Self::FreshPostgres(64) => "new key, PostgreSQL",
            Self::FreshPostgres(_) => "new key, PostgreSQL, 256",
            Self::Naive(64) => "new key, by hand",
            Self::Naive(_) => "new key, by hand, 256",
        }
    }

    fn can_be_had(self) -> bool {
        match self {
            Self::Nginx => processes::nginx().is_some(),
            Self::FreshPostgres(_) | Self::Naive(_) => {
                std::env::var("FIRSTWRITE_TEST_POSTGRES").is_ok()
            }
            Self::Direct | Self::PassThrough | Self::FreshSqlite | Self::ReplaySqlite => true,
        }
    }
}
