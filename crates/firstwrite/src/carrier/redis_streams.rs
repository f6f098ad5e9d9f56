//! Carries messages to a Redis stream: an entry with the fields `wire_key`, `content_type` and `payload`.
//!
//! 1. One script adds the entry and remembers its id under the wire key, for the length of the dedupe
//!    window ([`RedisStreamsSettings::dedupe_for`]). A second delivery within it adds nothing and gets the id
//!    of the first. Declare a dedupe window for the destination that is no longer.
//! 2. Delivered: added, now or before. The provider's id is the entry's.
//! 3. Retry: no connection; or the server refused before it changed anything: out of memory, read only,
//!    loading, no permission, or there is no such stream.
//! 4. Unknown: no answer in time, the connection was lost, or the error cannot be understood.
//! 5. The probe looks for the wire key. If it is not there, it leaves a mark that shuts out deliveries of
//!    earlier claims that may still be under way, so that "it did not happen" stays true. After half of the
//!    window it gives no answer: Redis forgets by its own clock.
//!
//! An entry is as durable as the server makes it: with `appendfsync always` it is on disk when it is
//! acknowledged, and with replication a failover may still lose it. Needs Redis 6.2 or Valkey. In a
//! cluster the address must be that of the node which holds the stream; all keys of a stream share one
//! hash slot.

mod script;
mod settings;

use std::fmt;
use std::sync::Arc;

use firstwrite_core::BoxFuture;
use firstwrite_core::outbox::{Carrier, ClaimedMessage, Delivery, Probed, Receipt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Value};
use tokio::time::timeout;

use super::broker::{Session, SettingsError, Slot, delivered, provide_tls, retry, told, unknown};
use script::{ADD, PROBE};
pub use settings::RedisStreamsSettings;

/// Answer of the script where there is no stream.
const NO_STREAM: &str = "no stream";
/// Answer of the script to a delivery that a probe has shut out.
const SHUT_OUT: &str = "shut out";

/// Carries messages to one Redis stream.
pub struct RedisStreamsCarrier {
    settings: RedisStreamsSettings,
    client: Client,
    slot: Slot<Line>,
}

struct Line(MultiplexedConnection);

impl Session for Line {
    fn is_open(&self) -> bool {
        // The client does not report it; a delivery that finds the connection broken forgets it.
        true
    }
}

impl RedisStreamsCarrier {
    /// Checks the settings; connects at the first delivery.
    pub fn new(settings: RedisStreamsSettings) -> Result<Self, SettingsError> {
        provide_tls();
        let client = settings.client()?;
        let slot = Slot::new(settings.timeout);
        Ok(Self { settings, client, slot })
    }

    async fn deliver(&self, message: &ClaimedMessage) -> Delivery {
        let line = match self.slot.get(|| self.connect()).await {
            Ok(line) => line,
            Err(delivery) => return delivery,
        };
        let mut command = self.command(ADD, message);
        command
            .arg(message.wire_key())
            .arg(&message.content_type)
            .arg(&message.payload[..])
            .arg(u8::from(self.settings.creates_stream))
            .arg(self.settings.length_max.unwrap_or(0));
        match self.ask(&line, &command).await {
            Ok(Value::BulkString(id)) => interpret(&id),
            Ok(_) => unknown("the answer is no entry id"),
            Err(delivery) => delivery,
        }
    }

    async fn ask_about(&self, message: &ClaimedMessage) -> Probed {
        let line = match self.slot.get(|| self.connect()).await {
            Ok(line) => line,
            Err(delivery) => return Probed::Silent(delivery.detail),
        };
        let sent_at = message.maybe_sent_at.unwrap_or(message.created_at);
        let mut command = self.command(PROBE, message);
        command.arg(sent_at.as_millis());
        match self.ask(&line, &command).await {
            Ok(Value::BulkString(id)) => match entry_id(&id) {
                Some(id) => Probed::Happened(Receipt { provider_id: Some(id) }),
                None => Probed::Silent("what Redis remembers is no entry id".to_owned()),
            },
            Ok(Value::Int(1)) => Probed::NotHappened,
            Ok(_) => Probed::Silent("Redis may have forgotten it by now".to_owned()),
            Err(delivery) => Probed::Silent(delivery.detail),
        }
    }

    /// `EVAL` with what both scripts take: the keys, the window and the claim's fence.
    fn command(&self, script: &str, message: &ClaimedMessage) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command
            .arg(script)
            .arg(2)
            .arg(&self.settings.stream)
            .arg(self.settings.seen_key(&message.wire_key()))
            .arg(u64::try_from(self.settings.dedupe_for.as_millis()).unwrap_or(u64::MAX))
            // Lua has no whole numbers of 64 bits; of equal length, text compares as numbers do.
            .arg(format!("{:020}", message.fence.as_u64()));
        command
    }

    async fn ask(&self, line: &Arc<Line>, command: &Cmd) -> Result<Value, Delivery> {
        let mut connection = line.0.clone();
        let asked = timeout(self.settings.timeout, command.query_async::<Value>(&mut connection));
        let error = match asked.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => {
                self.slot.forget(line);
                let waited = self.settings.timeout.as_millis();
                return Err(unknown(format!("no answer in {waited} ms")));
            }
        };
        let delivery = failed(&error);
        // Also after a definite no: another server may be the one that takes writes by now.
        self.slot.forget(line);
        Err(delivery)
    }

    async fn connect(&self) -> Result<Line, String> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.settings.timeout))
            // Each command has its own time limit.
            .set_response_timeout(None);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        connected.map(Line).map_err(|error| told(&error))
    }
}

/// Returns the meaning of the script's answer.
fn interpret(answer: &[u8]) -> Delivery {
    if answer == NO_STREAM.as_bytes() {
        return retry(
            "there is no such stream: make it with XGROUP CREATE … MKSTREAM, or set creates_stream",
        );
    }
    if answer == SHUT_OUT.as_bytes() {
        return retry("a later claim was told that it did not happen");
    }
    match entry_id(answer) {
        Some(id) => delivered(Some(id), "added"),
        None => unknown("the answer is no entry id"),
    }
}

/// `<milliseconds>-<number>`
fn entry_id(answer: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(answer).ok()?;
    let (time, number) = text.split_once('-')?;
    (time.parse::<u64>().is_ok() && number.parse::<u64>().is_ok()).then(|| text.to_owned())
}

/// Returns the meaning of an error for a delivery that was sent.
fn failed(error: &RedisError) -> Delivery {
    /// Said before a script runs, or by the first command in it that would write; so nothing was written.
    const DEFINITE: [&str; 17] = [
        "ASK",
        "BUSY",
        "CLUSTERDOWN",
        "CROSSSLOT",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "MOVED",
        "NOAUTH",
        "NOPERM",
        "NOREPLICAS",
        "NOSCRIPT",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        "WRONGPASS",
        "WRONGTYPE",
    ];
    let is_from_server = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    let is_known = error.code().is_some_and(|code| DEFINITE.contains(&code));
    // Our script failed: it does so before it has added anything.
    let is_ours = error.detail().is_some_and(|detail| detail.contains("@user_script"));
    let is_definite = is_from_server && (is_known || is_ours);
    if is_definite { retry(told(error)) } else { unknown(told(error)) }
}

impl Carrier for RedisStreamsCarrier {
    fn carry<'a>(&'a self, message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(self.deliver(message))
    }

    /// Ask under a later claim than the one that sent: what the claim itself has under way is not shut
    /// out.
    fn probe<'a>(&'a self, message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        Some(Box::pin(self.ask_about(message)))
    }
}

impl fmt::Debug for RedisStreamsCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStreamsCarrier")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use firstwrite_core::outbox::Ending;
    use redis::make_extension_error;

    use super::*;

    #[test]
    fn only_a_no_before_anything_was_written_is_retried() {
        let said = |code: &str| {
            let error = make_extension_error(code.to_owned(), Some("words".to_owned()));
            failed(&error).ending
        };
        for code in ["OOM", "READONLY", "NOAUTH", "MISCONF", "LOADING", "NOREPLICAS"] {
            assert_eq!(said(code), Ending::Retry, "{code}");
        }
        for code in ["ERR", "UNKILLABLE", "ANYTHING"] {
            assert_eq!(said(code), Ending::Unknown, "{code}");
        }
        let lost = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(failed(&lost.into()).ending, Ending::Unknown);
    }

    #[test]
    fn only_an_entry_id_is_one() {
        assert_eq!(entry_id(b"1700000000000-0").as_deref(), Some("1700000000000-0"));
        for answer in [&b"OK"[..], b"1-", b"-1", b"1", b"!00000000000000000001", b"\xff-1"] {
            assert_eq!(entry_id(answer), None);
            assert_eq!(interpret(answer).ending, Ending::Unknown);
        }
        assert_eq!(interpret(NO_STREAM.as_bytes()).ending, Ending::Retry);
        assert_eq!(interpret(SHUT_OUT.as_bytes()).ending, Ending::Retry);
    }
}
