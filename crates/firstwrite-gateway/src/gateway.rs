//! A gateway at work: started, reloaded, stopped.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firstwrite::{
    ATTEMPT_TRACEPARENT, IdempotencyLayer, Operation, PolicyResolver, Seldom, Tenant,
    TenantResolver,
};
use firstwrite_core::{Rejection, RejectionKind, Store};
use http::request::Parts;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::body_budget::SharedPermit;
use crate::claim::Claim;
use crate::forward::Names;
use crate::operations::Operations;
use crate::resolve::Resolver;
use crate::serve::Server;
use crate::settings::{Listening, Rules};
use crate::stack::{Calls, Lines, Stack};
use crate::tenant_usage::{Counting, keep_counting};
use crate::tenants::{Tenants, is_unverified};
use crate::unprotected::Unprotected;
use crate::upstream::{self, Line, Target, UpstreamError, Upstreams};
use crate::worker_threads::WorkerThreads;

/// A gateway at work.
pub struct Gateway {
    address: SocketAddr,
    store: Arc<dyn Store>,
    current: watch::Sender<Arc<Stack>>,
    /// Those before, where requests or attempts were under way at the last reload.
    former: Mutex<Vec<Arc<Stack>>>,
    background: Mutex<BackgroundTasks>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    worker_threads: Arc<WorkerThreads>,
}

/// Background tasks.
struct BackgroundTasks {
    task: JoinHandle<()>,
    counting: Option<Counting>,
}

/// Error that keeps a gateway from starting, or from taking new rules.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The system has no threads to serve on.
    Threads(io::Error),
    /// An upstream makes no sense.
    Upstream(UpstreamError),
    /// A policy makes no sense.
    Policy(String),
}

/// Result of draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// All requests under way ended.
    All,
    /// Time ran out; requests were cut off.
    CutOff {
        /// Attempts among them, whose keys are left to their leases.
        attempts: usize,
    },
}

impl Gateway {
    /// Starts a gateway over a store.
    pub async fn start(
        store: Arc<dyn Store>,
        listening: &Listening,
        rules: Rules,
    ) -> Result<Self, GatewayError> {
        let claim = Claim::of(listening.listen)
            .map_err(|error| GatewayError::Listen(listening.listen, error))?;
        Self::start_at(claim, store, listening, rules).await
    }

    /// The same, at an address that was taken before.
    #[expect(
        clippy::unused_async,
        reason = "listening and tasks need a runtime, like everything here"
    )]
    pub async fn start_at(
        claim: Claim,
        store: Arc<dyn Store>,
        listening: &Listening,
        rules: Rules,
    ) -> Result<Self, GatewayError> {
        let counting = rules.counting.clone();
        let stack = stack(&store, rules, None)?;
        let calls = Arc::clone(stack.calls());
        let cannot = |error| GatewayError::Listen(listening.listen, error);
        let worker_threads =
            Arc::new(WorkerThreads::start(listening.threads).map_err(GatewayError::Threads)?);
        let server = Server::at(claim, listening, Arc::clone(&worker_threads)).map_err(cannot)?;
        let address = server.address().map_err(cannot)?;
        let (current, seen) = watch::channel(Arc::new(stack));
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.run(seen, async {
            // Either a stop was requested, or the sender is gone.
            let (Ok(()) | Err(_)) = stopped.await;
        }));
        let background = Mutex::new(BackgroundTasks::start(&store, calls, counting));
        let former = Mutex::default();
        Ok(Self { address, store, current, former, background, stop, serving, worker_threads })
    }

    /// Returns the address that the gateway listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Puts other rules in place. Requests under way end under the old ones.
    pub fn reload(&self, rules: Rules) -> Result<(), GatewayError> {
        let counting = rules.counting.clone();
        let stack = stack(&self.store, rules, None)?;
        let is_counting = counting.is_some();
        let next = BackgroundTasks::start(&self.store, Arc::clone(stack.calls()), counting);
        let mut running = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut *running, next);
        former.task.abort();
        if let Some(counting) = former.counting.filter(|_| !is_counting) {
            counting.tenant_usage.forget();
        }
        let mut stacks = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        stacks.push(self.current.send_replace(Arc::new(stack)));
        stacks.retain(|stack| Arc::strong_count(stack) > 1 || !stack.is_drained());
        Ok(())
    }

    /// Accepts nothing more, and lets what is under way end within `drain`.
    pub async fn stop(self, drain: Duration) -> Drained {
        self.stop_unless(drain, std::future::pending()).await
    }

    /// The same, unless `hurried` is done earlier: then what is under way is cut off.
    pub async fn stop_unless(self, drain: Duration, hurried: impl Future<Output = ()>) -> Drained {
        let Self { current, former, background, stop, mut serving, worker_threads, .. } = self;
        background.into_inner().unwrap_or_else(PoisonError::into_inner).task.abort();
        // Without a receiver, it has stopped already.
        let (Ok(()) | Err(())) = stop.send(());
        let mut stacks = former.into_inner().unwrap_or_else(PoisonError::into_inner);
        stacks.push(Arc::clone(&current.borrow()));
        let draining = async {
            if let Err(error) = (&mut serving).await {
                tracing::error!(%error, "serving ended in a panic");
            }
            // An attempt goes on when its caller has hung up.
            for stack in &stacks {
                stack.drained().await;
            }
        };
        let is_drained = tokio::select! {
            drained = timeout(drain, draining) => drained.is_ok(),
            () = hurried => false,
        };
        let drained = if is_drained {
            Drained::All
        } else {
            serving.abort();
            let attempts = stacks.iter().map(|stack| stack.attempts_under_way()).sum();
            Drained::CutOff { attempts }
        };
        // Attempts run on them whose connections have ended.
        drop(worker_threads);
        drained
    }
}

impl Rules {
    /// Refuses rules that no gateway starts with, before there is a store. What depends on the store is
    /// checked at the start.
    pub fn check(&self) -> Result<(), GatewayError> {
        self.callable().map(drop)
    }

    fn callable(&self) -> Result<Upstreams, GatewayError> {
        let forwarded = self.operations.check_forwarded(self.forwarding.key);
        forwarded.map_err(|why| GatewayError::Policy(why.to_owned()))?;
        Upstreams::new(&self.upstreams, self.calling.clone()).map_err(GatewayError::Upstream)
    }
}

/// Names an API by the addresses of its servers, in any order.
fn names_of(upstreams: &[Target]) -> String {
    let mut names: Vec<&str> = upstreams.iter().map(Target::authority).collect();
    names.sort_unstable();
    names.join(",")
}

/// The path of requests; over `line`, if there is one, instead of a network.
pub(crate) fn stack(
    store: &Arc<dyn Store>,
    rules: Rules,
    line: Option<Arc<dyn Line>>,
) -> Result<Stack, GatewayError> {
    let upstreams = rules.callable()?.for_verified(rules.tenants.verifies());
    let upstreams = Arc::new(upstreams.over(line));
    let Rules { calling, forwarding, mut operations, tenants, observer, .. } = rules;
    let (metrics, tracer, clock) = (rules.metrics, rules.tracer, rules.clock);
    let (service_name, cors, problem_base) = (rules.service_name, rules.cors, rules.problem_base);
    let service = service_name.clone().unwrap_or_else(|| names_of(&rules.upstreams));
    operations = Arc::new(operations.asked_at(&service));
    if tracer.is_some() {
        operations = Arc::new(operations.keeping(&ATTEMPT_TRACEPARENT));
    }
    if let Some(metrics) = &metrics {
        metrics.know(operations.names());
    }
    let attempts_max = calling.seats_max();
    let mut layer = IdempotencyLayer::new(Arc::clone(store))
        .attempts_max(attempts_max)
        .tenant_attempts_max(calling.tenant_part_of(attempts_max));
    if tenants.verifies() {
        layer = layer.joint_tenants(is_unverified);
    }
    layer = layer.secrets(rules.secrets);
    layer = layer.problem_base(problem_base.clone());
    let whose = Whose {
        tenants: Arc::clone(&tenants),
        operations: Arc::clone(&operations),
        no_room: Seldom::default(),
    };
    layer = layer
        .policies(Shared(Arc::clone(&operations)))
        .map_err(|unusable| GatewayError::Policy(unusable.to_string()))?
        .tenant_from(whose);
    if let Some(observer) = observer {
        layer = layer.observed_by(observer);
    }
    if let Some(name) = &service_name {
        layer = layer.service_name(name);
    }
    let names = Arc::new(Names::new(&tenants, &operations));
    let calls = Calls {
        upstreams,
        forwarding,
        operations,
        tenants,
        names,
        cors,
        problem_base,
        metrics,
        tracer,
        clock,
        lines: Lines::default(),
        unprotected: Unprotected::default(),
    };
    Ok(Stack::new(layer, calls))
}

impl BackgroundTasks {
    fn start(store: &Arc<dyn Store>, calls: Arc<Calls>, counting: Option<Counting>) -> Self {
        let task = tokio::spawn(run_background(Arc::clone(store), calls, counting.clone()));
        Self { task, counting }
    }
}

async fn run_background(store: Arc<dyn Store>, calls: Arc<Calls>, counting: Option<Counting>) {
    let Calls { upstreams, operations, metrics, .. } = &*calls;
    let resolver = Resolver::new(Arc::clone(&store), Arc::clone(operations), Arc::clone(upstreams));
    let counted = async {
        if let Some(counting) = counting {
            keep_counting(counting, store, metrics.clone()).await;
        }
    };
    tokio::join!(upstream::watch(Arc::clone(upstreams)), resolver.run(), counted);
}

/// Table of operations, shared by the layer and by the checks before it.
struct Shared(Arc<Operations>);

/// Whose request it is, as its operation wants to know it.
struct Whose {
    tenants: Arc<Tenants>,
    operations: Arc<Operations>,
    no_room: Seldom,
}

impl PolicyResolver for Shared {
    fn operation(&self, request: &Parts) -> Option<Operation> {
        self.0.operation(request)
    }

    fn known(&self) -> Vec<Arc<firstwrite::Policy>> {
        self.0.known()
    }
}

impl TenantResolver for Whose {
    fn resolve(&self, request: &Parts) -> Result<Tenant, Rejection> {
        let identity = self.tenants.identify(request)?;
        let operation = request.extensions.get::<Operation>();
        let is_bound = operation
            .is_some_and(|operation| self.operations.extras(&operation.name).bound_to_principal);
        hold_head(request, &identity.tenant, &self.no_room)?;
        if is_bound { identity.bound() } else { Ok(identity.tenant) }
    }

    /// Looks first for keys bound to the caller, which are surely its own. Refuses anonymous callers: their
    /// keys may not be looked up.
    fn resolve_all(&self, request: &Parts) -> Result<Vec<Tenant>, Rejection> {
        let identity = self.tenants.identify(request)?;
        if identity.is_anonymous() {
            return Err(Rejection::new(RejectionKind::TenantUnknown));
        }
        hold_head(request, &identity.tenant, &self.no_room)?;
        let mut tenants = Vec::new();
        if self.operations.binds_keys()
            && let Ok(bound) = identity.bound()
        {
            tenants.push(bound);
        }
        tenants.push(identity.tenant);
        Ok(tenants)
    }
}

/// Says that what a request takes up is the tenant's, its head to begin with, which needs room.
fn hold_head(request: &Parts, tenant: &Tenant, no_room: &Seldom) -> Result<(), Rejection> {
    let Some(share) = request.extensions.get::<SharedPermit>() else { return Ok(()) };
    share.belongs_to(tenant);
    if share.holds_head(request) {
        return Ok(());
    }
    if let Some(left_out) = no_room.now() {
        tracing::warn!(left_out, "requests take up all their room; one was refused by its head");
    }
    Err(Rejection::new(RejectionKind::Overloaded))
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("address", &self.address).finish_non_exhaustive()
    }
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(f, "cannot listen at {address}: {error}"),
            Self::Threads(error) => write!(f, "cannot start the threads that serve: {error}"),
            Self::Upstream(error) => error.fmt(f),
            Self::Policy(problem) => write!(f, "a policy cannot be used: {problem}"),
        }
    }
}

impl std::error::Error for GatewayError {}
