//! The coverage guard: routes that are checked against the policies when the program starts.

use std::fmt;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use http::Method;

use crate::layer::IdempotencyLayer;
use crate::policies::Policies;

/// An axum [`Router`] under construction that knows which routes change something.
///
/// [`Routes::finish`] fails, naming every route that changes something (POST, PUT, PATCH, DELETE) and is
/// neither protected by a policy nor marked as unprotected with a reason. A forgotten route is then found when
/// the program starts, not when a customer pays twice.
///
/// ```
/// use std::sync::Arc;
/// use firstwrite::{IdempotencyLayer, Policies, Policy, Routes, memory_store};
/// use http::Method;
///
/// let policies = Policies::new().operation(Method::PUT, "/orders/{id}", Policy::default());
/// let layer = IdempotencyLayer::new(Arc::new(memory_store()));
/// let uncovered = Routes::<()>::new()
///     .post("/orders", || async {})
///     .put("/orders/{id}", || async {})
///     .delete("/orders/{id}", || async {})
///     .finish(policies, layer)
///     .unwrap_err();
/// assert_eq!(uncovered.routes(), ["DELETE /orders/{id}"]);
/// ```
#[derive(Debug)]
pub struct Routes<State = ()> {
    router: Router<State>,
    routes: Vec<(Method, String)>,
}

/// The routes that change something and that no policy covers.
#[derive(Clone, PartialEq, Eq)]
pub struct UncoveredRoutes {
    routes: Vec<String>,
}

const STATE_CHANGING: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl<State: Clone + Send + Sync + 'static> Routes<State> {
    /// No routes.
    pub fn new() -> Self {
        Self { router: Router::new(), routes: Vec::new() }
    }

    /// Adds a route.
    ///
    /// # Panics
    ///
    /// If axum cannot route `method` or `path`, or has that route already.
    #[must_use]
    pub fn route<H, T>(mut self, method: Method, path: &str, handler: H) -> Self
    where
        H: Handler<T, State>,
        T: 'static,
    {
        let Ok(filter) = MethodFilter::try_from(method.clone()) else {
            panic!("axum cannot route the method {method}");
        };
        self.router = self.router.route(path, on(filter, handler));
        self.routes.push((method, path.to_owned()));
        self
    }

    /// Adds a GET route.
    #[must_use]
    pub fn get<H: Handler<T, State>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.route(Method::GET, path, handler)
    }

    /// Adds a POST route.
    #[must_use]
    pub fn post<H: Handler<T, State>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.route(Method::POST, path, handler)
    }

    /// Adds a PUT route.
    #[must_use]
    pub fn put<H: Handler<T, State>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.route(Method::PUT, path, handler)
    }

    /// Adds a PATCH route.
    #[must_use]
    pub fn patch<H: Handler<T, State>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.route(Method::PATCH, path, handler)
    }

    /// Adds a DELETE route.
    #[must_use]
    pub fn delete<H: Handler<T, State>, T: 'static>(self, path: &str, handler: H) -> Self {
        self.route(Method::DELETE, path, handler)
    }

    /// The router, inside of the layer with these policies, if they cover every route that
    /// changes something.
    pub fn finish(
        self,
        policies: Policies,
        layer: IdempotencyLayer,
    ) -> Result<Router<State>, UncoveredRoutes> {
        let uncovered = self.routes.iter().filter(|(method, path)| {
            STATE_CHANGING.contains(method) && !policies.covers(method, path)
        });
        let routes: Vec<String> =
            uncovered.map(|(method, path)| format!("{method} {path}")).collect();
        if !routes.is_empty() {
            return Err(UncoveredRoutes { routes });
        }
        Ok(self.router.layer(layer.policies(policies)))
    }
}

impl<State: Clone + Send + Sync + 'static> Default for Routes<State> {
    fn default() -> Self {
        Self::new()
    }
}

impl UncoveredRoutes {
    /// Method and path of each route, in the order in which they were added.
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

    use super::*;

    fn finish(policies: Policies) -> Result<Router, UncoveredRoutes> {
        let layer = IdempotencyLayer::new(Arc::new(crate::memory_store()));
        Routes::new()
            .get("/orders/{id}", || async {})
            .post("/orders", || async {})
            .put("/orders/{id}", || async {})
            .patch("/orders/{id}", || async {})
            .delete("/orders/{id}", || async {})
            .finish(policies, layer)
    }

    #[test]
    fn a_forgotten_route_fails_the_start_and_is_named() {
        let policies = Policies::new().without_default().operation(
            Method::PATCH,
            "/orders/{order}",
            Policy::default(),
        );
        let uncovered = finish(policies).unwrap_err();
        assert_eq!(uncovered.routes(), ["POST /orders", "PUT /orders/{id}", "DELETE /orders/{id}"]);
        assert!(uncovered.to_string().contains("PUT /orders/{id}, DELETE"), "{uncovered}");
    }

    #[test]
    fn a_policy_or_a_reason_for_each_route_passes() {
        let policies = Policies::new()
            .operation(Method::PATCH, "/orders/{id}", Policy::default())
            .unprotected(Method::PUT, "/orders/{id}", "replaces the whole: safe to repeat")
            .unprotected(Method::DELETE, "/orders/{*rest}", "gone is gone");
        assert!(finish(policies).is_ok());
    }
}
