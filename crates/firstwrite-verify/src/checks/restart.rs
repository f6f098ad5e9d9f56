//! A server that ends and comes back: after an answer, and in the middle of a request.

use std::time::Duration;

use tokio::time::sleep;

use super::flight;
use crate::catalogue::Severity;
use crate::probe::{Probe, Stop};
use crate::reply::Reply;

pub(super) const CHECKS: &[&str] = &["restart-replay", "restart-in-flight"];

/// Enough for the request to have begun, on a busy machine too.
const UNDER_WAY: Duration = Duration::from_millis(200);

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let Some(restart) = probe.plan.hooks.restart.clone() else {
        for id in CHECKS {
            probe.not_asked(id, "nothing restarts the server: give --restart-cmd");
        }
        return Ok(());
    };
    let key = probe.key();
    let call = probe.call(&key);
    let mark = probe.mark().await?;
    let first = probe.send(&call).await?;
    restart.call().await.map_err(Stop)?;
    let retry = probe.settle(&call).await?;
    let effects = probe.effects(mark, &[&first, &retry]).await?;
    let sent = format!("{}, a restart, and again", call.summary());
    let found = format!("{}; then {}", first.summary(), retry.summary());
    // A counter in the server's memory begins anew; then the answer tells.
    if retry.retries(&first, effects) || (retry.equals(&first) && effects == Some(0)) {
        probe.pass("restart-replay", &sent, &found);
    } else {
        probe.fail("restart-replay", &sent, &found);
    }

    let id = "restart-in-flight";
    let key = probe.key();
    let call = probe.slow_call(&key);
    let mark = probe.mark().await?;
    let under_way = flight::begin(probe, &call).await?;
    sleep(UNDER_WAY).await;
    // What a rival is told while the first is under way, to know it again.
    let rival = match probe.plan.slow {
        // A server that lets rivals wait says nothing; the restart must not wait for it.
        Some(_) => {
            let result = flight::begin(probe, &call).await?.answer_within(UNDER_WAY).await;
            Some(Reply { result, took: UNDER_WAY }).filter(Reply::is_busy)
        }
        None => None,
    };
    restart.call().await.map_err(Stop)?;
    drop(under_way);
    let retry = probe.settle_unlike(&call, rival.as_ref()).await?;
    let again = probe.send(&call).await?;
    let effects = probe.effects(mark, &[&retry, &again]).await?;
    let sent = format!("{}, a restart in the middle, and again", call.summary());
    let found = retry.summary();
    let is_unknown = retry.is_refusal() && rival.is_some_and(|rival| rival.kind() != retry.kind());
    match effects {
        Some(count) if count > 1 => probe.fail(id, &sent, &format!("{count} effects; {found}")),
        _ if again.retries(&retry, effects) => probe.pass(id, &sent, &found),
        Some(0) if retry.is_success() && again.equals(&retry) => probe.pass(id, &sent, &found),
        _ if is_unknown => {
            probe.pass(id, &sent, &format!("refused, since the outcome is not known: {found}"));
        }
        _ => {
            let found = format!("still refused after {:?}: {found}", probe.plan.limits.settle);
            probe.fail_as(Severity::Major, id, &sent, &found);
        }
    }
    Ok(())
}
