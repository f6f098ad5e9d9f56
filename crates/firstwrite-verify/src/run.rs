//! One run: the first request, then scene after scene, then the report.

use std::time::Duration;

use tokio::time::sleep;

use crate::catalogue::CHECKS;
use crate::checks::{NO_RETRIES, SCENES};
use crate::effects::Counter;
use crate::error::Error;
use crate::finding::Finding;
use crate::grade::grade;
use crate::plan::Plan;
use crate::probe::{Probe, Stop};
use crate::reply::Reply;
use crate::report::Report;

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Name of the next scene.
    pub scene: &'a str,
    /// Number of checks decided so far.
    pub decided: usize,
    /// Number of all checks.
    pub checks: usize,
    /// Number of requests sent so far.
    pub requests: u32,
}

/// Asks everything that the plan asks for.
pub async fn verify(plan: Plan, mut progress: impl FnMut(Progress<'_>)) -> Result<Report, Error> {
    check_names(&plan)?;
    let mut probe = Probe::new(plan).await?;
    first(&mut probe).await?;
    let wanted: Vec<&str> =
        CHECKS.iter().filter(|check| probe.plan.wants(check)).map(|check| check.id).collect();
    for scene in SCENES {
        if !scene.checks.iter().any(|id| wanted.contains(id)) {
            continue;
        }
        progress(Progress {
            scene: scene.name,
            decided: probe.findings.len(),
            checks: wanted.len(),
            requests: probe.requests(),
        });
        probe.scene = scene.name;
        let has_retries = !(scene.needs_retries && probe.has_failed("replay-effects"));
        let ended = if has_retries {
            (scene.run)(&mut probe).await
        } else {
            Err(Stop(NO_RETRIES.to_owned()))
        };
        let why =
            ended.err().map_or_else(|| "the scene ended before it".to_owned(), |Stop(why)| why);
        for id in scene.checks {
            if !probe.is_noted(id) {
                probe.not_asked(id, &why);
            }
        }
    }
    Ok(report(probe, &wanted))
}

fn report(mut probe: Probe, wanted: &[&str]) -> Report {
    let mut findings: Vec<Finding> = std::mem::take(&mut probe.findings);
    findings.retain(|finding| wanted.contains(&finding.check.id));
    findings.sort_by_key(|finding| CHECKS.iter().position(|check| check == finding.check));
    Report {
        target: probe.target.to_string(),
        method: probe.plan.method.to_string(),
        profile: probe.plan.profile,
        seed: probe.plan.seed,
        effects: probe.counter.describe(),
        requests: probe.requests(),
        took: probe.began_at.elapsed(),
        grade: grade(&findings),
        findings,
        exchanges: std::mem::take(&mut probe.exchanges),
    }
}

/// A server that has just been started is waited for, this long.
const START_MAX: Duration = Duration::from_secs(3);
const START_EVERY: Duration = Duration::from_millis(100);

/// The user's request must work, and be counted: otherwise every check would fail, and none would mean anything.
async fn first(probe: &mut Probe) -> Result<(), Error> {
    let failed = |Stop(why): Stop| Error::failed(why);
    let key = probe.key();
    let call = probe.call(&key);
    for _ in 0..START_MAX.as_millis() / START_EVERY.as_millis() {
        if probe.connect().await.is_ok() {
            break;
        }
        sleep(START_EVERY).await;
    }
    let mark = probe.mark().await.map_err(failed)?;
    let reply = probe.send(&call).await.map_err(failed)?;
    if !reply.is_success() {
        return Err(Error::failed(not_working(&reply)));
    }
    if let (Counter::Ids(pointer), Some(answer)) = (&probe.counter, reply.answer())
        && crate::effects::id(pointer, &answer.body).is_none()
    {
        probe.counter = Counter::Nothing;
    }
    let effects = probe.effects(mark, &[&reply]).await.map_err(failed)?;
    match effects {
        None | Some(1) => Ok(()),
        Some(count) => Err(Error::failed(format!(
            "one request made {count} effects by {}: is it the right counter, and is nobody else at work?",
            probe.counter.describe()
        ))),
    }
}

fn not_working(reply: &Reply) -> String {
    let hint = match reply.status() {
        Some(401 | 403) => "give credentials with --header",
        Some(404 | 405) => "is it the right URL and --method?",
        Some(400 | 415 | 422) => "give a body that it takes with --body, and headers with --header",
        Some(_) => "the checks need a request that works",
        None => "is it running?",
    };
    format!("the request itself is not answered with success: {}; {hint}", reply.summary())
}

/// `--only` and `--skip` name checks or their groups.
fn check_names(plan: &Plan) -> Result<(), Error> {
    for name in plan.only.iter().chain(&plan.skip) {
        let is_known = CHECKS.iter().any(|check| check.is_called(name));
        if !is_known {
            return Err(Error::usage(format!(
                "there is no check or group `{name}`: `firstwrite verify --list` names them"
            )));
        }
    }
    Ok(())
}
