//! `firstwrite gateway`: safe retries in front of an API, until it is told to stop.

mod contract;
mod store;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use firstwrite::worker::Schedule;
use firstwrite::{Policy, PolicyResolver as _};
use firstwrite_core::Store;
use firstwrite_gateway::tenants::Tenants;
use firstwrite_gateway::{
    Claim, Drained, Gateway, GatewayError, Listening, Operator, Rules, Target,
};
use firstwrite_wrappers::CachedStore;

use crate::command::{Exit, GatewayFlags};
use crate::config::{
    self, File, ForwardKey, GatewaySection, Given, StoreUrl, Upstream, UsageError,
};
use crate::descriptors;
use crate::opening::{self, Missing, NamedStore};
use crate::output;
use crate::signals::{Signals, Told};
use crate::telemetry::Collector;
use contract::{Changed, Contract};
use store::{Opened, Wanted};
use watch::Watch;

/// Resolved settings of `firstwrite gateway`.
#[derive(Debug)]
pub(crate) struct Settings {
    listening: Listening,
    /// Connections that the operator asked for.
    connections_max: Option<usize>,
    store: NamedStore,
    missing: Missing,
    other: Option<Other>,
    drain: Duration,
    rules: Rules,
    cache: Option<String>,
    schedule: Schedule,
    watch: Watch,
    flags: GatewayFlags,
    /// Lines about callers: who shares keys and answers, and which settings say so.
    tenants_notes: Vec<String>,
    /// Config file from which a reload reads the rules.
    file: Option<PathBuf>,
}

/// The store that is looked into besides.
#[derive(Debug)]
enum Other {
    From(StoreUrl),
    To(StoreUrl),
}

/// The usual port for a service under development, and not reachable from other machines.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const STORE_DEFAULT: &str = "firstwrite.db";
/// Longer than nearly every request, shorter than what process supervisors wait before they kill.
const DRAIN_DEFAULT: Duration = Duration::from_secs(30);

impl Settings {
    pub(crate) fn resolve(
        flags: GatewayFlags,
        file: &File,
        path: Option<PathBuf>,
    ) -> Result<Self, UsageError> {
        let section = &file.gateway;
        let listen = config::given("--listen", flags.listen.as_deref(), section.listen)?;
        let mut store = config::given("--store", flags.store.as_deref(), file.store.clone())?;
        if flags.accept_key_loss {
            if !matches!(store, Some(StoreUrl::Redis(_))) {
                let message =
                    "--accept-key-loss is for Redis: other stores lose no keys; leave it out";
                return Err(UsageError::new(message));
            }
            store = store.map(|store| store.with_parameter("accept_key_loss", "true"));
        }
        let listen = listen.map_or(LISTEN_DEFAULT, |listen| listen.0);
        let watch = Watch::resolve(&flags, section)?;
        watch.check_apart(listen)?;
        let missing = match &store {
            _ if flags.create => Missing::Create,
            Some(_) => Missing::Refuse,
            None => Missing::RefuseUsual,
        };
        let store = store.unwrap_or_else(|| StoreUrl::sqlite(STORE_DEFAULT));
        let other = other(&flags, section, &store)?;
        let cache = cache(&flags, section.cache.as_ref())?;
        if cache.is_some() {
            check_cached(&store, other.as_ref())?;
        }
        Ok(Self {
            listening: section.listening(listen)?,
            connections_max: section.connections_max(),
            tenants_notes: tenants_notes(&flags, section)?,
            other,
            store: NamedStore { url: store, ring: file.sealing.ring()? },
            missing,
            drain: section.drain.map_or(DRAIN_DEFAULT, |span| span.0),
            rules: rules_of(&flags, file, &watch)?,
            cache,
            schedule: file.worker.schedule()?,
            watch,
            flags,
            file: path,
        })
    }

    /// Number of servers that requests are passed on to.
    pub(crate) fn upstream_count(&self) -> usize {
        self.rules.upstreams.len()
    }

    /// Lines about callers, if there is something to say.
    pub(crate) fn tenants_notes(&self) -> &[String] {
        &self.tenants_notes
    }

    /// Returns the collector that receives the traces.
    pub(crate) fn collector(&self) -> Option<&Collector> {
        self.watch.collector()
    }
}

#[expect(clippy::disallowed_methods, reason = "timestamps in requests are by the system's clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Returns what an operator should know of who counts as the same caller.
fn tenants_notes(
    flags: &GatewayFlags,
    section: &GatewaySection,
) -> Result<Vec<String>, UsageError> {
    let mut notes = section.tenants(flags.tenants.as_deref())?.notes();
    if let (Some(choice), true) = (&flags.tenants, section.has_tenants()) {
        notes.push(format!(
            "{choice}, by --tenants or FIRSTWRITE_TENANTS; [gateway.tenants] of the file is not used"
        ));
    }
    Ok(notes)
}

/// Resolves the settings that a reload can change.
fn rules_of(flags: &GatewayFlags, file: &File, watch: &Watch) -> Result<Rules, UsageError> {
    let section = &file.gateway;
    let operations = section.operations(flags.optional_keys)?;
    let tenants = Tenants::new(&section.tenants(flags.tenants.as_deref())?, now);
    let tenants = tenants.map_err(|error| UsageError::new(format!("gateway.tenants: {error}")))?;
    let (observer, counting) = section.observer(watch.tenant_usage(), watch.observer())?;
    let rules = Rules {
        upstreams: upstreams(flags, &section.upstreams)?,
        calling: section.calling()?,
        forwarding: section.forwarding()?,
        tenants: Arc::new(tenants.operations_from(operations.clone())),
        operations: Arc::new(operations),
        observer: Some(observer),
        counting,
        metrics: watch.metrics(),
        tracer: watch.tracer(),
        service_name: section.service_name()?,
        secrets: file.fingerprint_secrets()?,
        cors: section.cors()?,
        problem_base: section.problem_base()?,
        clock: now,
    };
    rules.check().map_err(|error| UsageError::new(format!("gateway: {error}")))?;
    Ok(rules)
}

fn other(
    flags: &GatewayFlags,
    section: &GatewaySection,
    store: &StoreUrl,
) -> Result<Option<Other>, UsageError> {
    let (from, to) = (flags.moving_from.as_deref(), flags.moving_to.as_deref());
    // A flag for one way means that the file's word for the other no longer holds.
    let (file_from, file_to) = match (from, to) {
        (None, None) => (section.moving_from.clone(), section.moving_to.clone()),
        (Some(_), _) | (_, Some(_)) => (None, None),
    };
    let from = config::given("--moving-from", from, file_from)?;
    let to = config::given("--moving-to", to, file_to)?;
    let other = match (from, to) {
        (None, None) => return Ok(None),
        (Some(from), None) => Other::From(from),
        (None, Some(to)) => Other::To(to),
        (Some(_), Some(_)) => {
            return Err(UsageError::new("gateway: moving_from and moving_to exclude each other"));
        }
    };
    let (Other::From(url) | Other::To(url)) = &other;
    if url == store {
        return Err(UsageError::new("records cannot move from a store into itself; name two"));
    }
    Ok(Some(other))
}

fn cache(flags: &GatewayFlags, given: Option<&Given>) -> Result<Option<String>, UsageError> {
    let wrong = |what: &dyn std::fmt::Display| UsageError::new(format!("gateway.cache: {what}"));
    let url = match (&flags.cache, given) {
        (Some(url), _) => url.clone(),
        (None, Some(given)) => given.read().map_err(|what| wrong(&what))?,
        (None, None) => return Ok(None),
    };
    CachedStore::check_address(&url).map_err(|error| wrong(&error))?;
    Ok(Some(url))
}

/// Refuses a cache in front of a store that it cannot answer for.
fn check_cached(store: &StoreUrl, other: Option<&Other>) -> Result<(), UsageError> {
    let why = match store {
        StoreUrl::Postgres(_) if other.is_none() => return Ok(()),
        StoreUrl::Postgres(_) => "a cache would answer for one of two stores while records move",
        StoreUrl::Mysql(_) | StoreUrl::Dynamodb(_) => "a cache in Redis is for PostgreSQL alone",
        StoreUrl::Redis(_) => "a cache in Redis is for PostgreSQL, and this store is Redis",
        StoreUrl::Sqlite(_) => {
            "a cache in Redis is for PostgreSQL: an SQLite file answers faster than Redis"
        }
    };
    Err(UsageError::new(format!(
        "gateway.cache: {why}; leave the cache out, or name a store of PostgreSQL"
    )))
}

fn upstreams(flags: &GatewayFlags, section: &[Upstream]) -> Result<Vec<Target>, UsageError> {
    if flags.upstream.is_empty() {
        let named: Vec<Target> = section.iter().map(|upstream| upstream.0.clone()).collect();
        if named.is_empty() {
            return Err(UsageError::new(
                "no upstream is named; add --upstream http://127.0.0.1:3000, or `upstreams` in \
                 the [gateway] section of the config file",
            ));
        }
        return Ok(named);
    }
    let parse = |url: &String| {
        Target::new(url).map_err(|error| UsageError::new(format!("--upstream: {error}")))
    };
    flags.upstream.iter().map(parse).collect()
}

/// Returns the key that the gateway of `store` passes on, if the store remembers one service and no other.
pub(crate) async fn remembered_forward_key(store: &dyn Store) -> Option<ForwardKey> {
    Contract::forward_key_of(store).await
}

pub(crate) fn run(settings: Settings) -> anyhow::Result<Exit> {
    opening::service_runtime()?.block_on(serve(settings))
}

async fn serve(settings: Settings) -> anyhow::Result<Exit> {
    let Settings {
        mut listening,
        connections_max,
        store,
        missing,
        other,
        drain,
        rules,
        cache,
        schedule,
        watch,
        flags,
        file,
        tenants_notes,
    } = settings;
    let descriptors = descriptors::raise();
    listening.connections_max =
        descriptors::connections(descriptors, connections_max, Listening::CONNECTIONS_MAX);
    let room = descriptors::upstream_connections(descriptors, listening.connections_max);
    let rules = within(rules, room);
    // Before the store, which may be created: a start that fails here leaves nothing behind.
    let claim = Claim::of(listening.listen)
        .map_err(|error| elsewhere(&GatewayError::Listen(listening.listen, error)))?;
    let operator_claim = watch.claim()?;
    let mut signals = Signals::listen()?;
    let besides = other.as_ref().map(|(Other::From(url) | Other::To(url))| url.clone());
    let lease_min = lease_min(&rules);
    let wanted = Wanted { missing, other: besides, cache, lease_min };
    let opened = store::open(&store, wanted).await?;
    let accepted = if flags.accept_changed_keys { Changed::Accept } else { Changed::Refuse };
    Contract::of(&rules).keep(&opened.all(), accepted).await?;
    contract::warn_if_forgotten(&*opened.store);
    let watched = watch.store(&opened);
    let targets: Vec<String> = rules.upstreams.iter().map(ToString::to_string).collect();
    let started = Gateway::start_at(claim, Arc::clone(&watched), &listening, rules);
    let gateway = started.await.map_err(|error| elsewhere(&error))?;
    let worker = watch.worker(&watched, schedule);
    let operator = watch.open(operator_claim, &watched).await?;
    let scheme = if listening.tls.is_some() { "https" } else { "http" };
    output::data(&banner(scheme, &gateway, &store.url, &targets, &tenants_notes))?;
    announce(&opened, other.as_ref(), operator.as_ref().map(Operator::address))?;
    while signals.told().await == Told::Reload {
        reload(&gateway, &opened, file.as_ref(), |file| {
            Ok(within(rules_of(&flags, file, &watch)?, room))
        })
        .await;
    }
    if let Some(operator) = &operator {
        operator.drain();
    }
    tracing::info!(?drain, "stopping: no new requests, those under way may end");
    let mut is_hurried = false;
    let hurried = async {
        signals.hurried().await;
        is_hurried = true;
    };
    if let Drained::CutOff { attempts } = gateway.stop_unless(drain, hurried).await {
        tracing::warn!(
            attempts,
            is_hurried,
            "requests were still under way and are cut off; the keys of the attempts among them are left to \
             their leases"
        );
    }
    if is_hurried {
        return Ok(Exit::Interrupted);
    }
    worker.stop().await;
    Ok(Exit::Done)
}

/// Returns the shortest lease of the operations.
fn lease_min(rules: &Rules) -> Duration {
    let leases = rules.operations.known().into_iter().map(|policy| policy.lease);
    leases.min().unwrap_or(Policy::LEASE_DEFAULT)
}

/// Says what else an operator should know of a start.
fn announce(
    opened: &Opened,
    other: Option<&Other>,
    operator: Option<SocketAddr>,
) -> anyhow::Result<()> {
    if opened.is_new {
        output::data("this store is new and empty: it knows no key used before\n")?;
    }
    match other {
        None => {}
        Some(Other::From(url)) => output::data(&format!("moving from: {url}, looked into too\n"))?,
        Some(Other::To(url)) => output::data(&format!("moving to: {url}, looked into too\n"))?,
    }
    if let Some(address) = operator {
        output::data(&format!("operator: http://{address}/metrics, /healthz, /readyz\n"))?;
    }
    Ok(())
}

/// The same rules, with no more connections to upstreams than there is `room` for.
fn within(mut rules: Rules, room: usize) -> Rules {
    let wanted = rules.calling.upstream_connections_max;
    rules.calling.upstream_connections_max = wanted.min(room);
    rules
}

fn elsewhere(error: &GatewayError) -> anyhow::Error {
    anyhow!("{error}; choose another address with --listen")
}

/// Reads the file again. One with a mistake changes nothing.
async fn reload(
    gateway: &Gateway,
    opened: &Opened,
    path: Option<&PathBuf>,
    rules: impl Fn(&File) -> Result<Rules, UsageError>,
) {
    let Some(path) = path else {
        tracing::warn!("there is no config file to read again");
        return;
    };
    let read = async || -> anyhow::Result<()> {
        let file = File::read(path)?;
        let (rules, ring) = (rules(&file)?, file.sealing.ring()?);
        opened.check_keys(ring.as_ref())?;
        Contract::of(&rules).keep(&opened.all(), Changed::Refuse).await?;
        gateway.reload(rules)?;
        opened.replace_keys(ring);
        Ok(())
    };
    match read().await {
        Ok(()) => tracing::info!(
            "the config file was read again: its operations, tenants, limits, upstreams and sealing keys \
             hold from now on; other settings need a restart"
        ),
        Err(error) => tracing::error!("the config file is not used, the old rules stay: {error:#}"),
    }
}

fn banner(
    scheme: &str,
    gateway: &Gateway,
    store: &StoreUrl,
    targets: &[String],
    tenants_notes: &[String],
) -> String {
    let notes: String =
        tenants_notes.iter().fold(String::new(), |text, note| text + "tenants: " + note + "\n");
    format!(
        "listening on {scheme}://{}\nstore: {store}\nupstream: {}\n{notes}",
        gateway.address(),
        targets.join(", ")
    )
}
