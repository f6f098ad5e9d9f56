//! The catalogue of checks: id, severity, expected behaviour and fix of each.

use std::fmt;

use serde::Serialize;

/// One thing that is expected of an API.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Its name, for reports, `--only` and `--skip`.
    pub id: &'static str,
    /// Severity of a failure.
    pub severity: Severity,
    /// The expected behaviour, in one sentence.
    pub expected: &'static str,
    /// Advice for fixing a failure.
    pub fix: &'static str,
}

/// Severity of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Safe, and not as clients expect it.
    Minor,
    /// A retry can be answered wrongly, or never.
    Major,
    /// A retry can do something twice, or tenants meet.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Critical => "critical",
        })
    }
}

use Severity::{Critical, Major, Minor};

const fn check(
    id: &'static str,
    severity: Severity,
    expected: &'static str,
    fix: &'static str,
) -> Check {
    Check { id, severity, expected, fix }
}

/// All checks, in the order of reports.
#[rustfmt::skip]
pub const CHECKS: &[Check] = &[
    // The key.
    check("key-missing", Major, "a request without a key is refused with 400 and runs nothing",
        "refuse state-changing requests without a key before any work, with 400"),
    check("key-empty", Major, "an empty key is refused with 400 and runs nothing",
        "treat an empty header, and an empty quoted string, as a malformed key"),
    check("key-255", Minor, "a key of 255 characters is taken",
        "make the key column 255 characters wide, or store a digest of the key"),
    check("key-256", Minor, "a key of 256 characters is refused with 400",
        "check the length before the key reaches the store, and say the limit in the refusal"),
    check("key-truncated", Critical, "two long keys that differ in their last character are two keys",
        "never cut a key to fit a column: refuse it, or store a digest of all of it"),
    check("key-quoted", Minor, "a quoted key and the same key bare are one key, or one of them is refused",
        "parse the header as a structured field, and take a bare token as the same key or refuse it"),
    check("key-two-headers", Major, "two key headers in one request are refused with 400 and run nothing",
        "look at all lines of the header, and refuse a request that has two"),
    check("key-characters", Major, "a key with control characters or non-ASCII bytes is refused, not a crash",
        "check the characters of a key before it is used; answer 400"),
    // A retry.
    check("replay-effects", Critical, "a request and its retries have one effect",
        "record the key before the work begins, and the answer before it is sent"),
    check("replay-status", Major, "a retry gets the status of the first answer",
        "store the status with the body, and replay both"),
    check("replay-body", Major, "a retry gets the body of the first answer, byte for byte",
        "store the bytes that were sent, not what they were made of"),
    check("replay-headers", Minor, "a retry gets the first answer's Content-Type, and other chosen headers",
        "store the headers that describe the body with it"),
    check("replay-location", Major, "a retry gets the first answer's Location",
        "store Location: without it a client does not learn what it made"),
    check("replay-cookies", Major, "a retry does not get the first answer's cookies",
        "leave Set-Cookie out of what is stored: the session in it may be another's, or over"),
    check("replay-hop-by-hop", Minor, "a retry does not get headers that belonged to the first connection",
        "leave out Connection and every header that it names"),
    check("replay-marker", Minor, "a retry's answer says that it is one; the first answer does not",
        "send `Idempotent-Replayed: true` with stored answers"),
    check("replay-expiry", Minor, "answers say until when the key is kept",
        "send `Idempotency-Expires` with a date"),
    check("replay-later", Major, "a retry some seconds later still gets the first answer",
        "keep answers for as long as clients retry: a day at least"),
    // At once.
    check("race-effects", Critical, "many identical requests at once have one effect",
        "let one atomic step in the store decide who runs: an insert under a unique key, not a look and then an insert"),
    check("race-answers", Major, "identical requests at once get the one answer, or 409, or 202 while it is not there yet",
        "answer 409 to a rival, or make it wait for the first"),
    check("race-retry-after", Minor, "a 409 says when to come back",
        "send Retry-After with every 409"),
    check("race-after", Major, "after the race, a retry gets the winner's answer",
        "record the winner's answer; let losers write nothing"),
    check("race-bodies", Critical, "two different requests at once under one key have one effect",
        "compare the fingerprint in the step that decides who runs"),
    check("flight-repeats", Critical, "retries during a slow request run nothing, however long it takes",
        "renew the lock while the work goes on, or keep it until the work has ended"),
    check("flight-body", Major, "another body under a key in flight gets neither the answer nor its own effect",
        "compare the fingerprint before looking whether the first has ended"),
    check("flight-request", Major, "another path, query or method under a key in flight does not get its answer",
        "make path, query and method part of the fingerprint, and compare it before waiting for the first"),
    // Another request under a used key.
    check("other-body", Major, "another body under a used key is refused and runs nothing",
        "store a fingerprint of the request with the key, compare it, and answer 422 (400 by the stripe profile)"),
    check("other-query", Minor, "another query under a used key is refused, not answered with the old answer",
        "make the query part of the fingerprint, not of the key"),
    check("other-path", Major, "another path under a used key does not get the old answer",
        "make the path part of the fingerprint"),
    check("other-method", Major, "another method under a used key does not get the old answer",
        "make the method part of the fingerprint"),
    check("json-order", Major, "the same JSON with its members in another order is a retry, or refused",
        "compare a canonical form, or the bytes; do not make the body part of the key"),
    check("json-whitespace", Major, "the same JSON with other whitespace is a retry, or refused",
        "compare a canonical form, or the bytes; do not make the body part of the key"),
    check("json-numbers", Major, "a number in another spelling is a retry, or refused",
        "compare numbers by their exact value, or the bytes"),
    check("json-duplicates", Major, "a member that stands twice is not taken for the plain request",
        "refuse duplicate members, or compare the bytes of such a body"),
    check("json-big-numbers", Major, "integers above 2^53 that differ are two requests",
        "never compare numbers as floats: 9007199254740993 becomes 9007199254740992"),
    // Who asks.
    check("tenant-independence", Critical, "another tenant's request under the same key runs on its own",
        "make the tenant, from verified credentials, part of the stored key"),
    check("tenant-existence", Major, "another tenant cannot learn from an answer that a key is used",
        "look keys up only under the asking tenant: no refusal may depend on others' keys"),
    check("tenant-timing", Major, "another tenant cannot learn from the time that a key is used",
        "let the tenant lead the index, so that others' keys are never touched"),
    check("credentials-missing", Critical, "a retry without credentials does not get the stored answer",
        "check credentials before the key is looked up, on every request"),
    check("credentials-revoked", Critical, "a retry with revoked credentials does not get the stored answer",
        "check credentials before the key is looked up, on every request"),
    // Trouble.
    check("failure-retry", Major, "a retry after a 5xx is run, or refused as unknown; the 5xx is not kept",
        "do not store 5xx: free the key if nothing happened, otherwise find out what did"),
    check("cut-after-send", Critical, "a connection cut after the request, and retries, have one effect",
        "let the attempt go on without its client, or roll everything back"),
    check("cut-in-body", Major, "a connection cut within the body runs nothing and leaves the key free",
        "reserve the key, and run anything, only when the body is complete"),
    check("slow-body", Minor, "a body that comes slowly is waited for, and has one effect",
        "read the body to its end, within a limit of time that people on trains can keep"),
    check("expect-continue", Minor, "Expect: 100-continue is answered, and the request has one effect",
        "send 100 Continue before reading the body"),
    check("pipelined", Major, "a request behind a retry on one connection is answered for itself, or not run",
        "read the whole body of a request also when a stored answer is given, or close the connection"),
    check("smuggled", Critical, "what stands in the body of a refused request is never run",
        "read the whole body of a request that is refused, or close the connection"),
    check("restart-replay", Critical, "after a restart, a retry gets the first answer",
        "keep keys and answers in a store that survives the process"),
    check("restart-in-flight", Critical, "a restart in the middle of a request, and retries, have one effect at most, and the key is not blocked",
        "give reservations a lease of their own, shorter than the retention of answers; settle what is unknown"),
    check("store-away", Critical, "while the key store is away, requests are refused and nothing runs",
        "fail closed: 503, before any work"),
    check("retention-over", Minor, "past its retention, a key is free again or refused as expired",
        "check the time of expiry when a key is looked up, not only when records are deleted"),
    // Other operations.
    check("operations-declared", Minor, "every state-changing operation in the OpenAPI document takes the key header",
        "declare the header on the operations that take it, and protect those that do not"),
    check("operations-protected", Major, "every state-changing operation refuses a request without a key",
        "protect every operation that changes something, also the rare ones"),
];

impl Check {
    /// Returns true if `name` is the check's id or its group: the part of the id before a dash.
    pub fn is_called(&self, name: &str) -> bool {
        self.id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// The check of this id.
///
/// # Panics
///
/// If there is none: ids are written in this crate.
pub(crate) fn named(id: &str) -> &'static Check {
    CHECKS.iter().find(|check| check.id == id).expect("an id of the catalogue")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique() {
        let ids: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
    }
}
