//! Checks a DynamoDB table for unsafe settings and problems that concern keys.

use aws_sdk_dynamodb::types::{
    BillingMode, MultiRegionConsistency, PointInTimeRecoveryStatus, TableDescription,
};
use firstwrite_core::{StoreError, StoreErrorKind};

use super::DynamoStore;
use super::driver_error::DriverError;
use super::link::Link;
use super::table;
use crate::OpenError;
use crate::doctor::Finding;

const DOING: &str = "looking at the table";

/// Error of the host's clock from which it is reported, though it is corrected.
const OFFSET_MAX: i64 = 1000;

/// Examines the table behind `store`.
pub async fn examine(store: &DynamoStore) -> Result<Vec<Finding>, StoreError> {
    let link = store.link();
    let mut findings = vec![place(link)];
    let described = table::describe(link).await.map_err(|error| unseen(&error))?;
    findings.extend(described.iter().flat_map(settings));
    findings.extend(expiry(link).await);
    findings.extend(backups(link).await);
    findings.extend(clock(link.clock.offset()));
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

fn unseen(error: &OpenError) -> StoreError {
    StoreError::definite(StoreErrorKind::Unavailable, DOING).caused_by(error.to_string())
}

fn place(link: &Link) -> Finding {
    let what = format!("{}, records in {} shards", link.address, link.shards.0);
    if link.address.is_local() {
        return Finding::note("emulator", what)
            .means("an emulator is no database: what it keeps, and for how long, is its own affair")
            .next("leave the endpoint out to use the service itself");
    }
    let is_plain = link.address.endpoint.as_deref().is_some_and(|url| url.starts_with("http:"));
    if is_plain {
        return Finding::warning("plain-text", what)
            .means("tenants, keys and answers can be read on the way")
            .next("write https:// in the endpoint");
    }
    Finding::note("table", what)
        .means("what this report is about")
        .next("let every gateway of one API use the same table in the same region")
}

fn settings(table: &TableDescription) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_strong = table.multi_region_consistency == Some(MultiRegionConsistency::Strong);
    if !table.replicas().is_empty() && !is_strong {
        let what = format!("the table has {} replicas in other regions", table.replicas().len());
        findings.push(
            Finding::unsafe_("replicas", what)
                .means(
                    "regions hear of each other's writes later, and the last one wins: a key that \
                     is used in two regions runs twice",
                )
                .next("send all requests of one API to one region, or keep the table in one"),
        );
    }
    if table.deletion_protection_enabled != Some(true) {
        findings.push(
            Finding::note("deletion-protection", "the table can be deleted by one call")
                .means("with it go all keys, and what was done under them may be done again")
                .next("switch deletion protection on"),
        );
    }
    let billing = table.billing_mode_summary.as_ref().and_then(|mode| mode.billing_mode.as_ref());
    if billing == Some(&BillingMode::Provisioned) {
        findings.push(
            Finding::note("provisioned", "the table's capacity is provisioned")
                .means("beyond it requests are refused with 503, and nothing is run")
                .next("see that it suffices for four units a key, or pay per request"),
        );
    }
    findings
}

async fn expiry(link: &Link) -> Option<Finding> {
    match table::is_expiring(link).await {
        Ok(true) => None,
        Ok(false) => Some(
            Finding::warning("expiry", "time to live is not enabled on `expires`")
                .means("records past their time go only where `firstwrite worker` reaps them")
                .next(format!("run `firstwrite migrate --store '{}'`", link.address)),
        ),
        Err(error) => Some(hidden("dynamodb:DescribeTimeToLive", &error.to_string())),
    }
}

async fn backups(link: &Link) -> Option<Finding> {
    let asked = link.client.describe_continuous_backups().table_name(link.table()).send().await;
    let answer = match asked {
        Ok(answer) => answer,
        Err(error) => {
            let error: DriverError = link.error(&error);
            return Some(hidden("dynamodb:DescribeContinuousBackups", &error.to_string()));
        }
    };
    let recovery = answer
        .continuous_backups_description
        .and_then(|backups| backups.point_in_time_recovery_description)
        .and_then(|recovery| recovery.point_in_time_recovery_status);
    if recovery == Some(PointInTimeRecoveryStatus::Enabled) {
        return None;
    }
    Some(
        Finding::note("recovery", "point-in-time recovery is off")
            .means("what is deleted or spoilt by mistake cannot be brought back")
            .next("switch it on; a table that was restored is behind, so check before using it"),
    )
}

fn hidden(right: &str, why: &str) -> Finding {
    Finding::note("hidden", format!("not seen: {why}"))
        .means("nothing can be said about it")
        .next(format!("allow {right} to these credentials, to be told"))
}

fn clock(offset: i64) -> Option<Finding> {
    (offset.abs() >= OFFSET_MAX).then(|| {
        Finding::warning("clock", format!("this host's clock is wrong by {} ms", -offset))
            .means("it is corrected by the service's, which tells whole seconds; leases may end a second early")
            .next("have the host's clock set by NTP")
    })
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::ReplicaDescription;

    use super::*;

    fn codes(table: &TableDescription) -> Vec<&'static str> {
        settings(table).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn replicas_are_unsafe_unless_they_agree_before_they_answer() {
        let table = || TableDescription::builder().deletion_protection_enabled(true);
        assert!(codes(&table().build()).is_empty());
        let replica = ReplicaDescription::builder().region_name("eu-west-1").build();
        assert_eq!(codes(&table().replicas(replica.clone()).build()), ["replicas"]);
        let strong =
            table().replicas(replica).multi_region_consistency(MultiRegionConsistency::Strong);
        assert!(codes(&strong.build()).is_empty());
        assert_eq!(codes(&TableDescription::builder().build()), ["deletion-protection"]);
    }

    #[test]
    fn a_clock_that_is_corrected_is_named() {
        assert!(clock(999).is_none() && clock(-999).is_none());
        assert_eq!(clock(-60_000).unwrap().code, "clock");
    }
}
