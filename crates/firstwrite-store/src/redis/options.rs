//! Addresses of the servers, and the settings of a store on them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::Timestamp;
use redis::{
    Client, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo, TlsCertificates,
};

use crate::OpenError;
use crate::address::{self, Host, Product};
use crate::tls;

/// Settings of a Redis store. Those that an address can carry too are named as there.
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Begins every key, so that several deployments can share a server. Letters, digits, `-`, `_` and `.`.
    pub prefix: String,
    /// Opens the store even if the server evicts keys, writes no log, or does not say.
    pub accept_key_loss: bool,
    /// The operator's statement of how the log is flushed, for a server that does not report it.
    pub appendfsync: Option<AppendFsync>,
    /// A write is acknowledged when this many replicas have it in memory (`WAIT`).
    pub wait_replicas: u32,
    /// A write is acknowledged when the server's log is on disk up to it (`WAITAOF`; Redis 7.2 and later).
    pub wait_aof: bool,
    /// Trusts a promoted replica not to have been behind.
    pub trusts_fail_over: bool,
    /// Time limit for connecting.
    pub connect_for: Duration,
    /// Time limit for an answer, including the waits for replicas and disks.
    pub answer_for: Duration,
    pub(super) clock: Option<Clock>,
}

/// Policy by which a server's log is flushed to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendFsync {
    /// Before every acknowledgement.
    Always,
    /// Once a second: a crash of the machine can lose the last one or two seconds.
    EverySecond,
}

type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Addresses of the servers, and the settings for them.
#[derive(Clone, Debug)]
pub(super) struct Address {
    server: address::Address,
    database: i64,
    root_certificates: Option<PathBuf>,
    pub(super) options: RedisOptions,
}

static REDIS: Product = Product {
    name: "Redis",
    schemes: &["redis", "rediss", "valkey", "valkeys"],
    port: 6379,
    form: "redis://USER:PASSWORD@HOST:PORT, or rediss://… for TLS",
};

const PREFIX_BYTES_MAX: usize = 64;
const PARAMETERS: &str =
    "prefix, accept_key_loss, appendfsync, wait_replicas, wait_aof, fail_over, sslrootcert";

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "firstwrite".to_owned(),
            accept_key_loss: false,
            appendfsync: None,
            wait_replicas: 0,
            wait_aof: false,
            trusts_fail_over: false,
            connect_for: Duration::from_secs(5),
            answer_for: Duration::from_secs(5),
            clock: None,
        }
    }
}

impl RedisOptions {
    /// Takes the time from `clock` instead of the server. For tests: two processes with clocks of their own would
    /// not agree on who holds a lease.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), OpenError> {
        let wrong = |wanted: &str| {
            OpenError::new(format!(
                "`{name}` in the Redis address cannot be read; write {name}={wanted}"
            ))
        };
        let yes_or_no = || match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong("true or false")),
        };
        match name {
            "prefix" => value.clone_into(&mut self.prefix),
            "accept_key_loss" => self.accept_key_loss = yes_or_no()?,
            "wait_aof" => self.wait_aof = yes_or_no()?,
            "wait_replicas" => {
                self.wait_replicas = value.parse().map_err(|_number| wrong("a number"))?;
            }
            "appendfsync" => {
                self.appendfsync = Some(match value {
                    "always" => AppendFsync::Always,
                    "everysec" => AppendFsync::EverySecond,
                    _ => return Err(wrong("always or everysec")),
                });
            }
            "fail_over" => self.trusts_fail_over = address::trusts_fail_over(value)?,
            _ => return Err(REDIS.unknown_parameter(name, PARAMETERS)),
        }
        Ok(())
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("prefix", &self.prefix)
            .field("accept_key_loss", &self.accept_key_loss)
            .field("wait_replicas", &self.wait_replicas)
            .field("wait_aof", &self.wait_aof)
            .finish_non_exhaustive()
    }
}

impl Address {
    /// Reads an address with the parameters of [`RedisOptions`].
    pub(super) fn parse(url: &str, mut options: RedisOptions) -> Result<Self, OpenError> {
        let server = address::Address::parse(url, &REDIS)?;
        if server.hosts.is_empty() {
            return Err(server.hostless());
        }
        let database = match &*server.database {
            "" => 0,
            number => number
                .parse()
                .map_err(|_number| REDIS.error("names a database that is no number"))?,
        };
        let mut root_certificates = None;
        for (name, value) in server.parameters() {
            match name {
                "sslrootcert" => root_certificates = Some(value.into()),
                _ => options.set(name, value)?,
            }
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let prefix = options.prefix.as_bytes();
        if prefix.is_empty()
            || prefix.len() > PREFIX_BYTES_MAX
            || !prefix.iter().copied().all(is_plain)
        {
            return Err(OpenError::new(
                "the prefix of the Redis store's keys has 1 to 64 letters, digits, `-`, `_` and `.`; \
                 write prefix=NAME",
            ));
        }
        Ok(Self { server, database, root_certificates, options })
    }

    pub(super) fn hosts(&self) -> &[Host] {
        &self.server.hosts
    }

    /// Returns the client for one server.
    pub(super) fn client(&self, host: &Host) -> Result<Client, OpenError> {
        let (name, port) = (host.name.clone(), host.port);
        let is_tls = matches!(&*self.server.scheme, "rediss" | "valkeys");
        let place = if is_tls {
            ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(name, port)
        };
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = &self.server.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.server.password {
            settings = settings.set_password(password);
        }
        // The driver's error may repeat what it was given.
        let unusable = |_unsafe_to_tell| REDIS.error("cannot be used");
        let info = place.into_connection_info().map_err(unusable)?.set_redis_settings(settings);
        let client = match &self.root_certificates {
            None => Client::open(info),
            Some(file) => {
                let root_cert = Some(tls::read_pem(file)?);
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert })
            }
        };
        client.map_err(unusable)
    }
}

/// Parses a server's name in a cluster: `HOST:PORT`, where the host may have colons and may be left out for the
/// server that was asked.
pub(super) fn node(text: &str, asked: &Host) -> Option<Host> {
    let (name, port) = text.rsplit_once(':')?;
    let name = if name.is_empty() { &asked.name } else { name };
    Some(Host { name: name.to_owned(), port: port.parse().ok()? })
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.server.fmt(f)?;
        let prefix = &self.options.prefix;
        if *prefix == RedisOptions::default().prefix {
            Ok(())
        } else {
            write!(f, "?prefix={prefix}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, RedisOptions::default())
    }

    #[test]
    fn addresses_are_read_and_shown_without_secrets() {
        let address =
            parse("redis://ann:s3%20cret@a:7000,[::1]:7001,c/2?prefix=shop&wait_replicas=1")
                .unwrap();
        assert_eq!(address.to_string(), "redis://ann@a:7000,[::1]:7001,c:6379/2?prefix=shop");
        assert_eq!(address.server.password.as_deref(), Some("s3 cret"));
        assert_eq!((&*address.options.prefix, address.options.wait_replicas), ("shop", 1));
        let address =
            parse("rediss://:pw@h?appendfsync=always&fail_over=trusted&wait_aof=true").unwrap();
        assert_eq!(address.to_string(), "rediss://h:6379");
        assert_eq!(address.options.appendfsync, Some(AppendFsync::Always));
        assert!(address.options.trusts_fail_over && address.options.wait_aof);
        assert!(address.server.user.is_none());
    }

    #[test]
    fn a_cluster_names_its_servers() {
        let asked = Host { name: "h".to_owned(), port: 1 };
        let named = |text| node(text, &asked).map(|host| host.to_string());
        assert_eq!(named("10.0.0.1:7000").as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(named(":7000").as_deref(), Some("h:7000"));
        assert_eq!(named("::1:7000").as_deref(), Some("[::1]:7000"));
        assert_eq!(named("nonsense"), None);
    }
}
