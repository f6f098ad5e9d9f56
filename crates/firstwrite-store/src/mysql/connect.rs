//! Opens connections to the server, or to one of several, and sets up each session.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mysql_async::{Conn, Error, OptsBuilder, Row, SslOpts};
use tokio::task::JoinSet;

use super::driver_error::DriverError;
use super::history_loss::{ASK_CLUSTER, cluster};
use super::options::Address;
use super::pipeline::{Answer, Pipeline, SendError};
use crate::address::Host;
use crate::rows::Columns as _;
use crate::tls::Tls;
use crate::{Access, OpenError};

/// The server, and how to get a connection to it.
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) access: Access,
    tls: Option<SslOpts>,
    /// Index of the host that was reached last; the others are tried in turn when it is unavailable.
    host: AtomicUsize,
    /// True once a server without encryption was met where none is required.
    is_plain: AtomicBool,
}

/// Settings for connecting to one host.
pub(super) struct Dial {
    options: OptsBuilder,
    tls: Option<SslOpts>,
    may_be_plain: bool,
}

/// A connection, and what is known of the server at its other end.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) conn: Conn,
    pub(super) kind: Kind,
    packet_bytes_max: usize,
    limit: Duration,
}

/// The family of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    MariaDb,
    MySql,
}

/// Overhead of a pipeline's packet besides its text, with a margin.
const PACKET_BYTES_SPARE: usize = 1024;

impl Server {
    pub(super) fn new(address: Address, access: Access) -> Result<Self, OpenError> {
        let tls = address.tls_options()?;
        Ok(Self {
            address,
            access,
            tls,
            host: AtomicUsize::new(0),
            is_plain: AtomicBool::new(false),
        })
    }

    /// Connects to the host that was reached last, or to the next that takes writes, if writes are wanted.
    pub(super) async fn connect(&self) -> Result<Connection, DriverError> {
        let hosts = self.address.hosts();
        let first = self.host.load(Ordering::Relaxed);
        let mut last = DriverError::NoAnswer;
        for place in (0..hosts.len()).map(|step| (first + step) % hosts.len()) {
            let limit = self.address.options.connect_for;
            let connecting = tokio::time::timeout(limit, self.connect_to(&hosts[place]));
            match connecting.await.unwrap_or(Err(DriverError::NoAnswer)) {
                Ok(connection) => {
                    if self.host.swap(place, Ordering::Relaxed) != place {
                        tracing::warn!(server = %self.address, place, "another host is used from now on");
                    }
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns the driver's settings for the host that is used at the moment.
    pub(super) fn driver_options(&self) -> OptsBuilder {
        let host = &self.address.hosts()[self.host.load(Ordering::Relaxed)];
        let is_plain = self.is_plain.load(Ordering::Relaxed);
        let tls = self.tls.clone().filter(|_| !is_plain);
        self.address.driver_options(host).ssl_opts(tls)
    }

    /// Returns the error for a server that cannot be used.
    pub(super) fn unreachable(&self, error: &DriverError) -> OpenError {
        OpenError::unreachable(&self.address, error.to_string())
    }

    /// Returns the settings for connecting to one of the hosts.
    pub(super) fn dial(&self, host: &Host) -> Dial {
        let may_be_plain = self.address.tls == Tls::Prefer;
        Dial { options: self.address.driver_options(host), tls: self.tls.clone(), may_be_plain }
    }

    async fn connect_to(&self, host: &Host) -> Result<Connection, DriverError> {
        let (conn, is_plain) = self.dial(host).made().await?;
        if is_plain {
            self.is_plain.store(true, Ordering::Relaxed);
        }
        self.set_up(conn).await
    }

    /// Identifies the server, and sets up the session.
    async fn set_up(&self, mut conn: Conn) -> Result<Connection, DriverError> {
        let options = &self.address.options;
        let mut asking = Pipeline::new();
        let about = asking.add("SELECT VERSION(), @@max_allowed_packet, @@read_only", &[]);
        let cluster = asking.add("SHOW GLOBAL VARIABLES LIKE 'wsrep\\_on'", &[]);
        let answers = asking.send(&mut conn, options.connect_for).await?;
        let about = answers[about].rows.first().ok_or_else(|| unclear("no version"))?;
        let version = about.text(0)?;
        let kind = check_version(version)?;
        let packet = usize::try_from(about.integer(1)?).unwrap_or(usize::MAX);
        if self.access == Access::Write && about.integer(2)? != 0 {
            return Err(DriverError::NoConnection("the server is read-only".to_owned()));
        }
        let is_node = answers[cluster].rows.first().is_some_and(is_on);
        self.settings(kind, is_node).send(&mut conn, options.connect_for).await?;
        let limit = options.statement_timeout;
        let packet_bytes_max = packet.saturating_sub(PACKET_BYTES_SPARE);
        Ok(Connection { conn, kind, packet_bytes_max, limit })
    }

    fn settings(&self, kind: Kind, is_node: bool) -> Pipeline {
        let options = &self.address.options;
        let mut pipeline = Pipeline::new();
        pipeline.add("SET SESSION autocommit = 1", &[]);
        // A commit must neither begin the next transaction nor end the connection.
        pipeline.add("SET SESSION completion_type = 0", &[]);
        let seconds = options.lock_timeout.as_secs().max(1);
        pipeline.add(&format!("SET SESSION innodb_lock_wait_timeout = {seconds}"), &[]);
        // An owner that vanished must not hold its locks for eight hours.
        let seconds = options.idle_in_transaction_timeout.as_secs().max(1);
        match kind {
            Kind::MariaDb => {
                pipeline.add(&format!("SET SESSION idle_transaction_timeout = {seconds}"), &[])
            }
            // MySQL has no such limit; an idle connection is opened anew.
            Kind::MySql => pipeline.add(&format!("SET SESSION wait_timeout = {seconds}"), &[]),
        };
        if is_node {
            // Whatever was acknowledged by any node is here before something is read: after the loss of
            // a node, the next one may still be applying what that one acknowledged.
            pipeline.add("SET SESSION wsrep_sync_wait = 1", &[]);
        }
        if self.access == Access::ReadOnly {
            pipeline.add("SET SESSION TRANSACTION READ ONLY", &[]);
        }
        pipeline
    }
}

impl Dial {
    pub(super) async fn conn(self) -> Result<Conn, DriverError> {
        Ok(self.made().await?.0)
    }

    /// A connection, and whether it had to be made without encryption.
    async fn made(self) -> Result<(Conn, bool), DriverError> {
        match Conn::new(self.options.clone().ssl_opts(self.tls)).await {
            Err(Error::Driver(mysql_async::DriverError::NoClientSslFlagFromServer))
                if self.may_be_plain =>
            {
                Ok((Conn::new(self.options).await?, true))
            }
            made => Ok((made?, false)),
        }
    }
}

impl Connection {
    /// Sends a pipeline, unless it is too large for the server.
    pub(super) async fn send(&mut self, pipeline: &Pipeline) -> Result<Vec<Answer>, SendError> {
        let (bytes, bytes_max) = (pipeline.bytes(), self.packet_bytes_max);
        if bytes > bytes_max {
            return Err(SendError::unsent(DriverError::TooLarge { bytes, bytes_max }));
        }
        pipeline.send(&mut self.conn, self.limit).await
    }

    /// Rolls back. Returns false if the connection can no longer be used.
    pub(super) async fn roll_back(&mut self) -> bool {
        let mut pipeline = Pipeline::new();
        pipeline.add("ROLLBACK", &[]);
        pipeline.add("SET SESSION autocommit = 1", &[]);
        pipeline.send(&mut self.conn, self.limit).await.is_ok()
    }
}

/// The oldest versions with `SKIP LOCKED`; nothing older is maintained.
const MARIADB_MIN: (u32, u32) = (10, 6);
const MYSQL_MIN: (u32, u32) = (8, 0);

fn check_version(version: &str) -> Result<Kind, DriverError> {
    let kind = if version.contains("MariaDB") { Kind::MariaDb } else { Kind::MySql };
    // Some proxies put this in front of MariaDB's own version.
    let plain = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers =
        plain.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (name, min) = match kind {
        Kind::MariaDb => ("MariaDB", MARIADB_MIN),
        Kind::MySql => ("MySQL", MYSQL_MIN),
    };
    if found >= min {
        return Ok(kind);
    }
    let text = format!("{name} {}.{} is too old: {}.{} is needed", found.0, found.1, min.0, min.1);
    Err(DriverError::NoConnection(text))
}

fn is_on(row: &Row) -> bool {
    matches!(row.text(1), Ok("ON" | "1"))
}

fn unclear(what: &str) -> DriverError {
    DriverError::NoConnection(format!("the server does not say what it is: {what}"))
}

/// The named hosts that take writes, if they are several servers: an old primary that came back next to the new
/// one would be given keys that the other has. Nodes of one Galera cluster are one server, and so are two names
/// of the same; a host that does not answer is passed over.
pub(super) async fn rivals(server: &Server) -> Option<String> {
    let hosts = server.address.hosts();
    if hosts.len() < 2 {
        return None;
    }
    let limit = server.address.options.connect_for;
    let mut asking = JoinSet::new();
    for host in hosts {
        let (name, dial) = (host.to_string(), server.dial(host));
        asking.spawn(async move {
            let asked = async { ask(&mut dial.conn().await?, limit).await };
            (name, tokio::time::timeout(limit, asked).await.unwrap_or(Err(DriverError::NoAnswer)))
        });
    }
    let mut writable = BTreeMap::new();
    for (name, asked) in asking.join_all().await {
        if let Ok(Some(identity)) = asked {
            writable.insert(identity, name);
        }
    }
    let mut names: Vec<String> = writable.into_values().collect();
    names.sort_unstable();
    (names.len() > 1).then(|| names.join(", "))
}

/// Returns the identity of a server that takes writes; `None` if it takes none.
async fn ask(conn: &mut Conn, limit: Duration) -> Result<Option<String>, DriverError> {
    let mut pipeline = Pipeline::new();
    let is_read_only = pipeline.add("SELECT @@read_only", &[]);
    let clustered = pipeline.add(ASK_CLUSTER, &[]);
    let named = pipeline.add(
        "SHOW GLOBAL VARIABLES WHERE variable_name IN ('server_uuid', 'server_uid', 'hostname', \
         'port', 'datadir')",
        &[],
    );
    let answers = pipeline.send(conn, limit).await?;
    if answers[is_read_only].rows.first().map(|row| row.text(0)).transpose()? != Some("0") {
        return Ok(None);
    }
    if let Some(cluster) = cluster(&answers[clustered])? {
        return Ok(Some(cluster));
    }
    let mut identity = String::new();
    for row in &answers[named].rows {
        identity.push_str(row.text(1)?);
        identity.push(' ');
    }
    Ok(Some(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_apart_and_old_ones_refused() {
        for (version, kind) in [
            ("10.11.19-MariaDB-0+deb12u1", Kind::MariaDb),
            ("5.5.5-10.6.1-MariaDB", Kind::MariaDb),
            ("11.8.2-MariaDB", Kind::MariaDb),
            ("9.7.4", Kind::MySql),
            ("8.0.36-0ubuntu0.22.04.1", Kind::MySql),
        ] {
            assert_eq!(check_version(version).unwrap(), kind, "{version}");
        }
        for old in ["5.7.44-log", "10.5.8-MariaDB", "5.5.5-10.3.1-MariaDB", ""] {
            assert!(check_version(old).is_err(), "{old}");
        }
    }
}
