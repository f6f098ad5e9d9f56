//! Checks that third parties on the network can neither read the traffic to a store nor impersonate the store.

use std::net::IpAddr;

use firstwrite_store::doctor::{Finding, Severity};

use crate::config::StoreUrl;

/// Looks at the address alone: what is set there holds for every command.
pub(super) fn look(store: &StoreUrl) -> Option<Finding> {
    let (url, parameter) = match store {
        StoreUrl::Postgres(url) | StoreUrl::Mysql(url) => {
            (url, "add sslmode=require to the address")
        }
        StoreUrl::Redis(url) => (url, "use rediss://"),
        // Its client verifies, and a file is asked over no network.
        StoreUrl::Dynamodb(_) | StoreUrl::Sqlite(_) => return None,
    };
    let (scheme, rest) = url.split_once("://")?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_verified = match scheme {
        "rediss" | "valkeys" => true,
        _ => query.split('&').any(|pair| {
            matches!(pair, "sslmode=require" | "sslmode=verify-full" | "sslmode=verify-ca")
        }),
    };
    let authority = place.split(['/', '#']).next().unwrap_or_default();
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    if is_verified || hosts.split(',').all(is_local) {
        return None;
    }
    Some(Finding {
        code: "unverified-connection",
        severity: Severity::Warning,
        what: "the server is asked over a network without verified TLS".to_owned(),
        meaning: "an attacker on the network can read the password and every answer, or answer in its place",
        next_step: format!(
            "{parameter}, with the server's certificate authority if it is your own"
        ),
    })
}

/// Returns true if the host is this machine: loopback, a socket directory, or empty.
fn is_local(host: &str) -> bool {
    let host = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    host.is_empty()
        || host.eq_ignore_ascii_case("localhost")
        || is_loopback
        || host.starts_with("%2F")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_beyond_this_machine_is_named_unless_it_is_verified() {
        let check = |url: &str, expected| {
            assert_eq!(look(&url.parse().unwrap()).is_some(), expected, "{url}");
        };
        check("postgres://u:p@db.example/shop", true);
        check("postgres://u:p@db.example/shop?sslmode=prefer", true);
        check("postgres://u:p@db.example/shop?fail_over=trusted&sslmode=require", false);
        check("postgres://u:p@db.example:5432/shop?sslmode=verify-full", false);
        check("postgres://u:p@127.0.0.1:5432,db.example/shop", true);
        check("postgres://u:p@127.0.0.1:5432,[::1]:5433/shop", false);
        check("postgres://u:p%40x@localhost/shop", false);
        check("postgres://%2Frun%2Fpostgresql/shop", false);
        check("postgres:///shop", false);
        check("mysql://u:p@10.0.0.7/shop", true);
        check("mysql://u:p@10.0.0.7/shop?sslmode=require", false);
        check("redis://cache.example:6379", true);
        check("rediss://cache.example:6379", false);
        check("redis://127.0.0.1:6379", false);
        check("sqlite:a.db", false);
    }
}
