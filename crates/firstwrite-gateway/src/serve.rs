//! Accepting connections, and serving requests on them until it is time to stop.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use firstwrite::Seldom;
use firstwrite_core::BoxFuture;
use http::header::UPGRADE;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::answering::Answering;
use crate::claim::Claim;
use crate::head::HEAD_BYTES_MAX;
use crate::peer::Peer;
use crate::settings::Listening;
use crate::stack::Stack;
use crate::timed_connection::{Leftover, Patience, TimedConnection};
use crate::tunnel::Leaving;
use crate::worker_threads::WorkerThreads;

/// The stack that requests pass at the moment.
pub(crate) type Current = watch::Receiver<Arc<Stack>>;

/// The same as of [`HEAD_BYTES_MAX`], over HTTP/2. That a head has at most a hundred headers is hyper's own
/// limit, which costs an allocation for each head if it is set, even to the same number.
const HEADER_LIST_BYTES_MAX: u32 = 32 * 1024;
/// Requests of one HTTP/2 connection at a time.
const STREAMS_MAX: u32 = 128;
/// Flow-control windows of one HTTP/2 stream and of one connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// The largest frame of HTTP/2, which is the smallest that may be asked for.
const FRAME_BYTES_MAX: u32 = 16 * 1024;
/// Bytes that one HTTP/2 stream may have waiting to be sent; the last piece of an answer may go beyond. Times the
/// streams, a connection whose client takes nothing holds 10 MiB, and what is gathered of the answers, until it is
/// closed.
const STREAM_SEND_BYTES_MAX: usize = 64 * 1024;
/// Number of streams that a client may have begun and reset before they were looked at.
const RESETS_PENDING_MAX: usize = 20;
/// Streams that a client may get us to reset, by mistakes of its own, before its connection ends.
const ERROR_RESETS_MAX: usize = 128;
/// Pause after a failed accept: used-up descriptors do not come back within a millisecond.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Server {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    worker_threads: Arc<WorkerThreads>,
    talk: Arc<Talk>,
    /// Every attempt fails while there are no descriptors left.
    refused: Seldom,
}

/// Protocol settings of connections.
struct Talk {
    tls: Option<TlsAcceptor>,
    protocols: auto::Builder<TokioExecutor>,
    handshake_within: Duration,
    patience: Patience,
}

/// State of the gateway that a connection follows while it lasts.
struct Told {
    current: Current,
    watcher: Watcher,
    leaving: Leaving,
}

impl Server {
    pub(crate) fn at(
        claim: Claim,
        listening: &Listening,
        worker_threads: Arc<WorkerThreads>,
    ) -> io::Result<Self> {
        let connections_max = listening.connections_max.min(Semaphore::MAX_PERMITS);
        let (head_within, taken_within) = (listening.head_within, listening.taken_within);
        Ok(Self {
            listener: claim.listen()?,
            permits: Arc::new(Semaphore::new(connections_max)),
            worker_threads,
            refused: Seldom::default(),
            talk: Arc::new(Talk {
                tls: listening.tls.clone().map(TlsAcceptor::from),
                protocols: protocols(head_within),
                handshake_within: head_within,
                patience: Patience { first_bytes: head_within, taken: taken_within },
            }),
        })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, then lets what is under way end; returns when no connection is left.
    pub(crate) async fn run(self, current: Current, stop: impl Future<Output = ()>) {
        let shutdown = GracefulShutdown::new();
        let (stopping, is_stopping) = watch::channel(false);
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = self.accept() => accepted,
            };
            let Some((stream, address, permit)) = accepted else { continue };
            let talk = Arc::clone(&self.talk);
            let permit = Arc::new(permit);
            let told = Told {
                current: current.clone(),
                watcher: shutdown.watcher(),
                leaving: Leaving::new(&permit, is_stopping.clone()),
            };
            let served = self.worker_threads.serve(stream, move |stream| async move {
                // A stop waits for the connection, but not for its last bytes to be delivered.
                let ending = talk.connection(stream, address, told).await;
                if let Some(ending) = ending {
                    ending.await;
                }
                drop(permit);
            });
            if let Err(error) = served {
                tracing::warn!(%error, "a connection could not be handed on");
            }
        }
        // Refuse new connections now, instead of leaving them to wait until the open ones end.
        drop(self);
        drop(is_stopping);
        // Tunnels end at once; once the last receiver is dropped, all of them are gone.
        stopping.send_replace(true);
        shutdown.shutdown().await;
        stopping.closed().await;
    }

    async fn accept(&self) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        match self.listener.accept().await {
            Ok((stream, address)) => Some((stream, address, permit)),
            Err(error) => {
                if let Some(left_out) = self.refused.now() {
                    tracing::warn!(%error, left_out, "a connection could not be accepted");
                }
                sleep(ACCEPT_PAUSE).await;
                None
            }
        }
    }
}

impl Talk {
    async fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        told: Told,
    ) -> Option<BoxFuture<'static, ()>> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection ended at once");
            return None;
        }
        let address = address.ip().to_canonical();
        let Some(tls) = &self.tls else {
            let peer = Peer::new(address, false, None);
            return self.requests(stream, peer, told).await;
        };
        // Boxed: both take far more room than a plain connection.
        let (stream, peer) = Box::pin(self.handshake(tls, stream, address)).await?;
        Box::pin(self.requests(stream, peer, told)).await
    }

    async fn handshake(
        &self,
        tls: &TlsAcceptor,
        stream: TcpStream,
        address: IpAddr,
    ) -> Option<(TlsStream<TcpStream>, Peer)> {
        match timeout(self.handshake_within, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let certificate = shown.map(|certificate| Arc::from(certificate.as_ref()));
                Some((stream, Peer::new(address, true, certificate)))
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_elapsed) => {
                tracing::debug!("a TLS handshake took too long");
                None
            }
        }
    }

    /// Answers requests as they come, and says what is left to do when it is over.
    async fn requests<T>(&self, io: T, peer: Peer, told: Told) -> Option<BoxFuture<'static, ()>>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Told { current, watcher, leaving } = told;
        let answering = Answering::default();
        let base = current.borrow().calls().problem_base.clone();
        let (io, mut left) = TimedConnection::new(io, self.patience, answering.clone(), base);
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            if request.headers().contains_key(UPGRADE) {
                request.extensions_mut().insert(leaving.clone());
            }
            let stack = Arc::clone(&current.borrow());
            let (peer, exchange) = (peer.clone(), answering.begins(request.version()));
            async move { stack.answer(request, &peer).await.map(|it| exchange.watch(it)) }
        });
        let connection = self.protocols.serve_connection_with_upgrades(TokioIo::new(io), service);
        let ended = watcher.watch(connection.into_owned()).await;
        let is_too_slow = ended.as_ref().err().is_some_and(|error| is_timeout(&**error));
        if let Err(error) = ended {
            tracing::debug!(error, "a client's connection ended");
        }
        let left = left.try_recv().ok().filter(Leftover::is_to_be_ended)?;
        Some(Box::pin(left.end(is_too_slow)))
    }
}

fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_ours = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
        || error.downcast_ref::<io::Error>().is_some_and(is_ours)
}

/// Both versions of HTTP, with a bound on everything a client can make grow.
fn protocols(head_within: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head_within)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_send_buf_size(STREAM_SEND_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(ERROR_RESETS_MAX)
        .keep_alive_interval(head_within)
        .keep_alive_timeout(head_within);
    builder
}
