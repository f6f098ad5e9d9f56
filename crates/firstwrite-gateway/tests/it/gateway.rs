//! Gateways as tests need them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use firstwrite::{Policy, ProblemBase, memory_store};
use firstwrite_core::MemoryStore;
use firstwrite_gateway::tenants::settings::Anonymous;
use firstwrite_gateway::tenants::{Settings, Tenants};
use firstwrite_gateway::{
    Calling, Forwarding, Gateway, Listening, OperationExtras, Operations, Rules, Target,
};

use firstwrite_testkit::AwayStore;

use crate::upstream::Upstream;

/// Upstreams that are asked, by the usual rules.
pub(crate) fn rules(upstreams: &[&Upstream]) -> Rules {
    Rules {
        upstreams: upstreams.iter().map(|one| Target::new(&one.url()).unwrap()).collect(),
        calling: Calling {
            connect_within: Duration::from_secs(10),
            answer_within: Duration::from_secs(10),
            ..Calling::default()
        },
        forwarding: Forwarding { tells_record: true, ..Forwarding::default() },
        operations: policy(Policy::default()),
        tenants: by(&anybody()),
        observer: None,
        counting: None,
        metrics: None,
        tracer: None,
        service_name: None,
        secrets: firstwrite_core::Secrets::default(),
        cors: None,
        problem_base: ProblemBase::default(),
        clock: || std::time::UNIX_EPOCH,
    }
}

/// Each `Authorization` value is a tenant, and callers without one share another.
pub(crate) fn anybody() -> Settings {
    Settings { anonymous: Anonymous::Everywhere, ..Settings::authorization() }
}

/// Tenants by these settings.
pub(crate) fn by(settings: &Settings) -> Arc<Tenants> {
    Arc::new(Tenants::new(settings, || std::time::UNIX_EPOCH).unwrap())
}

/// One policy for every POST.
pub(crate) fn policy(policy: Policy) -> Arc<Operations> {
    Arc::new(Operations::new(policy, OperationExtras::default()))
}

pub(crate) fn anywhere() -> Listening {
    // As the process does it: what holds on threads of its own holds on a shared runtime.
    Listening { threads: 2, ..Listening::at(SocketAddr::from(([127, 0, 0, 1], 0))) }
}

/// A store in memory that can be away.
pub(crate) fn away_store() -> Arc<AwayStore> {
    Arc::new(AwayStore::new(Arc::new(memory_store())))
}

/// A gateway over a store in memory.
pub(crate) async fn start(rules: Rules) -> Gateway {
    start_on(Arc::new(memory_store()), rules).await
}

pub(crate) async fn start_on(store: Arc<MemoryStore>, rules: Rules) -> Gateway {
    Gateway::start(store, &anywhere(), rules).await.unwrap()
}
