//! The `[gateway]` section: where to listen, what is behind it, and which operations are protected how.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use firstwrite::{KeyRequirement, Observer, Policy, PolicyResolver as _, ProblemBase};
use firstwrite_core::{Secret, Tenant};
use firstwrite_gateway::tenants;
use firstwrite_gateway::{
    Calling, Cors, Counting, ForwardedKey, Forwarding, HealthCheck, Limits, Listening, Network,
    OperationExtras, Operations, Rate, Target, TenantLimits, TenantUsage, Upgrades, tls,
};
use serde::{Deserialize, Serialize};

use super::given::{Given, read_file};
use super::lives::{key_life, outlived};
use super::{Listen, SPAN_MIN, Span, StoreUrl, UsageError, span_or};
use crate::telemetry::Collector;

mod operation;
mod origins;

use operation::{OperationName, OperationSection};

/// The `[gateway]` section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewaySection {
    /// Address that clients connect to. Default: `"127.0.0.1:8080"`.
    pub(crate) listen: Option<Listen>,
    /// Address of metrics, health and readiness, such as `"127.0.0.1:9464"`, another than `listen`. Without it
    /// there are none.
    pub(crate) operator: Option<Listen>,
    /// Number of tenants that have a label of their own in metrics. Default: `100`.
    pub(crate) metrics_tenants_max: Option<usize>,
    /// Collector of traces, such as `"http://127.0.0.1:4318"`. Needs a build with the feature `otlp`.
    pub(crate) otlp: Option<Collector>,
    /// Servers of the API, which take turns. At least one, here or with `--upstream`.
    #[serde(default)]
    pub(crate) upstreams: Vec<Upstream>,
    /// Lets a POST without a key pass through unprotected. Default: `false`.
    pub(crate) optional_keys: Option<bool>,
    /// Redis in which completed records of a PostgreSQL store are cached, such as
    /// `"redis://127.0.0.1:6379"`.
    pub(crate) cache: Option<Given>,
    /// Store that records are moving from, into `store`.
    pub(crate) moving_from: Option<StoreUrl>,
    /// Store that records are going to move to.
    pub(crate) moving_to: Option<StoreUrl>,
    /// Time that requests under way get at shutdown. Default: `"30s"`.
    pub(crate) drain: Option<Span>,
    /// `Idempotency-Key` that the upstream sees: one derived from tenant and key, the client's, or none.
    /// Default: `"derived"`.
    #[serde(default)]
    pub(crate) forward_key: ForwardKey,
    /// Tells the upstream which record it may complete itself. Default: `true`.
    pub(crate) tell_record: Option<bool>,
    /// Protocols that connections of unprotected operations may change to (`Upgrade`); an empty list: none.
    /// Default: `["websocket"]`.
    upgrades: Option<Vec<String>>,
    /// Networks of proxies in front, such as `"10.0.0.0/8"`. What they say of the client (`X-Forwarded-For`,
    /// `-Proto`, `-Host`, `Forwarded`) is passed on and added to; from others it is dropped. Default: `[]`.
    trusted_proxies: Option<Vec<String>>,
    /// Address below which each problem code has its page, for the `type` of problem documents. Default:
    /// `"/.firstwrite/problems/"`.
    problem_base: Option<String>,
    /// Origins whose pages may read answers. Without it, the API says so itself.
    cors: Option<CorsSection>,
    /// Stands for the host in fingerprints, where the service has several names.
    service_name: Option<String>,
    /// Secrets that key fingerprints, each of at least 16 bytes: the first keys, all compare. Default: derived
    /// from the keys of `[sealing]`, if there are some; else fingerprints are plain digests.
    #[serde(default)]
    pub(super) fingerprint_secrets: Vec<Given>,
    /// Threads that serve connections; with 0, one runtime shares all work. Default: the number of cores.
    threads: Option<usize>,
    /// Connections of clients at the same time; more wait to be accepted. Default: `20000`.
    connections_max: Option<NonZeroUsize>,
    /// Time limit of connecting to an upstream. Default: `"5s"`.
    connect_within: Option<Span>,
    /// Time limit until an answer begins; a later one is lost. Default: `"1m"`.
    answer_within: Option<Span>,
    /// Longest silence in the middle of a body, on either side. Default: `"1m"`.
    idle_for_max: Option<Span>,
    /// Time for which an unused connection to an upstream is kept. Default: `"1500ms"`.
    keep_alive: Option<Span>,
    /// Bytes of heads and bodies of protected requests in memory at the same time, and as many again of answers that
    /// are gathered to be kept. Default: `268435456`.
    held_bytes_max: Option<NonZeroUsize>,
    /// Attempts under way at the same time, of all clients together, where `upstream_connections_max` has room for
    /// as many. Default: `10000`.
    attempts_max: Option<NonZeroUsize>,
    /// Connections to upstreams at the same time. Half of them, or `attempts_max` and 64 where that is less, are for
    /// attempts under keys and probes; the rest bounds the unprotected requests under way, which get 503 beyond it.
    /// Fewer where the system grants fewer open files beside `connections_max`. Default: `30000`.
    upstream_connections_max: Option<NonZeroUsize>,
    /// Part of `attempts_max` and `held_bytes_max` that is one tenant's share. Who has its share of attempts comes
    /// behind those who have less; who has its share of bytes gets room in their first half only, or in three
    /// quarters for bodies up to 16 KiB. Where a source verifies callers, all that none verified have one share
    /// together. More than 0, at most 1. Default: `0.25`.
    tenant_share: Option<f64>,
    /// Longest silence of a connection that has changed its protocol, in both directions. Default: `"10m"`.
    tunnel_idle_for_max: Option<Span>,
    /// Speaks HTTP/2 to upstreams. Default: `false`.
    http2: Option<bool>,
    /// File of PEM certificates that `https` upstreams are trusted by, instead of the platform's.
    root_certificates: Option<String>,
    /// Requests that look after the health of upstreams. Without them, failures of calls tell.
    health: Option<HealthSection>,
    /// Identities of callers. Needed, here or with `--tenants`.
    tenants: Option<tenants::Settings>,
    /// TLS for clients.
    tls: Option<TlsSection>,
    /// Limits of each tenant.
    limits: Option<LimitsSection>,
    /// Protection of every POST that is not named, with the settings of an operation.
    default: Option<OperationSection>,
    /// Operations by name; the most specific pattern decides.
    #[serde(default)]
    operations: Vec<OperationSection>,
}

/// A server of the API.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Upstream(pub(crate) Target);

/// The key that the upstream sees.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ForwardKey {
    #[default]
    Derived,
    Original,
    Nothing,
}

impl ForwardKey {
    pub(crate) const ALL: [Self; 3] = [Self::Derived, Self::Original, Self::Nothing];
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthSection {
    /// Path that is asked for with GET; an answer below 500 is healthy.
    path: String,
    /// Interval, at least 100 ms. Default: `"5s"`.
    every: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CorsSection {
    /// Exact origins such as `"https://shop.example"`, or `"*"` alone.
    origins: Vec<String>,
    /// Lets pages send cookies and the like. Default: `false`.
    credentials: Option<bool>,
    /// Headers of the API's answers that pages may read, besides the gateway's own. Default: `[]`.
    expose: Option<Vec<String>>,
}

/// Files of PEM.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSection {
    /// File with the certificate chain, in PEM.
    certificate: String,
    /// File with the private key, in PEM.
    key: String,
    /// File with the authorities of client certificates, in PEM. Without it clients show none.
    client_roots: Option<String>,
}

/// Limits of a tenant, in each gateway.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsSection {
    /// New keys in a second, counted by each gateway; after a pause, twice as many at once.
    new_keys_per_second: Option<f64>,
    /// Requests under a key in a second, retries included, counted by each gateway; after a pause, twice as
    /// many at once.
    requests_per_second: Option<f64>,
    /// Requests under a key at the same time, counted by each gateway.
    in_flight_max: Option<NonZeroU32>,
    /// New keys in a second of all tenants together that the gateway did not verify itself: callers without
    /// credentials, those of the source `authorization`, and everybody where the source is `single`; after a
    /// pause, twice as many at once. Strangers can use it up. Not for one tenant alone. Default: `1000`.
    unverified_new_keys_per_second: Option<f64>,
    /// Keys in the store, whichever gateway made them.
    active_keys_max: Option<u64>,
    /// Bytes of kept answers in the store.
    stored_bytes_max: Option<u64>,
    /// Interval at which keys and bytes in the store are counted, at least 1 s. For all tenants alike.
    /// Default: `"1m"`.
    count_every: Option<Span>,
    /// Tenants with limits of their own, which replace all of the usual ones.
    #[serde(default)]
    tenants: BTreeMap<String, LimitsSection>,
}

/// Often enough to notice within seconds, seldom enough not to be noticed.
const HEALTH_EVERY: Duration = Duration::from_secs(5);

/// More would be load.
const HEALTH_EVERY_MIN: Duration = Duration::from_millis(100);

/// A walk over all records is no matter of milliseconds.
const COUNT_EVERY_MIN: Duration = Duration::from_secs(1);

/// An observer, and the counting that it needs.
type Watched = (Arc<dyn Observer>, Option<Counting>);

/// The limits of most tenants, and those of some by name.
type LimitsByTenant = (TenantLimits, HashMap<String, TenantLimits>);

impl GatewaySection {
    /// Returns the settings of calls to upstreams.
    pub(crate) fn calling(&self) -> Result<Calling, UsageError> {
        let usual = Calling::default();
        let limit =
            |name: &str, given, usual| span_or(&format!("gateway.{name}"), given, SPAN_MIN, usual);
        let root_certificates = match &self.root_certificates {
            Some(path) => Some(text_of(path)?),
            None => None,
        };
        let health = match &self.health {
            Some(HealthSection { path, every }) => {
                let every =
                    span_or("gateway.health.every", *every, HEALTH_EVERY_MIN, HEALTH_EVERY)?;
                Some(HealthCheck { path: path.clone(), every })
            }
            None => None,
        };
        let tenant_share = self.tenant_share.unwrap_or(usual.tenant_share);
        if !(tenant_share > 0.0 && tenant_share <= 1.0) {
            return Err(wrong("gateway.tenant_share", "a share is more than 0 and at most 1"));
        }
        Ok(Calling {
            connect_within: limit("connect_within", self.connect_within, usual.connect_within)?,
            answer_within: limit("answer_within", self.answer_within, usual.answer_within)?,
            idle_for_max: limit("idle_for_max", self.idle_for_max, usual.idle_for_max)?,
            keep_alive: self.keep_alive.map_or(usual.keep_alive, |span| span.0),
            held_bytes_max: self.held_bytes_max.map_or(usual.held_bytes_max, NonZeroUsize::get),
            attempts_max: self.attempts_max.map_or(usual.attempts_max, NonZeroUsize::get),
            upstream_connections_max: self
                .upstream_connections_max
                .map_or(usual.upstream_connections_max, NonZeroUsize::get),
            tenant_share,
            tunnel_idle_for_max: limit(
                "tunnel_idle_for_max",
                self.tunnel_idle_for_max,
                usual.tunnel_idle_for_max,
            )?,
            http2: self.http2.unwrap_or(usual.http2),
            root_certificates,
            health,
            ..usual
        })
    }

    /// Returns the configured number of connections, if it differs from the default.
    pub(crate) fn connections_max(&self) -> Option<usize> {
        let asked_for = self.connections_max.map(NonZeroUsize::get);
        asked_for.filter(|count| *count != Listening::CONNECTIONS_MAX)
    }

    /// Returns the settings of the listener: address, protocol and limits.
    pub(crate) fn listening(&self, listen: SocketAddr) -> Result<Listening, UsageError> {
        let usual = Listening::at(listen);
        let plain = Listening {
            connections_max: self.connections_max.map_or(usual.connections_max, NonZeroUsize::get),
            threads: self.threads.unwrap_or_else(cores),
            ..usual
        };
        let Some(section) = &self.tls else { return Ok(plain) };
        let (chain, key) = (text_of(&section.certificate)?, text_of(&section.key)?);
        let client_roots = section.client_roots.as_deref().map(text_of).transpose()?;
        let client_roots = client_roots.as_deref();
        let given = tls::Certificates { chain: &chain, key: &key, client_roots };
        let config = tls::listener(&given).map_err(|what| wrong("gateway.tls", what))?;
        Ok(Listening { tls: Some(config), ..plain })
    }

    /// Returns true if the file says whose requests they are.
    pub(crate) fn has_tenants(&self) -> bool {
        self.tenants.is_some()
    }

    /// Returns the tenant resolver of the flag or of the file. Nothing is guessed.
    pub(crate) fn tenants(&self, flag: Option<&str>) -> Result<tenants::Settings, UsageError> {
        let mut settings = match (flag, &self.tenants) {
            (Some(choice), _) => choice.parse().map_err(|error| wrong("--tenants", error))?,
            (None, Some(settings)) => settings.clone(),
            (None, None) => return Err(UsageError::new(whose_requests())),
        };
        settings.read_files(text_of)?;
        Ok(settings)
    }

    /// Returns the name that replaces the host in fingerprints.
    pub(crate) fn service_name(&self) -> Result<Option<String>, UsageError> {
        match self.service_name.as_deref() {
            Some("") => Err(wrong("gateway.service_name", "a name is not empty; leave it out")),
            Some(name) if name.chars().any(char::is_control) => {
                Err(wrong("gateway.service_name", "a name has no control characters"))
            }
            name => Ok(name.map(str::to_owned)),
        }
    }

    /// The secrets that were given for fingerprints.
    pub(super) fn given_secrets(&self) -> Result<Vec<Secret>, UsageError> {
        let wrong = |what: &dyn std::fmt::Display| wrong("gateway.fingerprint_secrets", what);
        let read = |given: &Given| {
            let text = given.read().map_err(|what| wrong(&what))?;
            Secret::new(text.trim().as_bytes()).map_err(|error| wrong(&error))
        };
        self.fingerprint_secrets.iter().map(read).collect()
    }

    /// Returns the settings of forwarded requests.
    pub(crate) fn forwarding(&self) -> Result<Forwarding, UsageError> {
        let usual = Forwarding::default();
        let upgrades = match &self.upgrades {
            Some(tokens) => Upgrades::new(tokens.iter().map(String::as_str))
                .map_err(|what| wrong("gateway.upgrades", what))?,
            None => usual.upgrades,
        };
        let proxies = self.trusted_proxies.iter().flatten();
        let trusted_proxies: Result<Vec<Network>, UsageError> = proxies
            .map(|text| {
                let wrong = |what| wrong("gateway.trusted_proxies", format!("{text:?}: {what}"));
                Network::parse(text).map_err(wrong)
            })
            .collect();
        Ok(Forwarding {
            key: self.forward_key.into(),
            tells_record: self.tell_record.unwrap_or(true),
            upgrades,
            trusted_proxies: trusted_proxies?,
        })
    }

    /// Returns the origins whose pages may read answers.
    pub(crate) fn cors(&self) -> Result<Option<Cors>, UsageError> {
        let Some(CorsSection { origins, credentials, expose }) = &self.cors else {
            return Ok(None);
        };
        let exposed = expose.as_deref().unwrap_or_default();
        let has_credentials = credentials.unwrap_or(false);
        let checked = origins::check(origins, has_credentials, exposed);
        let cors = checked.and_then(|()| Cors::new(origins, has_credentials, exposed));
        cors.map(Some).map_err(|what| wrong("gateway.cors", what))
    }

    /// Returns the address of the problem pages.
    pub(crate) fn problem_base(&self) -> Result<ProblemBase, UsageError> {
        let Some(base) = &self.problem_base else { return Ok(ProblemBase::default()) };
        ProblemBase::new(base).map_err(|what| wrong("gateway.problem_base", what))
    }

    /// Returns the observer that enforces the limits of tenants and calls `next`, and the counting of their
    /// usage of the store in `tenant_usage`, if that is limited.
    pub(crate) fn observer(
        &self,
        tenant_usage: Arc<TenantUsage>,
        next: Arc<dyn Observer>,
    ) -> Result<Watched, UsageError> {
        let (usual, special) = self.limits()?.unwrap_or_default();
        let needs_counting = special.values().chain([&usual]).any(TenantLimits::needs_counting);
        let every = self.limits.as_ref().and_then(|section| section.count_every);
        if every.is_some() && !needs_counting {
            let why = "nothing is counted without active_keys_max or stored_bytes_max";
            return Err(wrong("gateway.limits.count_every", why));
        }
        let every = span_or("gateway.limits.count_every", every, COUNT_EVERY_MIN, Counting::EVERY)?;
        let counting =
            needs_counting.then(|| Counting { tenant_usage: Arc::clone(&tenant_usage), every });
        let limits = Limits::new(usual, special, tenant_usage, next);
        Ok((Arc::new(limits.unverified_new_keys(self.unverified_new_keys()?)), counting))
    }

    /// The limit of all together that the gateway did not verify.
    pub(crate) fn unverified_new_keys(&self) -> Result<Rate, UsageError> {
        let given = self.limits.as_ref().and_then(|it| it.unverified_new_keys_per_second);
        let rate = rate("unverified_new_keys_per_second", given);
        let rate = rate.map_err(|what| wrong("gateway.limits", what))?;
        Ok(rate.unwrap_or(Rate::UNVERIFIED_NEW_KEYS))
    }

    /// The limits of most tenants, and of those that have their own.
    pub(crate) fn limits(&self) -> Result<Option<LimitsByTenant>, UsageError> {
        let Some(section) = &self.limits else { return Ok(None) };
        let wrong = |what| wrong("gateway.limits", what);
        let usual = section.of_tenant().map_err(wrong)?;
        let mut special = HashMap::new();
        for (tenant, section) in &section.tenants {
            if !section.tenants.is_empty() {
                return Err(wrong(format!("{tenant} has no tenants of its own")));
            }
            if section.count_every.is_some() {
                return Err(wrong(format!(
                    "count_every is for all tenants, not for {tenant} alone"
                )));
            }
            if section.unverified_new_keys_per_second.is_some() {
                return Err(wrong(format!(
                    "unverified_new_keys_per_second is for all tenants together, not for {tenant} alone"
                )));
            }
            // Limits are looked up by owner.
            let name = Tenant::new(tenant).map_err(|error| wrong(error.to_string()))?;
            let name = name.owner().as_str().to_owned();
            special.insert(name, section.of_tenant().map_err(wrong)?);
        }
        Ok(Some((usual, special)))
    }

    /// Returns the policies of all operations, named or not. Unlike [`Self::operations`], it reads no secret: a worker
    /// has the gateway's file, and need not have what its probes are asked with.
    pub(super) fn policies(&self) -> Result<Vec<Policy>, UsageError> {
        let mut base = Policy::default();
        if let Some(section) = &self.default {
            base = section.policy(&base).map_err(|what| wrong("gateway.default", what))?;
        }
        let is_open = self.default.as_ref().is_some_and(|section| section.unprotected.is_some());
        let mut policies = Vec::new();
        for section in self.operations.iter().filter(|section| section.unprotected.is_none()) {
            let policy = section.policy(&base).map_err(|what| wrong("gateway.operations", what))?;
            policies.push(policy);
        }
        policies.extend((!is_open).then_some(base));
        Ok(policies)
    }

    /// Returns the protected operations with their policies. `optional_keys` is the flag's.
    pub(crate) fn operations(&self, optional_keys: Option<bool>) -> Result<Operations, UsageError> {
        let mut base = Policy::default();
        if optional_keys.or(self.optional_keys).unwrap_or(false) {
            if self.default.as_ref().is_some_and(OperationSection::requires_key) {
                let why = "gateway.default says key = \"required\"; leave one of them out";
                return Err(wrong("gateway.optional_keys", why));
            }
            base.key = KeyRequirement::Optional;
        }
        let calling = self.calling()?;
        let mut base_extras = OperationExtras::default();
        if let Some(section) = &self.default {
            if section.operation.is_some() {
                return Err(wrong("gateway.default", "it is for those that are not named"));
            }
            let wrong = |what| wrong("gateway.default", what);
            base = section.policy(&base).map_err(wrong)?;
            base_extras = section.extras(&base_extras, &calling).map_err(wrong)?;
            check_age(&base, &base_extras).map_err(wrong)?;
        }
        let base_dedupe = self.default.as_ref().and_then(|section| section.dedupe_for(None));
        check_life(base_dedupe, &base).map_err(|what| wrong("gateway.default", what))?;
        let is_open = self.default.as_ref().is_some_and(|section| section.unprotected.is_some());
        let mut operations = if is_open {
            Operations::only_named()
        } else {
            Operations::new(base.clone(), base_extras.clone())
        };
        let mut named = HashSet::new();
        for section in &self.operations {
            let Some(OperationName { method, pattern }) = section.operation.clone() else {
                return Err(wrong("gateway.operations", "each needs an `operation`"));
            };
            let name = format!("{method} {pattern}");
            if !named.insert(without_names(&name)) {
                return Err(wrong(&name, "it stands twice, or another matches the same paths"));
            }
            operations = if let Some(reason) = &section.unprotected {
                if let Some(setting) = section.beside_unprotected() {
                    let why = format!("{setting} has no effect beside unprotected; leave one out");
                    return Err(wrong(&name, why));
                }
                operations.unprotected(method, &pattern, reason)
            } else {
                let wrong = |what| wrong(&name, what);
                let policy = section.policy(&base).map_err(wrong)?;
                check_life(section.dedupe_for(base_dedupe), &policy).map_err(wrong)?;
                let extras = section.extras(&base_extras, &calling).map_err(wrong)?;
                check_age(&policy, &extras).map_err(wrong)?;
                operations.protected(method, &pattern, policy, extras)
            };
        }
        check_held(&operations, calling.held_bytes_max)?;
        let forwarded = operations.check_forwarded(self.forward_key.into());
        forwarded.map_err(|why| wrong("gateway.forward_key", why))?;
        Ok(operations)
    }
}

impl GatewaySection {
    /// Returns the first operation that is left unprotected for gRPC, where the upstream is not spoken to in
    /// HTTP/2: its calls are refused.
    pub(crate) fn grpc_without_trailers(&self) -> Option<String> {
        if self.http2 == Some(true) {
            return None;
        }
        let is_grpc = |section: &&OperationSection| {
            let reason = section.unprotected.as_deref().unwrap_or_default().to_ascii_lowercase();
            reason.contains("grpc") && !reason.contains("grpc-web")
        };
        let section = self.operations.iter().chain(&self.default).find(is_grpc)?;
        Some(section.shown())
    }

    /// Names the operations whose probe takes an empty list for a *no*.
    pub(crate) fn believing_empty_lists(&self) -> impl Iterator<Item = String> {
        let sections = self.default.iter().chain(&self.operations);
        sections.filter(|section| section.believes_empty_lists()).map(OperationSection::shown)
    }
}

/// Refuses an API that recognises a key for longer than the key lives here.
fn check_life(dedupe_for: Option<Duration>, policy: &Policy) -> Result<(), String> {
    match dedupe_for {
        Some(dedupe_for) if dedupe_for > key_life(policy) => {
            Err(outlived(dedupe_for, key_life(policy)))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses an age that outlives the keys of the operation.
fn check_age(policy: &Policy, extras: &OperationExtras) -> Result<(), String> {
    extras.age.as_ref().map_or(Ok(()), |age| age.check_against(key_life(policy)))
}

/// Refuses room in which the largest body of an operation could never be held: one body may have half of it, and
/// takes up the next power of two.
fn check_held(operations: &Operations, held_bytes_max: usize) -> Result<(), UsageError> {
    let largest = operations.known().iter().map(|policy| policy.request_bytes_max).max();
    let largest = largest.unwrap_or_default();
    let buffer = largest.checked_next_power_of_two().unwrap_or(largest);
    if buffer <= held_bytes_max / 2 {
        return Ok(());
    }
    let what = format!(
        "it must be at least twice the request_bytes_max of every operation: {} for a body of {largest}",
        buffer.saturating_mul(2)
    );
    Err(wrong("gateway.held_bytes_max", what))
}

/// An operation, whatever the variable parts of its path are called.
fn without_names(operation: &str) -> String {
    let parts = operation.split('/').map(|part| match part.strip_prefix('{') {
        Some(name) if name.starts_with('*') => "{*}",
        Some(_) => "{}",
        None => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

impl LimitsSection {
    fn of_tenant(&self) -> Result<TenantLimits, String> {
        Ok(TenantLimits {
            new_keys: rate("new_keys_per_second", self.new_keys_per_second)?,
            requests: rate("requests_per_second", self.requests_per_second)?,
            in_flight_max: self.in_flight_max.map(NonZeroU32::get),
            active_keys_max: self.active_keys_max,
            stored_bytes_max: self.stored_bytes_max,
        })
    }
}

/// The question that only the operator can answer, with the answers there are.
fn whose_requests() -> String {
    let line = |(choice, meaning)| format!("  --tenants {choice}\n      {meaning}\n");
    let choices: String = tenants::Settings::CHOICES.map(line).concat();
    format!(
        "whose requests are these? Customers must not get each other's answers, and a retry must be known \
         as the same customer's; add one of\n{choices}or a section [gateway.tenants] in the config file \
         (docs/tenants.md)"
    )
}

fn rate(name: &str, given: Option<f64>) -> Result<Option<Rate>, String> {
    match given {
        Some(rate) if rate.is_finite() && rate > 0.0 => Ok(Some(Rate::per_second(rate))),
        Some(_) => Err(format!("{name} must be more than 0")),
        None => Ok(None),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn text_of(path: &str) -> Result<String, UsageError> {
    let bytes = read_file(path).map_err(UsageError::new)?;
    String::from_utf8(bytes)
        .map_err(|_not_text| UsageError::new(format!("{path} is not text; PEM is expected")))
}

fn wrong(place: &str, what: impl std::fmt::Display) -> UsageError {
    UsageError::new(format!("{place}: {what}"))
}

impl From<ForwardKey> for ForwardedKey {
    fn from(key: ForwardKey) -> Self {
        match key {
            ForwardKey::Derived => Self::Derived,
            ForwardKey::Original => Self::Original,
            ForwardKey::Nothing => Self::Nothing,
        }
    }
}

impl TryFrom<String> for Upstream {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Target::new(&text).map(Self).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::File;

    fn operations(settings: &str) -> Result<(), String> {
        let file = File::parse(settings).unwrap();
        file.gateway.operations(None).map(drop).map_err(|error| error.to_string())
    }

    /// The API knows a request that is sent again by its key alone.
    #[test]
    fn nothing_is_sent_again_where_the_api_sees_no_key() {
        let settings = |key: &str, place: &str, rule: &str| {
            format!("[gateway]\nforward_key = '{key}'\n{place}\non_lost_answer = {rule}\n")
        };
        let named = "[[gateway.operations]]\noperation = 'POST /a'";
        for place in ["[gateway.default]", named] {
            let refused = operations(&settings("nothing", place, "'resend'")).unwrap_err();
            assert!(
                refused.contains("forward_key = \"nothing\"")
                    && refused.contains("on_lost_answer = \"resend\""),
                "{refused}"
            );
            assert!(!refused.contains('\n'), "{refused}");
            for (key, rule) in
                [("nothing", "'uncertain'"), ("derived", "'resend'"), ("original", "'resend'")]
            {
                assert_eq!(operations(&settings(key, place, rule)), Ok(()));
            }
        }
    }

    /// A recorded request is refused for its age for as long as its key may be free.
    #[test]
    fn no_request_is_young_enough_to_run_again_after_its_key_was_forgotten() {
        let settings = |max: &str, more: &str| {
            format!("[gateway.default]\nage = {{ header = 'x-at', max = '{max}' }}\n{more}")
        };
        for (max, more, fits) in [
            ("55m", "retention = '1h'", true),
            ("55m 1s", "retention = '1h'", false),
            ("1h 55m", "retention = '1h'\nafter_retention = { refuse = '1h' }", true),
            ("1h 56m", "retention = '1h'\nafter_retention = { refuse = '1h' }", false),
            // A named operation has the age of the others.
            ("55m", "[[gateway.operations]]\noperation = 'POST /a'\nretention = '30m'", false),
        ] {
            let checked = operations(&settings(max, more));
            assert_eq!(checked.is_ok(), fits, "{max} {more}: {checked:?}");
            let names = |why: &String| why.contains("age.max") && why.contains("retention");
            assert!(checked.err().iter().all(names));
        }
    }

    /// The program accepts the settings that the page shows.
    #[test]
    fn the_settings_in_the_documentation_hold() {
        let page = include_str!("../../../../docs/gateway.md");
        let (_, rest) = page.split_once("```toml\n").unwrap();
        let (settings, _) = rest.split_once("```").unwrap();
        let file = File::parse(&settings.replace("root_certificates = \"ca.pem\"", "")).unwrap();
        let operations = file.gateway.operations(None).unwrap();
        let (refund, login) = ("/payments/7/refunds", "/login");
        let policies = operations.policies();
        assert!(policies.covers(&axum::http::Method::POST, refund));
        assert!(policies.unprotected_reason(&axum::http::Method::POST, login).is_some());
        assert_eq!(file.gateway.upstreams.len(), 2);
        assert!(file.gateway.calling().unwrap().health.is_some());
    }
}
