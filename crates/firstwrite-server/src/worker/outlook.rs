//! Log output about the destinations before the first delivery: their names, and warnings.

use std::time::Duration;

use firstwrite::worker::Destination;
use firstwrite_core::Store;
use firstwrite_core::outbox::Terms;

use crate::keys::brief;

/// The names of the destinations, in one line.
pub(super) fn names(destinations: &[Destination]) -> String {
    let names: Vec<&str> = destinations.iter().map(Destination::name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Warns of what an operator would find out too late.
pub(super) async fn tell(store: &dyn Store, destinations: &[Destination]) -> anyhow::Result<()> {
    for destination in destinations {
        if let Some(warning) = warning(destination.terms()) {
            tracing::warn!(destination = destination.name(), "{warning}");
        }
    }
    let Some(outbox) = store.outbox() else { return Ok(()) };
    for seen in outbox.destinations().await? {
        let is_known = destinations.iter().any(|known| known.name() == seen.name);
        if seen.open_count > 0 && !is_known {
            let (destination, waiting) = (seen.name, seen.open_count);
            tracing::warn!(
                destination,
                waiting,
                "messages wait for a destination that is not configured here; add a section \
                 [destinations.NAME] to the config file, or run a worker that has one"
            );
        }
    }
    Ok(())
}

/// Returns a warning if deliveries may go on for longer than the destination recognises a key.
fn warning(terms: &Terms) -> Option<String> {
    if terms.can_be_asked || terms.dedupe_for.is_zero() {
        return None;
    }
    let schedule = longest_schedule(terms);
    (schedule > terms.dedupe_for).then(|| {
        format!(
            "deliveries of a message may go on for {}, but the destination recognises its key for \
             {} only: what may have arrived is held as unknown after that; lower \
             delivery_count_max or pause_max, or add a probe",
            brief(schedule),
            brief(terms.dedupe_for)
        )
    })
}

/// Returns the longest time until a message that never succeeds is given up.
fn longest_schedule(terms: &Terms) -> Duration {
    let mut sum = terms.timeout.saturating_mul(terms.delivery_count_max);
    let mut pause = terms.pause_first;
    let mut pauses_left = terms.delivery_count_max.saturating_sub(1);
    while pauses_left > 0 && !pause.is_zero() && pause < terms.pause_max {
        sum = sum.saturating_add(pause);
        pause = pause.saturating_mul(2);
        pauses_left -= 1;
    }
    // From here on all are alike.
    sum.saturating_add(pause.min(terms.pause_max).saturating_mul(pauses_left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(dedupe_for: Duration) -> Terms {
        Terms { dedupe_for, ..Terms::default() }
    }

    #[test]
    fn the_longest_schedule_adds_up() {
        let terms = Terms {
            timeout: Duration::from_secs(10),
            delivery_count_max: 4,
            pause_first: Duration::from_secs(1),
            pause_max: Duration::from_secs(3),
            dedupe_for: Duration::from_hours(1),
            ..Terms::default()
        };
        // Four deliveries, and pauses of 1, 2 and 3 seconds between them.
        assert_eq!(longest_schedule(&terms), Duration::from_secs(46));
    }

    #[test]
    fn a_window_that_is_too_short_is_warned_of() {
        assert!(warning(&terms(Duration::from_hours(1))).unwrap().contains("1h only"));
        assert_eq!(warning(&terms(Duration::from_hours(48))), None);
        assert_eq!(warning(&terms(Duration::ZERO)), None);
        let asked = Terms { can_be_asked: true, ..terms(Duration::from_hours(1)) };
        assert_eq!(warning(&asked), None);
    }

    #[test]
    fn any_number_of_deliveries_is_added_up_at_once() {
        let endless = Terms { delivery_count_max: u32::MAX, ..terms(Duration::from_hours(1)) };
        assert!(warning(&endless).is_some());
    }
}
