//! Names of headers that the gateway sets or believes, and names that others could read as one of them.

use firstwrite::PolicyResolver as _;
use http::HeaderName;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, FORWARDED, HOST};

use super::{
    IDEMPOTENCY_KEY, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PORT, X_FORWARDED_PROTO,
    X_REAL_IP,
};
use crate::operations::Operations;
use crate::tenants::Tenants;

/// Headers by which proxies describe the connection before them; a client's are ignored.
static FOR_WHOM: [HeaderName; 6] =
    [FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_FORWARDED_PORT, X_REAL_IP];

/// Headers that cannot be dropped by naming them in `Connection`.
static END_TO_END: [HeaderName; 6] =
    [AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, IDEMPOTENCY_KEY];

/// Further headers that mean something in a head alone.
const HEAD_ONLY: [&str; 27] = [
    "age",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-security-policy",
    "date",
    "expect",
    "expires",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "prefer",
    "preference-applied",
    "range",
    "referer",
    "retry-after",
    "set-cookie",
    "traceparent",
    "tracestate",
    "vary",
    "via",
    "warning",
    "www-authenticate",
];

/// The headers that the gateway itself believed or compared when it decided about a request.
#[derive(Debug, Default)]
pub(crate) struct Names {
    believed: Vec<HeaderName>,
}

impl Names {
    /// Those that name callers, say how old a request is, or count for what it asks for.
    pub(crate) fn new(tenants: &Tenants, operations: &Operations) -> Self {
        let mut believed: Vec<HeaderName> = tenants.believed_headers().cloned().collect();
        believed.extend(operations.believed_headers().cloned());
        let policies = operations.policies().known();
        believed.extend(policies.iter().flat_map(|policy| policy.fingerprint.headers.clone()));
        believed.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        believed.dedup();
        Self { believed }
    }

    /// Returns true if `Connection` may have this header dropped. Headers that the gateway believed must
    /// arrive: without them the upstream would decide differently.
    pub(super) fn is_droppable(&self, name: &HeaderName) -> bool {
        !END_TO_END.contains(name) && !self.believed.contains(name)
    }

    /// The same for an answer, of which nothing was believed.
    pub(super) fn is_droppable_from_answers(name: &HeaderName) -> bool {
        !END_TO_END.contains(name)
    }

    /// Returns true if this field may come behind a request's body: the gateway has not decided by it, and
    /// servers do not.
    pub(super) fn may_be_trailer(&self, name: &HeaderName) -> bool {
        self.is_droppable(name) && !Self::is_head_only(name)
    }

    /// Returns true if this field means something in a head alone: it routes or frames a message, authenticates
    /// its sender, says how to handle or cache it, or what is in it (RFC 9110, section 6.5.1).
    pub(super) fn is_head_only(name: &HeaderName) -> bool {
        let is_of_kind = |start: &&str| name.as_str().starts_with(start);
        END_TO_END.contains(name)
            || FOR_WHOM.contains(name)
            || HEAD_ONLY.contains(&name.as_str())
            || ["accept", "access-control-", "if-"].iter().any(is_of_kind)
    }

    /// Returns true if proxies name the client by this header.
    pub(super) fn is_for_whom(name: &HeaderName) -> bool {
        FOR_WHOM.contains(name)
    }

    /// Tells whether another server could take this header for another one. Many read every mark in a name
    /// alike: `Transfer_Encoding` and `transfer.encoding` are framing there, and `X_Tenant` becomes
    /// `HTTP_X_TENANT` (CGI, WSGI, PHP), as `X-Tenant` does. So a name consists of letters, digits and hyphens,
    /// unless a setting spells it otherwise; then it is the only spelling.
    pub(super) fn is_misread(&self, name: &HeaderName) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (!name.as_str().bytes().all(is_plain) && !self.believed.contains(name))
            || self.believed.iter().any(|known| known != name && reads_alike(known, name))
    }
}

/// Returns true if the names differ in their marks alone, and so become the same variable.
fn reads_alike(one: &HeaderName, other: &HeaderName) -> bool {
    let (one, other) = (one.as_str().as_bytes(), other.as_str().as_bytes());
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric();
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| one == other || (!is_letter(one) && !is_letter(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_become_one_variable_read_alike() {
        let check = |one: &str, other: &str, expected: bool| {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(reads_alike(&one, &other), expected, "{one} {other}");
        };
        check("x-tenant", "X_Tenant", true);
        check("x-tenant", "x.tenant", true);
        check("x_tenant", "x-tenant", true);
        check("x-tenant", "x-tenants", false);
        check("x-tenant", "xatenant", false);
    }

    #[test]
    fn a_name_has_one_spelling_with_hyphens_or_as_a_setting_has_it() {
        let names = Names { believed: vec!["x_tenant".parse().unwrap()] };
        for (name, expected) in [
            ("x_tenant", false),
            ("x-tenant", true),
            ("x.tenant", true),
            ("x-other", false),
            ("x_other", true),
            ("transfer_encoding", true),
            ("content.length", true),
            ("content-length", false),
        ] {
            assert_eq!(names.is_misread(&name.parse().unwrap()), expected, "{name}");
        }
    }
}
