//! The operator's command line: one binary, `firstwrite`.
//!
//! A command is parsed, planned (checked and resolved, without side effects) and run (which returns an exit code).
//! It is a library so that `fuzz/` reaches the readers of settings; the binary calls [`run`].

mod actor;
mod audit;
mod check;
mod command;
mod config;
mod demo;
mod demo_provider;
mod descriptors;
mod doctor;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod keys;
mod migrate;
mod opening;
mod outbox;
mod output;
mod reconcile;
mod signals;
mod stores;
mod telemetry;
mod verify;
mod worker;

use std::process::ExitCode;

use clap::Parser as _;

use crate::command::{Arguments, Exit};

/// Runs the command that the process was started with.
#[must_use]
pub fn run() -> ExitCode {
    let plan = match Arguments::parse().plan() {
        Ok(plan) => plan,
        Err(usage) => return fail(&usage.to_string(), Exit::Usage),
    };
    match plan.run() {
        Ok(exit) => exit.into(),
        Err(error) => fail(&one_line(&error), Exit::Failed),
    }
}

fn fail(message: &str, exit: Exit) -> ExitCode {
    output::error(message);
    exit.into()
}

/// The error and its causes, each said once: some errors repeat their cause in their own text.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let cause = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}
