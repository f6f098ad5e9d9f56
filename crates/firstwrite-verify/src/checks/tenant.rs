//! Another tenant under the same key: it must not notice anything, not even by the clock.

use std::time::Duration;

use super::flight;
use super::other::marked;
use crate::call::Call;
use crate::effects;
use crate::effects::Counter;
use crate::plan::{Header, Tenants};
use crate::probe::{Probe, Stop};
use crate::reply::Reply;
use crate::statistics::{Comparison, compare};

pub(super) const CHECKS: &[&str] = &["tenant-independence", "tenant-existence"];
pub(super) const TIMING: &[&str] = &["tenant-timing"];

/// Two tests must agree at this level: one false alarm in a million runs.
const P_MAX: f64 = 0.001;
/// Smallest difference that counts: a client cannot exploit smaller ones over a network.
const DIFFERENCE_MIN: Duration = Duration::from_micros(200);

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let Some(other) = others(probe, CHECKS) else { return Ok(()) };
    let key = probe.key();
    let mine = probe.call(&key);
    let first = probe.send(&mine).await?;
    let theirs = as_tenant(mine, &other);
    let reply = probe.send(&theirs).await?;
    let (sent, found) = (theirs.summary(), reply.summary());
    if refuses(&reply) {
        return Err(Stop(format!("the other tenant's credentials are refused: {found}")));
    }
    if marked(&reply) || same_thing(probe, &first, &reply) {
        probe.fail("tenant-independence", &sent, &format!("the first tenant's answer: {found}"));
    } else if reply.is_success() || reply.is_refusal() {
        // A refusal gives nothing away of the answer; that it gives away the key is the next check's.
        probe.pass("tenant-independence", &sent, &found);
    } else {
        probe.fail("tenant-independence", &sent, &found);
    }
    existence(probe, &other).await
}

/// The same and another body under the other tenant's key, finished and in flight: all must run.
async fn existence(probe: &mut Probe, other: &[Header]) -> Result<(), Stop> {
    let mut asked = Vec::new();
    let key = probe.key();
    probe.send(&probe.call(&key)).await?;
    asked.push(as_tenant(probe.call(&key), other));
    let varied = probe.json.as_ref().ok().map(crate::json::Json::other);
    if let Some(body) = varied {
        let key = probe.key();
        probe.send(&probe.call(&key)).await?;
        asked.push(as_tenant(probe.call(&key), other).body(body));
    }
    let mut in_flight = None;
    if probe.plan.slow.is_some() {
        let key = probe.key();
        let slow = probe.slow_call(&key);
        in_flight = Some(flight::begin(probe, &slow).await?);
        asked.push(as_tenant(slow, other));
    }
    let mut refused = None;
    for call in &asked {
        let reply = probe.send(call).await?;
        if !reply.is_success() {
            refused.get_or_insert((call.summary(), reply.summary()));
        }
    }
    if let Some(mut connection) = in_flight {
        // What it says is no part of this; but its effect must not fall into the next scene.
        drop(connection.answer().await);
    }
    if let Some((sent, found)) = refused {
        probe.fail("tenant-existence", &sent, &found);
    } else {
        let sent = format!("{} requests under keys that the first tenant holds", asked.len());
        probe.pass("tenant-existence", &sent, "all of them ran");
    }
    Ok(())
}

/// Compares response times of keys that the first tenant holds with those of unused keys, asked by the other tenant.
pub(super) async fn timing(probe: &mut Probe) -> Result<(), Stop> {
    let Some(other) = others(probe, TIMING) else { return Ok(()) };
    let pairs = probe.plan.limits.timings;
    let sent =
        format!("{pairs} keys of the first tenant and {pairs} of nobody, as the other tenant");
    let first = sample(probe, &other, pairs).await?;
    let found = told(&first);
    if !is_difference(&first) {
        probe.pass("tenant-timing", &sent, &found);
        return Ok(());
    }
    // Once in a thousand runs a difference is chance: ask again before saying so.
    let second = sample(probe, &other, pairs).await?;
    let agrees = first.median_difference.signum() == second.median_difference.signum();
    let found = format!("{found}; again: {}", told(&second));
    if is_difference(&second) && agrees {
        probe.fail("tenant-timing", &sent, &found);
    } else {
        probe.pass("tenant-timing", &sent, &found);
    }
    Ok(())
}

async fn sample(probe: &mut Probe, other: &[Header], pairs: usize) -> Result<Comparison, Stop> {
    let mut calls: Vec<(Call, bool)> = Vec::with_capacity(2 * pairs);
    for _ in 0..pairs {
        let key = probe.key();
        let held = probe.call(&key);
        probe.send(&held).await?;
        calls.push((as_tenant(held, other), true));
        let key = probe.key();
        calls.push((as_tenant(probe.call(&key), other), false));
    }
    // In a mixed order, so that whatever else the machine does meets both alike.
    probe.random.shuffle(&mut calls);
    let (mut held, mut free) = (Vec::new(), Vec::new());
    for (call, is_held) in &calls {
        let took = probe.send(call).await?.took.as_secs_f64();
        if *is_held { held.push(took) } else { free.push(took) }
    }
    Ok(compare(&held, &free))
}

fn is_difference(comparison: &Comparison) -> bool {
    comparison.p < P_MAX && comparison.median_difference.abs() > DIFFERENCE_MIN.as_secs_f64()
}

fn told(Comparison { p, median_difference }: &Comparison) -> String {
    format!("held keys take {:+.2} ms in the median, p = {p:.4}", median_difference * 1e3)
}

/// The other tenant's headers, or a note that there is none.
fn others(probe: &mut Probe, ids: &[&str]) -> Option<Vec<Header>> {
    let tenants = probe.plan.other_tenant.clone();
    for id in ids {
        match &tenants {
            Tenants::Other(headers) => return Some(headers.clone()),
            Tenants::One => probe.does_not_apply(id, "the API has one tenant"),
            Tenants::Unknown => {
                let why = "no other tenant: give --other-tenant-header, or --single-tenant";
                probe.not_asked(id, why);
            }
        }
    }
    None
}

pub(super) fn as_tenant(call: Call, other: &[Header]) -> Call {
    other.iter().fold(call, Call::given)
}

fn refuses(reply: &Reply) -> bool {
    matches!(reply.status(), Some(401 | 403))
}

/// Returns true if both responses name the same object; false if one of them holds no id, which proves nothing.
fn same_thing(probe: &Probe, first: &Reply, second: &Reply) -> bool {
    let (Some(first), Some(second)) = (first.answer(), second.answer()) else { return false };
    let id = |body: &[u8]| match &probe.counter {
        Counter::Ids(pointer) => effects::id(pointer, body),
        Counter::Url { .. } | Counter::Webhook(_) | Counter::Nothing => effects::id("/id", body),
    };
    match (id(&first.body), id(&second.body)) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => false,
    }
}
