//! Reports headers that often change the meaning of a request but that its policy does not count, each once in
//! the log. A retry with another value would get the first request's answer.

use std::sync::atomic::{AtomicU32, Ordering};

use firstwrite::Policy;
use http::HeaderMap;

/// Whose account is meant, which method or path, and which form of the API. One bit each in [`Uncounted`].
const TELLING: [&str; 14] = [
    "stripe-account",
    "stripe-context",
    "stripe-version",
    "x-account-id",
    "x-merchant-id",
    "x-org-id",
    "x-organization-id",
    "x-tenant-id",
    "x-api-version",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// Headers reported already, one bit each.
#[derive(Debug, Default)]
pub(crate) struct Uncounted(AtomicU32);

impl Uncounted {
    /// Names the headers that were not named before.
    pub(crate) fn note(&self, headers: &HeaderMap, policy: &Policy) {
        for header in self.news(headers, policy) {
            tracing::warn!(
                header,
                "requests carry a header that may say what they ask for, and it does not count: with another \
                 value a retry is answered as if it were the same; add it to `fingerprint.headers` of its \
                 operation, or of [gateway.default]"
            );
        }
    }

    fn news(&self, headers: &HeaderMap, policy: &Policy) -> Vec<&'static str> {
        let named = self.0.load(Ordering::Relaxed);
        let mut news = Vec::new();
        for (at, name) in TELLING.into_iter().enumerate() {
            let bit = 1 << at;
            if named & bit != 0 || !headers.contains_key(name) {
                continue;
            }
            let counts = policy.fingerprint.headers.iter().any(|counted| counted == name);
            // Of two that meet here, one finds the bit unset.
            if !counts && self.0.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                news.push(name);
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use firstwrite::FingerprintRules;
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn each_is_named_once_and_only_where_it_does_not_count() {
        let uncounted = Uncounted::default();
        let named = |names: &[&'static str], counted: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
            }
            let counted = counted.iter().map(|name| HeaderName::from_static(name)).collect();
            let fingerprint = FingerprintRules { headers: counted, ..FingerprintRules::default() };
            let policy = Policy::default().fingerprint(fingerprint);
            uncounted.news(&headers, &policy)
        };
        assert_eq!(named(&["content-type", "user-agent"], &[]), [""; 0]);
        assert_eq!(named(&["stripe-account"], &["stripe-account"]), [""; 0]);
        assert_eq!(
            named(&["stripe-account", "x-http-method-override"], &[]),
            ["stripe-account", "x-http-method-override"]
        );
        assert_eq!(named(&["stripe-account"], &[]), [""; 0]);
        assert_eq!(named(&["stripe-account", "x-rewrite-url"], &[]), ["x-rewrite-url"]);
    }
}
