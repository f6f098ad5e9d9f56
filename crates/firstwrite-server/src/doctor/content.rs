//! Finds content that a reader of the store can learn: outcomes that are not sealed, and fingerprints that are
//! not keyed with a secret.

use firstwrite_core::{Body, Query, Record, State, StateFilter, Store, StoreError};
use firstwrite_store::doctor::{Finding, Severity};

/// A sample, by the order of their ids, which says nothing about their age; a doctor does not read them all.
const LOOKED_AT_MAX: usize = 100;

/// Looks at a bounded number of records. `lacks_secret` says that the gateway's own settings have no secret: then
/// what it is going to write is not keyed either.
pub(super) async fn look(
    store: &dyn Store,
    lacks_secret: bool,
) -> Result<Vec<Finding>, StoreError> {
    let query = Query {
        tenant: None,
        state: Some(StateFilter::Completed),
        after: None,
        limit: LOOKED_AT_MAX,
    };
    let records = store.list(&query).await?.records;
    let is_plain = |record: &&Record| match &record.state {
        State::Completed { outcome, .. } => {
            matches!(&outcome.body, Body::Bytes(bytes) if !bytes.is_empty())
        }
        State::Reserved(_) | State::Uncertain { .. } => false,
    };
    // Version 0 is an application's own: what it is keyed with, the application knows.
    let is_unkeyed = |record: &&Record| {
        record.fingerprint.version() > 0 && record.fingerprint.secret().is_none()
    };
    let (plain, unkeyed) =
        (records.iter().filter(is_plain).count(), records.iter().filter(is_unkeyed).count());
    let count = records.len();
    let mut findings = Vec::new();
    if unkeyed > 0 || lacks_secret {
        let looked =
            format!("no secret keys the fingerprints of {unkeyed} of {count} records looked at");
        findings.push(Finding {
            code: "plain-fingerprints",
            severity: Severity::Warning,
            what: if lacks_secret { format!("the file sets no secret for the gateway's fingerprints; {looked}") } else { looked },
            meaning: "a reader of the store can guess at request contents, such as card numbers, and check",
            next_step: "set `fingerprint_secrets` under [gateway], or [sealing]; in an application, \
                        IdempotencyLayer::secrets"
                .to_owned(),
        });
    }
    if plain > 0 {
        findings.push(Finding {
            code: "unsealed-outcomes",
            severity: Severity::Note,
            what: format!("the answers of {plain} of {count} records looked at are not sealed"),
            meaning: "a reader of the database, a backup or a replica reads them",
            next_step:
                "if that must not be, give the commands keys under [sealing] (docs/encryption.md)"
                    .to_owned(),
        });
    }
    Ok(findings)
}
