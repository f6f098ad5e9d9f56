//! Findings about the outbox: messages that no worker delivers, and messages that wait for an operator.

use std::time::Duration;

use firstwrite_core::outbox::DestinationView;
use firstwrite_core::{Store, StoreError, Timestamp};
use firstwrite_store::doctor::{Finding, Severity};

use crate::keys::brief;

/// Longest time that a message may be due before it is reported. Workers look every second, so one that is due
/// for longer is not delivered, or not fast enough.
const DUE_FOR_MAX: Duration = Duration::from_mins(1);
/// Largest number of findings, to keep the list readable; `firstwrite outbox status` shows all.
const FINDINGS_MAX: usize = 50;

/// Looks at how destinations stand, by the counts that are kept anyway.
pub(super) async fn look(store: &dyn Store) -> Result<Vec<Finding>, StoreError> {
    let Some(outbox) = store.outbox() else { return Ok(Vec::new()) };
    let now = store.now().await?;
    let mut findings: Vec<Finding> =
        outbox.destinations().await?.iter().flat_map(|view| of_destination(view, now)).collect();
    findings.truncate(FINDINGS_MAX);
    Ok(findings)
}

fn of_destination(view: &DestinationView, now: Timestamp) -> Vec<Finding> {
    let name = &view.name;
    let mut findings = Vec::new();
    if view.unknown_count > 0 {
        findings.push(Finding {
            code: "unknown-messages",
            severity: Severity::Warning,
            what: format!("{} messages to {name} may have arrived, or not", view.unknown_count),
            meaning: "they are not sent again without proof, and their clients wait",
            next_step: format!(
                "`firstwrite outbox list --state unknown --destination {name}`, ask the \
                 destination, then `firstwrite outbox settle`; or `firstwrite reconcile run`"
            ),
        });
    }
    if view.dead_count > 0 {
        findings.push(Finding {
            code: "dead-letters",
            severity: Severity::Warning,
            what: format!("{} messages to {name} are no longer delivered", view.dead_count),
            meaning: "the destination refused them, or their deliveries are exhausted",
            next_step: format!(
                "`firstwrite outbox list --state dead --destination {name}`, mend the cause, then \
                 `firstwrite outbox redrive`"
            ),
        });
    }
    findings.extend(undelivered(view, now));
    findings
}

/// Returns a finding if the destination is paused, or if a message to it has been due for too long.
fn undelivered(view: &DestinationView, now: Timestamp) -> Option<Finding> {
    let name = &view.name;
    let due_for = view.oldest_due_at.map(|due_at| now.since(due_at));
    if let Some(paused) = &view.paused {
        return Some(Finding {
            code: "destination-paused",
            severity: Severity::Note,
            what: format!("{name} has been paused for {}", brief(now.since(paused.at))),
            meaning: "messages to it wait until an operator resumes it",
            next_step: format!("`firstwrite outbox resume {name}` when it may go on"),
        });
    }
    let due_for = due_for.filter(|due_for| *due_for > DUE_FOR_MAX)?;
    if view.open_until.is_some() {
        let cause = view.open_cause.as_deref().unwrap_or("it failed");
        return Some(Finding {
            code: "destination-down",
            severity: Severity::Warning,
            what: format!("{name} is left alone: {cause}"),
            meaning: "it failed too often in a row; one message goes now and then to see",
            next_step: format!("mend it; `firstwrite outbox resume {name}` has it tried at once"),
        });
    }
    Some(Finding {
        code: "messages-overdue",
        severity: Severity::Warning,
        what: format!("a message to {name} has been due for {}", brief(due_for)),
        meaning: "no worker delivers to this destination, or not fast enough",
        next_step: format!(
            "run `firstwrite worker` with a section [destinations.{name}], or the library's \
             Worker in the application"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn due_for(seconds: i64) -> DestinationView {
        DestinationView {
            name: "provider".to_owned(),
            paused: None,
            open_until: None,
            open_cause: None,
            opening_count: 0,
            open_count: 1,
            unknown_count: 0,
            dead_count: 0,
            delivered_count: 9,
            oldest_due_at: Some(Timestamp::from_millis(NOW.as_millis() - 1000 * seconds)),
        }
    }

    fn codes(view: &DestinationView) -> Vec<&'static str> {
        of_destination(view, NOW).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn only_what_has_been_due_for_long_is_a_warning() {
        assert_eq!(codes(&due_for(60)), [""; 0]);
        assert_eq!(codes(&due_for(61)), ["messages-overdue"]);
        let idle = DestinationView { oldest_due_at: None, ..due_for(0) };
        assert_eq!(codes(&idle), [""; 0]);
    }

    #[test]
    fn who_is_left_alone_is_to_blame_for_what_is_due() {
        let down = |seconds| DestinationView {
            open_until: Some(NOW),
            open_cause: Some("answered with 503".to_owned()),
            ..due_for(seconds)
        };
        assert_eq!(codes(&down(61)), ["destination-down"]);
        assert_eq!(codes(&down(5)), [""; 0]);
    }
}
