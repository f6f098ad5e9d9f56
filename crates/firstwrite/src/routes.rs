//! The coverage check: routes against policies, when the program starts.

use std::fmt;

use http::Method;

use crate::policies::PolicyResolver;

/// The routes that change something and that no policy covers.
#[derive(Clone, PartialEq, Eq)]
pub struct UncoveredRoutes {
    routes: Vec<String>,
}

const STATE_CHANGING: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl UncoveredRoutes {
    /// Fails if a route that changes something is not covered.
    pub(crate) fn among<'a>(
        routes: impl IntoIterator<Item = (Method, &'a str)>,
        policies: &dyn PolicyResolver,
    ) -> Result<(), Self> {
        let uncovered: Vec<_> = routes
            .into_iter()
            .filter(|(method, _)| STATE_CHANGING.contains(method))
            .filter(|(method, path)| !policies.covers(method, path))
            .map(|(method, path)| format!("{method} {path}"))
            .collect();
        if uncovered.is_empty() { Ok(()) } else { Err(Self { routes: uncovered }) }
    }

    /// Returns the routes, as `METHOD /path`.
    pub fn routes(&self) -> &[String] {
        &self.routes
    }
}

impl fmt::Display for UncoveredRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no policy covers {}; name each with Policies::operation, or with \
             Policies::unprotected and a reason",
            self.routes.join(", ")
        )
    }
}

impl fmt::Debug for UncoveredRoutes {
    /// Writes the same as `Display`: `main` prints this when it returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for UncoveredRoutes {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use firstwrite_core::Policy;
    use http::request::Parts;

    use super::*;
    use crate::{IdempotencyLayer, Operation, Policies};

    fn check(policies: impl PolicyResolver) -> Result<(), UncoveredRoutes> {
        let layer = IdempotencyLayer::new(Arc::new(crate::memory_store()));
        layer.policies(policies).unwrap().check_routes([
            (Method::GET, "/orders/{id}"),
            (Method::POST, "/orders"),
            (Method::PUT, "/orders/{id}"),
            (Method::PATCH, "/orders/{id}"),
            (Method::DELETE, "/orders/{id}"),
        ])
    }

    #[test]
    fn a_forgotten_route_fails_the_start_and_is_named() {
        let policies = Policies::new().without_default().operation(
            Method::PATCH,
            "/orders/{order}",
            Policy::default(),
        );
        let uncovered = check(policies).unwrap_err();
        assert_eq!(uncovered.routes(), ["POST /orders", "PUT /orders/{id}", "DELETE /orders/{id}"]);
        assert!(uncovered.to_string().contains("PUT /orders/{id}, DELETE"), "{uncovered}");
    }

    #[test]
    fn a_policy_or_a_reason_for_each_route_passes() {
        let policies = Policies::new()
            .operation(Method::PATCH, "/orders/{id}", Policy::default())
            .unprotected(Method::PUT, "/orders/{id}", "replaces the whole: safe to repeat")
            .unprotected(Method::DELETE, "/orders/{*rest}", "gone is gone");
        assert!(check(policies).is_ok());
    }

    #[test]
    fn a_resolver_without_a_table_is_asked_as_a_request_would() {
        let named = |request: &Parts| {
            let policy = Arc::new(Policy::default());
            let is_protected = request.method != Method::DELETE;
            is_protected.then(|| Operation { name: request.uri.path().into(), policy })
        };
        assert_eq!(check(named).unwrap_err().routes(), ["DELETE /orders/{id}"]);
    }
}
