//! A reverse proxy that makes retries safe for an API that knows nothing of it.
//!
//! The path of a request stands in `stack.rs`: head, upgrade, and from there on the layer of the
//! `firstwrite` crate, with the upstream in the handler's place.

mod age;
mod answering;
mod body;
mod body_budget;
mod claim;
mod cors;
mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gateway;
mod grpc;
mod head;
mod limits;
mod metrics;
mod operations;
mod operator;
mod path;
mod peer;
mod probe;
mod refusals;
mod resolve;
mod serve;
mod settings;
mod simulated;
mod stack;
mod tenant_usage;
pub mod tenants;
mod timed_connection;
pub mod tls;
mod traces;
mod tunnel;
mod uncounted;
mod unprotected;
mod upgrade;
mod upstream;
mod worker_threads;

pub use age::{AgeLimit, Signed};
pub use body::RequestBody;
pub use claim::Claim;
pub use cors::Cors;
pub use forward::{
    FIRSTWRITE_EFFECT, FIRSTWRITE_FENCE, FIRSTWRITE_KEY, FIRSTWRITE_RECORD, FIRSTWRITE_TENANT,
    ForwardedKey, Forwarding, STEP as FORWARDED_STEP,
};
pub use gateway::{Drained, Gateway, GatewayError};
pub use limits::{Limits, Rate, TenantLimits};
pub use metrics::{Counts, Metrics, MetricsLimits};
pub use operations::{OperationExtras, Operations};
pub use operator::Operator;
pub use peer::Peer;
pub use probe::{Probe, ProbeSettings};
pub use settings::{Listening, Rules};
pub use simulated::SimulatedGateway;
pub use tenant_usage::{Counted, Counting, TenantUsage};
pub use tenants::Network;
pub use traces::Tracer;
pub use upgrade::Upgrades;
pub use upstream::{Calling, HealthCheck, Line, LineBody, LineFailure, Target, UpstreamError};
