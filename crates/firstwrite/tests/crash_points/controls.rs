//! Victims that do it wrong: if the judge does not complain of them, it judges nothing.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};

use crate::cases::{Mode, Told, Wrong, tell};
use crate::delivery::Custom;
use crate::places::{Backend, Ground};
use crate::task::{CrashAt, Flaw};

/// One way to do it wrong.
#[derive(Clone, Copy, Debug)]
struct Control {
    name: &'static str,
    mode: Mode,
    crash_at: CrashAt<'static>,
    wrong: Wrong,
    complaint: &'static str,
}

fn controls(backend: Backend) -> Vec<Control> {
    let worked = match backend {
        Backend::Sqlite => "atomic-worked",
        Backend::Postgres | Backend::MariaDb => "conclude-before",
    };
    // An SQLite file is swept when it is opened, before a worker comes.
    let freed = match backend {
        Backend::Sqlite => ("sqlite-after-commit", 2),
        Backend::Postgres | Backend::MariaDb => ("sweep-between", 1),
    };
    let flawed = |flaw| Wrong { flaw: Some(flaw), ..Wrong::default() };
    let mut controls = vec![
        Control {
            name: "an answer before the outcome is recorded",
            mode: Mode::Uncertain,
            crash_at: Some(("handler-ended", 1)),
            wrong: flawed(Flaw::AnswersFirst),
            complaint: "an answer was given, and the retry gets another one",
        },
        Control {
            name: "an answer before the outcome is recorded, and a second run",
            mode: Mode::Resend,
            crash_at: Some(("handler-ended", 1)),
            wrong: flawed(Flaw::AnswersFirst),
            complaint: "an answer was given, and the retry gets another one",
        },
        Control {
            name: "a row apart from the record",
            mode: Mode::Atomic,
            crash_at: Some((worked, 1)),
            wrong: flawed(Flaw::RowApart),
            complaint: "a part of a transaction stands without the rest",
        },
        Control {
            name: "a key that is not free after its lease",
            mode: Mode::Resend,
            crash_at: Some(("handler-ended", 1)),
            wrong: Wrong { is_impatient: true, ..Wrong::default() },
            complaint: "the key is stuck",
        },
        Control {
            name: "a worker that frees uncertain keys",
            mode: Mode::Worker,
            crash_at: Some(freed),
            wrong: flawed(Flaw::FreesUncertain),
            complaint: "the worker left",
        },
        Control {
            name: "a provider that is believed to honour keys",
            mode: Mode::Deliver(Custom::Misjudged),
            crash_at: Some(("deliver-after-call", 1)),
            wrong: Wrong::default(),
            complaint: "an effect happened twice",
        },
    ];
    // There, a key is free as soon as somebody else can ask for it.
    controls.retain(|control| backend != Backend::Sqlite || !control.wrong.is_impatient);
    controls
}

/// The controls on every store.
pub(crate) fn trials(backends: &[Backend], ground: &Arc<Ground>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for backend in backends.iter().copied() {
        for control in controls(backend) {
            let ground = Arc::clone(ground);
            let name = format!("control: {backend}: {}", control.name);
            trials.push(Trial::test(name, move || notice(&ground, backend, control)));
        }
    }
    trials
}

fn notice(ground: &Ground, backend: Backend, control: Control) -> Result<(), Failed> {
    let Control { mode, crash_at, wrong, complaint, .. } = control;
    let Told { victim, judged } = tell(ground, backend, mode, crash_at, wrong);
    match judged {
        _ if !victim.killed => Err("nobody died".into()),
        Ok(()) => Err("the judge did not complain".into()),
        Err(said) if said.starts_with(complaint) => Ok(()),
        Err(said) => Err(format!("the judge complained of something else: {said}").into()),
    }
}
