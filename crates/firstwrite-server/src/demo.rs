//! `firstwrite demo`: the settings of the payments API, which is an application of its own, and its run.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use firstwrite_core::Policy;
use firstwrite_demo::{Demo, Faults, ProviderChoice, STORE_DEFAULT, Settings, StoreAddress};

use crate::command::{DemoFlags, Exit};
use crate::config::{self, DemoSection, File, StoreUrl, UsageError};
use crate::demo_provider;
use crate::opening;
use crate::output;
use crate::signals::Signals;

/// The usual port for a service under development, and not reachable from other machines.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Longer than any handler here takes, shorter than what process supervisors wait before they kill.
const DRAIN_DEFAULT: Duration = Duration::from_secs(10);

/// Far longer than a provider in the same process takes, and no longer than a person waits gladly.
const WAIT_DEFAULT: Duration = Duration::from_secs(2);

/// Resolves the settings of a start. The demo seals nothing, so it is refused beside keys: what it wrote would stand
/// in plain beside what others sealed.
pub(crate) fn resolve(flags: &DemoFlags, file: &File) -> Result<Settings, UsageError> {
    if file.sealing.ring()?.is_some() {
        let message = "the demo does not seal what it stores; start it without [sealing], on a store of its own";
        return Err(UsageError::new(message));
    }
    settings(flags, file)
}

/// Resolves what flags, environment and file say about the demo.
pub(crate) fn settings(flags: &DemoFlags, file: &File) -> Result<Settings, UsageError> {
    let demo = &file.demo;
    let listen = config::given("--listen", flags.listen.as_deref(), demo.listen)?;
    let store = config::given("--store", flags.store.as_deref(), file.store.clone())?;
    let store = store.unwrap_or_else(|| StoreUrl::sqlite(STORE_DEFAULT));
    let faults = flags.faults.or(demo.faults).unwrap_or(false);
    let settings = Settings {
        listen: listen.map_or(LISTEN_DEFAULT, |listen| listen.0),
        store_shown: store.to_string(),
        store: address(store),
        faults: if faults { Faults::Honoured } else { Faults::Ignored },
        retention: demo.retention.map_or(Policy::RETENTION_DEFAULT, |span| span.0),
        drain: demo.drain.map_or(DRAIN_DEFAULT, |span| span.0),
        wait_for: flags.wait_for.or(demo.wait_for.map(|span| span.0)).unwrap_or(WAIT_DEFAULT),
        provider: provider(flags, demo)?,
    };
    settings.check().map_err(|error| {
        UsageError::new(format!("the demo's settings contradict each other: {error}"))
    })?;
    Ok(settings)
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    opening::service_runtime()?.block_on(serve(settings))?;
    Ok(Exit::Done)
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    let demo = Demo::start(settings).await?;
    let mut signals = Signals::listen()?;
    // Called again as it was called now, the program is found.
    let program = env::args().next().unwrap_or_else(|| "firstwrite".to_owned());
    output::data(&demo.banner(&program))?;
    demo.serve_until(async || signals.received().await).await
}

/// The store's address as the demo takes it.
fn address(store: StoreUrl) -> StoreAddress {
    match store {
        StoreUrl::Sqlite(path) => StoreAddress::Sqlite(path),
        StoreUrl::Postgres(url) => StoreAddress::Postgres(url),
        StoreUrl::Mysql(url) => StoreAddress::Mysql(url),
        StoreUrl::Redis(url) => StoreAddress::Redis(url),
        StoreUrl::Dynamodb(url) => StoreAddress::Dynamodb(url),
    }
}

/// The provider that flags and file name, or else one in the demo's own process.
fn provider(flags: &DemoFlags, demo: &DemoSection) -> Result<ProviderChoice, UsageError> {
    let Some(url) = flags.provider.clone().or_else(|| demo.provider.clone()) else {
        return Ok(ProviderChoice::Own);
    };
    let is_address = url.starts_with("http://") || url.starts_with("https://");
    if !is_address {
        let message = "--provider: an address is needed, such as http://127.0.0.1:8090";
        return Err(UsageError::new(message));
    }
    let secret = flags.webhook_secret.as_deref().unwrap_or(demo_provider::WEBHOOK_SECRET);
    let secret =
        secret.parse().map_err(|error| UsageError::new(format!("--webhook-secret: {error}")))?;
    Ok(ProviderChoice::Other { url, secret })
}
