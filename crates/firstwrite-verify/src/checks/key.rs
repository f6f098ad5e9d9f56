//! The key itself: missing, empty, long, quoted, twice, and in odd characters.

use super::refusal::Refusals;
use crate::catalogue::Severity;
use crate::probe::{Probe, Stop};

pub(super) const CHECKS: &[&str] = &[
    "key-missing",
    "key-empty",
    "key-255",
    "key-256",
    "key-truncated",
    "key-quoted",
    "key-two-headers",
    "key-characters",
];

/// The length that peers agree on.
const LENGTH_MAX: usize = 255;

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    missing(probe).await?;
    empty(probe).await?;
    long(probe).await?;
    quoted(probe).await?;
    twice(probe).await?;
    characters(probe).await
}

async fn missing(probe: &mut Probe) -> Result<(), Stop> {
    if !probe.plan.requires_keys() {
        probe.does_not_apply("key-missing", "keys are optional here");
        return Ok(());
    }
    let mut refusals = Refusals::default();
    refusals.ask(probe, &probe.keyless(), &[400]).await?;
    refusals.tell(probe, "key-missing");
    Ok(())
}

async fn empty(probe: &mut Probe) -> Result<(), Stop> {
    if !probe.plan.requires_keys() {
        probe.does_not_apply("key-empty", "keys are optional here");
        return Ok(());
    }
    let mut refusals = Refusals::default();
    for empty in ["", "\"\""] {
        let call = probe.keyless().header(&probe.plan.key_header, empty);
        refusals.ask(probe, &call, &[400]).await?;
    }
    refusals.tell(probe, "key-empty");
    Ok(())
}

/// 255 characters, 256, and whether long keys are cut.
async fn long(probe: &mut Probe) -> Result<(), Stop> {
    let has_limit = probe.plan.profile.limits_keys();
    let key = padded(&probe.key(), LENGTH_MAX);
    let call = probe.call(&key);
    let reply = probe.send(&call).await?;
    let (sent, found) = (call.summary(), reply.summary());
    let is_taken = reply.is_success();
    match () {
        () if is_taken => probe.pass("key-255", &sent, &found),
        () if reply.is_refusal() && !has_limit => {
            probe.does_not_apply("key-255", "refused, which the draft leaves open");
        }
        () => probe.fail("key-255", &sent, &found),
    }
    let mut longest = is_taken.then_some((key, reply));

    let key = padded(&probe.key(), LENGTH_MAX + 1);
    let call = probe.call(&key);
    let mut refusals = Refusals::default();
    let reply = probe.send(&call).await?;
    if has_limit || !reply.is_success() {
        refusals.judge(&call, &reply, &[400]);
        refusals.tell(probe, "key-256");
    } else {
        probe.does_not_apply("key-256", "taken, which the draft leaves open");
    }

    if reply.is_success() {
        longest = Some((key, reply));
    }
    if probe.has_failed("replay-effects") {
        probe.not_asked("key-truncated", super::NO_RETRIES);
        return Ok(());
    }
    let Some((mut twin, first)) = longest else {
        probe.does_not_apply("key-truncated", "keys of 255 characters are refused");
        return Ok(());
    };
    // Another body, so that a cut key shows whatever the server does about bodies.
    let body = match &probe.json {
        Ok(json) => json.other(),
        Err(_) => probe.keyless().body_now().to_vec(),
    };
    twin.pop();
    twin.push('b');
    let mark = probe.mark().await?;
    let call = probe.call(&twin).body(body);
    let reply = probe.send(&call).await?;
    let effects = probe.effects_besides(mark, &[&first], &[&reply]).await?;
    let is_replay = reply.retries(&first, None);
    let (sent, found) = (call.summary(), reply.summary());
    if reply.is_success() && !is_replay && effects != Some(0) {
        probe.pass("key-truncated", &sent, &found);
    } else {
        let found = format!("taken for the key that differs in its last character: {found}");
        probe.fail("key-truncated", &sent, &found);
    }
    Ok(())
}

/// The same key with and without quotes.
async fn quoted(probe: &mut Probe) -> Result<(), Stop> {
    if !probe.plan.profile.reads_quotes() {
        probe.does_not_apply("key-quoted", "quotes are part of a key in this profile");
        return Ok(());
    }
    if probe.has_failed("replay-effects") {
        probe.not_asked("key-quoted", super::NO_RETRIES);
        return Ok(());
    }
    let key = probe.key();
    let mark = probe.mark().await?;
    let first = probe.send(&probe.call(&key)).await?;
    let call = probe.keyless().header(&probe.plan.key_header, &key);
    let second = probe.send(&call).await?;
    let effects = probe.effects(mark, &[&first, &second]).await?;
    let (sent, found) = (format!("quoted, then {}", call.summary()), second.summary());
    match () {
        () if second.is_refusal() => probe.pass("key-quoted", &sent, &format!("refused: {found}")),
        () if second.retries(&first, effects) => {
            probe.pass("key-quoted", &sent, &format!("one key: {found}"));
        }
        () => probe.fail("key-quoted", &sent, &format!("two keys: {found}")),
    }
    Ok(())
}

async fn twice(probe: &mut Probe) -> Result<(), Stop> {
    let (first, second) = (probe.key(), probe.key());
    let second = probe.plan.profile.spelled(&second);
    let call = probe.call(&first).also(&probe.plan.key_header, second);
    let mut refusals = Refusals::default();
    refusals.ask(probe, &call, &[400]).await?;
    // Nothing forbids it where keys are no structured field, and no client should count on it.
    let most = if probe.plan.profile.reads_quotes() { Severity::Critical } else { Severity::Minor };
    refusals.tell_at_most(most, probe, "key-two-headers");
    Ok(())
}

async fn characters(probe: &mut Probe) -> Result<(), Stop> {
    let mut refusals = Refusals::or_closed();
    // Where keys are no structured field, they may hold whatever a header may.
    let odd: &[u8] =
        if probe.plan.profile.reads_quotes() { &[0x01, 0x7f, 0xff] } else { &[0x01, 0x7f] };
    for odd in odd {
        let key = probe.plan.profile.spelled(&format!("{}-", probe.key()));
        let mut key = key.into_bytes();
        key.insert(5, *odd);
        let call = probe.keyless().header(&probe.plan.key_header, key);
        refusals.ask(probe, &call, &[400]).await?;
    }
    refusals.tell(probe, "key-characters");
    Ok(())
}

fn padded(key: &str, length: usize) -> String {
    format!("{key}-{}", "a".repeat(length - key.len() - 1))
}
