//! Reports requests that change something and pass without protection and without a stated reason, each kind
//! once in the log.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use http::Method;
use http::request::Parts;

use crate::operations::Operations;
use crate::path;

/// Kinds of request reported already.
#[derive(Default)]
pub(crate) struct Unprotected {
    named: Mutex<BTreeSet<String>>,
}

/// A path is chosen by the client: beyond this, nothing new is named.
const NAMED_MAX: usize = 100;
/// Enough to recognise a path by.
const PATH_BYTES_MAX: usize = 200;

impl Unprotected {
    /// Names the request, if it is of a kind that was not named before.
    pub(crate) fn note(&self, request: &Parts, operations: &Operations) {
        let (method, path) = (&request.method, request.uri.path());
        if !matches!(*method, Method::POST | Method::PATCH)
            || path::is_own(path)
            || operations.policies().unprotected_reason(method, path).is_some()
        {
            return;
        }
        let path = firstwrite::escape_path(path);
        if self.is_new(method, &path) {
            let path = &path[..path.floor_char_boundary(PATH_BYTES_MAX)];
            tracing::warn!(
                %method,
                path,
                "passed through unprotected: a retry of it may happen twice; add it to \
                 [[gateway.operations]], or say there why it is `unprotected`"
            );
        }
    }

    fn is_new(&self, method: &Method, path: &str) -> bool {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{method} {}", &path[..path.floor_char_boundary(PATH_BYTES_MAX)]);
        named.len() < NAMED_MAX && named.insert(name)
    }
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
        ] {
            let request = Request::builder().method(method).uri(path).body(()).unwrap();
            unprotected.note(&request.into_parts().0, &operations);
            assert_eq!(count(), expected, "{path}");
        }
        for number in 0..1000 {
            unprotected.is_new(&Method::POST, &format!("/{number}"));
        }
        assert_eq!(count(), NAMED_MAX);
    }
}
