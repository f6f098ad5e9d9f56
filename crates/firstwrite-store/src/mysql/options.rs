//! Settings of a MySQL store, and the parser of its address.

use std::fmt;
use std::time::Duration;

use mysql_async::{OptsBuilder, SslOpts};

use crate::OpenError;
use crate::address::{self, Host, Product};
use crate::tls::{self, Tls};

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

/// The server's address, and the settings for it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    server: address::Address,
    pub(super) tls: Tls,
    pub(super) options: MysqlOptions,
}

static MYSQL: Product = Product {
    name: "MySQL",
    schemes: &["mysql", "mariadb"],
    port: 3306,
    form: "mysql://USER:PASSWORD@HOST:PORT/DATABASE",
};

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
    /// Reads an address with the parameters `sslmode`, `sslrootcert` and `fail_over`.
    pub(super) fn parse(url: &str, mut options: MysqlOptions) -> Result<Self, OpenError> {
        let server = address::Address::parse(url, &MYSQL)?;
        if server.hosts.is_empty() {
            return Err(server.hostless());
        }
        if server.database.is_empty() {
            return Err(MYSQL.error("names no database"));
        }
        let (mut mode, mut root_certificates) = ("prefer", None);
        for (name, value) in server.parameters() {
            match name {
                "sslmode" => mode = value,
                "sslrootcert" => root_certificates = Some(value.into()),
                "fail_over" => options.trusts_fail_over = address::trusts_fail_over(value)?,
                _ => {
                    return Err(MYSQL.unknown_parameter(name, "sslmode, sslrootcert and fail_over"));
                }
            }
        }
        let tls = Tls::parse(mode, root_certificates)?;
        Ok(Self { server, tls, options })
    }

    pub(super) fn hosts(&self) -> &[Host] {
        &self.server.hosts
    }

    pub(super) fn database(&self) -> &str {
        &self.server.database
    }

    /// The settings with which the driver connects to one of the hosts.
    pub(super) fn driver_options(&self, host: &Host) -> OptsBuilder {
        OptsBuilder::default()
            .ip_or_hostname(host.name.clone())
            .tcp_port(host.port)
            .user(self.server.user.clone())
            .pass(self.server.password.clone())
            .db_name(Some(self.server.database.clone()))
            // An address that names a host means that host.
            .prefer_socket(false)
            .tcp_nodelay(true)
            // Rows that a statement found and left as they were must not be counted as written.
            .client_found_rows(false)
            .stmt_cache_size(32)
    }

    /// The driver's TLS settings; `None` without encryption.
    pub(super) fn tls_options(&self) -> Result<Option<SslOpts>, OpenError> {
        // The driver takes the provider that is installed.
        tls::provider();
        let options = SslOpts::default();
        Ok(match &self.tls {
            Tls::Off => None,
            Tls::Prefer => Some(
                options
                    .with_danger_accept_invalid_certs(true)
                    .with_danger_skip_domain_validation(true),
            ),
            Tls::Require(file) => {
                let roots = tls::roots(file.as_deref())?;
                let roots = roots.into_iter().map(|root| root.to_vec().into()).collect();
                Some(options.with_disable_built_in_roots(true).with_root_certs(roots))
            }
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)
    }
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
        assert_eq!(address.hosts().len(), 3);
        assert_eq!(address.server.password.as_deref(), Some("p@ss"));
        assert_eq!(address.tls, Tls::Require(None));
        assert_eq!(address.database(), "shop");
        assert_eq!(address.hosts()[2], Host { name: "three".to_owned(), port: 3306 });
    }
}
