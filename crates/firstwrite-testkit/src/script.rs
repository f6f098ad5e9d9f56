//! Handlers in a transaction as plain data, so that one suite drives every store whose transactions a handler
//! can join.

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::protocol::{self, Atomic, AtomicStart};
use firstwrite_core::{
    AsyncTransactionalStore, BoxError, BoxFuture, Interim, Message, Policy, Request, StoreError,
    StoreErrorKind, TransactionalStore,
};
use http::{Response, StatusCode};

/// A handler as plain data.
#[derive(Clone, Debug)]
pub struct Script {
    /// Under which key it runs.
    pub request: Arc<Request>,
    /// By which settings.
    pub policy: Arc<Policy>,
    /// The attempt's own number.
    pub nonce: u64,
    /// The business rows it writes, by name.
    pub rows: Vec<(String, String)>,
    /// The messages it writes.
    pub messages: Vec<Message>,
    /// Its ending.
    pub ending: Ending,
}

/// Ending of a scripted handler, after it wrote its rows and messages.
#[derive(Clone, Debug)]
pub enum Ending {
    /// With this status and body.
    Answer(u16, Bytes),
    /// With this status, standing in for the answer that its message will bring.
    Interim(u16),
    /// With an error.
    Fail,
    /// With a panic.
    Panic,
}

/// Result of a script's attempt.
#[derive(Debug)]
pub struct ScriptReport {
    /// True if the handler was called.
    pub ran: bool,
    /// Result of the atomic attempt.
    pub ended: Atomic<ScriptFailed>,
}

/// The error of a script that ends with [`Ending::Fail`].
#[derive(Debug)]
pub struct ScriptFailed;

/// Runs `script` through [`protocol::atomic`] on any transactional store.
///
/// `put` writes one business row and `enqueue` one message with the store's own transaction.
pub async fn play<S, P, Q>(
    store: &S,
    script: Script,
    put: P,
    enqueue: Q,
) -> Result<ScriptReport, StoreError>
where
    S: TransactionalStore,
    P: for<'t> Fn(&mut S::Tx<'t>, &str, &str) -> Result<(), BoxError> + Send + 'static,
    Q: for<'t> Fn(&mut S::Tx<'t>, Message) -> Result<(), BoxError> + Send + 'static,
{
    let Script { request, policy, nonce, rows, messages, ending } = script;
    let ran = Arc::new(AtomicBool::new(false));
    let running = Arc::clone(&ran);
    let work = move |tx: &mut S::Tx<'_>| {
        running.store(true, Ordering::SeqCst);
        for (name, value) in &rows {
            put(tx, name, value).map_err(give_up)?;
        }
        for message in messages {
            enqueue(tx, message).map_err(give_up)?;
        }
        match ending {
            Ending::Answer(status, body) => Ok(answer(status, body)),
            Ending::Interim(status) => Ok(interim(status)),
            Ending::Fail => Err(ScriptFailed),
            // Past the panic hook: a planned panic does not print a backtrace.
            Ending::Panic => resume_unwind(Box::new("planned by the script")),
        }
    };
    let ended = protocol::atomic(store, request, policy, nonce, work).await?;
    Ok(ScriptReport { ran: ran.load(Ordering::SeqCst), ended })
}

/// Runs `script` through [`protocol::begin`] and [`protocol::conclude`] on any store whose
/// transactions a handler holds.
///
/// A planned panic drops the transaction, as unwinding through a handler does.
pub async fn play_held<S, P, Q>(
    store: &S,
    script: Script,
    put: P,
    enqueue: Q,
) -> Result<ScriptReport, StoreError>
where
    S: AsyncTransactionalStore,
    P: for<'t> Fn(&'t mut S::Tx, String, String) -> BoxFuture<'t, Result<(), BoxError>>,
    Q: for<'t> Fn(&'t mut S::Tx, Message) -> BoxFuture<'t, Result<(), BoxError>>,
{
    let Script { request, policy, nonce, rows, messages, ending } = script;
    let mut held = match protocol::begin(store, request, policy, nonce).await? {
        AtomicStart::Run(held) => held,
        AtomicStart::Refused(verdict, found) => {
            return Ok(ScriptReport { ran: false, ended: Atomic::Refused(verdict, found) });
        }
    };
    let mut writes = Ok(());
    for (name, value) in rows {
        writes = if writes.is_ok() { put(&mut held, name, value).await } else { writes };
    }
    for message in messages {
        writes = if writes.is_ok() { enqueue(&mut held, message).await } else { writes };
    }
    let ended = match (writes.map_err(give_up), ending) {
        (Ok(()), Ending::Answer(status, body)) => {
            any_error(protocol::conclude(store, held, answer(status, body)).await?)
        }
        (Ok(()), Ending::Interim(status)) => {
            any_error(protocol::conclude(store, held, interim(status)).await?)
        }
        (Ok(()), Ending::Panic) => {
            drop(held);
            return Err(StoreError::definite(StoreErrorKind::Panicked, "running a script"));
        }
        (Ok(()), Ending::Fail) | (Err(ScriptFailed), _) => {
            protocol::abandon(store, held).await?;
            Atomic::Failed(ScriptFailed)
        }
    };
    Ok(ScriptReport { ran: true, ended })
}

impl Script {
    /// A handler that only answers.
    pub fn new(request: Request, ending: Ending) -> Self {
        let (rows, messages) = (Vec::new(), Vec::new());
        let policy = Arc::new(Policy::default());
        Self { request: Arc::new(request), policy, nonce: 1, rows, messages, ending }
    }
}

fn any_error(ended: Atomic<Infallible>) -> Atomic<ScriptFailed> {
    match ended {
        Atomic::Kept { response, retained_until } => Atomic::Kept { response, retained_until },
        Atomic::RolledBack(response) => Atomic::RolledBack(response),
        Atomic::Refused(verdict, found) => Atomic::Refused(verdict, found),
        Atomic::Failed(never) => match never {},
    }
}

fn interim(status: u16) -> Response<Bytes> {
    let mut response = answer(status, Bytes::from_static(b"on its way"));
    response.extensions_mut().insert(Interim { wait_for: Duration::ZERO });
    response
}

fn answer(status: u16, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).expect("scripts answer with valid statuses");
    response
}

/// A row that cannot be written fails the handler, as it would in an application.
fn give_up(_cause: BoxError) -> ScriptFailed {
    ScriptFailed
}
