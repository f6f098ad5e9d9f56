//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection stays on the thread that it was given to, and so does everything that is done for it:
//! nothing is handed from one thread to another in the middle of a request, and each thread waits for
//! its own sockets alone. A runtime that shares its work among threads does both, and a proxy, whose
//! requests are hardly more than waiting, pays for it with every step.

mod courier;
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

use courier::Courier;

/// The threads, which end when this is dropped. Without any, connections are served where they are accepted.
pub(crate) struct Lanes(Vec<Lane>);

struct Lane {
    runtime: Handle,
    courier: Arc<Courier>,
    /// Connections that it serves at the moment.
    load: Arc<AtomicUsize>,
    /// Dropped, it lets the thread end.
    _open: oneshot::Sender<()>,
}

/// One more connection of a lane, until dropped.
struct Place(Arc<AtomicUsize>);

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The number of the lane that this thread is, from 1; zero for any other thread.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

impl Lanes {
    /// More than that many are not started; what is kept by lane need not have more places.
    pub(crate) const MAX: usize = 64;

    pub(crate) fn start(count: usize) -> io::Result<Self> {
        (1..=count.min(Self::MAX)).map(Lane::start).collect::<io::Result<_>>().map(Self)
    }

    /// Serves an accepted connection on the lane that has the fewest.
    pub(crate) fn serve<F>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(lane) = self.0.iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed)) else {
            tokio::spawn(serve(stream));
            return Ok(());
        };
        let place = Place::take(&lane.load);
        let stream = stream.into_std()?;
        lane.runtime.spawn(courier::by(Arc::clone(&lane.courier), async move {
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

impl Lane {
    fn start(number: usize) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel::<()>();
        let courier = Arc::new(Courier::new(number));
        let own = Arc::clone(&courier);
        Builder::new().name(format!("lane-{number}")).spawn(move || {
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
        Ok(Self { runtime: handle, courier, load: Arc::default(), _open: open })
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
