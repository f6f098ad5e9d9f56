//! The server's description of itself: `INFO`, and the one setting that `INFO` leaves out.

use std::collections::HashMap;

use redis::Value;

use super::link::bytes;

/// The answers, as of one moment.
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
