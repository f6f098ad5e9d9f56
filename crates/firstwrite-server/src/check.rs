//! `firstwrite check`: whether a config file holds together, before anything is started with it.

use std::path::Path;

use crate::command::{self, CheckFlags, DemoFlags, DoctorFlags, Exit, GatewayFlags, WorkerFlags};
use crate::config::{File, GatewayPart, UsageError};
use crate::{demo, doctor, gateway, output, worker};

/// Result of a successful check: the text to print.
#[derive(Debug)]
pub(crate) struct Settings {
    said: String,
}

/// Stand-ins for what a start is given besides a file that leaves it out. PostgreSQL, because every setting
/// can be used with it.
const STORE: &str = "postgres://127.0.0.1/firstwrite";
const UPSTREAM: &str = "http://127.0.0.1:3000";
const TENANTS: &str = "single";

/// Text for a configuration without a fingerprint secret.
const PLAIN: &str = "PLAIN: a reader of the store can guess at request contents, such as card numbers, \
                     and check;\n                set fingerprint_secrets under [gateway], or [sealing]";

/// Text for an operation of gRPC behind which the upstream is spoken to in HTTP/1.1.
const NO_TRAILERS: &str = "its calls are refused, since trailers need HTTP/2;\n                set http2 = true under [gateway]";

/// Text for probes that take an empty list for a *no*.
const EMPTY_IS_NO: &str = "an empty list means that nothing happened, and what was sent may be sent\n                \
                           again; another account's token gets empty lists only: ask it once\n                \
                           about a key that was used";

/// Text for destinations that recognise a key for as long as it lives.
const NO_ROOM: &str = "dedupe_for is as long as a key lives, and runs from the delivery: a late one\n                \
                       is remembered in the key's next life; make retention longer by the\n                \
                       longest time that a message may wait";

impl Settings {
    /// Plans every command that follows the file as its start does, and opens nothing: a file that holds
    /// here is refused by no start that is given the same flags.
    pub(crate) fn resolve(
        given: CheckFlags,
        file: &File,
        path: Option<&Path>,
    ) -> Result<Self, UsageError> {
        let Some(path) = path else {
            return Err(UsageError::new("no file is named; add --config firstwrite.toml"));
        };
        let has_gateway = file.gateway_part == GatewayPart::Whole
            || !given.upstream.is_empty()
            || given.tenants.is_some();
        let has_store = given.store.is_some() || file.store.is_some();
        let store = given.store.clone().or_else(|| (!has_store).then(|| STORE.to_owned()));
        let gateway = if has_gateway {
            plan_gateway(given, file, path)
        } else {
            let (upstream, tenants) = (vec![UPSTREAM.to_owned()], Some(TENANTS.to_owned()));
            plan_gateway(CheckFlags { upstream, tenants, store: store.clone() }, file, path)
        }?;
        let mut demo: DemoFlags = command::without_words()?;
        demo.store = store.clone().filter(|_| has_store);
        demo::settings(&demo, file)?;
        let mut doctor: DoctorFlags = command::without_words()?;
        doctor.store.store.clone_from(&store);
        doctor::Settings::resolve(doctor, file)?;
        let mut worker: WorkerFlags = command::without_words()?;
        worker.store.store = store;
        let worker = worker::Settings::resolve(&worker, file)?;
        let destinations = worker.destinations();
        let upstream_count = if has_gateway { gateway.upstream_count() } else { 0 };
        let said = format!(
            "{}: {}\n  upstreams     {upstream_count}\n  tenants       {}\n  destinations  {}\n  accounts      {}\n  \
             sealed        {}\n  fingerprints  {}\n",
            path.display(),
            verdict(has_gateway, has_store),
            tenants(&gateway, has_gateway),
            destinations.len(),
            file.reconcile.check(&file.destinations)?,
            if file.sealing.ring()?.is_some() { "yes" } else { "no" },
            if file.fingerprint_secrets()?.is_empty() { PLAIN } else { "keyed" }
        );
        let grpc = file.gateway.grpc_without_trailers();
        let grpc = grpc.map(|name| format!("  gRPC          {name}: {NO_TRAILERS}\n"));
        let believing: Vec<String> = file
            .destinations
            .believing_empty_lists()
            .chain(file.gateway.believing_empty_lists())
            .collect();
        let believing = match &believing[..] {
            [] => String::new(),
            names => format!("  probes        {}: {EMPTY_IS_NO}\n", names.join(", ")),
        };
        let tight = match &file.without_room_to_wait(destinations)?[..] {
            [] => String::new(),
            names => format!("  key lives     {}: {NO_ROOM}\n", names.join(", ")),
        };
        Ok(Self { said: said + grpc.as_deref().unwrap_or_default() + &believing + &tight })
    }
}

/// Says whether the file names tenants, and who of them shares answers.
fn tenants(gateway: &gateway::Settings, has_gateway: bool) -> String {
    if !has_gateway {
        return "not named".to_owned();
    }
    let notes = gateway.tenants_notes().iter().map(String::as_str);
    ["named"].into_iter().chain(notes).collect::<Vec<_>>().join("; ")
}

fn plan_gateway(
    given: CheckFlags,
    file: &File,
    path: &Path,
) -> Result<gateway::Settings, UsageError> {
    let CheckFlags { store, upstream, tenants } = given;
    let flags = GatewayFlags { upstream, tenants, store, ..command::without_words()? };
    gateway::Settings::resolve(flags, file, Some(path.to_owned()))
}

/// Says that the file holds, and what starts must be given besides it.
fn verdict(has_gateway: bool, has_store: bool) -> String {
    let gateway = (!has_gateway).then_some("--upstream and --tenants (gateway)");
    let store = (!has_store).then_some("--store (worker, doctor)");
    let needed: Vec<&str> = gateway.into_iter().chain(store).collect();
    if needed.is_empty() {
        return "holds".to_owned();
    }
    format!("holds with what only a start can be given: {}", needed.join(", "))
}

pub(crate) fn run(settings: &Settings) -> anyhow::Result<Exit> {
    output::data(&settings.said)?;
    Ok(Exit::Done)
}
