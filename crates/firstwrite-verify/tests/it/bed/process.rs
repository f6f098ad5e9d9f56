//! What a restart ends, and what it does not: the tasks of one life, and the state that all share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::defect::Defect;
use super::records::Store;
use super::{connection, delays};

/// More wait until one of these ends.
const CONNECTIONS_MAX: usize = 256;

/// What outlives the process.
pub(super) struct Shared {
    pub(super) defect: Option<Defect>,
    pub(super) retention: Duration,
    pub(super) is_away: AtomicBool,
    /// Whether acme's token is no longer taken.
    pub(super) is_revoked: AtomicBool,
    /// Told whenever a record has changed.
    pub(super) changed: Notify,
    store: Mutex<Store>,
}

/// One life of the server.
pub(super) struct Process {
    pub(super) shared: Arc<Shared>,
    /// Nothing once it is killed, so that a task that is just being ended starts no other.
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl Shared {
    pub(super) fn new(defect: Option<Defect>, retention: Duration) -> Self {
        Self {
            defect,
            retention,
            is_away: AtomicBool::new(false),
            is_revoked: AtomicBool::new(false),
            changed: Notify::new(),
            store: Mutex::new(Store::default()),
        }
    }

    pub(super) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("nobody panics while holding it")
    }

    /// Changes something in one step, and tells those who wait for a change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let result = change(&mut self.store());
        self.changed.notify_waiters();
        result
    }

    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::SeqCst)
    }

    /// How long what is completed now stands.
    pub(super) fn kept_for(&self) -> Duration {
        match self.defect {
            Some(Defect::ExpiredEarly) => self.retention.min(delays::EARLY),
            _ => self.retention,
        }
    }

    /// The process has died: what was reserved is lost, and its lease runs from now on.
    pub(super) fn restarted(&self) {
        match self.defect {
            Some(Defect::MemoryOnly) => self.change(Store::forget_all),
            Some(Defect::OneLifetimeLong) => {}
            _ => self.change(|store| store.lost_until(Instant::now() + delays::LEASE)),
        }
    }
}

impl Process {
    pub(super) fn start(listener: &Arc<TcpListener>, shared: &Arc<Shared>) -> Arc<Self> {
        let tasks = Mutex::new(Some(JoinSet::new()));
        let process = Arc::new(Self { shared: Arc::clone(shared), tasks });
        process.spawn(accept(Arc::clone(listener), Arc::clone(&process)));
        process
    }

    /// Runs something that ends with the process.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = self.tasks().as_mut() {
            // What has ended is forgotten here, so the set does not grow with the requests.
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task);
        }
    }

    /// Ends every task where it stands, and waits until they have ended.
    pub(super) async fn kill(&self) {
        let tasks = self.tasks().take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }

    /// Ends every task soon.
    pub(super) fn abandon(&self) {
        drop(self.tasks().take());
    }

    fn tasks(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.tasks.lock().expect("nobody panics while holding it")
    }
}

async fn accept(listener: Arc<TcpListener>, process: Arc<Process>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
        // A caller that has gone before it was accepted is no reason to stop.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let serving = Arc::clone(&process);
        process.spawn(async move {
            connection::serve(stream, &serving).await;
            drop(place);
        });
    }
}
