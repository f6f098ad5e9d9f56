//! Settings of a MySQL store, and the parser of its address.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mysql_async::OptsBuilder;

use crate::OpenError;

/// Settings of a MySQL store, each with a default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MysqlOptions {
    /// Maximum number of connections, including those that handlers hold. Default: 32.
    pub pool_size_max: usize,
    /// Time a caller waits for a connection. Default: 5 s.
    pub pool_wait_for: Duration,
    /// Time limit for connecting, for each host. Default: 5 s.
    pub connect_for: Duration,
    /// Time the store waits for the server's answer to one pipeline of statements. Default: 10 s.
    pub statement_timeout: Duration,
    /// Time a statement waits for another transaction's lock; the server counts whole seconds, at least
    /// one. A handler's rival does not wait at all. Default: 2 s.
    pub lock_timeout: Duration,
    /// Time a transaction may sit idle before the server ends its connection. Default: 60 s.
    pub idle_in_transaction_timeout: Duration,
    /// Maximum number of waiting reservations and completions; one more is refused at once as too busy.
    /// Default: 4096.
    pub queue_max: usize,
    /// Maximum number of reservations and completions in one transaction. Default: 256.
    pub batch_max: usize,
    /// Trusts a server that takes over to have all acknowledged writes. Otherwise, keys that it does not
    /// know are refused until an operator has examined the loss. Default: no.
    pub trusts_fail_over: bool,
}

/// Server address, as parsed from the address string.
#[derive(Clone)]
pub(super) struct Address {
    hosts: Vec<(String, u16)>,
    user: Option<String>,
    password: Option<String>,
    database: String,
    pub(super) tls: Tls,
    pub(super) options: MysqlOptions,
}

/// Encryption of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// Not at all.
    Off,
    /// Encrypts if the server offers it; verifies nothing.
    Prefer,
    /// Always encrypts, and verifies the server's certificate and name, against this file if it is given
    /// and otherwise against the platform's trusted certificates.
    Require(Option<PathBuf>),
}

const PORT: u16 = 3306;
const SPELLING: &str = "write mysql://USER:PASSWORD@HOST:PORT/DATABASE";

impl Default for MysqlOptions {
    fn default() -> Self {
        Self {
            pool_size_max: 32,
            pool_wait_for: Duration::from_secs(5),
            connect_for: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            idle_in_transaction_timeout: Duration::from_mins(1),
            queue_max: 4096,
            batch_max: 256,
            trusts_fail_over: false,
        }
    }
}

impl Address {
    /// Reads `mysql://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?sslmode=…&sslrootcert=…&fail_over=…`. No error
    /// repeats more of it than the name of a parameter: the rest may hold a password.
    pub(super) fn parse(url: &str, options: MysqlOptions) -> Result<Self, OpenError> {
        let wrong = |what: &str| OpenError::new(format!("the MySQL address {what}; {SPELLING}"));
        let rest = url.split_once("://").ok_or_else(|| wrong("has no host"))?.1;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, database) = place.split_once('/').ok_or_else(|| wrong("names no database"))?;
        let database = decoded(database)?;
        if database.is_empty() {
            return Err(wrong("names no database"));
        }
        let (login, hosts) = match server.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, server),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, "")) => (Some(decoded(user)?), None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let hosts = hosts.split(',').map(host).collect::<Option<Vec<_>>>();
        let hosts = hosts.ok_or_else(|| wrong("names a host that cannot be one"))?;
        let (tls, trusts_fail_over) = parameters(query)?;
        let mut options = options;
        options.trusts_fail_over = trusts_fail_over.unwrap_or(options.trusts_fail_over);
        Ok(Self { hosts, user, password, database, tls, options })
    }

    pub(super) fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// The settings with which the driver connects to one of the hosts.
    pub(super) fn driver_options(&self, place: usize) -> OptsBuilder {
        let (host, port) = &self.hosts[place];
        OptsBuilder::default()
            .ip_or_hostname(host.clone())
            .tcp_port(*port)
            .user(self.user.clone())
            .pass(self.password.clone())
            .db_name(Some(self.database.clone()))
            // An address that names a host means that host.
            .prefer_socket(false)
            .tcp_nodelay(true)
            // Rows that a statement found and left as they were must not be counted as written.
            .client_found_rows(false)
            .stmt_cache_size(32)
    }

    /// One of the hosts, as an address spells it.
    pub(super) fn host_name(&self, place: usize) -> String {
        let (host, port) = &self.hosts[place];
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mysql://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        for place in 0..self.hosts.len() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{}", self.host_name(place))?;
        }
        write!(f, "/{}", self.database)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// `name`, `name:port`, `[address]` or `[address]:port`.
fn host(text: &str) -> Option<(String, u16)> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest.split_once(']')?;
            (name, rest.strip_prefix(':').map_or_else(|| rest.is_empty().then_some(""), Some)?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let port = if port.is_empty() { PORT } else { port.parse().ok()? };
    (!name.is_empty()).then(|| (name.to_owned(), port))
}

/// Parses the encryption mode, and whether a fail-over is trusted if the address says so.
fn parameters(query: &str) -> Result<(Tls, Option<bool>), OpenError> {
    let (mut mode, mut file, mut trusts) = ("prefer", None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "sslmode" => mode = value,
            "sslrootcert" => file = Some(PathBuf::from(decoded(value)?)),
            "fail_over" => trusts = Some(trusts_fail_over(value)?),
            _ => {
                return Err(OpenError::new(format!(
                    "the MySQL address has a parameter `{}` that is not known; \
                     there are sslmode, sslrootcert and fail_over",
                    name.escape_debug()
                )));
            }
        }
    }
    let tls = match (mode, file) {
        ("disable", None) => Tls::Off,
        ("prefer", None) => Tls::Prefer,
        ("require" | "verify-ca" | "verify-full", file) => Tls::Require(file),
        ("disable" | "prefer", Some(_)) => {
            let text = "sslrootcert is for sslmode=require; nothing is verified without it";
            return Err(OpenError::new(text));
        }
        _ => return Err(OpenError::new("sslmode is disable, prefer or require")),
    };
    Ok((tls, trusts))
}

fn trusts_fail_over(value: &str) -> Result<bool, OpenError> {
    match value {
        "untrusted" => Ok(false),
        "trusted" => Ok(true),
        _ => Err(OpenError::new("fail_over is untrusted or trusted; leave it out for untrusted")),
    }
}

/// Undoes percent signs.
fn decoded(value: &str) -> Result<String, OpenError> {
    let wrong = || OpenError::new("a percent sign in the MySQL address stands for no byte");
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = rest.next().and_then(|byte| char::from(byte).to_digit(16));
            digit.and_then(|digit| u8::try_from(digit).ok())
        };
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        bytes.push(high << 4 | low);
    }
    String::from_utf8(bytes).map_err(|_encoding| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, MysqlOptions::default())
    }

    #[test]
    fn an_address_names_hosts_user_and_database() {
        let address = parse("mysql://pay:p%40ss@one:1,[::1]:2,three/shop?sslmode=require").unwrap();
        assert_eq!(address.host_count(), 3);
        assert_eq!(address.password.as_deref(), Some("p@ss"));
        assert_eq!(address.tls, Tls::Require(None));
        assert_eq!(address.database(), "shop");
        assert_eq!(address.hosts[2], ("three".to_owned(), 3306));
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = parse("mysql://pay:hunter2@one:1,[::1]:2/shop").unwrap();
        for shown in [format!("{address:?}"), address.to_string()] {
            assert_eq!(shown, "mysql://pay@one:1,[::1]:2/shop");
        }
        for wrong in
            ["mysql://a:hunter2@h:x/db", "mysql://a:hunter2@h", "mysql://a:hunter2@h/d?x=1"]
        {
            let error = parse(wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "mysql:shop",
            "mysql://h",
            "mysql://h/",
            "mysql:///db",
            "mysql://h:70000/db",
            "mysql://h,/db",
            "mysql://[::1/db",
            "mysql://h/db?sslmode=maybe",
            "mysql://h/db?sslrootcert=/a.pem",
            "mysql://h/db?unknown=1",
            "mysql://h/db?fail_over=maybe",
            "mysql://h/%2",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
