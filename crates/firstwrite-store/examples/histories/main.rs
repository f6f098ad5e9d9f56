//! Records histories of several processes on one real server and checks that some order explains them.
//!
//! `cargo xtask histories` starts the server, kills and pauses it meanwhile, and runs this program. This program
//! runs itself once for each process, puts a proxy in front of each, cuts connections, loses answers and holds
//! bytes back there, pauses processes, collects what they recorded, and checks it.
//!
//! `--url URL`, `--processes N` (3), `--rounds N` (4 at least, more until each of that has happened), `--groups N`
//! (16: tenants in a round), `--seed N`, `--mistake ignores-guard|calls-lost-undone` (of every process, which must
//! then be noticed).

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod conductor;
mod disturbance;
mod worker;

use std::process::ExitCode;

use firstwrite_testkit::history::{HistoryOptions, Mistake};

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    url: String,
    processes: u64,
    rounds: u64,
    groups: u64,
    seed: u64,
    mistake: Option<Mistake>,
    /// What tells the keys of this run from those of others on the same server.
    run: u64,
    /// The number of this process, if it is one of those that record.
    process: Option<u64>,
}

/// Two tasks of each of three processes collide often enough, and fit the checker.
const STEPS: HistoryOptions = HistoryOptions { tasks: 2, steps: 20, keys: 2 };

#[tokio::main]
async fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(words) => {
            eprintln!("{words}");
            return ExitCode::from(2);
        }
    };
    let ended = match options.process {
        Some(process) => worker::run(&options, process).await,
        None => conductor::run(&options).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("histories: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        url: String::new(),
        processes: 3,
        rounds: 4,
        groups: 16,
        seed: fastrand::u64(..1 << 48),
        mistake: None,
        run: fastrand::u64(..1 << 32),
        process: None,
    };
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value}: {error}"));
        match name.as_str() {
            "--url" => options.url = value,
            "--processes" => options.processes = number()?.clamp(1, 8),
            "--rounds" => options.rounds = number()?,
            "--groups" => options.groups = number()?,
            "--seed" => options.seed = number()?,
            "--run" => options.run = number()?,
            "--process" => options.process = Some(number()?),
            "--mistake" => options.mistake = Some(mistake(&value)?),
            _ => return Err(format!("{name} is not an option; see the top of examples/histories")),
        }
    }
    Ok(options)
}

fn mistake(name: &str) -> Result<Mistake, String> {
    match name {
        "ignores-guard" => Ok(Mistake::IgnoresGuard),
        "calls-lost-undone" => Ok(Mistake::CallsLostUndone),
        _ => Err(format!("there is no mistake `{name}`")),
    }
}

impl Options {
    /// The words with which this program is one of the processes that record.
    fn words_of(&self, process: u64, url: String) -> Vec<String> {
        let mut words = vec!["--url".to_owned(), url];
        for (name, number) in [
            ("--processes", self.processes),
            ("--groups", self.groups),
            ("--seed", self.seed),
            ("--run", self.run),
            ("--process", process),
        ] {
            words.extend([name.to_owned(), number.to_string()]);
        }
        if let Some(mistake) = self.mistake {
            let name = match mistake {
                Mistake::IgnoresGuard => "ignores-guard",
                Mistake::CallsLostUndone => "calls-lost-undone",
            };
            words.extend(["--mistake".to_owned(), name.to_owned()]);
        }
        words
    }
}
