//! Checks that third parties on the network can neither read the traffic to a store nor impersonate the store.

use std::net::IpAddr;

use firstwrite_store::doctor::{Finding, Severity};

use crate::config::{File, StoreUrl};

/// An address that a gateway reads or writes records at.
#[derive(Debug)]
pub(super) struct Place {
    /// The setting that names it.
    setting: &'static str,
    /// The address, or why it cannot be looked at here.
    address: Result<StoreUrl, String>,
}

/// Collects the store and, from the file, every other server that holds records: the cache, and the store that
/// records move from or to.
pub(super) fn places(store: &StoreUrl, file: &File) -> Vec<Place> {
    let gateway = &file.gateway;
    let mut places = vec![Place { setting: "the store", address: Ok(store.clone()) }];
    let moving =
        [("gateway.moving_from", &gateway.moving_from), ("gateway.moving_to", &gateway.moving_to)];
    for (setting, url) in moving {
        let address = url.clone().map(Ok);
        places.extend(address.map(|address| Place { setting, address }));
    }
    if let Some(given) = &gateway.cache {
        let read = given.read().and_then(|url| url.parse().map_err(str::to_owned));
        places.push(Place { setting: "gateway.cache", address: read });
    }
    places
}

/// Looks at the address alone: what is set there holds for every command.
pub(super) fn look(place: &Place) -> Option<Finding> {
    let setting = place.setting;
    let store = match &place.address {
        Ok(store) => store,
        Err(why) => return Some(unread(setting, why)),
    };
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
        what: format!("{setting}: the server is asked over a network without verified TLS"),
        meaning: "an attacker on the network can read the password and every answer, or answer in its place",
        next_step: format!(
            "{parameter}, with the server's certificate authority if it is your own"
        ),
    })
}

/// An address that this command's environment does not have, though the gateway's may.
fn unread(setting: &str, why: &str) -> Finding {
    Finding {
        code: "unverified-connection",
        severity: Severity::Note,
        what: format!("{setting} could not be looked at: {why}"),
        meaning: "nothing is known of how that server is asked",
        next_step: "run the doctor with the environment and the files of the gateway".to_owned(),
    }
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
            let found = look(&Place { setting: "the store", address: Ok(url.parse().unwrap()) });
            assert_eq!(found.is_some(), expected, "{url}");
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

    #[test]
    fn a_cache_and_the_other_store_of_a_move_are_looked_at_too() {
        let told = |gateway: &str| {
            let file: File = toml::from_str(&format!("[gateway]\n{gateway}\n")).unwrap();
            let places = places(&"postgres://u:p@localhost/shop".parse().unwrap(), &file);
            let found: Vec<Finding> = places.iter().filter_map(look).collect();
            found.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        for (setting, url) in [
            ("cache", "redis://:secret@cache.example"),
            ("moving_from", "redis://u:secret@old.example"),
            ("moving_to", "mysql://u:secret@new.example/shop"),
        ] {
            let found = told(&format!("{setting} = '{url}'"));
            assert_eq!(found.len(), 1, "{setting}");
            assert!(found[0].starts_with(&format!("gateway.{setting}: ")), "{found:?}");
            assert!(found[0].contains("without verified TLS"), "{found:?}");
            assert!(!found[0].contains("secret"), "{found:?}");
        }
        for fine in ["", "cache = 'rediss://cache.example'", "moving_from = 'redis://[::1]'"] {
            assert_eq!(told(fine), Vec::<String>::new(), "{fine}");
        }
        let unread = told("cache = 'env:FIRSTWRITE_NO_SUCH_NAME'");
        assert!(unread[0].contains("FIRSTWRITE_NO_SUCH_NAME"), "{unread:?}");
    }
}
