//! `firstwrite doctor`: names what is unsafe or of concern in a store, and what to do about it.

mod connection;
mod content;
mod messages;
mod records;

use std::path::Path;
use std::time::Duration;

use firstwrite_core::Store;
use firstwrite_store::doctor::{self, Expected, Finding, Severity};
use firstwrite_store::{
    DynamoStore, HistoryClearance, MysqlStore, PostgresStore, RedisStore, SqliteStore,
};
use serde::Serialize;

use crate::command::{DoctorFlags, Exit};
use crate::config::{File, GatewayPart, StoreUrl, UsageError};
use crate::opening::{self, unopened};
use crate::output::{self, Format, printable};

/// Resolved settings of `firstwrite doctor`.
#[derive(Debug)]
pub(crate) struct Settings {
    store: StoreUrl,
    /// Servers that hold records, the store among them.
    places: Vec<connection::Place>,
    /// True if the file sets up a gateway without a secret for its fingerprints.
    lacks_secret: bool,
    expect_standby: Option<String>,
    open_for_max: Duration,
    clearing: Option<Clearing>,
    confirming: Option<Clearing>,
    format: Format,
}

/// The operator who says that a history loss is settled.
#[derive(Clone, Debug)]
struct Clearing {
    actor: String,
    reason: String,
}

/// Numbers of history losses and clock jumps that the operator settled in this run, and of what was marked for it:
/// messages as maybe sent, where the store keeps messages, and uncertain records as given up now.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    losses: Option<usize>,
    messages: Option<usize>,
    records: Option<usize>,
    jumps: Option<usize>,
}

/// The document of `--format json`.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    /// True if nothing unsafe was found.
    safe: bool,
    /// Number of history losses that were cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    cleared: Option<usize>,
    /// Number of messages that were marked as maybe sent before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    marked: Option<usize>,
    /// Number of uncertain records that count as given up at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    given_up_anew: Option<usize>,
    /// Number of clock jumps that were confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmed: Option<usize>,
    findings: Vec<FindingView>,
}

#[derive(Debug, Serialize)]
struct FindingView {
    code: &'static str,
    severity: &'static str,
    what: String,
    meaning: &'static str,
    next_step: String,
}

impl Settings {
    pub(crate) fn resolve(flags: DoctorFlags, file: &File) -> Result<Self, UsageError> {
        let store = file.store_or(flags.store.store.as_deref())?;
        let expect_standby = flags.expect_standby.or_else(|| file.doctor.expect_standby.clone());
        let word = flags
            .reason
            .map(|reason| Clearing { actor: crate::actor::name(flags.actor.as_deref()), reason });
        let clearing = word.clone().filter(|_| flags.clear_history_loss);
        let confirming = word.filter(|_| flags.confirm_clock);
        let is_file = matches!(store, StoreUrl::Sqlite(_));
        for (refused, flag) in [
            (
                is_file && expect_standby.is_some(),
                "--expect-standby: an SQLite file has no standby",
            ),
            (
                !is_file && confirming.is_some(),
                "--confirm-clock is for an SQLite file: other stores have a clock of their own",
            ),
        ] {
            if refused {
                return Err(UsageError::new(format!("{flag}; leave it out")));
            }
        }
        if !is_file && !matches!(store, StoreUrl::Postgres(_)) && expect_standby.is_some() {
            return Err(UsageError::new("--expect-standby is for PostgreSQL; leave it out"));
        }
        if matches!(store, StoreUrl::Dynamodb(_)) && clearing.is_some() {
            let flag = "--clear-history-loss is for SQLite, PostgreSQL, MySQL, MariaDB and Redis";
            return Err(UsageError::new(format!("{flag}; leave it out")));
        }
        let (open_for_max, format) = (flags.open_for_max, flags.format.format);
        let places = connection::places(&store, file);
        // Secrets that this command's environment does not have are set all the same.
        let lacks_secret = file.gateway_part == GatewayPart::Whole
            && file.fingerprint_secrets().is_ok_and(|secrets| secrets.is_empty());
        Ok(Self {
            store,
            places,
            lacks_secret,
            expect_standby,
            open_for_max,
            clearing,
            confirming,
            format,
        })
    }
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    opening::runtime()?.block_on(async {
        let mut settled = Settled::default();
        let findings = match &settings.store {
            StoreUrl::Sqlite(path) => {
                settled = settle_sqlite(path, settings).await?;
                let store = SqliteStore::open_read_only(path).map_err(|error| unopened(&error))?;
                let findings = doctor::sqlite(&store, path).await?;
                with_content(&store, settings, findings).await?
            }
            StoreUrl::Postgres(url) => {
                let (findings, cleared) = examine_postgres(url, settings).await?;
                settled = Settled::of(cleared);
                findings
            }
            StoreUrl::Mysql(url) => {
                let (findings, cleared) = examine_mysql(url, settings).await?;
                settled = Settled::of(cleared);
                findings
            }
            StoreUrl::Redis(url) => {
                let (findings, cleared) = examine_redis(url, settings).await?;
                settled = Settled { messages: None, ..Settled::of(cleared) };
                findings
            }
            StoreUrl::Dynamodb(url) => {
                let opened = DynamoStore::connect_read_only(url).await;
                let store = opened.map_err(|error| unopened(&error))?;
                let findings = doctor::dynamodb(&store).await?;
                with_content(&store, settings, findings).await?
            }
        };
        let mut findings = findings;
        findings.extend(settings.places.iter().filter_map(connection::look));
        findings.sort_by_key(|finding| finding.severity);
        let safe = findings.iter().all(|finding| finding.severity != Severity::Unsafe);
        say(settings, findings, safe, settled)?;
        Ok(if safe { Exit::Done } else { Exit::Unsafe })
    })
}

impl Settled {
    /// Takes over the clearance of a store that keeps messages.
    fn of(cleared: Option<HistoryClearance>) -> Self {
        Self {
            losses: cleared.map(|cleared| cleared.losses),
            messages: cleared.map(|cleared| cleared.messages),
            records: cleared.map(|cleared| cleared.records),
            jumps: None,
        }
    }
}

/// Writes an operator's word down. A file has one writer, so its service must be stopped for that.
async fn settle_sqlite(path: &Path, settings: &Settings) -> anyhow::Result<Settled> {
    let mut settled = Settled::default();
    if settings.clearing.is_none() && settings.confirming.is_none() {
        return Ok(settled);
    }
    let store = SqliteStore::open(path).map_err(|error| unopened(&error))?;
    if let Some(Clearing { actor, reason }) = &settings.clearing {
        settled = Settled::of(Some(store.clear_history_losses(actor, reason).await?));
    }
    if let Some(Clearing { actor, reason }) = &settings.confirming {
        settled.jumps = Some(store.confirm_clock(actor, reason).await?);
    }
    store.close().await;
    Ok(settled)
}

async fn examine_postgres(
    url: &str,
    settings: &Settings,
) -> anyhow::Result<(Vec<Finding>, Option<HistoryClearance>)> {
    let opened = match &settings.clearing {
        Some(_) => PostgresStore::connect(url).await,
        None => PostgresStore::connect_read_only(url).await,
    };
    let store = opened.map_err(|error| unopened(&error))?;
    let cleared = match &settings.clearing {
        Some(Clearing { actor, reason }) => Some(store.clear_history_losses(actor, reason).await?),
        None => None,
    };
    let expected = Expected {
        standby: settings.expect_standby.clone(),
        port: settings.store.port(),
        open_for_max: settings.open_for_max,
    };
    let findings = doctor::postgres(&store, &expected).await?;
    let findings = with_content(&store, settings, findings).await?;
    store.close().await;
    Ok((findings, cleared))
}

async fn examine_mysql(
    url: &str,
    settings: &Settings,
) -> anyhow::Result<(Vec<Finding>, Option<HistoryClearance>)> {
    let opened = match &settings.clearing {
        Some(_) => MysqlStore::connect(url).await,
        None => MysqlStore::connect_read_only(url).await,
    };
    let store = opened.map_err(|error| unopened(&error))?;
    let cleared = match &settings.clearing {
        Some(Clearing { actor, reason }) => Some(store.clear_history_losses(actor, reason).await?),
        None => None,
    };
    let findings = doctor::mysql(&store, settings.open_for_max).await?;
    let findings = with_content(&store, settings, findings).await?;
    store.close().await;
    Ok((findings, cleared))
}

async fn examine_redis(
    url: &str,
    settings: &Settings,
) -> anyhow::Result<(Vec<Finding>, Option<HistoryClearance>)> {
    // This connection only reads, so it may also be opened to a server that can lose keys.
    let store = RedisStore::connect_read_only(url).await.map_err(|error| unopened(&error))?;
    let cleared = match &settings.clearing {
        Some(Clearing { actor, reason }) => {
            let writing = RedisStore::connect(url).await.map_err(|error| unopened(&error))?;
            Some(writing.clear_history_losses(actor, reason).await?)
        }
        None => None,
    };
    let findings = doctor::redis(&store).await?;
    let findings = with_content(&store, settings, findings).await?;
    Ok((findings, cleared))
}

async fn with_content(
    store: &dyn Store,
    settings: &Settings,
    mut findings: Vec<Finding>,
) -> anyhow::Result<Vec<Finding>> {
    findings.extend(records::look(store).await?);
    findings.extend(messages::look(store).await?);
    findings.extend(content::look(store, settings.lacks_secret).await?);
    findings.sort_by_key(|finding| finding.severity);
    Ok(findings)
}

fn say(
    settings: &Settings,
    findings: Vec<Finding>,
    safe: bool,
    Settled { losses: cleared, messages: marked, records: given_up_anew, jumps: confirmed }: Settled,
) -> anyhow::Result<()> {
    match settings.format {
        Format::Json => {
            let store = settings.store.to_string();
            let findings = findings.into_iter().map(FindingView::of).collect();
            output::document(&Report {
                store,
                safe,
                cleared,
                marked,
                given_up_anew,
                confirmed,
                findings,
            })
        }
        Format::Table => {
            let mut text = String::new();
            if let Some(cleared) = cleared {
                let marked = marked.map_or_else(String::new, |marked| {
                    format!("messages marked as maybe sent: {marked}\n")
                });
                let anew = given_up_anew.unwrap_or_default();
                text = format!(
                    "history losses cleared: {cleared}\n{marked}uncertain records given up anew: {anew}\n\n"
                );
            }
            if let Some(confirmed) = confirmed {
                text = format!("{text}jumps of the clock confirmed: {confirmed}\n\n");
            }
            text.extend(findings.iter().map(for_people));
            text.push_str(if safe { "nothing unsafe was found\n" } else { "UNSAFE: see above\n" });
            output::data(&text)
        }
    }
}

fn for_people(finding: &Finding) -> String {
    let Finding { code, severity, what, meaning, next_step } = finding;
    let (what, next_step) = (printable(what), printable(next_step));
    format!("{severity}: {code}: {what}\n  means: {meaning}\n  next:  {next_step}\n\n")
}

impl FindingView {
    fn of(finding: Finding) -> Self {
        let Finding { code, severity, what, meaning, next_step } = finding;
        Self { code, severity: severity.as_str(), what, meaning, next_step }
    }
}
