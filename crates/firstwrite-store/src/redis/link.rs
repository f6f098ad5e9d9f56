//! One connection to one server, shared by everybody who has something to say there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value};
use tokio::time::timeout;

use super::fault::Trouble;
use super::options::{Address, Host, RedisOptions};
use super::scripts::{self, Call};
use crate::OpenError;

/// A server, connected to or not.
pub(super) struct Server {
    pub(super) host: Host,
    client: Client,
    options: RedisOptions,
    held: Mutex<Option<Arc<Link>>>,
    /// Held by the one who connects.
    connecting: tokio::sync::Mutex<()>,
    tries: AtomicU64,
}

/// A connection. What is said over it is answered by one process that is known.
pub(super) struct Link {
    connection: MultiplexedConnection,
    answer_for: Duration,
    digests: Vec<Vec<u8>>,
    /// What the server said of itself when the connection was made.
    about: HashMap<String, String>,
    /// The name of the history that it writes, as last heard.
    history: Mutex<String>,
}

impl Server {
    pub(super) fn new(address: &Address, host: &Host) -> Result<Self, OpenError> {
        let (client, options) = (address.client(host)?, address.options.clone());
        let (held, connecting, tries) =
            (Mutex::default(), tokio::sync::Mutex::default(), AtomicU64::new(0));
        Ok(Self { host: host.clone(), client, options, held, connecting, tries })
    }

    /// The connection; made if there is none.
    pub(super) async fn link(&self) -> Result<Arc<Link>, Trouble> {
        let tries = self.tries.load(Ordering::Acquire);
        if let Some(link) = self.held().clone() {
            return Ok(link);
        }
        let _turn = self.connecting.lock().await;
        if let Some(link) = self.held().clone() {
            return Ok(link);
        }
        // Whoever waited while somebody tried in vain does not try it all again.
        if self.tries.load(Ordering::Acquire) != tries {
            return Err(Trouble::NotSent("the server cannot be reached".to_owned()));
        }
        let connected = timeout(self.options.connect_for, self.connect()).await;
        self.tries.fetch_add(1, Ordering::AcqRel);
        let late = || Trouble::NotSent("no connection in time".to_owned());
        let link = Arc::new(connected.map_err(|_elapsed| late())??);
        *self.held() = Some(Arc::clone(&link));
        Ok(link)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.held().is_some()
    }

    /// Goes on without `link`, unless somebody has done so already.
    pub(super) fn let_go(&self, link: &Arc<Link>) {
        let mut held = self.held();
        if held.as_ref().is_some_and(|there| Arc::ptr_eq(there, link)) {
            *held = None;
        }
    }

    pub(super) fn close(&self) {
        *self.held() = None;
    }

    async fn connect(&self) -> Result<Link, Trouble> {
        // Each question has its own time limit.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_for))
            .set_response_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|error| Trouble::unconnected(&error))?;
        let answer_for = self.options.answer_for;
        let mut link = Link {
            connection,
            answer_for,
            digests: Vec::new(),
            about: HashMap::new(),
            history: Mutex::default(),
        };
        let unsaid = |trouble: Trouble| Trouble::NotSent(trouble.to_string());
        link.about = link.info().await.map_err(unsaid)?;
        link.history = Mutex::new(link.says("master_replid").unwrap_or_default().to_owned());
        link.digests = link.load(self.options.clock.is_some()).await.map_err(unsaid)?;
        Ok(link)
    }

    /// Nothing here panics while it holds the lock, so a poisoned one is still whole.
    fn held(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// One thing that the server says of itself.
    pub(super) fn says(&self, name: &str) -> Option<&str> {
        self.about.get(name).map(String::as_str)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.says("cluster_enabled") == Some("1")
    }

    pub(super) fn is_master(&self) -> bool {
        self.says("role") == Some("master")
    }

    /// Which start of the server this is.
    pub(super) fn run(&self) -> &str {
        self.says("run_id").unwrap_or("unknown")
    }

    /// The name of the history that the server writes.
    pub(super) fn history(&self) -> String {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks for that name again. Whether it is another one now.
    pub(super) async fn has_new_history(&self) -> Result<bool, Trouble> {
        let name = self.info().await?.remove("master_replid").unwrap_or_default();
        let mut known = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != name;
        *known = name;
        Ok(is_new)
    }

    /// What the server says of itself now.
    pub(super) async fn info(&self) -> Result<HashMap<String, String>, Trouble> {
        let value = self.ask(&redis::cmd("INFO")).await?;
        let text = bytes(&value).map(String::from_utf8_lossy).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    /// Gives the server the scripts; returns what they are called there.
    pub(super) async fn load(&self, has_own_clock: bool) -> Result<Vec<Vec<u8>>, Trouble> {
        let mut digests = Vec::with_capacity(scripts::COUNT);
        for text in scripts::texts(has_own_clock) {
            let value = self.ask(redis::cmd("SCRIPT").arg("LOAD").arg(text)).await?;
            digests.push(bytes(&value).unwrap_or_default().to_vec());
        }
        Ok(digests)
    }

    /// Runs a script, and whatever follows it on the same connection.
    pub(super) async fn run_script(
        &self,
        call: &Call,
        waits: &[Cmd],
        is_asking: bool,
    ) -> Result<Vec<Value>, Trouble> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digests[call.script.place()]).arg(call.keys.len());
        for part in call.keys.iter().chain(call.args.iter()) {
            command.arg(part);
        }
        if waits.is_empty() && !is_asking {
            return self.ask(&command).await.map(|value| vec![value]);
        }
        let mut pipeline = Pipeline::new();
        if is_asking {
            pipeline.add_command(redis::cmd("ASKING"));
        }
        pipeline.add_command(command);
        for wait in waits {
            pipeline.add_command(wait.clone());
        }
        let mut values = self.ask_all(&pipeline).await?;
        if is_asking {
            values.remove(0);
        }
        Ok(values)
    }

    /// Asks one thing.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, Trouble> {
        let mut connection = self.connection.clone();
        match timeout(self.answer_for, connection.send_packed_command(command)).await {
            Ok(Ok(Value::ServerError(error))) => Err(Trouble::said(&error)),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Trouble::of(&error)),
            Err(_elapsed) => Err(Trouble::Lost("no answer in time".to_owned())),
        }
    }

    /// Asks several things at once. An error among the answers is an answer.
    pub(super) async fn ask_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Trouble> {
        let mut connection = self.connection.clone();
        let asked = connection.send_packed_commands(pipeline, 0, pipeline.len());
        match timeout(self.answer_for, asked).await {
            Ok(Ok(values)) => Ok(values),
            Ok(Err(error)) => Err(Trouble::of(&error)),
            Err(_elapsed) => Err(Trouble::Lost("no answer in time".to_owned())),
        }
    }
}

/// The bytes of a value that is a string of some kind.
pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::BulkString(bytes) = value {
        return Some(bytes);
    }
    let (Value::SimpleString(text) | Value::VerbatimString { text, .. }) = value else {
        return None;
    };
    Some(text.as_bytes())
}
