//! While a slow request is under way.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::other::{elsewhere, marked, with_other_method, with_other_query};
use crate::call::Call;
use crate::catalogue::Severity;
use crate::probe::{Probe, Stop};
use crate::reply::{Reply, tally};
use crate::wire::Connection;

pub(super) const CHECKS: &[&str] = &["flight-repeats", "flight-body", "flight-request"];

/// Often enough to meet a lock that ends early, and late enough not to be a race.
pub(super) const EVERY: Duration = Duration::from_millis(250);
/// A slow request that takes longer is not asked about any more.
const REPEATS_MAX: usize = 40;

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    if probe.plan.slow.is_none() {
        for id in CHECKS {
            probe.not_asked(id, "nothing makes a request slow: give --slow");
        }
        return Ok(());
    }
    repeats(probe).await?;
    body(probe).await?;
    request(probe).await
}

/// Retries all the while that the first is under way.
async fn repeats(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.slow_call(&key);
    let sent = format!("{}, and again every {} ms", call.summary(), EVERY.as_millis());
    let mark = probe.mark().await?;
    let mut connection = begin(probe, &call).await?;
    let sent_at = Instant::now();
    let mut replies = Vec::new();
    let result = {
        let mut answer = Box::pin(connection.answer());
        loop {
            // The pause ends early when the first is answered.
            tokio::select! {
                answer = &mut answer => break answer,
                () = sleep(EVERY) => {}
            }
            if replies.len() < REPEATS_MAX {
                replies.push(probe.send(&call).await?);
            }
        }
    };
    let first = Reply { result, took: sent_at.elapsed() };
    probe.record(sent_at, sent_at, &first);
    let after = probe.settle(&call).await?;
    let seen: Vec<&Reply> = replies.iter().chain([&first, &after]).collect();
    let effects = probe.effects(mark, &seen).await?;
    let found = format!("first {}; meanwhile {}", first.summary(), tally(&replies));
    let answered =
        replies.iter().filter(|reply| reply.is_success()).find(|one| !one.equals(&first));
    match answered {
        Some(other) if effects.is_none() => {
            probe.fail(
                "flight-repeats",
                &sent,
                &format!("{found}; another answer: {}", other.summary()),
            );
        }
        _ => probe.once("flight-repeats", effects, &sent, &found),
    }
    Ok(())
}

/// Another body under a key that is in flight.
async fn body(probe: &mut Probe) -> Result<(), Stop> {
    let Some(other) = probe.other_body("flight-body") else { return Ok(()) };
    let key = probe.key();
    let call = probe.slow_call(&key);
    let other = call.clone().body(other);
    let sent = format!("{}, and meanwhile {}", call.summary(), other.summary());
    let mark = probe.mark().await?;
    let mut connection = begin(probe, &call).await?;
    let sent_at = Instant::now();
    sleep(EVERY).await;
    let (second, first) = tokio::join!(probe.send(&other), connection.answer());
    let (second, first) = (second?, Reply { result: first, took: sent_at.elapsed() });
    probe.record(sent_at, sent_at, &first);
    let effects = probe.effects(mark, &[&first, &second]).await?;
    let found = format!("first {}; meanwhile {}", first.summary(), second.summary());
    // On a busy machine the other one may have come first: what counts is that one of them is refused.
    let is_one = first.is_success() != second.is_success();
    let is_refused = first.is_refusal() || second.is_refusal();
    match () {
        () if !is_one || effects.is_some_and(|count| count > 1) => {
            probe.fail("flight-body", &sent, &found);
        }
        () if is_refused => probe.pass("flight-body", &sent, &found),
        // Neither answered nor run; but not in a way that a client understands.
        () => probe.fail_as(Severity::Minor, "flight-body", &sent, &found),
    }
    Ok(())
}

/// Another path, query and method under a key that is in flight.
async fn request(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.slow_call(&key);
    let others = [elsewhere(&call), with_other_query(&call), with_other_method(&call)];
    let names = others.each_ref().map(Call::summary).join("; ");
    let sent = format!("{}, and meanwhile {names}", call.summary());
    let mut connection = begin(probe, &call).await?;
    let sent_at = Instant::now();
    sleep(EVERY).await;
    let (replies, first) = tokio::join!(probe.send_all(&others), connection.answer());
    let (replies, first) = (replies?, Reply { result: first, took: sent_at.elapsed() });
    probe.record(sent_at, sent_at, &first);
    let found = format!("first {}; meanwhile {}", first.summary(), tally(&replies));
    if replies.iter().any(|reply| reply.repeats(&first) || marked(reply)) {
        probe.fail("flight-request", &sent, &format!("the first's answer: {found}"));
    } else {
        probe.pass("flight-request", &sent, &found);
    }
    Ok(())
}

/// Sends a request and does not wait for its answer.
pub(super) async fn begin(probe: &mut Probe, call: &Call) -> Result<Connection, Stop> {
    probe.spend(1)?;
    let mut connection = probe.connect().await?;
    connection.write(&call.bytes(probe.target.authority())).await?;
    Ok(connection)
}
