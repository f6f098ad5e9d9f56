//! Resolves the tenant of a request from verified credentials, before anything is looked up.

use firstwrite_core::{Rejection, RejectionKind, Tenant};
use http::request::Parts;

/// Resolves the tenant of a request, from verified credentials.
///
/// Called for every request to a protected operation, replays included: a caller whose credentials were revoked
/// gets no old answer. Never derive the tenant from anything the caller can choose.
pub trait TenantResolver: Send + Sync + 'static {
    /// The tenant, or the refusal to send instead.
    fn resolve(&self, request: &Parts) -> Result<Tenant, Rejection>;

    /// Returns the tenants under which the caller's own keys can be, for its questions about one: looked up in
    /// this order. There is more than one where the result of [`resolve`](Self::resolve) depends on the
    /// operation, which such a question does not name.
    fn resolve_all(&self, request: &Parts) -> Result<Vec<Tenant>, Rejection> {
        self.resolve(request).map(|tenant| vec![tenant])
    }
}

impl<F> TenantResolver for F
where
    F: Fn(&Parts) -> Result<Tenant, Rejection> + Send + Sync + 'static,
{
    fn resolve(&self, request: &Parts) -> Result<Tenant, Rejection> {
        self(request)
    }
}

/// The tenant that an authentication layer left in the request's extensions.
#[derive(Debug)]
pub(crate) struct FromExtensions;

/// The same tenant for every request.
#[derive(Debug)]
pub(crate) struct Single(pub(crate) Tenant);

impl TenantResolver for FromExtensions {
    /// Fails closed: without a tenant, one caller's answers would be another's.
    fn resolve(&self, request: &Parts) -> Result<Tenant, Rejection> {
        let tenant = request.extensions.get::<Tenant>();
        tenant.cloned().ok_or_else(|| Rejection::new(RejectionKind::TenantUnknown))
    }
}

impl TenantResolver for Single {
    fn resolve(&self, _request: &Parts) -> Result<Tenant, Rejection> {
        Ok(self.0.clone())
    }
}
