//! Parts shared by the two dispatchers: a bounded queue, a connection that is reopened after a loss, and an
//! orderly end.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::StoreError;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Shared;
use super::connect::Role;
use super::driver_error::{DriverError, unavailable};
use super::history_loss;
use super::options::PostgresOptions;

/// The callers' end of a dispatcher.
#[derive(Debug)]
pub(super) struct Dispatcher<T> {
    queue: mpsc::Sender<T>,
    closing: Arc<Notify>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// The dispatcher's end of the queue of commands.
#[derive(Debug)]
pub(super) struct Queue<T> {
    receiver: mpsc::Receiver<T>,
    closing: Arc<Notify>,
    batch_max: usize,
}

/// A connection of its own, made when it is needed.
pub(super) struct OwnClient {
    shared: Arc<Shared>,
    role: Role,
    client: Option<Arc<ClientWrapper>>,
    backoff: Option<Backoff>,
}

/// The server could not be reached; not tried again before `until`.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    until: Instant,
    wait: Duration,
}

/// Delay between two attempts to reach an unavailable server: short at first, and never long, since callers
/// are refused meanwhile.
const WAIT_MIN: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);

impl<T: Send + 'static> Dispatcher<T> {
    /// Starts the task that `serve` makes of the queue.
    pub(super) fn start<F: Future<Output = ()> + Send + 'static>(
        options: &PostgresOptions,
        serve: impl FnOnce(Queue<T>) -> F,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(options.queue_max.max(1));
        let closing = Arc::new(Notify::new());
        let batch_max = options.batch_max.max(1);
        let waiting = Queue { receiver, closing: Arc::clone(&closing), batch_max };
        let task = tokio::sync::Mutex::new(Some(tokio::spawn(serve(waiting))));
        Self { queue: sender, closing, task }
    }

    /// Queues a command; if it cannot be, nothing will be done about it.
    pub(super) fn push(&self, doing: &'static str, command: T) -> Result<(), StoreError> {
        self.queue.try_send(command).map_err(|refused| {
            let why = match refused {
                TrySendError::Full(_) => "too busy: the queue is full",
                TrySendError::Closed(_) => "the store is closed",
            };
            unavailable(doing, why)
        })
    }

    /// Refuses new commands and finishes waiting ones.
    pub(super) async fn close(&self) {
        self.closing.notify_one();
        if let Some(task) = self.task.lock().await.take() {
            // A task that panicked has ended too.
            drop(task.await);
        }
    }
}

impl<T> Queue<T> {
    /// Waits for items and takes up to a batch of them. Returns false if none will come any more. May be
    /// dropped and called again.
    pub(super) async fn take(&mut self, into: &mut Vec<T>) -> bool {
        loop {
            tokio::select! {
                biased;
                count = self.receiver.recv_many(into, self.batch_max) => return count > 0,
                () = self.closing.notified() => self.receiver.close(),
            }
        }
    }

    /// Takes waiting items, up to a batch including those that `into` holds already.
    pub(super) fn take_more(&mut self, into: &mut Vec<T>) {
        while into.len() < self.batch_max {
            let Ok(one) = self.receiver.try_recv() else { return };
            into.push(one);
        }
    }
}

impl OwnClient {
    pub(super) fn new(shared: Arc<Shared>, role: Role, client: Option<ClientWrapper>) -> Self {
        Self { shared, role, client: client.map(Arc::new), backoff: None }
    }

    /// A connection that was alive a moment ago. If there is none, nothing was sent.
    pub(super) async fn get(&mut self) -> Result<&Arc<ClientWrapper>, DriverError> {
        if self.client.as_ref().is_none_or(|client| client.is_closed()) {
            self.client = None;
            if self.backoff.is_some_and(|backoff| Instant::now() < backoff.until) {
                return Err(DriverError::Away);
            }
            match self.connect().await {
                Ok(client) => {
                    self.backoff = None;
                    self.client = Some(Arc::new(client));
                }
                Err(error) => {
                    let wait = self.backoff.map_or(WAIT_MIN, |last| last.wait.saturating_mul(2));
                    let wait = wait.min(WAIT_MAX);
                    self.backoff = Some(Backoff { until: Instant::now() + wait, wait });
                    tracing::warn!(server = %self.shared.server.address, %error, "cannot connect");
                    return Err(error);
                }
            }
        }
        Ok(self.client.as_ref().expect("there is one, or this has returned"))
    }

    /// The connection is of no use any more.
    pub(super) fn drop_client(&mut self) {
        self.client = None;
    }

    async fn connect(&self) -> Result<ClientWrapper, DriverError> {
        let shared = &self.shared;
        let limit = shared.server.address.options.connect_for.saturating_mul(2);
        let connecting = async {
            let client = shared.server.connect(self.role).await?;
            history_loss::verify_history(shared, &client).await?;
            Ok(client)
        };
        tokio::time::timeout(limit, connecting).await.unwrap_or(Err(DriverError::Silence))
    }
}
