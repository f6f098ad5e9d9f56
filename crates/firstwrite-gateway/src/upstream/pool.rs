//! Connections to one server that wait for the next call.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use firstwrite_core::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use tokio::time::Instant;

use crate::body::RequestBody;
use crate::worker_threads::{self, WorkerThreads};

/// One end of a connection.
pub(super) enum Sender {
    /// For one call at a time.
    Http1(Box<Line>),
    /// For many.
    Http2(http2::SendRequest<RequestBody>),
}

/// A connection for one call at a time. The caller polls it on its own task: a task for the connection would
/// have to be woken for every step, mostly on another thread.
pub(super) struct Line {
    sender: http1::SendRequest<RequestBody>,
    moving: Option<Moving>,
}

/// Pool of idle connections.
pub(super) struct Pool {
    /// One shelf per thread: a connection is registered with the runtime of the thread that made it, which would
    /// have to wake any other for every step.
    shelves: Box<[Mutex<Shelf>]>,
    keep_alive: Duration,
    kept_max: usize,
}

/// Idle connections, the last used at the end.
type Shelf = VecDeque<Kept>;

struct Kept {
    sender: Sender,
    since: Instant,
}

/// A request on its way, and its answer.
pub(super) struct Sending<'a> {
    answer: BoxFuture<'static, Result<Response<Incoming>, Refused>>,
    moving: Option<&'a mut Option<Moving>>,
}

/// hyper's error for a request that was not answered.
type Refused = TrySendError<Request<RequestBody>>;

/// Future that drives a connection until it ends.
type Moving = BoxFuture<'static, Result<(), hyper::Error>>;

/// Result of a failed send: the error, and the request if nothing of it was sent.
pub(super) type Unsent = (hyper::Error, Option<Box<Request<RequestBody>>>);

impl Sender {
    pub(super) async fn ready(&mut self) -> Result<(), hyper::Error> {
        match self {
            Self::Http1(line) => line.ready().await,
            Self::Http2(sender) => sender.ready().await,
        }
    }

    /// Sends a request, and waits for its answer while moving the connection along.
    pub(super) fn send(&mut self, request: Request<RequestBody>) -> Sending<'_> {
        match self {
            Self::Http1(line) => Sending {
                answer: Box::pin(line.sender.try_send_request(request)),
                moving: Some(&mut line.moving),
            },
            Self::Http2(sender) => {
                Sending { answer: Box::pin(sender.try_send_request(request)), moving: None }
            }
        }
    }

    /// Returns true if an idle connection can take a call at once. One whose last request is still being sent,
    /// because its answer came first, may never be able to.
    pub(super) async fn is_ready_now(&mut self) -> bool {
        let mut ready = pin!(self.ready());
        poll_fn(|context| Poll::Ready(matches!(ready.as_mut().poll(context), Poll::Ready(Ok(())))))
            .await
    }

    /// Drives the connection while its answer is read.
    pub(super) fn advance(&mut self, context: &mut Context<'_>) {
        if let Self::Http1(line) = self {
            line.advance(context);
        }
    }

    /// Moves the connection to a task of its own, because another protocol uses it from now on.
    pub(super) fn release(self) {
        if let Self::Http1(line) = self
            && let Some(moving) = line.moving
        {
            tokio::spawn(async move {
                if let Err(error) = moving.await {
                    tracing::debug!(%error, "a connection to an upstream ended");
                }
            });
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(line) => line.moving.is_none() || line.sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

impl Line {
    pub(super) fn new(sender: http1::SendRequest<RequestBody>, moving: Moving) -> Self {
        Self { sender, moving: Some(moving) }
    }

    /// Waits until the connection can take a call. An idle connection is not polled, so this is where a closed
    /// one is found out, before a byte is sent.
    async fn ready(&mut self) -> Result<(), hyper::Error> {
        poll_fn(|context| {
            self.advance(context);
            self.sender.poll_ready(context)
        })
        .await
    }

    fn advance(&mut self, context: &mut Context<'_>) {
        advance(&mut self.moving, context);
    }
}

impl Future for Sending<'_> {
    type Output = Result<Response<Incoming>, Unsent>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(moving) = &mut self.moving {
            advance(moving, context);
        }
        self.answer.as_mut().poll(context).map_err(|mut error| {
            let unsent = error.take_message().map(Box::new);
            (error.into_error(), unsent)
        })
    }
}

/// Drives a connection. hyper reports its end to the caller that waits for an answer on it.
fn advance(moving: &mut Option<Moving>, context: &mut Context<'_>) {
    if let Some(connection) = moving
        && let Poll::Ready(ended) = connection.as_mut().poll(context)
    {
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to an upstream ended");
        }
        *moving = None;
    }
}

impl Pool {
    pub(super) fn new(keep_alive: Duration, kept_max: usize) -> Self {
        let shelves = (0..=WorkerThreads::MAX).map(|_| Mutex::default()).collect();
        Self { shelves, keep_alive, kept_max }
    }

    /// The connection that was used last, if it was a moment ago. One for many calls stays here too.
    pub(super) fn take(&self) -> Option<Sender> {
        let mut kept = self.shelf();
        while let Some(last) = kept.pop_back() {
            if last.since.elapsed() >= self.keep_alive || last.sender.is_closed() {
                continue;
            }
            if let Sender::Http2(sender) = &last.sender {
                let shared = Sender::Http2(sender.clone());
                kept.push_back(last);
                return Some(shared);
            }
            return Some(last.sender);
        }
        None
    }

    /// Keeps a connection for the next call.
    pub(super) fn put(&self, sender: Sender) {
        if sender.is_closed() || self.kept_max == 0 {
            return;
        }
        let mut kept = self.shelf();
        let is_old = |oldest: &Kept| oldest.since.elapsed() >= self.keep_alive;
        while kept.len() >= self.kept_max || kept.front().is_some_and(is_old) {
            kept.pop_front();
        }
        if let Sender::Http2(_) = sender {
            // One is enough, and it was used just now.
            kept.clear();
        }
        kept.push_back(Kept { sender, since: Instant::now() });
    }

    /// Closes all of them.
    pub(super) fn clear(&self) {
        for shelf in &self.shelves {
            // Closed once the lock is given back.
            drop(std::mem::take(&mut *shelf.lock().unwrap_or_else(PoisonError::into_inner)));
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelves[worker_threads::current()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("kept_max", &self.kept_max).finish_non_exhaustive()
    }
}
