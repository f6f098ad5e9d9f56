//! The table of protected operations: method, path pattern and policy.

use std::fmt;
use std::sync::Arc;

use firstwrite_core::Policy;
use firstwrite_core::codec::percent;
use http::request::Parts;
use http::{Method, Request};

/// A protected operation: what people call it, and its settings.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Method and path pattern, such as `POST /payments`; stored with records, for people.
    pub name: Arc<str>,
    /// Its settings.
    pub policy: Arc<Policy>,
}

/// Resolves the operation that a request belongs to.
pub trait PolicyResolver: Send + Sync + 'static {
    /// The operation, or `None` for a request that passes through unprotected.
    fn operation(&self, request: &Parts) -> Option<Operation>;

    /// The policies that are known beforehand, to be checked when the program starts.
    fn known(&self) -> Vec<Arc<Policy>> {
        Vec::new()
    }

    /// Returns true if a route is protected, or deliberately is not, for
    /// [`IdempotencyLayer::check_routes`](crate::IdempotencyLayer::check_routes). Default: asks for the
    /// operation of a request without headers.
    fn covers(&self, method: &Method, route: &str) -> bool {
        let request = Request::builder().method(method).uri(route).body(());
        request.is_ok_and(|request| self.operation(&request.into_parts().0).is_some())
    }
}

impl<F> PolicyResolver for F
where
    F: Fn(&Parts) -> Option<Operation> + Send + Sync + 'static,
{
    fn operation(&self, request: &Parts) -> Option<Operation> {
        self(request)
    }
}

/// A table of operations.
///
/// A pattern's segments are text, `{name}` for exactly one segment, or, at the end, `{*name}` for
/// one or more. The most specific pattern wins: text before `{name}` before `{*name}`. A POST that
/// no pattern names is protected by the default policy; any other method passes through unless it
/// is named.
///
/// ```
/// use firstwrite::{Policies, Policy};
/// use http::Method;
///
/// let policies = Policies::new()
///     .operation(Method::POST, "/payments/{id}/refunds", Policy::default())
///     .unprotected(Method::POST, "/login", "issues a session, changes nothing else");
/// assert!(policies.covers(&Method::POST, "/payments/{id}/refunds"));
/// assert!(!policies.covers(&Method::DELETE, "/payments/{id}"));
/// ```
#[derive(Clone, Debug)]
pub struct Policies {
    rows: Vec<Row>,
    default: Option<Arc<Policy>>,
}

#[derive(Clone, Debug)]
struct Row {
    method: Method,
    pattern: Pattern,
    name: Arc<str>,
    protection: Protection,
}

#[derive(Clone, Debug)]
enum Protection {
    Policy(Arc<Policy>),
    Unprotected { reason: String },
}

/// Pattern for the segments of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pattern(Vec<Segment>);

/// Ordered from the most specific to the least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    Text(String),
    Any,
    Rest,
}

/// Long enough to recognise an operation by, short enough for a column that people read.
const NAME_BYTES_MAX: usize = 200;

impl Policies {
    /// An empty table: every POST is protected by [`Policy::default`].
    pub fn new() -> Self {
        Self { rows: Vec::new(), default: Some(Arc::new(Policy::default())) }
    }

    /// Protects an operation.
    #[must_use]
    pub fn operation(self, method: Method, pattern: &str, policy: Policy) -> Self {
        self.row(method, pattern, Protection::Policy(Arc::new(policy)))
    }

    /// Lets an operation pass through, for a reason that readers of the code can weigh.
    #[must_use]
    pub fn unprotected(self, method: Method, pattern: &str, reason: &str) -> Self {
        self.row(method, pattern, Protection::Unprotected { reason: reason.to_owned() })
    }

    /// Sets the policy of every POST that the table does not name.
    #[must_use]
    pub fn default_policy(mut self, policy: Policy) -> Self {
        self.default = Some(Arc::new(policy));
        self
    }

    /// Lets a POST that the table does not name pass through. Use it with
    /// [`check_routes`](crate::IdempotencyLayer::check_routes), which then asks for a decision on every route.
    #[must_use]
    pub fn without_default(mut self) -> Self {
        self.default = None;
        self
    }

    /// Changes every policy of the table. `adjust` gets the name of the operation; none for the default policy.
    #[must_use]
    pub fn adjusted(mut self, adjust: impl Fn(Option<&str>, &mut Policy)) -> Self {
        for row in &mut self.rows {
            if let Protection::Policy(policy) = &mut row.protection {
                adjust(Some(&row.name), Arc::make_mut(policy));
            }
        }
        if let Some(policy) = &mut self.default {
            adjust(None, Arc::make_mut(policy));
        }
        self
    }

    /// Returns true if a route is protected, or marked as unprotected with a reason.
    pub fn covers(&self, method: &Method, route: &str) -> bool {
        self.find(method, route).is_some() || (*method == Method::POST && self.default.is_some())
    }

    /// Returns the reason why a route is unprotected, if the table gives one.
    pub fn unprotected_reason(&self, method: &Method, route: &str) -> Option<&str> {
        match &self.find(method, route)?.protection {
            Protection::Policy(_) => None,
            Protection::Unprotected { reason } => Some(reason),
        }
    }

    /// The policy of a route, if it is protected.
    pub fn of_route(&self, method: &Method, route: &str) -> Option<Arc<Policy>> {
        match self.find(method, route).map(|row| &row.protection) {
            Some(Protection::Policy(policy)) => Some(Arc::clone(policy)),
            Some(Protection::Unprotected { .. }) => None,
            None => self.default.clone().filter(|_| *method == Method::POST),
        }
    }

    /// The policy of the operation of this name, or the default one.
    pub fn named(&self, name: &str) -> Option<Arc<Policy>> {
        match self.rows.iter().find(|row| *row.name == *name).map(|row| &row.protection) {
            Some(Protection::Policy(policy)) => Some(Arc::clone(policy)),
            Some(Protection::Unprotected { .. }) => None,
            None => self.default.clone(),
        }
    }

    fn row(mut self, method: Method, pattern: &str, protection: Protection) -> Self {
        let name = format!("{method} {pattern}").into();
        self.rows.push(Row { method, pattern: Pattern::parse(pattern), name, protection });
        // Stable: of two equal patterns, the one named first wins.
        self.rows.sort_by(|a, b| a.pattern.cmp(&b.pattern));
        self
    }

    fn find(&self, method: &Method, path: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.method == *method && row.pattern.matches(path))
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self::new()
    }
}

impl PolicyResolver for Policies {
    fn operation(&self, request: &Parts) -> Option<Operation> {
        if let Some(row) = self.find(&request.method, request.uri.path()) {
            return match &row.protection {
                Protection::Policy(policy) => {
                    Some(Operation { name: Arc::clone(&row.name), policy: Arc::clone(policy) })
                }
                Protection::Unprotected { .. } => None,
            };
        }
        let policy = self.default.as_ref().filter(|_| request.method == Method::POST)?;
        Some(Operation { name: name_of(request), policy: Arc::clone(policy) })
    }

    fn known(&self) -> Vec<Arc<Policy>> {
        let named = self.rows.iter().filter_map(|row| match &row.protection {
            Protection::Policy(policy) => Some(Arc::clone(policy)),
            Protection::Unprotected { .. } => None,
        });
        named.chain(self.default.clone()).collect()
    }

    fn covers(&self, method: &Method, route: &str) -> bool {
        Self::covers(self, method, route)
    }
}

/// The name of an operation that no table names: the router's pattern where there is one.
fn name_of(request: &Parts) -> Arc<str> {
    #[cfg(feature = "axum")]
    if let Some(matched) = request.extensions.get::<axum::extract::MatchedPath>() {
        return bounded(format_args!("{} {}", request.method, matched.as_str()));
    }
    bounded(format_args!("{} {}", request.method, percent::escape_path(request.uri.path())))
}

fn bounded(name: fmt::Arguments<'_>) -> Arc<str> {
    let name = name.to_string();
    Arc::from(&name[..name.floor_char_boundary(NAME_BYTES_MAX)])
}

impl Pattern {
    fn parse(pattern: &str) -> Self {
        let segments: Vec<&str> = segments(pattern).collect();
        let last = segments.len().saturating_sub(1);
        let parse = |(index, segment): (usize, &&str)| match placeholder(segment) {
            Some(name) if name.starts_with('*') && index == last => Segment::Rest,
            Some(_) => Segment::Any,
            None => Segment::Text((*segment).to_owned()),
        };
        Self(segments.iter().enumerate().map(parse).collect())
    }

    /// Returns true if a path, or a route's own pattern, matches. A route's `{*rest}` stands for many paths, so
    /// only our `{*rest}` covers it.
    fn matches(&self, path: &str) -> bool {
        let mut found = segments(path);
        for segment in &self.0 {
            let Some(text) = found.next() else { return false };
            let is_rest = placeholder(text).is_some_and(|name| name.starts_with('*'));
            match segment {
                Segment::Rest => return !text.is_empty(),
                Segment::Any if text.is_empty() || is_rest => return false,
                Segment::Any => {}
                // The service behind the layer decodes paths, so the check for protection must too.
                Segment::Text(expected) if percent::decode_lenient(text).eq(expected.bytes()) => {}
                Segment::Text(_) => return false,
            }
        }
        found.next().is_none()
    }
}

fn segments(path: &str) -> std::str::Split<'_, char> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

fn placeholder(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(policies: &Policies, method: &str, path: &str) -> String {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let (parts, ()) = request.into_parts();
        policies.operation(&parts).map_or("passes".to_owned(), |found| found.name.to_string())
    }

    #[test]
    fn the_most_specific_pattern_wins() {
        let policies = Policies::new()
            .operation(Method::POST, "/files/{*path}", Policy::default())
            .operation(Method::POST, "/payments/{id}", Policy::default())
            .operation(Method::POST, "/payments/{id}/refunds", Policy::default())
            .operation(Method::PUT, "/payments/{id}", Policy::default())
            .unprotected(Method::POST, "/payments/search", "reads only");
        let check = |method, path, expected| {
            assert_eq!(operation(&policies, method, path), expected, "{method} {path}");
        };
        check("POST", "/payments/7", "POST /payments/{id}");
        check("POST", "/payments/7/refunds", "POST /payments/{id}/refunds");
        check("POST", "/payments/search", "passes");
        check("POST", "/payments/%73earch", "passes");
        check("PUT", "/payments/7", "PUT /payments/{id}");
        check("PUT", "/payments/7/refunds", "passes");
        check("POST", "/files/a/b/c", "POST /files/{*path}");
        check("POST", "/files/", "POST /files/");
        check("POST", "/payments/", "POST /payments/");
        check("POST", "/elsewhere", "POST /elsewhere");
        check("GET", "/payments/7", "passes");
        check("DELETE", "/payments/7", "passes");
    }

    #[test]
    fn a_name_is_bounded_whatever_the_path_is() {
        let name = operation(&Policies::new(), "POST", &format!("/{}", "x".repeat(5000)));
        assert_eq!(name.len(), NAME_BYTES_MAX);
    }

    #[test]
    fn without_a_default_an_unnamed_post_passes_and_is_not_covered() {
        let policies = Policies::new().without_default();
        assert_eq!(operation(&policies, "POST", "/a"), "passes");
        assert!(!policies.covers(&Method::POST, "/a"));
        assert!(Policies::new().covers(&Method::POST, "/a"));
    }

    #[test]
    fn every_policy_is_adjusted_the_default_one_too() {
        let policies = Policies::new()
            .operation(Method::PUT, "/a", Policy::default())
            .unprotected(Method::PUT, "/b", "reads only")
            .adjusted(|_name, policy| policy.request_bytes_max = 7);
        let limits: Vec<_> =
            policies.known().iter().map(|policy| policy.request_bytes_max).collect();
        assert_eq!(limits, [7, 7]);
    }

    #[test]
    fn a_wide_route_is_not_covered_by_a_narrow_pattern() {
        let narrow = Policies::new().operation(Method::PUT, "/a/{id}", Policy::default());
        let wide = Policies::new().operation(Method::PUT, "/a/{*rest}", Policy::default());
        assert!(!narrow.covers(&Method::PUT, "/a/{*rest}"));
        assert!(narrow.covers(&Method::PUT, "/a/{other_name}"));
        assert!(wide.covers(&Method::PUT, "/a/{*all}"));
        assert!(wide.covers(&Method::PUT, "/a/{id}"));
    }

    #[test]
    fn an_unprotected_operation_keeps_its_reason() {
        let policies = Policies::new().unprotected(Method::PUT, "/a/{id}", "replaces a whole");
        assert!(policies.covers(&Method::PUT, "/a/{id}"));
        assert_eq!(policies.unprotected_reason(&Method::PUT, "/a/1"), Some("replaces a whole"));
    }
}
