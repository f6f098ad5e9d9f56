//! A server that fails, and a store that is away.

use crate::catalogue::Severity;
use crate::plan::Hint;
use crate::probe::{Probe, Stop, hinted};

pub(super) const CHECKS: &[&str] = &["failure-retry"];
pub(super) const STORE: &[&str] = &["store-away"];

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let id = "failure-retry";
    let Some(fault) = probe.plan.fault.clone() else {
        probe.not_asked(id, "nothing makes a request fail: give --fault");
        return Ok(());
    };
    if let Hint::Query(_) = fault {
        probe.not_asked(id, "a query is part of the request: make it fail by a header");
        return Ok(());
    }
    let key = probe.key();
    let mark = probe.mark().await?;
    let call = probe.call(&key);
    let failing = hinted(call.clone(), &fault);
    let first = probe.send(&failing).await?;
    if !first.answer().is_some_and(crate::wire::Answer::is_failure) {
        probe.not_asked(id, &format!("--fault did not make it fail: {}", first.summary()));
        return Ok(());
    }
    let reply = probe.send(&call).await?;
    let retry = if reply.is_busy() && reply.kind() == first.kind() {
        probe.settle(&call).await?
    } else {
        reply
    };
    let effects = probe.effects(mark, &[&first, &retry]).await?;
    let sent = format!("{} which fails; then without the fault", failing.summary());
    let found = format!("{}; then {}", first.summary(), retry.summary());
    match () {
        () if effects.is_some_and(|count| count > 1) => probe.fail_as(
            Severity::Critical,
            id,
            &sent,
            &format!("{} effects; {found}", effects.unwrap_or_default()),
        ),
        () if retry.equals(&first) && probe.plan.profile.may_keep_failures() => {
            probe.pass(
                id,
                &sent,
                &format!("the failure is kept, which this profile allows: {found}"),
            );
        }
        () if retry.status() == Some(probe.plan.profile.mismatch()) => {
            let why =
                "what makes it fail is part of what the server compares; give another --fault";
            probe.not_asked(id, why);
        }
        () if retry.is_success() || retry.is_refusal() => probe.pass(id, &sent, &found),
        () if retry.equals(&first) => probe.fail(id, &sent, &found),
        // Another failure than the one that was asked for.
        () => probe.fail_as(Severity::Minor, id, &sent, &found),
    }
    Ok(())
}

/// While the key store is away, and after it came back.
pub(super) async fn store(probe: &mut Probe) -> Result<(), Stop> {
    let id = "store-away";
    let hooks = &probe.plan.hooks;
    let (Some(down), Some(up)) = (hooks.store_down.clone(), hooks.store_up.clone()) else {
        let why = "nothing takes the store away: give --store-down-cmd and --store-up-cmd";
        probe.not_asked(id, why);
        return Ok(());
    };
    let key = probe.key();
    let call = probe.call(&key);
    let mark = probe.mark().await?;
    down.call().await.map_err(Stop)?;
    let away = probe.send(&call).await;
    // Whatever was found, the store must come back.
    up.call().await.map_err(Stop)?;
    let away = away?;
    let meanwhile = probe.effects(mark, &[&away]).await?;
    let after = probe.settle(&call).await?;
    let effects = probe.effects(mark, &[&away, &after]).await?;
    let sent = format!("{} while the store was away, and after", call.summary());
    let found = format!("{}; after it came back {}", away.summary(), after.summary());
    match away.status() {
        _ if away.is_success() || meanwhile.is_some_and(|count| count > 0) => {
            probe.fail(id, &sent, &format!("it ran without protection: {found}"));
        }
        _ if effects.is_some_and(|count| count != 1) || !after.is_success() => {
            probe.fail(id, &sent, &found);
        }
        Some(503) => probe.pass(id, &sent, &found),
        Some(_) | None => probe.fail_as(Severity::Minor, id, &sent, &found),
    }
    Ok(())
}
