//! The `[gateway]` section: where to listen, what is behind it, and which operations are protected how.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use firstwrite::{KeyRequirement, Observer, Policy};
use firstwrite_gateway::tenants::{self, Tenants};
use firstwrite_gateway::{
    Calling, Care, Counting, ForwardedKey, HealthCheck, Holdings, Limits, Listening, Operations,
    Rate, Target, TenantLimits, tls,
};
use serde::Deserialize;

use super::given::{Given, read_file};
use super::{Listen, Span, StoreUrl, UsageError};
use crate::telemetry::Collector;

mod operation;

use operation::{OperationName, OperationSection};

/// The `[gateway]` section.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GatewaySection {
    /// Where clients connect.
    pub(crate) listen: Option<Listen>,
    /// Where operators find metrics, health and readiness, such as `"127.0.0.1:9464"`.
    pub(crate) operator: Option<Listen>,
    /// How many tenants have a label of their own in metrics.
    pub(crate) metrics_tenants_max: Option<usize>,
    /// Where traces go, such as `"http://127.0.0.1:4318"`.
    pub(crate) otlp: Option<Collector>,
    /// The servers of the API, such as `["http://127.0.0.1:3000"]`.
    #[serde(default)]
    pub(crate) upstreams: Vec<Upstream>,
    /// Whether a POST without a key passes through unprotected.
    pub(crate) optional_keys: Option<bool>,
    /// Where completed records are cached, such as `redis://127.0.0.1:6379`.
    pub(crate) cache: Option<Given>,
    /// The store that records are moving from, into `store`.
    pub(crate) moving_from: Option<StoreUrl>,
    /// The store that records are going to move to.
    pub(crate) moving_to: Option<StoreUrl>,
    /// How long requests under way may take to end at shutdown.
    pub(crate) drain: Option<Span>,
    /// Which key the upstream sees: `derived`, `original` or `nothing`.
    #[serde(default)]
    pub(crate) forward_key: ForwardKey,
    /// Whether the upstream is told which record it may complete itself.
    pub(crate) tell_record: Option<bool>,
    /// What stands for the host in fingerprints, where the service has several names.
    service_name: Option<String>,
    /// How many threads serve connections, each with its own; zero: one runtime shares all work.
    threads: Option<usize>,
    /// How many connections of clients there are at the same time.
    connections_max: Option<NonZeroUsize>,
    /// How long a connection to an upstream may take.
    connect_within: Option<Span>,
    /// How long an answer may take to begin.
    answer_within: Option<Span>,
    /// How long either side may be silent in the middle of a body.
    idle_for_max: Option<Span>,
    /// How long an unused connection to an upstream is kept.
    keep_alive: Option<Span>,
    /// How many bytes of protected bodies are held at the same time.
    held_bytes_max: Option<usize>,
    /// How many attempts are under way at the same time.
    attempts_max: Option<usize>,
    /// Whether upstreams are spoken to in HTTP/2.
    http2: Option<bool>,
    /// A file of PEM certificates that upstreams are trusted by, instead of the platform's.
    root_certificates: Option<String>,
    /// How the health of upstreams is looked at.
    health: Option<HealthSection>,
    /// Whose requests they are.
    tenants: Option<tenants::Settings>,
    /// TLS for clients.
    tls: Option<TlsSection>,
    /// What each tenant may ask for.
    limits: Option<LimitsSection>,
    /// What protects every POST that is not named.
    default: Option<OperationSection>,
    /// Operations, the most specific pattern first to be asked.
    #[serde(default)]
    operations: Vec<OperationSection>,
}

/// A server of the API.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Upstream(pub(crate) Target);

/// Which key the upstream sees.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ForwardKey {
    #[default]
    Derived,
    Original,
    Nothing,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthSection {
    path: String,
    every: Option<Span>,
}

/// Files of PEM.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSection {
    certificate: String,
    key: String,
    client_roots: Option<String>,
}

/// What a tenant may ask for, of each gateway.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsSection {
    new_keys_per_second: Option<f64>,
    requests_per_second: Option<f64>,
    in_flight_max: Option<u32>,
    active_keys_max: Option<u64>,
    stored_bytes_max: Option<u64>,
    /// How often what is in the store is counted, for the last two.
    count_every: Option<Span>,
    /// Tenants that may ask for more, or less.
    #[serde(default)]
    tenants: BTreeMap<String, LimitsSection>,
}

/// Often enough to notice within seconds, seldom enough not to be noticed.
const HEALTH_EVERY: Duration = Duration::from_secs(5);

/// A walk over all records is no matter of milliseconds.
const COUNT_EVERY_MIN: Duration = Duration::from_secs(1);

/// Who watches, and what is counted for it.
type Watched = (Arc<dyn Observer>, Option<Counting>);

impl GatewaySection {
    /// How upstreams are called.
    pub(crate) fn calling(&self) -> Result<Calling, UsageError> {
        let usual = Calling::default();
        let span = |given: Option<Span>, usual| given.map_or(usual, |span| span.0);
        let root_certificates = match &self.root_certificates {
            Some(path) => Some(text_of(path)?),
            None => None,
        };
        let health = self.health.as_ref().map(|health| HealthCheck {
            path: health.path.clone(),
            every: span(health.every, HEALTH_EVERY).max(Duration::from_millis(100)),
        });
        Ok(Calling {
            connect_within: span(self.connect_within, usual.connect_within),
            answer_within: span(self.answer_within, usual.answer_within),
            idle_for_max: span(self.idle_for_max, usual.idle_for_max),
            keep_alive: span(self.keep_alive, usual.keep_alive),
            held_bytes_max: self.held_bytes_max.unwrap_or(usual.held_bytes_max),
            attempts_max: self.attempts_max.unwrap_or(usual.attempts_max),
            http2: self.http2.unwrap_or(usual.http2),
            root_certificates,
            health,
            ..usual
        })
    }

    /// Where to listen, and in which voice.
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

    /// Whose requests they are.
    pub(crate) fn tenants(
        &self,
        operations: &Operations,
        clock: fn() -> SystemTime,
    ) -> Result<Tenants, UsageError> {
        let mut settings = self.tenants.clone().unwrap_or_default();
        settings.read_files(text_of)?;
        let tenants = Tenants::new(&settings, clock);
        let tenants = tenants.map_err(|error| wrong("gateway.tenants", error))?;
        Ok(tenants.operations_from(operations.clone()))
    }

    /// What stands for the host in fingerprints.
    pub(crate) fn service_name(&self) -> Result<Option<String>, UsageError> {
        match self.service_name.as_deref() {
            Some("") => Err(wrong("gateway.service_name", "a name is not empty; leave it out")),
            name => Ok(name.map(str::to_owned)),
        }
    }

    /// Whether whose requests they are was left open.
    pub(crate) fn has_tenants(&self) -> bool {
        self.tenants.is_some()
    }

    /// Who watches over what each tenant may ask for, if there is a limit, and tells `next`; and how what
    /// they have in the store is counted in `holdings`, if there is a limit on that.
    pub(crate) fn observer(
        &self,
        holdings: Arc<Holdings>,
        next: Arc<dyn Observer>,
    ) -> Result<Watched, UsageError> {
        let Some(section) = &self.limits else { return Ok((next, None)) };
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
            special.insert(tenant.clone(), section.of_tenant().map_err(wrong)?);
        }
        let needs_counting = special.values().chain([&usual]).any(TenantLimits::needs_counting);
        let every = section.count_every.map_or(Counting::EVERY, |span| span.0.max(COUNT_EVERY_MIN));
        let counting = needs_counting.then(|| Counting { holdings: Arc::clone(&holdings), every });
        Ok((Arc::new(Limits::new(usual, special, holdings, next)), counting))
    }

    /// Which operations are protected, and how. `optional_keys`: as a flag says it.
    pub(crate) fn operations(&self, optional_keys: Option<bool>) -> Result<Operations, UsageError> {
        let mut base = Policy::default();
        if optional_keys.or(self.optional_keys).unwrap_or(false) {
            base.key = KeyRequirement::Optional;
        }
        let calling = self.calling()?;
        let mut base_care = Care::default();
        if let Some(section) = &self.default {
            if section.operation.is_some() {
                return Err(wrong("gateway.default", "it is for those that are not named"));
            }
            let wrong = |what| wrong("gateway.default", what);
            base = section.policy(&base).map_err(wrong)?;
            base_care = section.care(&base_care, &calling).map_err(wrong)?;
        }
        let is_open = self.default.as_ref().is_some_and(|section| section.unprotected.is_some());
        let mut operations = if is_open {
            Operations::only_named()
        } else {
            Operations::new(base.clone(), base_care.clone())
        };
        for section in &self.operations {
            let Some(OperationName { method, pattern }) = section.operation.clone() else {
                return Err(wrong("gateway.operations", "each needs an `operation`"));
            };
            let name = format!("{method} {pattern}");
            operations = if let Some(reason) = &section.unprotected {
                operations.unprotected(method, &pattern, reason)
            } else {
                let wrong = |what| wrong(&name, what);
                let policy = section.policy(&base).map_err(wrong)?;
                let care = section.care(&base_care, &calling).map_err(wrong)?;
                operations.protected(method, &pattern, policy, care)
            };
        }
        Ok(operations)
    }
}

impl LimitsSection {
    fn of_tenant(&self) -> Result<TenantLimits, String> {
        let rate = |name: &str, given: Option<f64>| match given {
            Some(rate) if rate.is_finite() && rate > 0.0 => Ok(Some(Rate::per_second(rate))),
            Some(_) => Err(format!("{name} must be more than 0")),
            None => Ok(None),
        };
        Ok(TenantLimits {
            new_keys: rate("new_keys_per_second", self.new_keys_per_second)?,
            requests: rate("requests_per_second", self.requests_per_second)?,
            in_flight_max: self.in_flight_max,
            active_keys_max: self.active_keys_max,
            stored_bytes_max: self.stored_bytes_max,
        })
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

    /// What the page shows is what the program takes.
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
