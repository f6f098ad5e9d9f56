//! Findings about the records themselves: requests that wait for proof, and leases that no worker sweeps.

use std::time::Duration;

use firstwrite_core::{Query, StateFilter, Store, StoreError};
use firstwrite_store::doctor::{Finding, Severity};

use crate::keys::brief;

/// Time after which a lapsed lease is reported: a dozen sweep intervals, so no worker sweeps the store.
const LAPSED_FOR_MAX: Duration = Duration::from_mins(1);
/// One small look: the oldest of so few need not be the oldest of all.
const LAPSED_LIMIT: usize = 100;

/// Looks at a bounded number of records.
pub(super) async fn look(store: &dyn Store) -> Result<Vec<Finding>, StoreError> {
    let mut findings = Vec::new();
    findings.extend(uncertain(store).await?);
    findings.extend(lapsed(store).await?);
    Ok(findings)
}

async fn uncertain(store: &dyn Store) -> Result<Option<Finding>, StoreError> {
    let query = Query {
        tenant: None,
        state: Some(StateFilter::Uncertain),
        after: None,
        limit: Query::LIMIT_MAX,
    };
    let page = store.list(&query).await?;
    let Some(oldest) = page.records.iter().map(|record| record.created_at).min() else {
        return Ok(None);
    };
    let (count, age) = (page.records.len(), brief(page.now.since(oldest)));
    let (least, of_those) =
        if page.next.is_some() { ("at least ", " of those looked at") } else { ("", "") };
    Ok(Some(Finding {
        code: "uncertain-records",
        severity: Severity::Warning,
        what: format!("{least}{count} records wait for proof, the oldest{of_those} for {age}"),
        meaning: "it is unknown how these requests ended; their retries are refused",
        next_step:
            "`firstwrite keys list --state uncertain`, find out, then `firstwrite keys settle`"
                .to_owned(),
    }))
}

async fn lapsed(store: &dyn Store) -> Result<Option<Finding>, StoreError> {
    let page = store.list(&Query::lapsed(LAPSED_LIMIT)).await?;
    let ran_out = page.records.iter().filter_map(|record| record.state.lease_until());
    let oldest = ran_out.map(|until| page.now.since(until)).max();
    let Some(oldest) = oldest.filter(|age| *age > LAPSED_FOR_MAX) else {
        return Ok(None);
    };
    Ok(Some(Finding {
        code: "lapsed-leases",
        severity: Severity::Warning,
        what: format!("a lease ran out {} ago, and no worker has swept it", brief(oldest)),
        meaning: "no worker looks after this store: keys of dead attempts are neither freed nor \
                  marked, and nothing is reaped",
        next_step: "run `firstwrite worker`, or the library's Worker in the application".to_owned(),
    }))
}
