//! Tasks of this repository: `cargo xtask <task>`.
//!
//! Everything a contributor or a build machine runs goes through here, so that there is one way to do it.
//! This crate builds the others, runs them and looks at them from outside. It depends on `firstwrite-chaos` alone,
//! for servers and processes, and for the crash, fail-over and history runs, which depend on nothing of ours.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "telling a person at a terminal what happens is what this program is for"
)]

mod alerts;
mod ci;
mod clients;
mod crates;
mod examples;
mod foreign;
mod forward;
mod fuzz;
mod guarantees;
mod services;
mod steps;
mod test;
mod tidy;
mod vectors;

use std::process::ExitCode;

use firstwrite_chaos::args::{Args, Usage};
use firstwrite_chaos::workspace::Workspace;
use firstwrite_chaos::{client_bed, crash, demo_check, failover, guard, histories};

/// One thing this program can do.
struct Task {
    name: &'static str,
    /// Arguments that may follow the name.
    usage: &'static str,
    /// One line for the list of tasks.
    about: &'static str,
    /// The rest, shown by `cargo xtask <task> --help`.
    details: &'static str,
    run: fn(&Workspace, Args) -> anyhow::Result<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "test",
        usage: "[--full]",
        about: "everything that shows the project works; the one command for a fresh machine",
        details: test::HELP,
        run: test::run,
    },
    Task {
        name: "ci",
        usage: "[--full]",
        about: "format, lints, docs, tidy, each feature alone, then `test`",
        details: ci::HELP,
        run: ci::run,
    },
    Task {
        name: "tidy",
        usage: "",
        about: "the habits of this repository, checked",
        details: tidy::HELP,
        run: tidy::run,
    },
    Task {
        name: "services",
        usage: "up|down|status [postgres|pgbouncer|pgbouncer-new|mariadb|redis ...]",
        about: "database servers on loopback, in private folders and on private ports",
        details: services::HELP,
        run: services::run,
    },
    Task {
        name: "crash",
        usage: "[--store S] [--victim V] [--unsafe-commit] [--kills N] [--seconds MAX] [--seed S] [--release]",
        about: "kill -9 the demo or its database under load; count payments and compare answers",
        details: crash::HELP,
        run: crash::run,
    },
    Task {
        name: "failover",
        usage: "[--failovers N] [--behind [--restart-service]] [--seed S] [--release]",
        about: "kill -9 a primary under load, promote its standby; count payments and compare answers",
        details: failover::HELP,
        run: failover::run,
    },
    Task {
        name: "histories",
        usage: "[--full] [--store postgres|mariadb|redis] [--seed N]",
        about: "histories of several processes on servers that are killed and paused, checked",
        details: histories::HELP,
        run: histories::run,
    },
    Task {
        name: "demo-check",
        usage: "[--store S] [--release]",
        about: "run the commands the demo prints, exactly as printed",
        details: demo_check::HELP,
        run: demo_check::run,
    },
    Task {
        name: "clients",
        usage: "[--full] [--peers FOLDER]",
        about: "the clients in Rust, TypeScript and Python, against the demo and in a browser",
        details: clients::HELP,
        run: clients::run,
    },
    Task {
        name: "client-bed",
        usage: "[--binary PATH] [--wait-for D] [--seed N]",
        about: "the demo behind a proxy that loses answers on request, for tests of clients",
        details: client_bed::HELP,
        run: client_bed::run,
    },
    Task {
        name: "alerts",
        usage: "",
        about: "the alert rules of deploy/prometheus, checked and tried by promtool",
        details: alerts::HELP,
        run: alerts::run,
    },
    Task {
        name: "examples",
        usage: "[--release]",
        about: "the examples in Python behind a gateway: FastAPI, and the Stripe library",
        details: examples::HELP,
        run: examples::run,
    },
    Task {
        name: "fuzz",
        usage: "[--executions N]",
        about: "every reader of others' bytes, given bytes that nobody would send on purpose",
        details: fuzz::HELP,
        run: fuzz::run,
    },
    Task {
        name: "guarantees",
        usage: "[--full] [--compare]",
        about: "writes what each store was shown to keep, for `firstwrite stores`",
        details: guarantees::HELP,
        run: guarantees::run,
    },
    Task {
        name: "settings",
        usage: "",
        about: "writes the reference of settings, docs/settings.md, from the code",
        details: tidy::settings::HELP,
        run: tidy::settings::run,
    },
    Task {
        name: "public-api",
        usage: "[--write]",
        about: "the public items of the libraries, compared with docs/api",
        details: tidy::public_api::HELP,
        run: tidy::public_api::run,
    },
    Task {
        name: "vectors",
        usage: "",
        about: "signatures that nobody here made, held against the gateway's tokens",
        details: vectors::HELP,
        run: vectors::run,
    },
    Task {
        name: "sim",
        usage: "[--protocol] [--histories N] [--seed N] ...",
        about: "the seeded simulators, in release mode",
        details: forward::SIM_HELP,
        run: forward::sim,
    },
    Task {
        name: "model",
        usage: "[--full]",
        about: "the exhaustive model, in release mode",
        details: forward::MODEL_HELP,
        run: forward::model,
    },
    Task {
        name: "bench",
        usage: "[layer|sqlite|golden|reserve|reap|storage [...]]",
        about: "measurements; without a name, lists them",
        details: forward::BENCH_HELP,
        run: forward::bench,
    },
];

/// Something ran and did not succeed.
const FAILED: u8 = 1;
/// The command line made no sense; nothing was run.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(name) = words.next() else {
        print!("{}", overview());
        return ExitCode::from(MISUSED);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", overview());
        return ExitCode::SUCCESS;
    }
    if name == guard::TASK {
        guard::stand_watch();
        return ExitCode::SUCCESS;
    }
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("xtask: there is no task `{name}`; `cargo xtask --help` lists them");
        return ExitCode::from(MISUSED);
    };
    let args = Args::new(words.collect());
    if args.ask_for_help() {
        println!("cargo xtask {} {}\n\n{}\n\n{}", task.name, task.usage, task.about, task.details);
        return ExitCode::SUCCESS;
    }
    match Workspace::load().and_then(|workspace| (task.run)(&workspace, args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            if error.is::<Usage>() {
                eprintln!("usage: cargo xtask {} {}", task.name, task.usage);
                return ExitCode::from(MISUSED);
            }
            ExitCode::from(FAILED)
        }
    }
}

fn overview() -> String {
    let lines = TASKS.iter().map(|task| format!("  {:<11} {}", task.name, task.about));
    let tasks = lines.collect::<Vec<_>>().join("\n");
    format!(
        "cargo xtask <task>\n\n{tasks}\n\n`cargo xtask <task> --help` says more. \
         Exit codes: 0 all good, 1 something failed, 2 misused.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_in_the_overview() {
        let text = overview();
        for task in TASKS {
            assert!(text.contains(task.name), "{} is missing from the overview", task.name);
        }
    }
}
