//! The connection to Redis: one connection, a time limit on every request, and a pause after a few
//! failures.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use firstwrite_core::lock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use rustls::crypto::CryptoProvider;
use tokio::time::timeout;

use super::CacheOptions;
use crate::circuit::Circuit;

pub(super) struct Line {
    client: Client,
    options: CacheOptions,
    circuit: Circuit,
    slot: Mutex<ConnectionSlot>,
    /// Locked while connecting.
    connecting: tokio::sync::Mutex<()>,
}

/// The connection with its number: a caller that finds one broken must not drop its successor.
#[derive(Default)]
struct ConnectionSlot {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

/// Error for a Redis address that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheError;

/// Behaviour of a request while another one opens the connection.
#[derive(Clone, Copy)]
enum Meanwhile {
    /// It goes to the store instead, which answers in less time than a connection takes.
    GiveUp,
    /// It waits: the store cannot be asked instead.
    Wait,
}

/// Reason why a request was not answered.
enum DriverError {
    /// Another caller is connecting.
    Connecting,
    /// Redis or the connection to it failed.
    Failed(String),
}

impl Line {
    pub(super) fn new(url: &str, options: CacheOptions) -> Result<Self, CacheError> {
        // The driver takes the provider that is installed.
        if CryptoProvider::get_default().is_none() {
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        // The error may repeat the address, which may hold a password.
        let client = Client::open(url).map_err(|_unsafe_to_tell| CacheError)?;
        let circuit = Circuit::new(options.failures_max, options.open_for);
        let (slot, connecting) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { client, options, circuit, slot, connecting })
    }

    pub(super) fn is_left_alone(&self) -> bool {
        self.circuit.is_open()
    }

    /// Reads the first bytes under `key`, at most one more than `bytes_max`; empty if there is no entry,
    /// and `None` if Redis could not be asked.
    pub(super) async fn get(&self, key: &str, bytes_max: usize) -> Option<Vec<u8>> {
        let mut command = redis::cmd("GETRANGE");
        command.arg(key).arg(0).arg(bytes_max);
        let Value::BulkString(bytes) = self.ask(&command, Meanwhile::GiveUp).await? else {
            // Something of another kind is in the way: no bytes of ours.
            return Some(vec![0]);
        };
        Some(bytes)
    }

    /// Replaces the entry. Returns true if Redis confirmed it.
    pub(super) async fn set(&self, key: &str, bytes: &[u8], kept_for: Duration) -> bool {
        self.ask(&setting(key, bytes, kept_for), Meanwhile::Wait).await.is_some()
    }

    /// Sets an entry unless there is one already.
    pub(super) async fn set_new(&self, key: &str, bytes: &[u8], kept_for: Duration) {
        self.ask(setting(key, bytes, kept_for).arg("NX"), Meanwhile::GiveUp).await;
    }

    pub(super) async fn delete(&self, key: &str) {
        let mut command = redis::cmd("DEL");
        command.arg(key);
        self.ask(&command, Meanwhile::GiveUp).await;
    }

    async fn ask(&self, command: &Cmd, meanwhile: Meanwhile) -> Option<Value> {
        let pass = self.circuit.enter()?;
        let was_left_alone = self.is_left_alone();
        match self.send(command, meanwhile).await {
            Ok(value) => {
                pass.succeeded();
                if was_left_alone {
                    tracing::info!("Redis is back: records are cached again");
                }
                Some(value)
            }
            Err(DriverError::Connecting) => None,
            Err(DriverError::Failed(cause)) => {
                pass.failed();
                if !was_left_alone && self.is_left_alone() {
                    tracing::warn!(cause, "Redis is left alone for a while: nothing is cached");
                }
                None
            }
        }
    }

    async fn send(&self, command: &Cmd, meanwhile: Meanwhile) -> Result<Value, DriverError> {
        let (number, mut connection) = self.connection(meanwhile).await?;
        let asked = timeout(self.options.timeout, command.query_async(&mut connection));
        match asked.await {
            Ok(Ok(value)) => Ok(value),
            // Redis is well.
            Ok(Err(error)) if error.code() == Some("WRONGTYPE") => Ok(Value::Nil),
            Ok(Err(error)) => {
                self.let_go(number);
                Err(DriverError::failed(&error))
            }
            Err(_elapsed) => {
                self.let_go(number);
                Err(DriverError::Failed("no answer in time".to_owned()))
            }
        }
    }

    async fn connection(
        &self,
        meanwhile: Meanwhile,
    ) -> Result<(u64, MultiplexedConnection), DriverError> {
        if let Some(there) = lock(&self.slot).there() {
            return Ok(there);
        }
        let _turn = match meanwhile {
            Meanwhile::GiveUp => self.connecting.try_lock().ok(),
            // The caller that connects has a time limit, and so has the next in line.
            Meanwhile::Wait => Some(self.connecting.lock().await),
        }
        .ok_or(DriverError::Connecting)?;
        // The previous holder of the lock may have connected.
        if let Some(there) = lock(&self.slot).there() {
            return Ok(there);
        }
        let limit = self.options.connect_timeout;
        // Each request has its own time limit.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let connection = match timeout(limit, connecting).await {
            Ok(connected) => connected.map_err(|error| DriverError::failed(&error))?,
            Err(_elapsed) => return Err(DriverError::Failed("no connection in time".to_owned())),
        };
        let mut slot = lock(&self.slot);
        slot.number += 1;
        slot.connection = Some(connection.clone());
        Ok((slot.number, connection))
    }

    fn let_go(&self, number: u64) {
        let mut slot = lock(&self.slot);
        if slot.number == number {
            slot.connection = None;
        }
    }
}

fn setting(key: &str, bytes: &[u8], kept_for: Duration) -> Cmd {
    let millis = u64::try_from(kept_for.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut command = redis::cmd("SET");
    command.arg(key).arg(bytes).arg("PX").arg(millis);
    command
}

impl ConnectionSlot {
    fn there(&self) -> Option<(u64, MultiplexedConnection)> {
        self.connection.clone().map(|connection| (self.number, connection))
    }
}

impl DriverError {
    /// Returns the category of an error: its text may repeat what was sent.
    fn failed(error: &RedisError) -> Self {
        Self::Failed(error.code().map_or_else(|| error.category().to_owned(), str::to_owned))
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address of the cache cannot be read; write redis://HOST:PORT")
    }
}

impl std::error::Error for CacheError {}
