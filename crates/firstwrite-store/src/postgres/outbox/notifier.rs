//! Notifies workers that there may be something to claim: those of this process directly, those of other processes
//! with `NOTIFY`.
//!
//! Notifications only affect how soon a message is seen. So one is sent after the commit, in a transaction of its
//! own, and not for every commit: when many commit at once, one is under way or was just sent, and one more follows
//! for all of them. Behind a transaction pooler a process cannot listen, but it can notify.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::lock;
use futures_util::future::poll_fn;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;

use crate::postgres::Shared;
use crate::postgres::connect::Role;
use crate::postgres::driver_error::text_of;
use crate::postgres::link::Link;

/// Notification state of this process: its waiting workers, its sender and its listener.
#[derive(Debug)]
pub(super) struct Notifier {
    /// Number of notifications so far.
    count: AtomicU64,
    /// Value of `count` when the last claim began.
    claimed: AtomicU64,
    waiting: Notify,
    /// Wakes the task that notifies the other processes.
    to_tell: Arc<Notify>,
    teller: Mutex<Option<Task>>,
    listener: Mutex<Option<Task>>,
    /// Name by which this process recognises its own notifications.
    name: String,
}

/// Task that runs until it is dropped.
#[derive(Debug)]
struct Task(JoinHandle<()>);

/// Interval between two notifications of one process. A delay of a fiftieth of a second does not matter, but
/// thousands of notifications load the server.
const TELL_EVERY: Duration = Duration::from_millis(20);

/// About the time that a commit takes.
const SOON: Duration = Duration::from_millis(5);

/// Shortest and longest wait between two attempts to listen; it grows with every failure.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(10);

impl Notifier {
    pub(super) fn new() -> Self {
        // Two processes with one name only miss each other's word now and then.
        let mark = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        Self {
            count: AtomicU64::new(0),
            claimed: AtomicU64::new(0),
            waiting: Notify::new(),
            to_tell: Arc::default(),
            teller: Mutex::default(),
            listener: Mutex::default(),
            name: format!("{mark:016x}"),
        }
    }

    /// There may be something to claim.
    pub(super) fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.waiting.notify_waiters();
    }

    /// Says that there will be something to claim in a moment.
    pub(super) fn notify_soon(self: &Arc<Self>) {
        let notifier = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(SOON).await;
            notifier.notify();
        });
    }

    /// Notes that a claim begins: it sees every message that was announced so far.
    pub(super) fn claiming(&self) {
        self.claimed.store(self.count.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Returns once a message was announced since the last claim began.
    pub(super) async fn wait_for_work(&self) {
        let mut waiting = std::pin::pin!(self.waiting.notified());
        waiting.as_mut().enable();
        if self.count.load(Ordering::SeqCst) == self.claimed.load(Ordering::SeqCst) {
            waiting.await;
        }
    }

    /// Tells the other processes, soon.
    pub(super) fn tell(&self, shared: &Arc<Shared>) {
        self.to_tell.notify_one();
        Task::keep(&self.teller, || {
            keep_telling(Arc::clone(&self.to_tell), Arc::downgrade(shared), self.name.clone())
        });
    }

    /// Starts to listen to other processes, unless this process already does or a pooler prevents it.
    pub(super) fn listen(self: &Arc<Self>, shared: &Arc<Shared>) {
        if shared.server.has_sessions() {
            let listen = || keep_listening(Arc::downgrade(self), Arc::downgrade(shared));
            Task::keep(&self.listener, listen);
        }
    }

    /// Stops listening and telling.
    pub(super) fn close(&self) {
        *lock(&self.teller) = None;
        *lock(&self.listener) = None;
    }
}

impl Task {
    /// Starts the task if it is not there, or has ended with the runtime that it was started on.
    fn keep<F: Future<Output = ()> + Send + 'static>(
        kept: &Mutex<Option<Self>>,
        run: impl FnOnce() -> F,
    ) {
        let mut task = lock(kept);
        if task.as_ref().is_none_or(|Self(task)| task.is_finished())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            *task = Some(Self(runtime.spawn(run())));
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Notifies the other processes whenever it is woken, on a connection of its own, since handlers may hold all
/// of the pool.
async fn keep_telling(to_tell: Arc<Notify>, shared: Weak<Shared>, name: String) {
    let mut teller: Option<ClientWrapper> = None;
    loop {
        to_tell.notified().await;
        let Some(shared) = shared.upgrade() else { return };
        if teller.as_ref().is_none_or(|client| client.is_closed()) {
            let connected = shared.server.connect(Role::Outbox).await;
            teller = connected.inspect_err(|error| untold(&text_of(error))).ok();
        }
        if let Some(client) = &teller {
            // Do not wait for the disk: if the server crashes, its listeners are gone as well.
            let sql = format!(
                "BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {}, '{name}'; COMMIT",
                channel(&shared)
            );
            if let Err(error) = (Link { client, shared: &shared }).tell(&sql).await {
                untold(&error.to_string());
                teller = None;
            }
        }
        drop(shared);
        tokio::time::sleep(TELL_EVERY).await;
    }
}

fn untold(error: &str) {
    tracing::debug!(error, "other processes are not notified of a message");
}

fn channel(shared: &Shared) -> String {
    format!("\"firstwrite_{}\"", shared.server.address.options.schema)
}

async fn keep_listening(notifier: Weak<Notifier>, shared: Weak<Shared>) {
    let mut wait = WAIT_MIN;
    loop {
        match listen_once(&notifier, &shared, &mut wait).await {
            Ok(Heard::Enough) => return,
            Ok(Heard::NoMore) => {}
            Err(error) => {
                tracing::debug!(error = text_of(&error), "not listening for messages of others");
            }
        }
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(WAIT_MAX);
    }
}

/// Reason why listening ended.
enum Heard {
    /// The store is gone.
    Enough,
    /// The connection is.
    NoMore,
}

/// Listens until the connection is lost, or the store is gone.
async fn listen_once(
    notifier: &Weak<Notifier>,
    shared: &Weak<Shared>,
    wait: &mut Duration,
) -> Result<Heard, tokio_postgres::Error> {
    let Some(store) = shared.upgrade() else { return Ok(Heard::Enough) };
    let listen = format!("LISTEN {}", channel(&store));
    let (client, mut connection) = store.server.connect_to_listen().await?;
    drop(store);
    let asked = client.batch_execute(&listen);
    let mut asked = std::pin::pin!(asked);
    let mut is_listening = false;
    loop {
        tokio::select! {
            biased;
            listening = &mut asked, if !is_listening => {
                listening?;
                is_listening = true;
                *wait = WAIT_MIN;
                // What came before is not told.
                let Some(notifier) = notifier.upgrade() else { return Ok(Heard::Enough) };
                notifier.notify();
            }
            message = poll_fn(|context| connection.poll_message(context)) => {
                let Some(notifier) = notifier.upgrade() else { return Ok(Heard::Enough) };
                match message.transpose()? {
                    Some(AsyncMessage::Notification(word)) if word.payload() != notifier.name => {
                        notifier.notify();
                    }
                    Some(_) => {}
                    None => return Ok(Heard::NoMore),
                }
            }
        }
    }
}
