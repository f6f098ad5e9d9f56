//! Passes bytes both ways on a connection that has left HTTP, until one side ends, both are silent for too
//! long, or the gateway stops. The gateway cannot know a safe place to cut such a connection, so at a stop it
//! cuts at once.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

/// State that a tunnel keeps of its HTTP connection: its connection permit, and the stop signal of the gateway.
/// A part of requests that may leave HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    _permit: Arc<OwnedSemaphorePermit>,
    is_stopping: watch::Receiver<bool>,
}

/// Reason why a tunnel ended.
#[derive(Debug)]
pub(crate) enum Ended {
    BySides,
    Silent,
    Stopped,
}

/// One side, which records the time of every transfer in both directions.
struct Noticed<T> {
    io: T,
    moved_at: Arc<MovedAt>,
}

/// Time of the last transfer.
struct MovedAt(Mutex<Instant>);

impl Leaving {
    pub(crate) fn new(
        permit: &Arc<OwnedSemaphorePermit>,
        is_stopping: watch::Receiver<bool>,
    ) -> Self {
        Self { _permit: Arc::clone(permit), is_stopping }
    }
}

/// Passes bytes both ways. `leaving` is none where connections are not counted.
pub(crate) async fn run<C, S>(
    client: C,
    mut server: S,
    idle_for_max: Duration,
    mut leaving: Option<Leaving>,
) -> Ended
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let stopped = async {
        match &mut leaving {
            // A dropped sender means a stop too.
            Some(leaving) => drop(leaving.is_stopping.wait_for(|is_stopping| *is_stopping).await),
            None => std::future::pending().await,
        }
    };
    let moved_at = Arc::new(MovedAt(Mutex::new(Instant::now())));
    let mut client = Noticed { io: client, moved_at: Arc::clone(&moved_at) };
    tokio::select! {
        copied = copy_bidirectional(&mut client, &mut server) => {
            if let Err(error) = copied {
                tracing::debug!(%error, "an upgraded connection broke");
            }
            Ended::BySides
        }
        () = moved_at.too_long_ago(idle_for_max) => Ended::Silent,
        () = stopped => Ended::Stopped,
    }
}

impl MovedAt {
    fn note(&self) {
        *self.lock() = Instant::now();
    }

    /// Waits until nothing has passed for so long.
    async fn too_long_ago(&self, idle_for_max: Duration) {
        loop {
            let until = *self.lock() + idle_for_max;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Noticed<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.io).poll_read(context, buffer);
        if read.is_ready() {
            this.moved_at.note();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noticed<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(context, bytes);
        if written.is_ready() {
            this.moved_at.note();
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn one_side_that_speaks_is_enough_and_silence_of_both_is_the_end() {
        let (client, mut client_end) = duplex(64);
        let (server, mut server_end) = duplex(64);
        let began = Instant::now();
        let tunnel = tokio::spawn(run(client, server, MINUTE, None));
        for _ in 0..3 {
            advance(MINUTE * 3 / 4).await;
            server_end.write_all(b"x").await.unwrap();
            assert_eq!(client_end.read_u8().await.unwrap(), b'x');
        }
        assert!(matches!(tunnel.await.unwrap(), Ended::Silent));
        assert_eq!(began.elapsed(), MINUTE * 9 / 4 + MINUTE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_has_ended_leaves_the_other_within_the_same_bound() {
        let (client, mut client_end) = duplex(64);
        let (server, _server_end) = duplex(64);
        client_end.shutdown().await.unwrap();
        let began = Instant::now();
        assert!(matches!(run(client, server, MINUTE, None).await, Ended::Silent));
        assert_eq!(began.elapsed(), MINUTE);
    }
}
