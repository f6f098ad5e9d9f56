//! Servers to test on, and a name space of its own for each test.

use std::env;

use redis::aio::MultiplexedConnection;

use crate::own::patiently;

/// Where a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Redis,
    /// Costly to have, so only where they are named.
    Newest,
    Valkey,
}

/// The server's address, with a prefix that no other test has. Skipped where no server is named, unless everything is
/// required.
pub(crate) fn address(which: Which) -> Option<String> {
    let (variable, is_costly) = match which {
        Which::Redis => ("FIRSTWRITE_TEST_REDIS", false),
        // They come from a private root and are part of full runs only.
        Which::Newest => ("FIRSTWRITE_TEST_REDIS_NEWEST", true),
        Which::Valkey => ("FIRSTWRITE_TEST_VALKEY", true),
    };
    let address = env::var(variable).ok();
    if address.is_none() {
        let must_run = is_required() && !is_costly;
        assert!(!must_run, "{variable} is not set and everything is required");
        println!("skipped: {which:?} ({variable} is not set)");
    }
    address.map(|address| with_prefix(&address))
}

/// Every kind of server that there is.
pub(crate) fn all() -> Vec<String> {
    [Which::Redis, Which::Newest, Which::Valkey].into_iter().filter_map(address).collect()
}

pub(crate) fn with_prefix(address: &str) -> String {
    format!("{address}/?prefix={}", new_prefix())
}

pub(crate) fn new_prefix() -> String {
    format!("t-{:016x}", fastrand::u64(..))
}

/// Whether a test that cannot run must fail.
pub(crate) fn is_required() -> bool {
    env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all")
}

/// A connection outside any store.
pub(crate) async fn client(url: &str) -> MultiplexedConnection {
    let server = url.split('?').next().unwrap();
    patiently(&redis::Client::open(server).unwrap()).await.unwrap()
}

/// The prefix that an address names.
pub(crate) fn prefix(url: &str) -> &str {
    url.split_once("prefix=").unwrap().1.split('&').next().unwrap()
}
