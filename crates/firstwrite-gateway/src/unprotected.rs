//! Reports requests that change something and pass without protection and without a stated reason, each kind
//! once in the log.
//!
//! A kind is a method and the shape of a path, and is reported when an upstream has answered as if it had the path:
//! a stranger who makes paths up does not use up the names.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use http::request::Parts;
use http::{Method, StatusCode};

use crate::operations::Operations;
use crate::path;

/// Kinds of request reported already.
#[derive(Default)]
pub(crate) struct Unprotected {
    named: Mutex<BTreeSet<String>>,
    /// Requests of other kinds since there were as many names as there may be.
    not_named_count: AtomicU64,
}

/// A request that changes something, without protection.
pub(crate) struct Passing {
    method: Method,
    path: String,
}

/// A path is chosen by the client: beyond this, nothing new is named.
const NAMED_MAX: usize = 100;
/// Enough to recognise a path by.
const PATH_BYTES_MAX: usize = 200;

impl Passing {
    /// The request, if it is one to report.
    pub(crate) fn of(request: &Parts, operations: &Operations) -> Option<Self> {
        let (method, path) = (&request.method, request.uri.path());
        if !matches!(*method, Method::POST | Method::PATCH)
            || path::is_own(path)
            || operations.policies().unprotected_reason(method, path).is_some()
        {
            return None;
        }
        let mut path = firstwrite::escape_path(path).to_string();
        path.truncate(path.floor_char_boundary(PATH_BYTES_MAX));
        Some(Self { method: method.clone(), path })
    }

    /// Returns the method and the path, of which segments that look like names of things are left open.
    fn kind(&self) -> String {
        let segments: Vec<&str> = self.path.split('/').map(open).collect();
        format!("{} {}", self.method, segments.join("/"))
    }
}

impl Unprotected {
    /// Names a request that was answered with this status, if it is of a kind that was not named before.
    pub(crate) fn note(&self, request: &Passing, answered: StatusCode) {
        if matches!(answered, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
            return;
        }
        let Passing { method, path } = request;
        match self.is_new(request.kind()) {
            Some(true) => tracing::warn!(
                %method,
                path,
                "passed through unprotected: a retry of it may happen twice; add it to \
                 [[gateway.operations]], or say there why it is `unprotected`"
            ),
            Some(false) => {}
            None => {
                let count = self.not_named_count.fetch_add(1, Ordering::Relaxed) + 1;
                // The first, the tenth, the hundredth.
                if 10_u64.checked_pow(count.ilog10()) == Some(count) {
                    tracing::warn!(
                        count,
                        "requests of further kinds passed through unprotected and are not named: \
                         {NAMED_MAX} kinds are; `firstwrite audit` lists all of an API"
                    );
                }
            }
        }
    }

    /// Returns nothing if no more kinds are named.
    fn is_new(&self, kind: String) -> Option<bool> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.contains(&kind) {
            return Some(false);
        }
        (named.len() < NAMED_MAX).then(|| named.insert(kind))
    }
}

/// Returns one text for all segments with a digit in them, but for versions such as `v1`.
fn open(segment: &str) -> &str {
    let version = segment.strip_prefix('v').unwrap_or_default();
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_version = !version.is_empty() && version.bytes().all(is_digit);
    if segment.bytes().any(is_digit) && !is_version { "{}" } else { segment }
}

impl fmt::Debug for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unprotected").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use firstwrite::Policy;
    use http::Request;

    use super::*;
    use crate::operations::OperationExtras;

    #[test]
    fn each_is_named_once_and_no_more_than_can_be_read() {
        let unprotected = Unprotected::default();
        let operations = Operations::only_named()
            .protected(Method::POST, "/pay", Policy::default(), OperationExtras::default())
            .unprotected(Method::POST, "/login", "changes nothing");
        let count = || unprotected.named.lock().unwrap().len();
        for (method, path, expected) in [
            (Method::POST, "/login", 0),
            (Method::PUT, "/other", 0),
            (Method::POST, "/other", 1),
            (Method::POST, "/other", 1),
            (Method::PATCH, "/other", 2),
            (Method::PATCH, "/.firstwrite/operations/secret", 2),
            (Method::POST, "/%2efirstwrite/operations/secret", 2),
            (Method::POST, "/v1/other", 3),
            (Method::POST, "/v2/other", 4),
            (Method::POST, "/v2/other/17", 5),
            (Method::POST, "/v2/other/a1b2", 5),
        ] {
            for status in [StatusCode::NOT_FOUND, StatusCode::CREATED] {
                let before = count();
                let request = Request::builder().method(method.clone()).uri(path).body(()).unwrap();
                if let Some(passing) = Passing::of(&request.into_parts().0, &operations) {
                    unprotected.note(&passing, status);
                }
                let expected = if status == StatusCode::CREATED { expected } else { before };
                assert_eq!(count(), expected, "{path}");
            }
        }
        for number in 0..1000 {
            unprotected.is_new(format!("POST /{number}"));
        }
        assert_eq!(count(), NAMED_MAX);
        assert_eq!(unprotected.is_new("POST /other".to_owned()), Some(false));
        assert_eq!(unprotected.is_new("POST /more".to_owned()), None);
    }
}
