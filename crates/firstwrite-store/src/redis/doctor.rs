//! Checks Redis servers for unsafe settings and problems that concern keys.

use firstwrite_core::StoreError;

use super::RedisStore;
use super::admission::{About, Conduct};
use super::history_loss;
use crate::address::Host;
use crate::doctor::Finding;

const DOING: &str = "looking at the server";
/// Maximum use of the memory that a server may take, in percent.
const MEMORY_PERCENT_MAX: u64 = 80;

/// Examines the servers behind `store`.
pub async fn examine(store: &RedisStore) -> Result<Vec<Finding>, StoreError> {
    let router = &store.inner.router;
    let mut findings = Vec::new();
    findings.extend(router.ask_named().await.map(|refusal| {
        Finding::unsafe_("several-primaries", refusal)
            .means("a key that ran on one of them runs again on another")
            .next("find out which of them has the newest keys, and make the others its replicas")
    }));
    let masters = router.masters().await.map_err(|error| error.read_error(DOING))?;
    for (host, link) in masters {
        let about = link.refresh().await.map_err(|error| error.read_error(DOING))?;
        let conduct = Conduct::of(&about);
        let said = |name: &str| about.says(name).unwrap_or("?");
        let product = about.says("valkey_version").map_or_else(
            || format!("Redis {}", said("redis_version")),
            |version| format!("Valkey {version}"),
        );
        let mode = said("redis_mode");
        findings.push(
            Finding::note("server-version", format!("{host}: {product}, {mode}"))
                .means("what this report is about")
                .next("keep to a release that still gets fixes"),
        );
        findings.extend(persistence(&host, &conduct));
        findings.extend(memory(&host, &about));
        findings.extend(replicas(&host, &about));
    }
    findings.extend(history_losses(store).await?);
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

fn persistence(host: &Host, conduct: &Conduct) -> Vec<Finding> {
    let mut findings = Vec::new();
    match conduct.eviction.as_deref() {
        Some("noeviction") => {}
        policy => findings.push(
            Finding::unsafe_(
                "eviction",
                format!("{host}: maxmemory-policy {}", policy.unwrap_or("is not told")),
            )
            .means("keys are thrown away when memory is full, and their effects run twice")
            .next("set maxmemory-policy noeviction"),
        ),
    }
    if conduct.has_log != Some(true) {
        let finding =
            Finding::unsafe_("appendonly", format!("{host}: appendonly is off, or not told"))
                .means("a restart forgets keys that were acknowledged, and their effects run twice")
                .next("set appendonly yes and appendfsync always");
        findings.push(finding);
        return findings;
    }
    match conduct.appendfsync.as_deref() {
        Some("always") => {}
        Some(fsync) => findings.push(
            Finding::unsafe_("appendfsync", format!("{host}: appendfsync {fsync}"))
                .means("a crash of the machine loses the last seconds of keys, and their effects run twice")
                .next("set appendfsync always, or wait_aof=true in the store's address (Redis 7.2)"),
        ),
        None => findings.push(
            Finding::warning("appendfsync", format!("{host}: CONFIG GET is refused"))
                .means("nobody here can say whether a crash loses keys that were acknowledged")
                .next("look up how the log is flushed, and say so with appendfsync= in the store's address"),
        ),
    }
    findings
}

fn memory(host: &Host, about: &About) -> Option<Finding> {
    let number = |name: &str| about.says(name).and_then(|value| value.parse::<u64>().ok());
    let (used, may_use) = (number("used_memory")?, number("maxmemory")?);
    if may_use == 0 {
        return Some(
            Finding::note("maxmemory", format!("{host}: maxmemory is not set"))
                .means("when the machine has no memory left, the server is killed instead of refusing keys")
                .next("set maxmemory below the machine's memory"),
        );
    }
    let percent = used.saturating_mul(100) / may_use;
    (percent >= MEMORY_PERCENT_MAX).then(|| {
        Finding::warning("memory", format!("{host}: {percent} % of maxmemory is used"))
            .means("when it is full, new keys are refused")
            .next("raise maxmemory, shorten retention, and see that a worker reaps")
    })
}

fn replicas(host: &Host, about: &About) -> Option<Finding> {
    let count = about.says("connected_slaves")?.parse::<u32>().ok()?;
    (count > 0).then(|| {
        Finding::note("fail-over", format!("{host}: {count} replicas, which are sent writes after they are acknowledged"))
            .means("a fail-over can lose acknowledged keys; unknown keys are then refused until somebody has looked")
            .next("know that wait_replicas= makes it less likely and not impossible")
    })
}

async fn history_losses(store: &RedisStore) -> Result<Option<Finding>, StoreError> {
    if !history_loss::stands(&store.inner.router).await? {
        return Ok(None);
    }
    let losses = store.history_losses().await?;
    let what = losses.iter().rev().find(|loss| loss.cleared.is_none());
    let what = what.map_or("history is missing".to_owned(), |loss| loss.detail.clone());
    Ok(Some(Finding::history_lost(what)))
}
