//! Processes that are killed at every step and at random moments, until every intent is acknowledged.
//!
//! Afterwards the demo's books, the proxy's log and what the victims wrote down must agree: one effect for each intent
//! that ended done, none for one that was refused, and one key for each.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firstwrite_client::{Clock as _, Step, SystemClock};
use http::Method;
use serde_json::json;
use tokio::runtime::Handle;

use crate::bed::Bed;
use crate::victim::{Kind, Payment, Task};

/// The number of runs; far more of them for a release.
const RUNS: &str = "FIRSTWRITE_TEST_CLIENT_KILLS";
const RUNS_DEFAULT: u64 = 200;
/// The number of the first run, by which it draws; a run that failed is repeated by it.
const FIRST: &str = "FIRSTWRITE_TEST_SEED";
/// Most of them wait.
const RUNS_AT_A_TIME: usize = 12;
/// Lives of one victim, the last of which is not killed.
const LIVES: u64 = 4;
const RESTART_EVERY: u64 = 40;
/// A connection that the bed refuses is no request in its log.
const HELD_MAX: Duration = Duration::from_secs(3);
/// A random moment in the life of a victim, which starts in 10 ms and pays in some more.
const LIFE_MILLIS: u64 = 60;

/// Number of deaths at each step, and at random moments.
type Deaths = Mutex<BTreeMap<String, u64>>;

#[test]
fn killed_at_every_step_each_intent_has_one_key_one_effect_and_its_true_end() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (runs, first) = (number(RUNS, RUNS_DEFAULT), number(FIRST, 0));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bed = &Bed::start();
    let faults = json!({
        "seed": 1, "cut-before": 0.05, "cut-after": 0.12, "cut-half": 0.05, "502": 0.04, "503": 0.03,
        "504": 0.04, "refuse": 0.04, "delay": 0.15, "delay_ms": 25,
    });
    runtime.block_on(bed.ask(Method::POST, "faults", &faults.to_string()));
    let (next, deaths, tasks) = (AtomicU64::new(first), Deaths::default(), Mutex::new(Vec::new()));
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..RUNS_AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + runs {
                        return;
                    }
                    if number % RESTART_EVERY == RESTART_EVERY - 1 {
                        runtime.block_on(bed.ask(Method::POST, "restart", ""));
                    }
                    let task = run(number, folder.path(), bed, runtime.handle(), &deaths);
                    tasks.lock().unwrap().push(task);
                }
            });
        }
    });
    runtime.block_on(bed.ask(Method::POST, "faults", "{}"));
    let tasks = tasks.into_inner().unwrap();
    let compared = runtime.block_on(compare(bed, &tasks));
    let deaths = deaths.into_inner().unwrap();
    println!("{} runs, {compared}, deaths: {deaths:?}", tasks.len());
    for step in Step::ALL {
        assert!(deaths.contains_key(step.as_str()), "no victim died at {}", step.as_str());
    }
    assert!(deaths.contains_key("a random moment"));
}

/// One run: victims with the same task, one after another or two at a time, until all is acknowledged.
fn run(
    number: u64,
    folder: &std::path::Path,
    bed: &Bed,
    runtime: &Handle,
    deaths: &Deaths,
) -> Task {
    let mut random = Random(number);
    let folder = folder.join(number.to_string());
    std::fs::create_dir(&folder).unwrap();
    let payment = |at| Payment {
        name: format!("kill/{number}/{at}"),
        // Some are refused, and must not be paid.
        amount: if random.below(5) == 0 { 0 } else { 100 },
    };
    let mut task = Task {
        url: bed.payments(),
        folder,
        storage: if number.is_multiple_of(2) { Kind::File } else { Kind::Sqlite },
        intents: [1, 2].map(payment).to_vec(),
        dies_at: None,
        acknowledges: true,
        padding: 0,
    };
    if random.below(8) == 0 {
        // Two processes on one storage; the last victim acknowledges for both.
        let pair = Task { acknowledges: false, ..task.clone() };
        let both = [pair.command().spawn().unwrap(), pair.command().spawn().unwrap()];
        for victim in both {
            let status = end(victim, &mut random, deaths);
            assert!(status.success() || status.signal() == Some(9), "run {number}: {status}");
        }
    }
    for _ in 1..LIVES {
        let step = usize::try_from(random.below(8)).unwrap();
        task.dies_at = Step::ALL
            .get(step)
            .map(|step| (step.as_str().to_owned(), 1 + u32::try_from(random.below(2)).unwrap()));
        let since = runtime.block_on(bed.next());
        let victim = task.command().spawn().unwrap();
        let status = match &task.dies_at {
            Some((step, at)) if step == Step::Sent.as_str() => {
                let begins = format!("kill/{number}/");
                let arrived = || {
                    let came = runtime.block_on(bed.log_since(&begins, since));
                    came.iter().filter(|entry| entry["method"] == "POST").count()
                };
                let at = usize::try_from(*at).unwrap();
                let (status, is_sent) = kill_once(victim, HELD_MAX, || arrived() >= at);
                if is_sent {
                    *deaths.lock().unwrap().entry(step.clone()).or_default() += 1;
                }
                status
            }
            Some((step, _)) => {
                let status = wait(victim);
                if status.signal() == Some(9) {
                    *deaths.lock().unwrap().entry(step.clone()).or_default() += 1;
                }
                status
            }
            None => end(victim, &mut random, deaths),
        };
        assert!(status.success() || status.signal() == Some(9), "run {number}: {status}");
    }
    task.dies_at = None;
    let status = wait(task.command().spawn().unwrap());
    assert!(status.success(), "run {number}: {status}");
    task
}

/// Lets a victim live for a moment, and kills it.
fn end(mut victim: Child, random: &mut Random, deaths: &Deaths) -> ExitStatus {
    let time = Duration::from_millis(random.below(LIFE_MILLIS));
    // Woken early for no reason, it dies at another moment, which is as good.
    std::thread::park_timeout(time);
    victim.kill().unwrap();
    let status = victim.wait().unwrap();
    if status.signal() == Some(9) {
        *deaths.lock().unwrap().entry("a random moment".to_owned()).or_default() += 1;
    }
    status
}

/// Kills a victim once its request has arrived; says if it was killed for that, and not for its long life.
pub(crate) fn kill_once(
    mut victim: Child,
    life_max: Duration,
    has_arrived: impl Fn() -> bool,
) -> (ExitStatus, bool) {
    let clock = SystemClock::new();
    let mut is_there = false;
    while clock.elapsed() < life_max && !is_there {
        if let Some(status) = victim.try_wait().unwrap() {
            return (status, false);
        }
        is_there = has_arrived();
        std::thread::park_timeout(Duration::from_millis(2));
    }
    victim.kill().unwrap();
    let status = victim.wait().unwrap();
    (status, is_there && status.signal() == Some(9))
}

/// Waits for a victim that ends by itself, and not for ever.
fn wait(mut victim: Child) -> ExitStatus {
    const LIFE_MAX: Duration = Duration::from_mins(2);
    let clock = SystemClock::new();
    while clock.elapsed() < LIFE_MAX {
        if let Some(status) = victim.try_wait().unwrap() {
            return status;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    victim.kill().unwrap();
    panic!("a victim did not end: {:?}", victim.wait())
}

/// Compares the demo's books, the proxy's log and the victims' results.
async fn compare(bed: &Bed, tasks: &[Task]) -> String {
    let (effects, log) = (bed.effects("kill/").await, bed.log("kill/").await);
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in &log {
        let (name, key) = (entry["customer"].as_str().unwrap(), entry["key"].as_str().unwrap());
        keys.entry(name.to_owned()).or_default().insert(key.to_owned());
    }
    let mut wrong = Vec::new();
    for task in tasks {
        let results = task.results();
        for Payment { name, amount } in &task.intents {
            let ends: BTreeSet<&str> = results
                .iter()
                .filter(|(known, _)| known == name)
                .map(|(_, end)| end.as_str())
                .collect();
            let (expected, payments) = if *amount == 0 { ("refused", 0) } else { ("done", 1) };
            if ends.iter().copied().collect::<Vec<_>>() != [expected] {
                wrong.push(format!("{name}: ended {ends:?} instead of {expected}"));
            }
            let made = effects.get(name).copied().unwrap_or(0);
            if made != payments {
                wrong.push(format!("{name}: {made} payments instead of {payments}"));
            }
            let sent = keys.remove(name).unwrap_or_default();
            if sent.len() != 1 {
                wrong.push(format!("{name}: sent under {} keys", sent.len()));
            }
        }
        let left = task.builder().build().list().await.unwrap();
        if !left.is_empty() {
            wrong.push(format!("{}: {} intents are left", task.folder.display(), left.len()));
        }
    }
    wrong.extend(keys.into_keys().map(|name| format!("{name}: sent by nobody")));
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let intents: usize = tasks.iter().map(|task| task.intents.len()).sum();
    format!("{intents} intents, {} requests, {} payments", log.len(), effects.len())
}

/// Numbers that depend on a seed only.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
