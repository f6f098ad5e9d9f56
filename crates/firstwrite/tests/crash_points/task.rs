//! What a victim is told to do, and what it says before it ends; and how the judge starts one.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use firstwrite_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::delivery::To;

/// The first argument of a process that is a victim; the second is its task.
pub(crate) const VICTIM: &str = "victim";

/// What one victim does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) role: Role,
    /// `sqlite:FILE`, `postgres://…?schema=…` or `mysql://…`.
    pub(crate) store: String,
    pub(crate) key: String,
    /// Where effects outside the store are written down.
    pub(crate) effects: PathBuf,
    /// How much later than the first victim it is, by the store's clock.
    pub(crate) seconds_later: u64,
    pub(crate) flaw: Option<Flaw>,
    /// Where messages go, for those who deliver.
    pub(crate) to: Option<To>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// One request whose effect is a row in the transaction of its record.
    Atomic,
    /// One request whose effect is outside the store and must not be repeated.
    Uncertain,
    /// One request whose effect is outside the store, where its key is recognised.
    Resend,
    /// Writes the records that a worker will find.
    Prepare,
    /// Turns of the worker until there is nothing to do.
    Worker,
    /// Writes messages that a worker will find.
    Enqueue,
    /// Deliveries until nothing is due.
    Deliver,
}

/// What a victim does wrong, so that the judge has something to complain of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Flaw {
    /// Gives its answer before the outcome is recorded.
    AnswersFirst,
    /// Commits the handler's row apart from the record.
    RowApart,
    /// Frees keys whose outcome nobody knows.
    FreesUncertain,
}

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// How a victim ended.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) killed: bool,
    /// The first one, if any was given.
    pub(crate) answer: Option<Answer>,
    /// How often each point was passed, if it was to say so.
    pub(crate) passed: Passed,
}

/// How often each point was passed.
pub(crate) type Passed = BTreeMap<String, u32>;

/// Has a victim say what it passes, and live.
pub(crate) const LISTING: CrashAt<'static> = Some(("list", 0));

/// When the first victim of every store runs, by the store's clock.
pub(crate) const BEGAN_AT: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The place and the count at which a victim is killed.
pub(crate) type CrashAt<'a> = Option<(&'a str, u32)>;

impl Task {
    /// The store's clock, which stands still while a victim runs.
    pub(crate) fn now(&self) -> Timestamp {
        BEGAN_AT.plus(Duration::from_secs(self.seconds_later))
    }

    /// Starts a victim.
    pub(crate) fn start(&self, crash_at: CrashAt<'_>) -> Child {
        self.command(crash_at).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn command(&self, crash_at: CrashAt<'_>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(VICTIM).arg(serde_json::to_string(self).unwrap()).stdin(Stdio::null());
        command.env_remove("FIRSTWRITE_CRASH_AT");
        if let Some((name, nth)) = crash_at {
            command.env("FIRSTWRITE_CRASH_AT", format!("{name}:{nth}"));
        }
        command
    }

    /// Runs a victim to its end.
    pub(crate) fn run(&self, crash_at: CrashAt<'_>) -> Run {
        let output = self.command(crash_at).output().unwrap();
        let killed = output.status.signal() == Some(9);
        let said = String::from_utf8(output.stdout).unwrap();
        let trouble = String::from_utf8_lossy(&output.stderr);
        assert!(killed || output.status.success(), "{self:?}: {}\n{trouble}", output.status);
        let answer = said.lines().next().map(|line| serde_json::from_str(line).unwrap());
        let mut passed = Passed::new();
        for name in trouble.lines().filter_map(|line| line.strip_prefix("passed ")) {
            *passed.entry(name.to_owned()).or_default() += 1;
        }
        Run { killed, answer, passed }
    }
}

impl Answer {
    /// Whether it is the refusal of a request whose outcome nobody knows.
    pub(crate) fn is_unknown(&self) -> bool {
        let problem: Option<serde_json::Value> = serde_json::from_str(&self.body).ok();
        self.status == 409 && problem.is_some_and(|problem| problem["code"] == "outcome-unknown")
    }
}
