//! A client's connection, watched over: one that says nothing at first, or takes nothing of its answer, is
//! let go; and one that ends is ended so that its last answer arrives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use firstwrite_core::ProblemBase;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, timeout};

use crate::answering::{Answering, TICKS_MAX};
use crate::refusals;

/// Timeouts for a client that keeps its connection waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until it has said which version of HTTP it speaks. From then on hyper keeps the time.
    pub(crate) first_bytes: Duration,
    /// While it takes nothing of what it is sent, or of one of its answers (HTTP/2).
    pub(crate) taken: Duration,
}

/// A connection as hyper gets it.
pub(crate) struct TimedConnection<T> {
    /// There until it is given back.
    io: Option<T>,
    patience: Patience,
    version: Version,
    is_read_to_end: bool,
    asked: Asked,
    is_waiting: bool,
    /// Created on the first wait; most connections never wait.
    alarm: Option<Pin<Box<Sleep>>>,
    /// The next tick of [`Answering`] (HTTP/2).
    next_tick: Option<Pin<Box<Sleep>>>,
    is_ticking: bool,
    answering: Answering,
    base: ProblemBase,
    /// Bytes that replace something hyper writes.
    instead: Option<Instead>,
    back: Option<oneshot::Sender<Leftover<T>>>,
}

/// Bytes that are sent instead of others.
struct Instead {
    bytes: Vec<u8>,
    sent_count: usize,
    /// Number of hyper's bytes that they replace.
    stands_for: usize,
}

/// The part of a head that came since something was last sent, and is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asked {
    Nothing,
    Head,
    /// One that names a length which hyper refuses under another name.
    Huge,
}

/// Which version a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// So many bytes have come, and all of them are of the preface of HTTP/2.
    Open(usize),
    Http1,
    Http2,
}

/// Connection as hyper leaves it.
pub(crate) struct Leftover<T> {
    io: T,
    is_read_to_end: bool,
    is_asking: bool,
    base: ProblemBase,
}

/// Connection preface of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Time to wait for bytes in transit, which arrive within a moment.
const LINGER_FOR: Duration = Duration::from_secs(1);
/// More than is on its way when a body is refused; a client that goes on regardless is cut off.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Asked {
    fn answered_by<R>(&mut self, sent: &Poll<R>) {
        if sent.is_ready() {
            *self = Self::Nothing;
        }
    }
}

impl<T> TimedConnection<T> {
    /// Watches over a connection, and says what is left of it when it ends.
    pub(crate) fn new(
        io: T,
        patience: Patience,
        answering: Answering,
        base: ProblemBase,
    ) -> (Self, oneshot::Receiver<Leftover<T>>) {
        let (back, left) = oneshot::channel();
        let attended = Self {
            io: Some(io),
            patience,
            version: Version::Open(0),
            is_read_to_end: false,
            asked: Asked::Nothing,
            is_waiting: false,
            alarm: None,
            next_tick: None,
            is_ticking: false,
            answering,
            base,
            instead: None,
            back: Some(back),
        };
        (attended, left)
    }

    fn came(&mut self, bytes: &[u8]) {
        self.is_read_to_end = bytes.is_empty();
        if !bytes.is_empty() {
            // While an answer is on its way, what comes is of a body.
            let is_head = self.version != Version::Http2 && self.answering.is_nothing();
            let is_huge = is_head && refusals::is_huge(bytes);
            self.asked = self.asked.max(if is_huge { Asked::Huge } else { Asked::Head });
        }
        self.is_waiting = false;
        if let Version::Open(count) = self.version {
            let expected = &PREFACE[count..];
            let compared = bytes.len().min(expected.len());
            self.version = match bytes[..compared] == expected[..compared] {
                true if count + compared == PREFACE.len() => Version::Http2,
                true => Version::Open(count + compared),
                false => Version::Http1,
            };
        }
    }

    /// Replaces a refusal of hyper's by one of ours.
    fn look_at(&mut self, bytes: &[u8]) {
        if self.instead.is_none()
            && self.answering.is_nothing()
            && self.version != Version::Http2
            && let Some(instead) =
                refusals::instead_of(bytes, self.asked == Asked::Huge, &self.base)
        {
            self.instead = Some(Instead { bytes: instead, sent_count: 0, stands_for: bytes.len() });
        }
    }

    /// An error once the other side has kept us waiting for too long, at one stretch.
    fn wait(&mut self, for_max: Duration, context: &mut Context<'_>) -> Poll<io::Error> {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(for_max)));
        if !self.is_waiting {
            self.is_waiting = true;
            alarm.as_mut().reset(Instant::now() + for_max);
        }
        alarm.as_mut().poll(context).map(|()| io::ErrorKind::TimedOut.into())
    }

    /// An error once the client has left a piece of an answer where it is for too long, whatever else it does.
    fn tick(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if !self.is_ticking && self.answering.is_idle() {
            return Poll::Pending;
        }
        let every = (self.patience.taken / TICKS_MAX).max(Duration::from_millis(1));
        let next_tick = self.next_tick.get_or_insert_with(|| Box::pin(tokio::time::sleep(every)));
        if !self.is_ticking {
            self.is_ticking = true;
            next_tick.as_mut().reset(Instant::now() + every);
        }
        while next_tick.as_mut().poll(context).is_ready() {
            if !self.answering.tick() {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            // One that is idle need not be woken until it has another request.
            self.is_ticking = !self.answering.is_idle();
            if !self.is_ticking {
                break;
            }
            next_tick.as_mut().reset(Instant::now() + every);
        }
        Poll::Pending
    }

    /// Passes on the result of a write, and starts the timeout while it is pending.
    fn sent<R>(
        &mut self,
        sent: Poll<io::Result<R>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        if sent.is_pending() {
            return self.wait(self.patience.taken, context).map(Err);
        }
        self.is_waiting = false;
        sent
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimedConnection<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(io) = &mut this.io else { return gone() };
        let before = buffer.filled().len();
        match Pin::new(io).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                this.came(&buffer.filled()[before..]);
                Poll::Ready(Ok(()))
            }
            Poll::Pending if matches!(this.version, Version::Open(_)) => {
                this.wait(this.patience.first_bytes, context).map(Err)
            }
            Poll::Pending if this.version == Version::Http2 => this.tick(context).map(Err),
            polled @ (Poll::Ready(Err(_)) | Poll::Pending) => polled,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimedConnection<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.look_at(bytes);
        if this.instead.is_some() {
            return this.send_instead(context);
        }
        let Some(io) = &mut this.io else { return gone() };
        let sent = Pin::new(io).poll_write(context, bytes);
        this.asked.answered_by(&sent);
        this.sent(sent, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let [bytes] = slices {
            this.look_at(bytes);
        }
        if this.instead.is_some() {
            return this.send_instead(context);
        }
        let Some(io) = &mut this.io else { return gone() };
        let sent = Pin::new(io).poll_write_vectored(context, slices);
        this.asked.answered_by(&sent);
        this.sent(sent, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.answering.flushed();
        let Some(io) = &mut this.io else { return gone() };
        let sent = Pin::new(io).poll_flush(context);
        this.sent(sent, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(io) = &mut this.io else { return gone() };
        let sent = Pin::new(io).poll_shutdown(context);
        this.sent(sent, context)
    }
}

impl<T: AsyncWrite + Unpin> TimedConnection<T> {
    /// Sends what stands for something else, and says when that is written.
    fn send_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while let (Some(io), Some(instead)) = (&mut self.io, &mut self.instead) {
            let rest = &instead.bytes[instead.sent_count..];
            if rest.is_empty() {
                let stands_for = instead.stands_for;
                self.instead = None;
                self.asked = Asked::Nothing;
                return self.sent(Poll::Ready(Ok(stands_for)), context);
            }
            match Pin::new(io).poll_write(context, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => instead.sent_count += count,
                other @ (Poll::Ready(Err(_)) | Poll::Pending) => return self.sent(other, context),
            }
        }
        gone()
    }
}

impl<T> Drop for TimedConnection<T> {
    fn drop(&mut self) {
        let (Some(io), Some(back)) = (self.io.take(), self.back.take()) else { return };
        let is_asking = self.asked != Asked::Nothing && self.version == Version::Http1;
        // The receiver is gone if the connection has left HTTP.
        let base = std::mem::take(&mut self.base);
        drop(back.send(Leftover { io, is_read_to_end: self.is_read_to_end, is_asking, base }));
    }
}

impl<T> Leftover<T> {
    /// Returns true if the peer has not closed the connection yet.
    pub(crate) fn is_to_be_ended(&self) -> bool {
        !self.is_read_to_end
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Leftover<T> {
    /// Ends a connection. `is_too_slow`: whether it was ended because its next head did not come in time.
    ///
    /// What the client has still sent is read away for a moment: closed with unread bytes, a connection is
    /// reset, and the client may never see the answer that says why.
    pub(crate) async fn end(mut self, is_too_slow: bool) {
        let ending = async {
            if is_too_slow && self.is_asking {
                self.io.write_all(&refusals::too_slow(&self.base)).await?;
            }
            self.io.shutdown().await?;
            let mut buffer = [0; 4096];
            let mut read_count = 0;
            while read_count < LINGER_BYTES_MAX {
                match self.io.read(&mut buffer).await? {
                    0 => break,
                    count => read_count += count,
                }
            }
            Ok::<(), io::Error>(())
        };
        match timeout(LINGER_FOR, ending).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::trace!(%error, "a connection was ended at the other side"),
            Err(_elapsed) => tracing::trace!("a connection was cut off"),
        }
    }
}

fn gone<R>() -> Poll<io::Result<R>> {
    Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn left<T>(io: T) -> Leftover<T> {
        Leftover { io, is_read_to_end: false, is_asking: true, base: ProblemBase::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_still_being_sent_is_read_away_within_a_bound() {
        for (count, is_taken) in [(100_000, true), (LINGER_BYTES_MAX + 100_000, false)] {
            let (ours, mut theirs) = duplex(64 * 1024);
            let ending = tokio::spawn(left(ours).end(false));
            let sent = theirs.write_all(&vec![0; count]).await;
            assert_eq!(sent.is_ok(), is_taken, "{count}");
            drop(theirs);
            ending.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_neither_sends_nor_ends_is_cut_off() {
        let (ours, mut theirs) = duplex(1024);
        let began = Instant::now();
        left(ours).end(true).await;
        assert_eq!(began.elapsed(), LINGER_FOR);
        let mut answer = Vec::new();
        theirs.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, refusals::too_slow(&ProblemBase::default()));
    }
}
