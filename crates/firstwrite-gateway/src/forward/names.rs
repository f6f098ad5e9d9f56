//! Names of headers that the gateway sets or believes, and names that others could read as one of them.

use http::HeaderName;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, FORWARDED, HOST};

use super::{
    FIRSTWRITE_FENCE, FIRSTWRITE_KEY, FIRSTWRITE_RECORD, FIRSTWRITE_TENANT, IDEMPOTENCY_KEY,
    X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PORT, X_FORWARDED_PROTO, X_REAL_IP,
};
use crate::operations::Operations;
use crate::tenants::Tenants;

/// What only the gateway says; from a client it is a lie.
static RECORD: [HeaderName; 4] =
    [FIRSTWRITE_RECORD, FIRSTWRITE_TENANT, FIRSTWRITE_KEY, FIRSTWRITE_FENCE];

/// What proxies say of the connection before them; a client's word counts for nothing.
static FOR_WHOM: [HeaderName; 6] =
    [FORWARDED, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, X_FORWARDED_PORT, X_REAL_IP];

/// Headers that nobody can have dropped by naming them in `Connection`.
static END_TO_END: [HeaderName; 6] =
    [AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, IDEMPOTENCY_KEY];

/// The headers that the gateway itself believed when it decided about a request.
#[derive(Debug, Default)]
pub(crate) struct Names {
    believed: Vec<HeaderName>,
}

impl Names {
    /// Those that name callers, and those that say how old a request is.
    pub(crate) fn new(tenants: &Tenants, operations: &Operations) -> Self {
        let mut believed: Vec<HeaderName> = tenants.believed_headers().cloned().collect();
        believed.extend(operations.believed_headers().cloned());
        believed.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        believed.dedup();
        Self { believed }
    }

    /// Whether `Connection` may have this header dropped. What was believed here must arrive: the upstream
    /// would decide otherwise than the gateway did.
    pub(super) fn is_droppable(&self, name: &HeaderName) -> bool {
        !END_TO_END.contains(name) && !self.believed.contains(name)
    }

    /// The same for an answer, of which nothing was believed.
    pub(super) fn is_droppable_from_answers(name: &HeaderName) -> bool {
        !END_TO_END.contains(name)
    }

    /// Whether a header is one that only the gateway says of an attempt.
    pub(super) fn is_of_record(name: &HeaderName) -> bool {
        RECORD.contains(name)
    }

    /// Whether a header is one of those by which proxies name the client.
    pub(super) fn is_for_whom(name: &HeaderName) -> bool {
        FOR_WHOM.contains(name)
    }

    /// Whether another server could take this header for one that the gateway sets or believes. Servers that
    /// hand headers on as variables (CGI, WSGI, PHP) spell every mark in a name alike: `X_Tenant` and `x.tenant`
    /// become `HTTP_X_TENANT`, as `X-Tenant` does.
    pub(super) fn is_imitation(&self, name: &HeaderName) -> bool {
        let is_odd = |byte: u8| !byte.is_ascii_alphanumeric() && byte != b'-';
        // Most names have no such mark, and are compared with nothing.
        let has_odd = name.as_str().bytes().any(is_odd);
        let mut known = RECORD.iter().chain(&FOR_WHOM);
        let is_known = |known: &HeaderName| reads_alike(known, name);
        (has_odd && (is_known(&IDEMPOTENCY_KEY) || known.any(is_known)))
            || self.believed.iter().any(|known| known != name && reads_alike(known, name))
    }
}

/// Whether two names become one variable.
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
    fn a_believed_name_with_an_underscore_has_imitations_too() {
        let names = Names { believed: vec!["x_tenant".parse().unwrap()] };
        for (name, expected) in
            [("x_tenant", false), ("x-tenant", true), ("x-other", false), ("firstwrite_key", true)]
        {
            assert_eq!(names.is_imitation(&name.parse().unwrap()), expected, "{name}");
        }
    }
}
