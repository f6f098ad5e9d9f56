//! One point, one store, one mode: the victim is killed at every passing of the point.

use std::fmt;
use std::sync::OnceLock;

use crate::delivery::{self, Custom};
use crate::places::{Backend, Ground, Place};
use crate::rules::{Story, judge};
use crate::task::{CrashAt, Flaw, Role, Run, Task};
use crate::upkeep;

/// What the victims of a case do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Atomic,
    Uncertain,
    Resend,
    /// As `Resend`, and the victim is the second one: the first died after its effect.
    TakeOver,
    Worker,
    /// Messages are delivered to a provider of this kind.
    Deliver(Custom),
}

pub(crate) const MODES: [Mode; 8] = [
    Mode::Atomic,
    Mode::Uncertain,
    Mode::Resend,
    Mode::TakeOver,
    Mode::Worker,
    Mode::Deliver(Custom::Honours),
    Mode::Deliver(Custom::Ignores),
    Mode::Deliver(Custom::Answers),
];

#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) point: String,
    pub(crate) backend: Backend,
    pub(crate) mode: Mode,
    report: OnceLock<Report>,
}

/// What a case has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) kills: u32,
    pub(crate) complaints: Vec<String>,
}

/// What is wrong on purpose, for the controls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wrong {
    pub(crate) flaw: Option<Flaw>,
    /// The retry comes before the lease has ended.
    pub(crate) is_impatient: bool,
}

/// A point that is passed more often than this by one victim would be killed at for ever.
const PASSED_MAX: u32 = 50;

/// Twice the lease.
const NEXT_AFTER_SECONDS: u64 = 60;

impl Case {
    pub(crate) fn new(point: &str, backend: Backend, mode: Mode) -> Self {
        Self { point: point.to_owned(), backend, mode, report: OnceLock::new() }
    }

    /// Runs the case, unless somebody has or does.
    pub(crate) fn report(&self, ground: &Ground) -> &Report {
        self.report.get_or_init(|| {
            let mut report = Report::default();
            let times = ground.passed(self.backend, self.mode).get(&self.point).copied();
            let times = times.unwrap_or_default();
            for nth in 1..=times.min(PASSED_MAX) {
                let crash_at = Some((&*self.point, nth));
                let told = tell(ground, self.backend, self.mode, crash_at, Wrong::default());
                // It may pass less often than the one that was asked.
                if !told.victim.killed {
                    return report;
                }
                report.kills += 1;
                if let Err(complaint) = told.judged {
                    report.complaints.push(format!("{}:{nth}: {complaint}", self.point));
                }
            }
            if times > PASSED_MAX {
                report.complaints.push(format!("passed more than {PASSED_MAX} times"));
            }
            report
        })
    }

    /// How many died so far, if it has run.
    pub(crate) fn kills(&self) -> u32 {
        self.report.get().map_or(0, |report| report.kills)
    }
}

/// What became of a victim, and what is wrong with that.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) victim: Run,
    pub(crate) judged: Result<(), String>,
}

/// Has a victim die at `crash_at` and others come after it.
/// A victim that does not pass there is nobody's business: it did what one does that is not to die.
pub(crate) fn tell(
    ground: &Ground,
    backend: Backend,
    mode: Mode,
    crash_at: CrashAt<'_>,
    wrong: Wrong,
) -> Told {
    let role = match mode {
        Mode::Atomic => Role::Atomic,
        Mode::Uncertain => Role::Uncertain,
        Mode::Resend | Mode::TakeOver => Role::Resend,
        Mode::Worker => return upkeep_of(&ground.private_place(backend), crash_at, wrong),
        Mode::Deliver(custom) => {
            return delivery::tell(&ground.private_place(backend), custom, crash_at);
        }
    };
    let place = ground.place(backend);
    let mut task = Task {
        role,
        store: place.store.clone(),
        key: format!("key-{:016x}", fastrand::u64(..)),
        effects: place.effects(),
        seconds_later: 0,
        flaw: wrong.flaw,
        to: None,
    };
    if mode == Mode::TakeOver {
        let first = run(&place, &task, Some(("handler-ended", 1)));
        assert!(first.killed, "the first attempt is to die");
        task.seconds_later += NEXT_AFTER_SECONDS;
    }
    let victim = run(&place, &task, crash_at);
    if crash_at.is_some() && !victim.killed {
        return Told { victim, judged: Ok(()) };
    }
    let at_death = place.facts(&task.key);
    if !wrong.is_impatient {
        task.seconds_later += NEXT_AFTER_SECONDS;
    }
    let answer = |run: Run| run.answer.ok_or_else(|| "no answer was given".to_owned());
    let judged = || {
        let retry = answer(run(&place, &task, None))?;
        let again = answer(run(&place, &task, None))?;
        let in_the_end = place.facts(&task.key);
        let victim = victim.clone();
        let story = Story { role, victim, at_death, retry, again, in_the_end };
        judge(&story).map_err(|complaint| format!("{complaint}: {story:?}"))
    };
    let judged = judged();
    Told { victim, judged }
}

fn run(place: &Place, task: &Task, crash_at: CrashAt<'_>) -> Run {
    let run = task.run(crash_at);
    place.bury(&task.key);
    run
}

/// Has a worker die at `crash_at` and another one finish.
fn upkeep_of(place: &Place, crash_at: CrashAt<'_>, wrong: Wrong) -> Told {
    let task = |role, seconds_later| Task {
        role,
        store: place.store.clone(),
        key: format!("worker-{:016x}", fastrand::u64(..)),
        effects: place.effects(),
        seconds_later,
        flaw: wrong.flaw,
        to: None,
    };
    let comes_after = upkeep::COMES_AFTER.as_secs();
    run(place, &task(Role::Prepare, 0), None);
    let victim = run(place, &task(Role::Worker, comes_after), crash_at);
    if crash_at.is_some() && !victim.killed {
        return Told { victim, judged: Ok(()) };
    }
    let judged = || {
        check(place, upkeep::Found::may_be)?;
        run(place, &task(Role::Worker, comes_after), None);
        check(place, |found, stands| found.in_the_end() == stands)
    };
    Told { judged: judged(), victim }
}

fn check(
    place: &Place,
    is_right: impl Fn(&upkeep::Found, Option<firstwrite_core::StateKind>) -> bool,
) -> Result<(), String> {
    let records = upkeep::records();
    let keys: Vec<&str> = records.iter().map(|found| &*found.key).collect();
    for (found, stands) in records.iter().zip(place.states(&keys)) {
        let is_swept = place.store.starts_with("sqlite:") && found.is_orphan(stands);
        if !is_swept && !is_right(found, stands) {
            return Err(format!("the worker left {found:?} as {stands:?}"));
        }
    }
    Ok(())
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Atomic => "atomic",
            Self::Uncertain => "reserved, uncertain",
            Self::Resend => "reserved, resend",
            Self::TakeOver => "reserved, taken over",
            Self::Worker => "worker",
            Self::Deliver(custom) => return write!(f, "delivering where a provider {custom}"),
        })
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
        })
    }
}
