//! Runs the processes round by round and checks what they recorded.

use std::process::Stdio;
use std::time::Duration;

use firstwrite_core::BoxError;
use firstwrite_testkit::Proxy;
use firstwrite_testkit::history::{Histories, HistoryReport, check_histories, from_line};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::disturbance::Disturbance;
use crate::{Options, worker};

/// A process that records, and the proxy it reaches the server through.
struct Process {
    child: Child,
    rounds: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    proxy: Proxy,
}

/// A run in which fewer answers were lost shows nothing.
const LOST_MIN: usize = 5;
/// Most times that the rounds asked for are run, until that many are lost and each disturbance happened.
const EXTENSION_MAX: u64 = 200;

/// What everything told together came to.
#[derive(Default)]
struct Sum {
    keys: usize,
    operations: usize,
    written: usize,
    lost: usize,
}

/// Runs everything; an error if no order explains what was recorded.
pub(crate) async fn run(options: &Options) -> Result<(), BoxError> {
    worker::patiently(async || worker::prepare(&options.url).await).await?;
    let mut processes = Vec::new();
    for process in 0..options.processes {
        processes.push(Process::start(options, process).await?);
    }
    for process in &mut processes {
        process.read(&mut Histories::new()).await?;
    }
    println!("seed {}: {} processes record", options.seed, options.processes);
    let victims = processes.iter().filter_map(Process::victim).collect();
    // A mistake shows without partitions that take long.
    let patience = worker::patience(&options.url);
    let outlasted = if options.mistake.is_some() { Duration::ZERO } else { patience };
    let disturbance = Disturbance::begin(victims, outlasted, options.seed);
    let mut sum = Sum::default();
    // On a fast server the asked-for rounds can be over before the first disturbance.
    let most = options.rounds.saturating_mul(EXTENSION_MAX);
    let mut rounds = 0..most;
    let ended = loop {
        let Some(round) = rounds.next() else { break Ok(()) };
        if round >= options.rounds && sum.lost >= LOST_MIN && disturbance.has_tried_all() {
            break Ok(());
        }
        match one_round(&mut processes, round, options.seed).await {
            Ok((keys, report)) => sum.add(keys, report),
            Err(error) => break Err(error),
        }
    };
    let tried_all = disturbance.has_tried_all();
    let disturbed = disturbance.end().await;
    for process in processes {
        process.end().await?;
    }
    ended?;
    worker::expect_no_doubt(&options.url).await?;
    let Sum { keys, operations, written, lost } = sum;
    println!(
        "{operations} operations on {keys} keys explained: {written} wrote, {lost} lost their answer"
    );
    println!("meanwhile: {disturbed}");
    // A run in which nothing was disturbed, or hardly anything was written, shows nothing.
    if lost < LOST_MIN || written < operations / 20 || !tried_all {
        return Err(
            "too few answers were lost, too few steps wrote or too little was disturbed".into()
        );
    }
    Ok(())
}

/// One round of all processes on fresh keys.
async fn one_round(
    processes: &mut [Process],
    round: u64,
    seed: u64,
) -> Result<(usize, HistoryReport), BoxError> {
    for process in &mut *processes {
        process.rounds.write_all(format!("{round}\n").as_bytes()).await?;
        process.rounds.flush().await?;
    }
    let mut histories = Histories::new();
    for process in processes {
        process.read(&mut histories).await?;
    }
    let keys = histories.len();
    let report = tokio::task::spawn_blocking(move || check_histories(seed, histories)).await??;
    Ok((keys, report))
}

impl Process {
    async fn start(options: &Options, process: u64) -> Result<Self, BoxError> {
        let proxy = Proxy::new(&options.url).await?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(options.words_of(process, proxy.url(&options.url))).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (rounds, output) = (child.stdin.take(), child.stdout.take());
        let (rounds, output) = rounds.zip(output).ok_or("a process without pipes")?;
        Ok(Self { child, rounds, lines: BufReader::new(output).lines(), proxy })
    }

    /// Reads what the process recorded until it is ready for the next round.
    async fn read(&mut self, histories: &mut Histories) -> Result<(), BoxError> {
        loop {
            let line = self.lines.next_line().await?.ok_or("a process ended before its round")?;
            if line == worker::READY {
                return Ok(());
            }
            let (id, step) = from_line(&line)?;
            histories.entry(id).or_default().push(step);
        }
    }

    fn victim(&self) -> Option<(u32, Proxy)> {
        Some((self.child.id()?, self.proxy.clone()))
    }

    async fn end(self) -> Result<(), BoxError> {
        let Self { mut child, rounds, .. } = self;
        drop(rounds);
        child.wait().await?;
        Ok(())
    }
}

impl Sum {
    fn add(&mut self, keys: usize, report: HistoryReport) {
        self.keys += keys;
        self.operations += report.operations;
        self.written += report.written;
        self.lost += report.lost;
    }
}
