//! Checks of a server before it is used: whether a store was created there, and whether it keeps acknowledged
//! writes. The latter is checked at opening, on every new connection and in every sweep.

use std::collections::HashMap;

use redis::Value;

use super::driver_error::DriverError;
use super::keys::Shard;
use super::link::bytes;
use super::options::{AppendFsync, RedisOptions};
use super::routing::Router;
use super::scripts::{Call, CommandArgs, Script};
use crate::address::Host;
use crate::{Migrated, OpenError};

/// A server's settings for eviction and for its append-only log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conduct {
    /// `None` where the server does not say.
    pub(super) eviction: Option<String>,
    pub(super) has_log: Option<bool>,
    /// `always`, `everysec` or `no`.
    pub(super) appendfsync: Option<String>,
}

/// True if acknowledged writes survive the end of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Durable(pub(super) bool);

const NEXT: &str = "or say that keys may be lost (accept_key_loss=true in the address)";

/// Refuses servers that lose acknowledged writes, unless that is accepted, and several that take writes;
/// returns the durability that it found.
pub(super) async fn admit(router: &Router) -> Result<Durable, OpenError> {
    let options = &router.address.options;
    let mut is_durable = true;
    if let Some(refusal) = router.ask_named().await {
        return Err(OpenError::new(refusal));
    }
    for (host, link) in router.masters().await.map_err(|error| unreachable(router, &error))? {
        let conduct = Conduct::of(&link.about());
        match conduct.refusal(&host, options) {
            Some(refusal) if !options.accept_key_loss => return Err(OpenError::new(refusal)),
            Some(refusal) => {
                tracing::warn!(server = %host, "keys may be lost, which was accepted: {refusal}");
                is_durable = false;
            }
            None => is_durable &= conduct.is_durable(&host, options),
        }
    }
    Ok(Durable(is_durable))
}

/// Returns the error for a server that cannot be reached.
pub(super) fn unreachable(router: &Router, error: &DriverError) -> OpenError {
    let text = "check the address and that the server runs";
    OpenError::new(format!("cannot reach {}; {text}", router.address)).caused_by(error.to_string())
}

impl Conduct {
    pub(super) fn of(about: &About) -> Self {
        Self {
            eviction: about.says("maxmemory_policy").map(str::to_owned),
            has_log: about.says("aof_enabled").map(|value| value == "1"),
            appendfsync: about.appendfsync.clone(),
        }
    }

    /// Returns the flush policy of the log: the server's own statement, or else the operator's.
    fn fsync(&self, options: &RedisOptions) -> Option<&str> {
        let vouched = options.appendfsync.map(|fsync| match fsync {
            AppendFsync::Always => "always",
            AppendFsync::EverySecond => "everysec",
        });
        self.appendfsync.as_deref().or(vouched)
    }

    /// Returns the reason why this server would lose keys, in one line that ends with the next step.
    pub(super) fn refusal(&self, host: &Host, options: &RedisOptions) -> Option<String> {
        match self.eviction.as_deref() {
            Some("noeviction") => {}
            Some(policy) => {
                return Some(format!(
                    "{host} evicts keys when its memory is full (maxmemory-policy {policy}), and an evicted key \
                     runs twice; set maxmemory-policy noeviction, {NEXT}"
                ));
            }
            None => {
                return Some(format!(
                    "{host} does not say whether it evicts keys; let INFO be asked, {NEXT}"
                ));
            }
        }
        match self.has_log {
            Some(true) => {}
            Some(false) => {
                return Some(format!(
                    "{host} keeps nothing over a restart (appendonly no), and a forgotten key runs twice; set \
                     appendonly yes and appendfsync always, {NEXT}"
                ));
            }
            None => {
                return Some(format!(
                    "{host} does not say whether it keeps a log; let INFO be asked, {NEXT}"
                ));
            }
        }
        self.fsync(options).is_none().then(|| {
            format!(
                "{host} does not say how often its log is flushed (CONFIG GET is refused); look it up and say so \
                 with appendfsync=always or appendfsync=everysec in the address, {NEXT}"
            )
        })
    }

    fn is_durable(&self, host: &Host, options: &RedisOptions) -> bool {
        let fsync = self.fsync(options).unwrap_or("no");
        if fsync == "always" || options.wait_aof {
            return true;
        }
        tracing::warn!(
            server = %host,
            appendfsync = fsync,
            "the log is not flushed before a key is acknowledged: a crash of the machine can lose the last seconds of \
             keys, which then run twice; set appendfsync always, or wait_aof=true in the address"
        );
        false
    }
}

/// The layout of keys that this build reads and writes.
const VERSION: i64 = 1;

/// Refuses an address at which no store was created, and one of a newer build. A key marks a created store: Redis
/// has no tables, so a mistyped database number or prefix would otherwise be an empty store, in which every key
/// used before runs again.
pub(super) async fn check_created(router: &Router) -> Result<(), OpenError> {
    let command = redis::cmd("GET").arg(router.keys.store()).clone();
    let asked = router.ask(Shard(0), &command).await;
    let address = &router.address;
    match version(&asked.map_err(|error| unreachable(router, &error))?) {
        0 => {
            let (prefix, text) =
                (&address.options.prefix, "has no firstwrite store under the prefix");
            Err(OpenError::missing(&format!("{address} {text} {prefix}"), address))
        }
        found if found > VERSION => Err(OpenError::new(format!(
            "{address} has layout version {found} and this build knows {VERSION}; use the newer build that \
             created it"
        ))),
        _ => Ok(()),
    }
}

/// Writes the key if it is not there.
pub(super) async fn create(router: &Router) -> Result<Migrated, DriverError> {
    let call = Call {
        script: Script::Create,
        keys: CommandArgs::from([router.keys.store()]),
        args: CommandArgs::from([VERSION.to_string()]),
    };
    let found = router.run(Shard(0), |_link| call.clone()).await?;
    let from = version(&found);
    Ok(Migrated { from, to: VERSION.max(from) })
}

/// The version that the key holds; 0 if there is none.
fn version(value: &Value) -> i64 {
    let text = bytes(value).and_then(|bytes| str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The server's description of itself as of one moment: `INFO`, and the one setting that `INFO` leaves out.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    info: HashMap<String, String>,
    /// `None` where `CONFIG GET` is refused, as on managed servers.
    pub(super) appendfsync: Option<String>,
}

impl About {
    /// `config` is the answer to `CONFIG GET appendfsync`.
    pub(super) fn read(info: &Value, config: &Value) -> Self {
        let text = bytes(info).map(String::from_utf8_lossy).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        let info = pairs.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()));
        let setting = if let Value::Array(pair) = config { pair.get(1) } else { None };
        let appendfsync = setting.and_then(bytes).map(String::from_utf8_lossy).map(Into::into);
        Self { info: info.collect(), appendfsync }
    }

    pub(super) fn says(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.says("cluster_enabled") == Some("1")
    }

    pub(super) fn is_master(&self) -> bool {
        self.says("role") == Some("master")
    }

    pub(super) fn is_loading(&self) -> bool {
        self.says("loading") == Some("1")
    }

    /// The name of this start of the server.
    pub(super) fn run(&self) -> &str {
        self.says("run_id").unwrap_or("unknown")
    }

    /// The name of the history that the server writes.
    pub(super) fn history(&self) -> &str {
        self.says("master_replid").unwrap_or_default()
    }

    /// Returns the name of the history that the server followed before it was promoted; empty if it was
    /// not. A server without a log takes it from its snapshot after every restart, so there it means
    /// nothing.
    pub(super) fn former_history(&self) -> &str {
        let is_none = |name: &&str| name.bytes().all(|digit| digit == b'0');
        let former = self.says("master_replid2").filter(|name| !is_none(name));
        former.filter(|_| self.says("aof_enabled") == Some("1")).unwrap_or_default()
    }

    /// Number of keys evicted since the server started.
    pub(super) fn evicted(&self) -> &str {
        self.says("evicted_keys").unwrap_or("0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conduct(eviction: &str, has_log: bool, appendfsync: Option<&str>) -> Conduct {
        let appendfsync = appendfsync.map(str::to_owned);
        Conduct { eviction: Some(eviction.to_owned()), has_log: Some(has_log), appendfsync }
    }

    #[test]
    fn what_is_not_known_must_be_vouched_for() {
        let host = Host { name: "h".to_owned(), port: 1 };
        let options = RedisOptions::default();
        assert_eq!(conduct("noeviction", true, Some("always")).refusal(&host, &options), None);
        let silent = conduct("noeviction", true, None);
        let text = silent.refusal(&host, &options).unwrap();
        assert!(text.contains("appendfsync=always"), "{text}");
        let vouched = RedisOptions { appendfsync: Some(AppendFsync::Always), ..options.clone() };
        assert_eq!(silent.refusal(&host, &vouched), None);
        assert!(silent.is_durable(&host, &vouched));
        let unknown = Conduct { eviction: None, has_log: Some(true), appendfsync: None };
        assert!(unknown.refusal(&host, &vouched).unwrap().contains("evicts"));
    }

    #[test]
    fn durable_is_what_is_flushed_before_it_is_acknowledged() {
        let host = Host { name: "h".to_owned(), port: 1 };
        let options = RedisOptions::default();
        assert!(conduct("noeviction", true, Some("always")).is_durable(&host, &options));
        assert!(!conduct("noeviction", true, Some("everysec")).is_durable(&host, &options));
        let waits = RedisOptions { wait_aof: true, ..options };
        assert!(conduct("noeviction", true, Some("everysec")).is_durable(&host, &waits));
    }
}
