//! One connection to one server, shared by all callers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use firstwrite_core::{StoreError, Timestamp, lock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value};
use tokio::time::timeout;

use super::admission::{About, Conduct};
use super::driver_error::{DriverError, corrupt};
use super::options::{Address, RedisOptions};
use super::scripts::{self, Call};
use crate::OpenError;
use crate::address::Host;

/// A server, connected to or not.
pub(super) struct Server {
    pub(super) host: Host,
    client: Client,
    options: RedisOptions,
    current: Mutex<Option<Arc<Link>>>,
    /// Held while connecting.
    connecting: tokio::sync::Mutex<()>,
    tries: AtomicU64,
}

/// A connection to one known server process.
pub(super) struct Link {
    host: Host,
    connection: MultiplexedConnection,
    options: RedisOptions,
    digests: Vec<Vec<u8>>,
    /// The server's last description of itself.
    about: Mutex<Arc<About>>,
    /// True if the server last reported settings that lose keys, and the operator has not accepted that.
    is_unfit: AtomicBool,
}

impl Server {
    pub(super) fn new(address: &Address, host: &Host) -> Result<Self, OpenError> {
        let (client, options) = (address.client(host)?, address.options.clone());
        let (current, connecting, tries) =
            (Mutex::default(), tokio::sync::Mutex::default(), AtomicU64::new(0));
        Ok(Self { host: host.clone(), client, options, current, connecting, tries })
    }

    /// The connection; made if there is none.
    pub(super) async fn link(&self) -> Result<Arc<Link>, DriverError> {
        let tries = self.tries.load(Ordering::Acquire);
        if let Some(link) = lock(&self.current).clone() {
            return Ok(link);
        }
        let _turn = self.connecting.lock().await;
        if let Some(link) = lock(&self.current).clone() {
            return Ok(link);
        }
        // A caller that waited during a failed attempt does not make another one.
        if self.tries.load(Ordering::Acquire) != tries {
            return Err(DriverError::NotSent("the server cannot be reached".to_owned()));
        }
        let connected = timeout(self.options.connect_for, self.connect()).await;
        self.tries.fetch_add(1, Ordering::AcqRel);
        let late = || DriverError::NotSent("no connection in time".to_owned());
        let link = Arc::new(connected.map_err(|_elapsed| late())??);
        *lock(&self.current) = Some(Arc::clone(&link));
        Ok(link)
    }

    pub(super) fn is_connected(&self) -> bool {
        lock(&self.current).is_some()
    }

    /// Drops `link`, unless another caller has replaced it already.
    pub(super) fn let_go(&self, link: &Arc<Link>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|there| Arc::ptr_eq(there, link)) {
            *current = None;
        }
    }

    pub(super) fn close(&self) {
        *lock(&self.current) = None;
    }

    async fn connect(&self) -> Result<Link, DriverError> {
        // Each request has its own time limit.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_for))
            .set_response_timeout(None);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|error| DriverError::unconnected(&error))?;
        let mut link = Link {
            host: self.host.clone(),
            connection,
            options: self.options.clone(),
            digests: Vec::new(),
            about: Mutex::default(),
            is_unfit: AtomicBool::new(false),
        };
        let unsaid = |error: DriverError| DriverError::NotSent(error.to_string());
        link.refresh().await.map_err(unsaid)?;
        link.digests = link.load(self.options.clock.is_some()).await.map_err(unsaid)?;
        Ok(link)
    }
}

impl Link {
    pub(super) fn about(&self) -> Arc<About> {
        Arc::clone(&lock(&self.about))
    }

    pub(super) fn is_unfit(&self) -> bool {
        self.is_unfit.load(Ordering::Acquire)
    }

    /// Reads the server's current description of itself.
    pub(super) async fn refresh(&self) -> Result<Arc<About>, DriverError> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("INFO").cmd("CONFIG").arg("GET").arg("appendfsync");
        let about = match &self.ask_all(&pipeline).await?[..] {
            [Value::ServerError(error), _] => return Err(DriverError::of_reply(error)),
            [info, config] => Arc::new(About::read(info, config)),
            _ => return Err(DriverError::Lost("an answer is missing".to_owned())),
        };
        // While it loads its log, the server reports that it has none.
        if about.is_loading() {
            return Err(DriverError::NotSent("the server reads its log".to_owned()));
        }
        let refusal = Conduct::of(&about).refusal(&self.host, &self.options);
        let is_unfit = refusal.is_some() && !self.options.accept_key_loss;
        if self.is_unfit.swap(is_unfit, Ordering::AcqRel) != is_unfit {
            if let Some(why) = refusal {
                tracing::error!(server = %self.host, "unknown keys are refused: {why}");
            } else {
                tracing::warn!(server = %self.host, "unknown keys are accepted again");
            }
        }
        *lock(&self.about) = Arc::clone(&about);
        Ok(about)
    }

    /// Loads the scripts into the server; returns their digests.
    pub(super) async fn load(&self, has_own_clock: bool) -> Result<Vec<Vec<u8>>, DriverError> {
        let mut digests = Vec::with_capacity(scripts::COUNT);
        for text in scripts::texts(has_own_clock) {
            let value = self.ask(redis::cmd("SCRIPT").arg("LOAD").arg(text)).await?;
            digests.push(bytes(&value).unwrap_or_default().to_vec());
        }
        Ok(digests)
    }

    /// Runs a script, and the commands that follow it on the same connection.
    pub(super) async fn run_script(
        &self,
        call: &Call,
        waits: &[Cmd],
        is_asking: bool,
    ) -> Result<Vec<Value>, DriverError> {
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
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, DriverError> {
        let mut connection = self.connection.clone();
        match timeout(self.options.answer_for, connection.send_packed_command(command)).await {
            Ok(Ok(Value::ServerError(error))) => Err(DriverError::of_reply(&error)),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(DriverError::of(&error)),
            Err(_elapsed) => Err(DriverError::Lost("no answer in time".to_owned())),
        }
    }

    /// Asks several things at once. An error among the answers is an answer.
    pub(super) async fn ask_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, DriverError> {
        let mut connection = self.connection.clone();
        let asked = connection.send_packed_commands(pipeline, 0, pipeline.len());
        match timeout(self.options.answer_for, asked).await {
            Ok(Ok(values)) => Ok(values),
            Ok(Err(error)) => Err(DriverError::of(&error)),
            Err(_elapsed) => Err(DriverError::Lost("no answer in time".to_owned())),
        }
    }
}

/// The parts of a script's answer.
pub(super) fn parts<const N: usize>(answer: Value) -> Result<[Value; N], StoreError> {
    let Value::Array(parts) = answer else {
        return Err(corrupt("a script answers what it cannot"));
    };
    parts.try_into().map_err(|_count| corrupt("a script answers what it cannot"))
}

/// The time in a script's answer.
pub(super) fn instant_of(value: &Value) -> Result<Timestamp, StoreError> {
    let Value::Int(millis) = value else { return Err(corrupt("a script answers what it cannot")) };
    Ok(Timestamp::from_millis(*millis))
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
