//! `kill -9` at every named crash point: no effect twice, no answer lost.
//!
//! This program is both sides. As a *victim* it does one small thing on a real store and is killed at
//! the point that its environment names. As the *judge* it starts victims, one after the other under
//! the same key, looks at what they left behind, and compares that with what is promised.
//!
//! - [`points`]: the points, read from the sources. [`cases`]: each of them, in every mode on every
//!   store, at every passing. [`rules`]: what must hold.
//! - [`task`]: what a victim is told. [`victim`]: requests. [`upkeep`]: the worker. [`delivery`]: the
//!   worker that delivers, and the provider it pays.
//!   [`places`]: stores. [`controls`]: victims that do it wrong, which the rules must notice.
#![expect(clippy::unwrap_used, reason = "what prepares a test may fail it")]
#![expect(clippy::print_stdout, reason = "victims answer, and skipped tests say so")]

mod cases;
mod controls;
mod delivery;
mod places;
mod points;
mod rules;
mod task;
mod upkeep;
mod victim;

use std::env;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use cases::{Case, MODES, Mode, Report, Wrong, tell};
use places::{Backend, Ground, SERVERS, has_server};
use points::Point;
use task::VICTIM;

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    if arguments.next().as_deref() == Some(VICTIM) {
        let task = arguments.next().unwrap();
        victim::run(serde_json::from_str(&task).unwrap());
        return ExitCode::SUCCESS;
    }
    let (ground, points) = (Arc::new(Ground::default()), points::all());
    let mut trials = Vec::new();
    let mut backends = vec![Backend::Sqlite];
    for (backend, variable) in SERVERS {
        match has_server(variable) {
            Ok(true) => backends.push(backend),
            Ok(false) => println!("skipped: {backend} ({variable} is not set)"),
            Err(missing) => {
                trials.push(Trial::test(backend.to_string(), || Err(missing.into())));
            }
        }
    }
    let cases = cases_of(&points, &backends);
    for case in &cases {
        trials.push(case_trial(case, &ground));
    }
    // Without a server, some points are never passed.
    if backends.len() > SERVERS.len() {
        trials.extend(points.iter().map(|point| kill_trial(&point.name, &cases, &ground)));
    }
    for backend in backends.iter().copied() {
        trials.extend(MODES.map(|mode| peaceful_trial(backend, mode, &ground)));
    }
    trials.extend(controls::trials(&backends, &ground));
    trials.extend(delivery::trials(&backends, &ground));
    let point_count = points.len();
    trials.push(Trial::test("every point has a name of its own", move || {
        points::check_names(&points).map_err(Failed::from)
    }));
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    ground.clear();
    let kills: u32 = cases.iter().map(|case| case.kills()).sum();
    println!("{point_count} crash points, {} cases, {kills} kills", cases.len());
    conclusion.exit_code()
}

fn cases_of(points: &[Point], backends: &[Backend]) -> Vec<Arc<Case>> {
    let mut cases = Vec::new();
    for point in points {
        for backend in backends {
            let of_mode = |mode| Arc::new(Case::new(&point.name, *backend, mode));
            cases.extend(MODES.map(of_mode));
        }
    }
    cases
}

fn case_trial(case: &Arc<Case>, ground: &Arc<Ground>) -> Trial {
    let name = format!("{}: {}: {}", case.backend, case.mode, case.point);
    let (case, ground) = (Arc::clone(case), Arc::clone(ground));
    Trial::test(name, move || {
        let Report { complaints, .. } = case.report(&ground);
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n").into()) }
    })
}

/// What victims do that are not killed is right, too.
fn peaceful_trial(backend: Backend, mode: Mode, ground: &Arc<Ground>) -> Trial {
    let ground = Arc::clone(ground);
    Trial::test(format!("{backend}: {mode}: nobody dies"), move || {
        tell(&ground, backend, mode, None, Wrong::default()).judged.map_err(Failed::from)
    })
}

/// A point at which nobody dies tests nothing.
fn kill_trial(point: &str, cases: &[Arc<Case>], ground: &Arc<Ground>) -> Trial {
    let own: Vec<_> = cases.iter().filter(|case| case.point == point).cloned().collect();
    let ground = Arc::clone(ground);
    Trial::test(format!("somebody dies: {point}"), move || {
        let kills: u32 = own.iter().map(|case| case.report(&ground).kills).sum();
        if kills > 0 { Ok(()) } else { Err("no victim passes this point".into()) }
    })
}
