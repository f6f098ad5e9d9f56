//! Connections that break, dawdle, ask first, or carry more than one request.

use std::time::Duration;

use tokio::time::sleep;

use super::flight;
use crate::call::Call;
use crate::catalogue::Severity;
use crate::probe::{Probe, Stop};
use crate::reply::Reply;
use crate::wire::{Answer, Silence};

pub(super) const CHECKS: &[&str] =
    &["cut-after-send", "cut-in-body", "slow-body", "expect-continue", "pipelined", "smuggled"];

/// Slow enough to arrive in two pieces, fast enough for any limit.
const DAWDLE: Duration = Duration::from_millis(300);
/// As long as clients wait for `100 Continue` before they send the body all the same.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);
/// An answer to what was smuggled follows at once, or not at all.
const SMUGGLED_WAIT: Duration = Duration::from_millis(400);

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    cut_after_send(probe).await?;
    cut_in_body(probe).await?;
    slow_body(probe).await?;
    expect_continue(probe).await?;
    pipelined(probe).await?;
    smuggled(probe).await
}

async fn cut_after_send(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.slow_call(&key);
    let mark = probe.mark().await?;
    let connection = flight::begin(probe, &call).await?;
    if probe.plan.slow.is_some() {
        // In the middle of the work, rather than before it began.
        sleep(flight::EVERY).await;
    }
    drop(connection);
    let reply = probe.settle(&call).await?;
    let effects = probe.effects(mark, &[&reply]).await?;
    let sent = format!("{}, cut before the answer; then again", call.summary());
    let found = reply.summary();
    if reply.is_busy() {
        let found = format!("still refused after {:?}: {found}", probe.plan.limits.settle);
        probe.fail_as(Severity::Major, "cut-after-send", &sent, &found);
    } else {
        probe.once("cut-after-send", effects, &sent, &found);
    }
    Ok(())
}

async fn cut_in_body(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.call(&key);
    if call.body_now().len() < 2 {
        probe.does_not_apply("cut-in-body", "the request has no body");
        probe.does_not_apply("slow-body", "the request has no body");
        return Ok(());
    }
    let mark = probe.mark().await?;
    let (bytes, half) = halves(probe, &call);
    probe.spend(1)?;
    let mut connection = probe.connect().await?;
    connection.write(&bytes[..half]).await?;
    // The server should have read what there is before it ends.
    sleep(DAWDLE).await;
    drop(connection);
    let early = probe.effects(mark, &[]).await?;
    let reply = probe.settle(&call).await?;
    let sent = format!("half of {}, cut; then all of it", call.summary());
    let found = reply.summary();
    let is_marked = reply.answer().is_some_and(Answer::is_marked);
    match () {
        () if is_marked || early.is_some_and(|count| count > 0) => {
            probe.fail("cut-in-body", &sent, &format!("half of it ran: then {found}"));
        }
        () if reply.is_success() => probe.pass("cut-in-body", &sent, &found),
        () => probe.fail("cut-in-body", &sent, &format!("the key is not free: {found}")),
    }
    Ok(())
}

async fn slow_body(probe: &mut Probe) -> Result<(), Stop> {
    if probe.is_noted("slow-body") {
        return Ok(());
    }
    let key = probe.key();
    let call = probe.call(&key);
    let mark = probe.mark().await?;
    let (bytes, half) = halves(probe, &call);
    probe.spend(1)?;
    let mut connection = probe.connect().await?;
    connection.write(&bytes[..half]).await?;
    sleep(DAWDLE).await;
    drop(connection.write(&bytes[half..]).await);
    let reply = Reply { result: connection.answer().await, took: Duration::ZERO };
    let retry = probe.settle(&call).await?;
    let effects = probe.effects(mark, &[&reply, &retry]).await?;
    let sent = format!("{}, its body in two pieces", call.summary());
    if reply.is_success() {
        probe.once("slow-body", effects, &sent, &reply.summary());
    } else {
        probe.fail("slow-body", &sent, &reply.summary());
    }
    Ok(())
}

async fn expect_continue(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.call(&key).header("Expect", "100-continue");
    let mark = probe.mark().await?;
    probe.spend(1)?;
    let mut connection = probe.connect().await?;
    connection.write(&call.head(probe.target.authority())).await?;
    let told = connection.answer_within(CONTINUE_WAIT).await;
    let result = match told {
        Ok(answer) if answer.status >= 200 => Ok(answer),
        // Told to go on, or not told anything: some servers are like that, and clients go on.
        Ok(_) | Err(Silence::Late) => {
            drop(connection.write(call.body_now()).await);
            connection.answer().await
        }
        Err(silence) => Err(silence),
    };
    let reply = Reply { result, took: Duration::ZERO };
    let retry = probe.settle(&probe.call(&key)).await?;
    let effects = probe.effects(mark, &[&reply, &retry]).await?;
    let (sent, found) = (call.summary(), reply.summary());
    if reply.is_success() {
        probe.once("expect-continue", effects, &sent, &found);
    } else {
        probe.fail("expect-continue", &sent, &found);
    }
    Ok(())
}

/// A retry and, right behind it on the same connection, a request of its own.
async fn pipelined(probe: &mut Probe) -> Result<(), Stop> {
    let (old, new) = (probe.key(), probe.key());
    let (retry, fresh) = (probe.call(&old), probe.call(&new));
    let first = probe.send(&retry).await?;
    let mark = probe.mark().await?;
    probe.spend(2)?;
    let mut connection = probe.connect().await?;
    let authority = probe.target.authority().to_owned();
    let both = [retry.bytes(&authority), fresh.bytes(&authority)].concat();
    drop(connection.write(&both).await);
    let replayed = Reply { result: connection.answer().await, took: Duration::ZERO };
    let second = Reply { result: connection.answer().await, took: Duration::ZERO };
    let effects = probe.effects_besides(mark, &[&first], &[&second]).await?;
    let sent = format!("a retry and {} on one connection", fresh.summary());
    let found = format!("{}; then {}", replayed.summary(), second.summary());
    let is_closed = second.result == Err(Silence::Closed) && effects.is_none_or(|count| count == 0);
    let is_run = second.is_success() && effects.map_or(!second.equals(&first), |count| count == 1);
    if replayed.result.is_ok() && (is_closed || is_run) {
        probe.pass("pipelined", &sent, &found);
    } else {
        probe.fail("pipelined", &sent, &found);
    }
    Ok(())
}

/// A request that is refused, and whose body looks like another request.
async fn smuggled(probe: &mut Probe) -> Result<(), Stop> {
    let (used, inner) = (probe.key(), probe.key());
    let authority = probe.target.authority().to_owned();
    let first = probe.call(&used);
    probe.send(&first).await?;
    let inner = probe.call(&inner);
    let call = first.body(inner.bytes(&authority));
    let mark = probe.mark().await?;
    probe.spend(1)?;
    let mut connection = probe.connect().await?;
    drop(connection.write(&call.bytes(&authority)).await);
    let outer = Reply { result: connection.answer().await, took: Duration::ZERO };
    let second = connection.answer_within(SMUGGLED_WAIT).await;
    let sent = "a request under a used key, with another request as its body";
    let second = Reply { result: second, took: Duration::ZERO };
    let effects = probe.effects(mark, &[&second]).await?;
    let is_second = second.answer().is_some_and(|answer: &Answer| answer.status != 408);
    // A server that runs the outer request has another fault, which is told elsewhere.
    let is_run = effects.is_some_and(|count| count > u64::from(outer.is_success()));
    if is_second || is_run {
        let found = format!("{}; and then {}", outer.summary(), second.summary());
        let is_run = is_run || second.is_success();
        let severity = if is_run { Severity::Critical } else { Severity::Major };
        probe.fail_as(severity, "smuggled", sent, &found);
    } else {
        probe.pass("smuggled", sent, &format!("one answer: {}", outer.summary()));
    }
    Ok(())
}

/// A request's bytes, and where the middle of its body is.
fn halves(probe: &Probe, call: &Call) -> (Vec<u8>, usize) {
    let bytes = call.bytes(probe.target.authority());
    let half = bytes.len() - call.body_now().len() / 2;
    (bytes, half)
}
