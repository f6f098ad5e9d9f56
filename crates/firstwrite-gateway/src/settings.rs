//! Settings of a gateway. Plain values: the program that reads files and flags makes them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use firstwrite::Observer;
use firstwrite_core::{ProblemBase, Secrets};
use rustls::ServerConfig;

use crate::cors::Cors;
use crate::forward::Forwarding;
use crate::metrics::Metrics;
use crate::operations::Operations;
use crate::tenant_usage::Counting;
use crate::tenants::Tenants;
use crate::traces::Tracer;
use crate::upstream::{Calling, Target};

/// Listen address of a gateway, and limits on its clients.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Address that clients connect to.
    pub listen: SocketAddr,
    /// TLS for clients, if they must use it.
    pub tls: Option<Arc<ServerConfig>>,
    /// Connections at the same time; more wait to be accepted.
    pub connections_max: usize,
    /// Time limit for a request's head to arrive, and for a connection to be idle.
    pub head_within: Duration,
    /// Time after which a client that reads nothing of its answer is cut off.
    pub taken_within: Duration,
    /// Threads that connections are shared out to, each with a runtime of its own; zero: they are served
    /// by the runtime that the gateway is started on.
    pub threads: usize,
}

/// Settings that a reload can change.
#[derive(Clone)]
pub struct Rules {
    /// The servers of the API.
    pub upstreams: Vec<Target>,
    /// Timeouts and limits of calls to them.
    pub calling: Calling,
    /// Settings for forwarding requests.
    pub forwarding: Forwarding,
    /// Which operations are protected, and how.
    pub operations: Arc<Operations>,
    /// Whose requests they are.
    pub tenants: Arc<Tenants>,
    /// Observer that is told of every request under a key, and may refuse it.
    pub observer: Option<Arc<dyn Observer>>,
    /// Counting of the store usage of tenants, where there is a limit on it.
    pub counting: Option<Counting>,
    /// Counts what the observer is not told of. To count the rest too, it must be the observer, or be behind
    /// it.
    pub metrics: Option<Arc<Metrics>>,
    /// Collector of spans.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Replaces the host in fingerprints: see
    /// [`IdempotencyLayer::service_name`](firstwrite::IdempotencyLayer::service_name).
    pub service_name: Option<String>,
    /// Which pages of other origins may read answers; none: the API says so itself, of what is not replayed.
    pub cors: Option<Cors>,
    /// Base address of the problem pages.
    pub problem_base: ProblemBase,
    /// Key the fingerprints: see [`IdempotencyLayer::secrets`](firstwrite::IdempotencyLayer::secrets).
    pub secrets: Secrets,
    /// Clock that timestamps in requests are compared with.
    pub clock: fn() -> SystemTime,
}

impl Listening {
    /// Far above what a gateway serves at once, far below what a process can hold.
    pub const CONNECTIONS_MAX: usize = 20_000;
    /// Longer than a bad mobile network needs for a head, and what browsers keep idle connections for.
    pub const HEAD_WITHIN: Duration = Duration::from_secs(30);

    /// As long as a body may be silent in the other direction.
    pub const TAKEN_WITHIN: Duration = Duration::from_mins(1);

    /// Plain HTTP at `listen`.
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            connections_max: Self::CONNECTIONS_MAX,
            head_within: Self::HEAD_WITHIN,
            taken_within: Self::TAKEN_WITHIN,
            threads: 0,
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("upstreams", &self.upstreams)
            .field("calling", &self.calling)
            .field("forwarding", &self.forwarding)
            .field("operations", &self.operations)
            .field("tenants", &self.tenants)
            .field("counting", &self.counting)
            .field("service_name", &self.service_name)
            .field("secrets", &self.secrets)
            .field("cors", &self.cors)
            .field("problem_base", &self.problem_base)
            .finish_non_exhaustive()
    }
}
