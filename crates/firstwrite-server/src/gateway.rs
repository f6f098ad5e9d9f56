//! `firstwrite gateway`: safe retries in front of an API, until it is told to stop.

mod store;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use firstwrite_gateway::{Drained, Forwarding, Gateway, Listening, Rules, Target};
use firstwrite_store::KeyRing;

use crate::command::{Exit, GatewayFlags};
use crate::config::{self, File, GatewaySection, Given, StoreUrl, Upstream, UsageError};
use crate::descriptors;
use crate::opening;
use crate::output;
use crate::signals::{Signals, Told};
use crate::telemetry::Collector;
use store::Wanted;
use watch::Watch;

/// What is going to be run.
#[derive(Debug)]
pub(crate) struct Settings {
    listening: Listening,
    store: StoreUrl,
    other: Option<Other>,
    drain: Duration,
    rules: Rules,
    cache: Option<String>,
    ring: Option<KeyRing>,
    watch: Watch,
    flags: GatewayFlags,
    has_tenants: bool,
    /// Where the rules are read again from.
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
        let watch = Watch::resolve(&flags, section)?;
        let store = store.unwrap_or_else(|| StoreUrl::sqlite(STORE_DEFAULT));
        Ok(Self {
            listening: section.listening(listen.map_or(LISTEN_DEFAULT, |listen| listen.0))?,
            has_tenants: section.has_tenants(),
            other: other(&flags, section, &store)?,
            store,
            drain: section.drain.map_or(DRAIN_DEFAULT, |span| span.0),
            rules: rules(&flags, file, &watch)?,
            cache: cache(&flags, section.cache.as_ref())?,
            ring: file.sealing.ring()?,
            watch,
            flags,
            file: path,
        })
    }

    /// Where traces go.
    pub(crate) fn collector(&self) -> Option<&Collector> {
        self.watch.collector()
    }
}

#[expect(clippy::disallowed_methods, reason = "timestamps in requests are by the system's clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// What a reload can change.
fn rules(flags: &GatewayFlags, file: &File, watch: &Watch) -> Result<Rules, UsageError> {
    let section = &file.gateway;
    let operations = section.operations(flags.optional_keys)?;
    let forwarding = Forwarding {
        key: section.forward_key.into(),
        tells_record: section.tell_record.unwrap_or(true),
    };
    let (observer, counting) = section.observer(watch.holdings(), watch.observer())?;
    Ok(Rules {
        upstreams: upstreams(flags, &section.upstreams)?,
        calling: section.calling()?,
        forwarding,
        tenants: Arc::new(section.tenants(&operations, now)?),
        operations: Arc::new(operations),
        observer: Some(observer),
        counting,
        metrics: watch.metrics(),
        tracer: watch.tracer(),
        service_name: section.service_name()?,
        secret: None,
        clock: now,
    })
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
    if flags.cache.is_some() {
        return Ok(flags.cache.clone());
    }
    let read = |given: &Given| given.read();
    given.map(read).transpose().map_err(|what| UsageError::new(format!("gateway.cache: {what}")))
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

pub(crate) fn run(settings: Settings) -> anyhow::Result<Exit> {
    opening::service_runtime()?.block_on(serve(settings))?;
    Ok(Exit::Done)
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let Settings {
        mut listening,
        store,
        other,
        drain,
        rules,
        cache,
        ring,
        watch,
        flags,
        file,
        has_tenants,
    } = settings;
    listening.connections_max =
        descriptors::connections(descriptors::raise(), listening.connections_max);
    let mut signals = Signals::listen()?;
    let besides = other.as_ref().map(|(Other::From(url) | Other::To(url))| url.clone());
    let opened = store::open(&store, Wanted { other: besides, cache, ring }).await?;
    let watched = watch.store(&opened);
    let targets: Vec<String> = rules.upstreams.iter().map(ToString::to_string).collect();
    let gateway = Gateway::start(Arc::clone(&watched), &listening, rules)
        .await
        .map_err(|error| anyhow!("{error}; choose another address with --listen"))?;
    let worker = watch.worker(&watched);
    let operator = watch.open(&watched).await?;
    let scheme = if listening.tls.is_some() { "https" } else { "http" };
    output::data(&banner(scheme, &gateway, &store, &targets, has_tenants))?;
    match &other {
        None => {}
        Some(Other::From(url)) => output::data(&format!("moving from: {url}, looked into too\n"))?,
        Some(Other::To(url)) => output::data(&format!("moving to: {url}, looked into too\n"))?,
    }
    if let Some(operator) = &operator {
        let address = operator.address();
        output::data(&format!("operator: http://{address}/metrics, /healthz, /readyz\n"))?;
    }
    while signals.told().await == Told::Reload {
        reload(&gateway, &flags, file.as_ref(), &watch);
    }
    if let Some(operator) = &operator {
        operator.drain();
    }
    tracing::info!(?drain, "stopping: no new requests, those under way may end");
    tokio::select! {
        drained = gateway.stop(drain) => match drained {
            Drained::All => {}
            Drained::CutOff => {
                tracing::warn!("requests were still under way; their keys are left to their leases");
            }
        },
        // Whoever asks twice does not want to wait.
        () = signals.received() => {}
    }
    worker.stop().await;
    Ok(())
}

/// Reads the file again. One with a mistake changes nothing.
fn reload(gateway: &Gateway, flags: &GatewayFlags, path: Option<&PathBuf>, watch: &Watch) {
    let Some(path) = path else {
        tracing::warn!("there is no config file to read again");
        return;
    };
    let read = File::read(path).and_then(|file| rules(flags, &file, watch));
    let put = read.map_err(anyhow::Error::from).and_then(|rules| Ok(gateway.reload(rules)?));
    match put {
        Ok(()) => tracing::info!("the config file was read again and holds from now on"),
        Err(error) => tracing::error!("the config file is not used, the old rules stay: {error:#}"),
    }
}

fn banner(
    scheme: &str,
    gateway: &Gateway,
    store: &StoreUrl,
    targets: &[String],
    has_tenants: bool,
) -> String {
    let mut text = format!(
        "listening on {scheme}://{}\nstore: {store}\nupstream: {}\n",
        gateway.address(),
        targets.join(", ")
    );
    if !has_tenants {
        text.push_str(
            "tenants: each distinct Authorization value is a tenant of its own, requests without one \
             share one; say who they are under [gateway.tenants] (docs/tenants.md) to do better\n",
        );
    }
    text
}
