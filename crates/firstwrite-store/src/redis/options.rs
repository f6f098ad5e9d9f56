//! Addresses of the servers, and the settings of a store on them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::Timestamp;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo,
    TlsCertificates,
};

use crate::OpenError;
use crate::open::check_is_file;

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

/// Addresses of the servers, as parsed from the address string.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) hosts: Vec<Host>,
    user: Option<String>,
    password: Option<String>,
    database: i64,
    is_tls: bool,
    root_cert: Option<PathBuf>,
    pub(super) options: RedisOptions,
}

/// One server's name and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

const PORT: u16 = 6379;
const PREFIX_BYTES_MAX: usize = 64;
const SPELLING: &str = "write redis://USER:PASSWORD@HOST:PORT or rediss://… for TLS";
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
            "prefix" => self.prefix = decoded(value)?,
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
            "fail_over" => {
                self.trusts_fail_over = match value {
                    "trusted" => true,
                    "untrusted" => false,
                    _ => return Err(wrong("trusted or untrusted")),
                }
            }
            _ => {
                return Err(OpenError::new(format!(
                    "the Redis address has a parameter `{}` that is not known; there are {PARAMETERS}",
                    name.escape_debug()
                )));
            }
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
    /// Reads `redis://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?prefix=…`. No error repeats more of it than the
    /// name of a parameter: the rest may hold a password.
    pub(super) fn parse(url: &str, mut options: RedisOptions) -> Result<Self, OpenError> {
        let wrong = |what: &str| OpenError::new(format!("the Redis address {what}; {SPELLING}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("has no host"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = match server.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, server),
        };
        let (user, password) = match login {
            None => (None, None),
            Some(login) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (given(user)?, given(password)?)
            }
        };
        let hosts = hosts.split(',').map(Host::parse).collect::<Option<Vec<_>>>();
        let hosts = hosts.ok_or_else(|| wrong("names a host that cannot be one"))?;
        let database = match database {
            "" => 0,
            number => {
                number.parse().map_err(|_number| wrong("names a database that is no number"))?
            }
        };
        let mut root_cert = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("sslrootcert", file) => root_cert = Some(PathBuf::from(decoded(file)?)),
                (name, value) => options.set(name, value)?,
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
        let is_tls = matches!(scheme, "rediss" | "valkeys");
        Ok(Self { hosts, user, password, database, is_tls, root_cert, options })
    }

    /// Returns the client for one server.
    pub(super) fn client(&self, host: &Host) -> Result<Client, OpenError> {
        let (name, port) = (host.name.clone(), host.port);
        let place = if self.is_tls {
            ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(name, port)
        };
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let unusable =
            || OpenError::new(format!("{self} cannot be used as a Redis address; {SPELLING}"));
        let info: ConnectionInfo = place
            .into_connection_info()
            .map_err(|_unsafe_to_tell| unusable())?
            .set_redis_settings(settings);
        match &self.root_cert {
            None => Client::open(info).map_err(|_unsafe_to_tell| unusable()),
            Some(file) => {
                check_is_file(file)?;
                let pem = std::fs::read(file).map_err(|error| {
                    OpenError::new(format!("cannot read {}; check sslrootcert", file.display()))
                        .caused_by(error)
                })?;
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
                Client::build_with_tls(info, certificates).map_err(|_unsafe_to_tell| unusable())
            }
        }
    }
}

impl Host {
    /// `name`, `name:port`, `[address]` or `[address]:port`.
    fn parse(text: &str) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) = rest.split_once(']')?;
                (name, rest.strip_prefix(':').map_or_else(|| rest.is_empty().then_some(""), Some)?)
            }
            None => text.split_once(':').unwrap_or((text, "")),
        };
        let port = if port.is_empty() { PORT } else { port.parse().ok()? };
        (!name.is_empty()).then(|| Self { name: name.to_owned(), port })
    }

    /// Parses a server's name in a cluster: `HOST:PORT`, where the host may have colons and may be left out
    /// for the server that was asked.
    pub(super) fn of_node(text: &str, asked: &Self) -> Option<Self> {
        let (name, port) = text.rsplit_once(':')?;
        let name = if name.is_empty() { &asked.name } else { name };
        Some(Self { name: name.to_owned(), port: port.parse().ok()? })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_tls { "rediss://" } else { "redis://" })?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        for (place, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if place > 0 { "," } else { "" })?;
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        let prefix = &self.options.prefix;
        if *prefix == RedisOptions::default().prefix {
            Ok(())
        } else {
            write!(f, "?prefix={prefix}")
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn given(text: &str) -> Result<Option<String>, OpenError> {
    if text.is_empty() { Ok(None) } else { decoded(text).map(Some) }
}

/// Takes `%20` and the like back.
fn decoded(text: &str) -> Result<String, OpenError> {
    let wrong =
        || OpenError::new("the Redis address has a `%` that two digits do not follow; write %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_first_chunk::<2>().ok_or_else(wrong)?;
        let digits = str::from_utf8(digits).map_err(|_not_text| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_digits| wrong())?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_not_text| wrong())
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
        assert_eq!(address.password.as_deref(), Some("s3 cret"));
        assert_eq!((&*address.options.prefix, address.options.wait_replicas), ("shop", 1));
        let address =
            parse("rediss://:pw@h?appendfsync=always&fail_over=trusted&wait_aof=true").unwrap();
        assert_eq!(address.to_string(), "rediss://h:6379");
        assert_eq!(address.options.appendfsync, Some(AppendFsync::Always));
        assert!(
            address.options.trusts_fail_over && address.options.wait_aof && address.user.is_none()
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_it() {
        for url in [
            "redis:secret",
            "redis://h:secret",
            "redis://h/secret",
            "redis://h?secret=1&x",
            "redis://u:secret%zz@h",
            "redis://h?prefix=se{cret",
            "redis://h?wait_aof=secret",
            "redis://h?prefix=",
            "redis://",
        ] {
            let text = parse(url).unwrap_err().to_string();
            assert!(!text.contains("secret") || url.contains("?secret"), "{text}");
            assert!(text.contains("write") || text.contains("there are"), "{text}");
        }
    }

    #[test]
    fn a_cluster_names_its_servers() {
        let asked = Host { name: "h".to_owned(), port: 1 };
        let named = |text| Host::of_node(text, &asked).map(|host| host.to_string());
        assert_eq!(named("10.0.0.1:7000").as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(named(":7000").as_deref(), Some("h:7000"));
        assert_eq!(named("::1:7000").as_deref(), Some("[::1]:7000"));
        assert_eq!(named("nonsense"), None);
    }
}
