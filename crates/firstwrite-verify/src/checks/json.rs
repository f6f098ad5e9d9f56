//! The same JSON in other words, and other JSON that careless readers take for the same.

use super::other::marked;
use crate::catalogue::Severity;
use crate::json::Spelling;
use crate::probe::{Probe, Stop};
use crate::wire::Answer;

pub(super) const CHECKS: &[&str] =
    &["json-order", "json-whitespace", "json-numbers", "json-duplicates", "json-big-numbers"];

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let json = match &probe.json {
        Ok(json) => json.clone(),
        Err(why) => {
            let why = why.clone();
            for id in CHECKS {
                probe.does_not_apply(id, &why);
            }
            return Ok(());
        }
    };
    let plain = json.spelled(Spelling::Plain);
    same(probe, "json-order", json.reordered()).await?;
    same(probe, "json-whitespace", [plain.clone(), json.spelled(Spelling::Spaced)]).await?;
    match json.number_spelled() {
        Some(pair) => same(probe, "json-numbers", pair).await?,
        None => probe.does_not_apply("json-numbers", "what is varied is no whole number"),
    }
    if probe.has_failed("other-body") {
        for id in ["json-duplicates", "json-big-numbers"] {
            probe.not_asked(id, "another body is not told from the first: mend other-body first");
        }
        return Ok(());
    }
    match json.duplicated() {
        Some(twice) => {
            different(probe, "json-duplicates", &[[plain, twice]]).await?;
        }
        None => probe.does_not_apply("json-duplicates", "the body is no object"),
    }
    different(probe, "json-big-numbers", &json.big_numbers()).await
}

/// Two bodies that mean the same: a retry or a refusal, but no second effect.
async fn same(probe: &mut Probe, id: &str, [one, two]: [Vec<u8>; 2]) -> Result<(), Stop> {
    if one == two {
        probe.does_not_apply(id, "the body has but one spelling");
        return Ok(());
    }
    let key = probe.key();
    let mark = probe.mark().await?;
    let first = probe.send(&probe.call(&key).body(one)).await?;
    let call = probe.call(&key).body(two);
    let second = probe.send(&call).await?;
    let effects = probe.effects(mark, &[&first, &second]).await?;
    let (sent, found) = (call.summary(), second.summary());
    if !first.is_success() {
        probe.does_not_apply(id, &format!("such a body is not taken: {}", first.summary()));
        return Ok(());
    }
    let is_once = effects.is_none_or(|count| count <= 1);
    match () {
        () if second.is_refusal() && is_once => {
            probe.pass(id, &sent, &format!("refused as another request: {found}"));
        }
        () if second.retries(&first, effects) => {
            probe.pass(id, &sent, &format!("taken as a retry: {found}"));
        }
        // Nothing ran; but no client understands it.
        () if second.answer().is_some_and(Answer::is_failure) && is_once => {
            probe.fail_as(Severity::Minor, id, &sent, &format!("the server failed: {found}"));
        }
        () => probe.fail(id, &sent, &format!("neither a retry nor refused: {found}")),
    }
    Ok(())
}

/// Two bodies that differ: the second must be refused. The first pair whose first body is taken is used.
async fn different(probe: &mut Probe, id: &str, pairs: &[[Vec<u8>; 2]]) -> Result<(), Stop> {
    for [one, two] in pairs {
        let key = probe.key();
        let first = probe.send(&probe.call(&key).body(one.clone())).await?;
        if !first.is_success() {
            continue;
        }
        let call = probe.call(&key).body(two.clone());
        let second = probe.send(&call).await?;
        let (sent, found) = (call.summary(), second.summary());
        match () {
            () if second.repeats(&first) || marked(&second) => {
                probe.fail(id, &sent, &format!("taken for the first request: {found}"));
            }
            () if second.is_success() || second.is_refusal() => probe.pass(id, &sent, &found),
            () => probe.fail_as(Severity::Minor, id, &sent, &found),
        }
        return Ok(());
    }
    probe.does_not_apply(id, "the API does not take such a body");
    Ok(())
}
