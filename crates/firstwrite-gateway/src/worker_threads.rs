//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on the thread that it was given to, and so does everything that is done for it:
//! nothing is handed from one thread to another in the middle of a request, and each thread waits for
//! its own sockets alone. A runtime that shares its work among threads does both, and a proxy, whose
//! requests are hardly more than waiting, pays for it with every step.

mod handoff;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use tokio::net::TcpStream;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use handoff::Handoff;

/// The threads, which end when this is dropped. Without any, connections are served where they are accepted.
pub(crate) struct WorkerThreads(Vec<WorkerThread>);

struct WorkerThread {
    runtime: Handle,
    handoff: Arc<Handoff>,
    /// Connections that it serves at the moment.
    load: Arc<AtomicUsize>,
    /// Dropped, it lets the thread end.
    _open: oneshot::Sender<()>,
}

/// One more connection of a thread, until dropped.
struct Place(Arc<AtomicUsize>);

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The number of the thread that this thread is, from 1; zero for any other thread.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

impl WorkerThreads {
    /// More than that many are not started; what is kept by thread need not have more places.
    pub(crate) const MAX: usize = 64;

    pub(crate) fn start(count: usize) -> io::Result<Self> {
        (1..=count.min(Self::MAX)).map(WorkerThread::start).collect::<io::Result<_>>().map(Self)
    }

    /// Serves an accepted connection on the thread that has the fewest.
    pub(crate) fn serve<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(thread) = self.0.iter().min_by_key(|thread| thread.load.load(Ordering::Relaxed))
        else {
            tokio::spawn(serve(stream));
            return Ok(());
        };
        let place = Place::take(&thread.load);
        let stream = stream.into_std()?;
        thread.runtime.spawn(handoff::by(Arc::clone(&thread.handoff), async move {
            // The socket is registered anew, with the runtime of this thread.
            match TcpStream::from_std(stream) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
            }
            drop(place);
        }));
        Ok(())
    }
}

impl WorkerThread {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel::<()>();
        let handoff = Arc::new(Handoff::new(number));
        let own = Arc::clone(&handoff);
        Builder::new().name(format!("thread-{number}")).spawn(move || {
            CURRENT.set(number);
            runtime.block_on(async {
                tokio::select! {
                    Ok(()) | Err(_) = closed => {}
                    () = own.run() => {}
                }
            });
            // What is still under way ends here, as it would with the process.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, handoff, load: Arc::default(), _open: open })
    }
}

impl Place {
    fn take(load: &Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
