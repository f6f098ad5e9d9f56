//! The layer: what an application configures, and what all its services share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{
    KeyRequirement, Mode, Policy, PolicyError, ProblemBase, Secrets, Store, Tenant,
};
use http::{Method, Response};
use tokio::sync::Semaphore;
use tower::Layer;

use crate::atomic::{AtomicStore, Transactions};
use crate::body::ResponseBody;
use crate::coalesce::{IsJoint, Running};
use crate::lines::Lines;
use crate::observe::{Nobody, Observer};
use crate::policies::{Policies, PolicyResolver};
use crate::respond;
use crate::routes::UncoveredRoutes;
use crate::service::Idempotency;
use crate::tenant::{FromExtensions, Single, TenantResolver};
use crate::withdrawal::Withdrawal;

/// Makes retries safe for every operation it covers.
///
/// Put it outside of the routes and inside of authentication, so that the tenant is known when it
/// looks a key up. One layer is one configuration: its services share the table of running
/// attempts, so clones of it coalesce duplicates together.
#[derive(Clone)]
pub struct IdempotencyLayer {
    shared: Arc<Shared>,
}

/// State shared by all services of one layer.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    /// The way to the same store's transactions, for handlers that join them.
    pub(crate) transactions: Option<Transactions>,
    pub(crate) policies: Arc<dyn PolicyResolver>,
    pub(crate) tenants: Arc<dyn TenantResolver>,
    pub(crate) secrets: Secrets,
    pub(crate) service_name: Option<Arc<str>>,
    pub(crate) observer: Arc<dyn Observer>,
    problem_base: Option<ProblemBase>,
    attempts_max: usize,
    tenant_attempts_max: Option<usize>,
    joint_tenants: Option<IsJoint>,
    pub(crate) running: Arc<Running>,
    pub(crate) lines: Arc<Lines>,
    /// Bounds the reservations that are taken back in the background.
    withdrawals: Arc<Semaphore>,
}

/// More than a process can do at once, and far less than fills its memory.
const ATTEMPTS_MAX: usize = 10_000;
/// A tenant's share of them is one of so many: enough for a large one, and three others fit beside it.
const SHARES: usize = 4;

/// Each is a kilobyte that waits for the store; beyond that, keys are left to their leases.
const WITHDRAWALS_MAX: usize = 10_000;

impl Shared {
    fn limit(&mut self) {
        let attempts_max = self.attempts_max;
        let tenant_attempts_max = self.tenant_attempts_max.unwrap_or(attempts_max.div_ceil(SHARES));
        self.running =
            Arc::new(Running::new(attempts_max, tenant_attempts_max, self.joint_tenants));
    }

    /// An answer as it goes to the caller.
    pub(crate) fn typed(&self, response: Response<ResponseBody>) -> Response<ResponseBody> {
        respond::typed(response, self.problem_base.as_ref())
    }

    /// Takes a reservation back under which nothing was run, when the store is back.
    pub(crate) async fn withdraw(&self, withdrawal: Withdrawal, lease: Duration) {
        let Ok(_permit) = self.withdrawals.try_acquire() else {
            self.lines.not_freed(withdrawal.id, "too many wait to be freed");
            return;
        };
        let record_id = withdrawal.id;
        if !withdrawal.run(&*self.store, lease).await {
            self.lines.not_freed(record_id, "nothing was run under it, and it could not be freed");
        }
    }
}

impl IdempotencyLayer {
    /// Over any store, for operations in [`Mode::Reserved`].
    ///
    /// Protects every POST with [`Policy::default`] and takes the tenant that an authentication
    /// layer put into the request's extensions; without one, requests are refused with a 401.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            shared: Arc::new(Shared {
                store,
                transactions: None,
                policies: Arc::new(Policies::new()),
                tenants: Arc::new(FromExtensions),
                secrets: Secrets::default(),
                service_name: None,
                observer: Arc::new(Nobody),
                problem_base: None,
                attempts_max: ATTEMPTS_MAX,
                tenant_attempts_max: None,
                joint_tenants: None,
                running: Arc::new(Running::new(ATTEMPTS_MAX, ATTEMPTS_MAX / SHARES, None)),
                lines: Arc::default(),
                withdrawals: Arc::new(Semaphore::new(WITHDRAWALS_MAX)),
            }),
        }
    }

    /// Over a store with transactions, for operations in [`Mode::Atomic`] and in [`Mode::Reserved`].
    ///
    /// Handlers in atomic mode take [`Atomic`](crate::Atomic) where the store runs closures (SQLite), and
    /// [`Transaction`](crate::Transaction) where they hold its transactions (PostgreSQL, MySQL, DynamoDB).
    /// The other one does not compile with the store's type; one over another store is refused at the
    /// first request, with a line in the log that names the type to take. `Extractor` is inferred, except for
    /// a store that has both kinds.
    pub fn atomic<Extractor, S: AtomicStore<Extractor>>(store: S) -> Self {
        let transactions = store.transactions();
        let mut layer = Self::new(Arc::new(store));
        Arc::make_mut(&mut layer.shared).transactions = Some(transactions);
        layer
    }

    /// Sets which operations are protected, and how. Default: every POST, by
    /// [`Policy::default`]; everything else passes through.
    ///
    /// Fails if a policy contradicts itself or needs transactions that the layer was built without.
    pub fn policies(mut self, policies: impl PolicyResolver) -> Result<Self, PolicyMismatch> {
        for policy in policies.known() {
            self.check(&policy)?;
        }
        Arc::make_mut(&mut self.shared).policies = Arc::new(policies);
        Ok(self)
    }

    /// Sets one policy for every POST; fails as [`IdempotencyLayer::policies`] does.
    pub fn policy(self, policy: Policy) -> Result<Self, PolicyMismatch> {
        self.policies(Policies::new().default_policy(policy))
    }

    /// Checks that every route that changes something (POST, PUT, PATCH, DELETE) is protected by a policy or
    /// marked as unprotected with a reason. A forgotten route is then found when the program starts, not
    /// when a customer pays twice.
    ///
    /// Give it the table that the router is built from: axum cannot list the routes of a router.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use firstwrite::{IdempotencyLayer, Policies, Policy, memory_store};
    /// use http::Method;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policies = Policies::new().operation(Method::PUT, "/orders/{id}", Policy::default());
    /// let layer = IdempotencyLayer::new(Arc::new(memory_store())).policies(policies)?;
    /// let routes = [
    ///     (Method::POST, "/orders"),
    ///     (Method::PUT, "/orders/{id}"),
    ///     (Method::DELETE, "/orders/{id}"),
    /// ];
    /// let uncovered = layer.check_routes(routes).unwrap_err();
    /// assert_eq!(uncovered.routes(), ["DELETE /orders/{id}"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_routes<'a>(
        &self,
        routes: impl IntoIterator<Item = (Method, &'a str)>,
    ) -> Result<(), UncoveredRoutes> {
        UncoveredRoutes::among(routes, &*self.shared.policies)
    }

    /// Says whose request it is. Default: the [`Tenant`] in the request's extensions.
    #[must_use]
    pub fn tenant_from(mut self, tenants: impl TenantResolver) -> Self {
        Arc::make_mut(&mut self.shared).tenants = Arc::new(tenants);
        self
    }

    /// Every request belongs to this tenant.
    #[must_use]
    pub fn single_tenant(self, tenant: Tenant) -> Self {
        self.tenant_from(Single(tenant))
    }

    /// Keys the fingerprints, so that a stolen store does not tell what requests asked for: one
    /// [`Secret`](firstwrite_core::Secret), or several of which the first that fits a tenant keys and all
    /// compare. Default: none; then a fingerprint is a plain digest, and a mismatch (422) does not name what
    /// differs.
    #[must_use]
    pub fn secrets(mut self, secrets: impl Into<Secrets>) -> Self {
        Arc::make_mut(&mut self.shared).secrets = secrets.into();
        self
    }

    /// Replaces the host in every fingerprint. Default: the host that the request names, so that a retry at
    /// another name is another request.
    ///
    /// For a service that is one and the same under several names. Where two hosts are two services, a key used
    /// at one would be answered at the other. A change alters fingerprints: keys used before it are refused
    /// (422) until their retention ends, except those whose host was this name.
    #[must_use]
    pub fn service_name(mut self, name: &str) -> Self {
        Arc::make_mut(&mut self.shared).service_name = Some(Arc::from(name));
        self
    }

    /// Sets the observer that is told of every request to a protected operation, and may refuse it. Default:
    /// none.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        Arc::make_mut(&mut self.shared).observer = observer;
        self
    }

    /// Sets the address of the problem pages, for the `type` of every problem document. Default: this layer
    /// serves them, at `/.firstwrite/problems/{code}`.
    #[must_use]
    pub fn problem_base(mut self, base: ProblemBase) -> Self {
        Arc::make_mut(&mut self.shared).problem_base = Some(base);
        self
    }

    /// Sets the maximum number of attempts at the same time; a request that would begin another one is refused
    /// with 503 and nothing is run. Default: 10,000.
    ///
    /// An attempt goes on when its caller hangs up, so the number of connections does not limit it.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: usize) -> Self {
        let shared = Arc::make_mut(&mut self.shared);
        shared.attempts_max = attempts_max;
        shared.limit();
        self
    }

    /// Sets the number of attempts that one tenant may have while others want to begin one. Default: a quarter
    /// of the maximum.
    ///
    /// While there is room, a tenant may have any number. When there is none, a request of a tenant below its
    /// share waits up to ten seconds for the next attempt to end; requests of tenants that have their share are
    /// refused, also while one waits.
    #[must_use]
    pub fn tenant_attempts_max(mut self, tenant_attempts_max: usize) -> Self {
        let shared = Arc::make_mut(&mut self.shared);
        shared.tenant_attempts_max = Some(tenant_attempts_max);
        shared.limit();
        self
    }

    /// Sets the tenants that, besides a share of attempts each, have one such share together: callers who can be
    /// as many tenants as they like, because nobody verified who they are. Default: none.
    #[must_use]
    pub fn joint_tenants(mut self, are_joint: fn(&Tenant) -> bool) -> Self {
        let shared = Arc::make_mut(&mut self.shared);
        shared.joint_tenants = Some(are_joint);
        shared.limit();
        self
    }

    /// Waits until no attempt of this layer is running.
    ///
    /// An attempt goes on when its caller hangs up or was answered early, so a server that has
    /// closed its connections may still have some: call this between the end of serving and the
    /// end of the runtime. What is cut off is left to its lease. Bound the wait: an attempt whose outcome
    /// the store does not take goes on for up to an hour.
    pub async fn drained(&self) {
        while let Some(mut attempt) = self.shared.running.any() {
            attempt.ended().await;
        }
    }

    /// Returns the number of attempts under way: what an end of the process now leaves to leases.
    pub fn attempts_under_way(&self) -> usize {
        self.shared.running.count()
    }

    /// Says whether this layer can carry `policy` out.
    pub fn check(&self, policy: &Policy) -> Result<(), PolicyMismatch> {
        policy.check().map_err(PolicyMismatch::Contradictory)?;
        match policy.mode {
            Mode::Atomic if self.shared.transactions.is_none() => {
                Err(PolicyMismatch::NoTransactions)
            }
            Mode::Atomic if policy.key == KeyRequirement::Optional => {
                Err(PolicyMismatch::KeylessAtomic)
            }
            Mode::Reserved
                if self
                    .shared
                    .store
                    .capabilities()
                    .answers_within
                    .is_some_and(|limit| policy.lease < limit) =>
            {
                Err(PolicyMismatch::LeaseTooShort)
            }
            Mode::Atomic | Mode::Reserved => Ok(()),
        }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, Arc::clone(&self.shared))
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer").field("shared", &self.shared).finish()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("store", &self.store)
            .field("transactions", &self.transactions)
            .finish_non_exhaustive()
    }
}

/// Reason why a layer cannot carry out a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyMismatch {
    /// The policy contradicts itself.
    Contradictory(PolicyError),
    /// The policy is atomic, and the layer was not built by [`IdempotencyLayer::atomic`].
    NoTransactions,
    /// The policy is atomic and lets requests without a key through: such a request has no
    /// record, and so no transaction to hand to the handler.
    KeylessAtomic,
    /// The lease is shorter than a step of the store can take, see [`Capabilities::answers_within`](firstwrite_core::Capabilities::answers_within).
    LeaseTooShort,
}

impl fmt::Display for PolicyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradictory(problem) => write!(f, "{problem}"),
            Self::NoTransactions => {
                f.write_str("atomic mode needs a layer built by IdempotencyLayer::atomic")
            }
            Self::KeylessAtomic => f.write_str("atomic mode needs a key on every request"),
            Self::LeaseTooShort => f.write_str(
                "the lease must not be shorter than the time that the store may take for an answer",
            ),
        }
    }
}

impl std::error::Error for PolicyMismatch {}
