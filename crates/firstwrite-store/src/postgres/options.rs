//! Settings of a PostgreSQL store, and the parser of its address.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::OpenError;
use crate::address::{self, Product};
use crate::tls::Tls;

/// Settings of a PostgreSQL store, each with a default.
///
/// Options in the address (`schema=`, `pooler=transaction`) take precedence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Schema of the tables. Default: `firstwrite`.
    pub schema: SchemaName,
    /// Pooler between the store and the server. Default: none.
    pub pooler: Pooler,
    /// Maximum number of connections in the pool; the store has two more of its own, one more to announce
    /// messages, and three more where messages are claimed. Default: 32.
    pub pool_size_max: usize,
    /// Time a caller waits for a connection of the pool. Default: 5 s.
    pub pool_wait_for: Duration,
    /// Time limit for connecting, for each host. Default: 5 s.
    pub connect_for: Duration,
    /// Time limit of one statement, enforced by the server. Default: 10 s.
    pub statement_timeout: Duration,
    /// Time a statement waits for another transaction's lock. Default: 2 s.
    pub lock_timeout: Duration,
    /// Time a transaction may sit idle before the server ends its connection. Default: 60 s.
    pub idle_in_transaction_timeout: Duration,
    /// Maximum size of completed records cached in memory; 0 turns the cache off. Default: 64 MiB.
    pub cache_bytes_max: u64,
    /// Trusts every standby that takes over to have all acknowledged writes, even where commits do not wait
    /// for it. Then only a process that misses one of its own writes refuses unknown keys. Default: no. In
    /// the address: `fail_over=trusted`.
    pub trusts_fail_over: bool,
    /// Maximum number of waiting writes, and of waiting look-ups; one more is refused at once as too busy.
    /// Default: 4096, a second's work.
    pub queue_max: usize,
    /// Maximum number of commands in one transaction, or in one look-up. Default: 256: by measurement, more
    /// is not faster and makes the first wait for the last.
    pub batch_max: usize,
}

/// Pooler between a store and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooler {
    /// Nothing, or a pooler that gives each client a server connection of its own.
    #[default]
    None,
    /// One that gives a server connection for the length of a transaction, such as `PgBouncer` with
    /// `pool_mode=transaction`: nothing is prepared by name and no setting outlives a transaction.
    Transaction,
}

/// The name of a schema: lower-case letters, digits and underscores, not beginning with a digit,
/// at most 63 bytes. So it means the same with and without quotes, everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaName(String);

/// The server's address, and the settings for it.
#[derive(Clone)]
pub(super) struct Address {
    server: address::Address,
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) options: PostgresOptions,
}

static POSTGRES: Product = Product {
    name: "PostgreSQL",
    schemes: &["postgres", "postgresql"],
    port: 5432,
    form: "postgres://USER:PASSWORD@HOST:PORT/DATABASE",
};

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: SchemaName::default(),
            pooler: Pooler::None,
            pool_size_max: 32,
            pool_wait_for: Duration::from_secs(5),
            connect_for: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            idle_in_transaction_timeout: Duration::from_mins(1),
            cache_bytes_max: 64 * 1024 * 1024,
            trusts_fail_over: false,
            queue_max: 4096,
            batch_max: 256,
        }
    }
}

impl PostgresOptions {
    /// The limits of a dispatcher.
    pub(super) fn queue_limits(&self) -> (usize, usize) {
        (self.queue_max, self.batch_max)
    }
}

impl SchemaName {
    /// Maximum length of an identifier in PostgreSQL, which silently truncates longer ones.
    const BYTES_MAX: usize = 63;

    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, OpenError> {
        let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
        let begins_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if begins_well && name.len() <= Self::BYTES_MAX && name.bytes().all(is_plain) {
            return Ok(Self(name.to_owned()));
        }
        Err(OpenError::new(
            "a schema's name is made of lower-case letters, digits and underscores, at most 63; \
             write schema=firstwrite",
        ))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SchemaName {
    fn default() -> Self {
        Self("firstwrite".to_owned())
    }
}

impl FromStr for SchemaName {
    type Err = OpenError;

    fn from_str(name: &str) -> Result<Self, OpenError> {
        Self::new(name)
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Address {
    /// Reads an address. The driver takes the parameters that are not ours, also `host` and `user`.
    pub(super) fn parse(url: &str, mut options: PostgresOptions) -> Result<Self, OpenError> {
        let mut server = address::Address::parse(url, &POSTGRES)?;
        let (mut mode, mut root_certificates, mut passed_on) = ("prefer", None, String::new());
        for (name, value) in server.parameters() {
            match name {
                "schema" => options.schema = SchemaName::new(value)?,
                "pooler" => options.pooler = pooler(value)?,
                "fail_over" => options.trusts_fail_over = address::trusts_fail_over(value)?,
                "sslmode" => mode = value,
                "sslrootcert" => root_certificates = Some(value.into()),
                _ => {
                    let value = value.replace('\\', "\\\\").replace('\'', "\\'");
                    write!(passed_on, "{name}='{value}' ").expect("a string takes everything");
                }
            }
        }
        let tls = Tls::parse(mode, root_certificates)?;
        // The driver's error names a parameter, never a value.
        let mut config: Config = passed_on.parse().map_err(|error: tokio_postgres::Error| {
            let text = super::driver_error::text_of(&error);
            POSTGRES.error("has a parameter that cannot be read").caused_by(text)
        })?;
        for host in &server.hosts {
            config.host(&host.name).port(host.port);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(server.hostless());
        }
        // Hosts that parameters name are shown like the others.
        if server.hosts.is_empty() {
            let ports = config.get_ports().iter().copied().chain(std::iter::repeat(POSTGRES.port));
            let hosts = config.get_hosts().iter().zip(ports);
            server.hosts =
                hosts.map(|(host, port)| address::Host { name: name_of(host), port }).collect();
        }
        if let Some(user) = &server.user {
            config.user(user);
        }
        if let Some(password) = &server.password {
            config.password(password);
        }
        if !server.database.is_empty() {
            config.dbname(&server.database);
        }
        config.ssl_mode(match tls {
            Tls::Off => SslMode::Disable,
            Tls::Prefer => SslMode::Prefer,
            Tls::Require(_) => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.connect_for);
        }
        if config.get_application_name().is_none() {
            config.application_name("firstwrite");
        }
        Ok(Self { server, config, tls, options })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)?;
        if self.options.schema != SchemaName::default() {
            write!(f, "?schema={}", self.options.schema)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn name_of(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    }
}

fn pooler(value: &str) -> Result<Pooler, OpenError> {
    match value {
        "none" => Ok(Pooler::None),
        "transaction" => Ok(Pooler::Transaction),
        _ => Err(OpenError::new("no such pooler; write pooler=transaction or leave it out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, PostgresOptions::default())
    }

    #[test]
    fn our_own_parameters_are_taken_out_and_the_others_kept() {
        let url = "postgres://pay:secret@one:1,two:2/shop?schema=keys&target_session_attrs=\
                   read-write&pooler=transaction&fail_over=trusted&sslrootcert=/etc/a%20b.pem&sslmode=verify-full";
        let address = parse(url).unwrap();
        assert_eq!(address.options.schema.as_str(), "keys");
        assert_eq!(address.options.pooler, Pooler::Transaction);
        assert!(address.options.trusts_fail_over);
        assert_eq!(address.tls, Tls::Require(Some("/etc/a b.pem".into())));
        assert_eq!(address.config.get_hosts().len(), 2);
        assert_eq!(
            address.config.get_target_session_attrs(),
            tokio_postgres::config::TargetSessionAttrs::ReadWrite
        );
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
    }
}
