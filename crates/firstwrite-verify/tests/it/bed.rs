//! The test bed: a small order API whose retries are safe, and the same with one defect at a time.
//!
//! `POST /orders` makes an order of a JSON object with a number `amount`, once for each tenant
//! (`Authorization: Bearer acme` or `globex`) and `Idempotency-Key`. `GET /orders/<id>` shows it to
//! its tenant, `GET /count` says to anybody how many there are. `X-Slow: <ms>` makes the handler
//! wait before its effect, `X-Fault: 500` makes it fail without one, `X-Notify: <url>` makes it tell
//! that address of the order.
//!
//! It reads and writes HTTP/1.1 by itself, so that defects of the wire can be planted too, and
//! shares no code with the checker nor with the rest of the project.

mod connection;
mod defect;
mod delays;
mod fingerprint;
mod guard;
mod handler;
mod json;
mod key;
mod message;
mod process;
mod records;
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;

pub(crate) use defect::Defect;
use process::{Process, Shared};

/// A running server; the handle can be cloned, and the server ends with the last one.
#[derive(Clone)]
pub(crate) struct Bed {
    inner: Arc<Inner>,
}

struct Inner {
    address: SocketAddr,
    /// Kept over restarts, so that nobody else gets the port.
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    process: Mutex<Arc<Process>>,
}

impl Bed {
    /// A server with this defect; a correct one with none.
    pub(crate) async fn start(defect: Option<Defect>) -> Self {
        Self::with_retention(defect, delays::RETENTION).await
    }

    /// The same, where answers are kept for so long.
    pub(crate) async fn with_retention(defect: Option<Defect>, retention: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (listener, shared) = (Arc::new(listener), Arc::new(Shared::new(defect, retention)));
        let process = Mutex::new(Process::start(&listener, &shared));
        Self { inner: Arc::new(Inner { address, listener, shared, process }) }
    }

    /// Where orders are made.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/orders", self.inner.address)
    }

    /// Where the effects are counted: `{"count":N}`, of all tenants together, for anybody.
    pub(crate) fn effects_url(&self) -> String {
        format!("http://{}/count", self.inner.address)
    }

    /// The effects so far, asked without a connection.
    pub(crate) fn effects(&self) -> usize {
        self.inner.shared.store().orders()
    }

    /// Waits until so many keys are reserved.
    pub(crate) async fn reserved(&self, keys: usize) {
        let shared = &self.inner.shared;
        loop {
            // Made before the look, so that no change falls between the two.
            let changed = shared.changed.notified();
            if shared.store().reserved() == keys {
                return;
            }
            changed.await;
        }
    }

    /// Like `kill -9` and a new start on the same port: connections are cut and attempts lost;
    /// effects and what is durable stay.
    pub(crate) async fn restart(&self) {
        let old = Arc::clone(&self.process());
        old.kill().await;
        self.inner.shared.restarted();
        *self.process() = Process::start(&self.inner.listener, &self.inner.shared);
    }

    /// Ends the server now; the port takes connections and nobody serves them.
    pub(crate) async fn stop(&self) {
        let process = Arc::clone(&self.process());
        process.kill().await;
    }

    /// The key store goes away.
    pub(crate) fn store_down(&self) {
        self.inner.shared.is_away.store(true, Ordering::SeqCst);
    }

    /// And comes back.
    pub(crate) fn store_up(&self) {
        self.inner.shared.is_away.store(false, Ordering::SeqCst);
    }

    /// Acme's token is no longer taken.
    pub(crate) fn revoke(&self) {
        self.inner.shared.is_revoked.store(true, Ordering::SeqCst);
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Arc<Process>> {
        self.inner.process.lock().expect("nobody panics while holding it")
    }
}

impl std::fmt::Debug for Bed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let defect = self.inner.shared.defect;
        f.debug_struct("Bed").field("url", &self.url()).field("defect", &defect).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The tasks hold their process, so it would not end by itself.
        if let Ok(process) = self.process.get_mut() {
            process.abandon();
        }
    }
}
