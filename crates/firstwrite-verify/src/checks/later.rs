//! Retries after a while: still answered within the retention, and no longer after it.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::probe::{Probe, Stop};

pub(super) const CHECKS: &[&str] = &["replay-later", "retention-over"];

/// Longer than a lock that was taken for a record.
const LATER: Duration = Duration::from_secs(2);
/// Servers round, and their clocks are not ours.
const SLACK: Duration = Duration::from_millis(1200);
/// Longest retention that the check waits for: users do not wait longer for a report.
const RETENTION_MAX: Duration = Duration::from_mins(2);

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.call(&key);
    let mark = probe.mark().await?;
    let first = probe.send(&call).await?;
    let first_at = Instant::now();
    let retention = probe.plan.retention;
    if retention.is_some_and(|retention| retention <= LATER * 2) {
        probe
            .does_not_apply("replay-later", "keys are kept for a moment only, as --retention says");
    } else {
        sleep(LATER).await;
        let reply = probe.send(&call).await?;
        let effects = probe.effects(mark, &[&first, &reply]).await?;
        let sent = format!("{}, and again {LATER:?} later", call.summary());
        let found = format!("{}; later {}", first.summary(), reply.summary());
        if reply.retries(&first, effects) {
            probe.pass("replay-later", &sent, &found);
        } else {
            probe.fail("replay-later", &sent, &found);
        }
    }
    let id = "retention-over";
    let Some(retention) = retention else {
        probe.not_asked(id, "keys are kept for long: make it short, and give --retention");
        return Ok(());
    };
    if retention > RETENTION_MAX {
        probe.not_asked(id, "a retention of over two minutes is not waited for");
        return Ok(());
    }
    sleep_until(first_at + retention + SLACK).await;
    let mark = probe.mark().await?;
    let reply = probe.send(&call).await?;
    let effects = probe.effects_besides(mark, &[&first], &[&reply]).await?;
    let sent = format!("{}, and again after {retention:?}", call.summary());
    let found = reply.summary();
    let is_anew = reply.is_success() && effects.map_or(!reply.equals(&first), |count| count == 1);
    if is_anew || reply.is_refusal() {
        probe.pass(id, &sent, &found);
    } else {
        probe.fail(id, &sent, &found);
    }
    Ok(())
}
