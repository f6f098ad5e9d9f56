//! Carrying one request to a server: the only way in which this crate touches the network.

#[cfg(feature = "hyper")]
mod hyper;
#[cfg(feature = "reqwest")]
mod reqwest;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};

use crate::rules::{Problem, Timestamp};
use crate::{BoxError, BoxFuture};

#[cfg(feature = "hyper")]
pub use self::hyper::HyperTransport;
#[cfg(feature = "reqwest")]
pub use self::reqwest::ReqwestTransport;

/// Sends a request once.
///
/// It follows no redirects: they would carry the key and the credentials to another place. It repeats nothing,
/// unless it knows that not a byte was sent. It needs no time limit of its own: the future is dropped when time is up.
pub trait Transport: Send + Sync + 'static {
    /// Sends `request` and reads the whole answer, of whose body at most `answer_bytes_max`.
    fn send(
        &self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>>;
}

/// One transport for several clients of a process.
impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn send(
        &self,
        request: Request<Bytes>,
        answer_bytes_max: usize,
    ) -> BoxFuture<'_, Result<Reply, Failure>> {
        T::send(self, request, answer_bytes_max)
    }
}

/// A complete answer. `Debug` shows neither headers nor body.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, or the beginning of it.
    pub body: Bytes,
    /// True if the body is longer than what was read of it.
    pub is_cut: bool,
    /// True if the transport may read none of the server's `Idempotency-*` headers: a page's `fetch` of another origin
    /// that does not expose them.
    pub is_hidden: bool,
}

/// Reason for which there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// Not a byte of the request was sent: the name was not resolved, the connection was refused.
    NotSent(BoxError),
    /// The request may have arrived. What cannot be told counts as this.
    Lost(BoxError),
}

impl Reply {
    /// The value of a header where it is text; of several, the first.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// True if one of the lines of a header lists this word, with parameters or without.
    pub(crate) fn lists(&self, name: &str, word: &str) -> bool {
        let lines = self.headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
        let mut members = lines.flat_map(|line| line.split(','));
        members.any(|member| {
            let named = member.split([';', '=']).next().unwrap_or_default();
            named.trim().eq_ignore_ascii_case(word)
        })
    }

    /// True if a header has this word as its value.
    pub(crate) fn says(&self, name: &str, word: &str) -> bool {
        self.header(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(word))
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.says("idempotent-replayed", "true")
    }

    /// True if the server passed on an answer that it does not keep, and its key stays uncertain.
    pub(crate) fn stays_uncertain(&self) -> bool {
        self.says("idempotency-outcome", "unknown")
    }

    /// The time of the answer by the server's clock.
    pub fn date(&self) -> Option<Timestamp> {
        Timestamp::from_http_date(self.header("date")?)
    }

    /// The time until which the server keeps the key, by the clock that said `received_at` when the answer came.
    ///
    /// Clocks of clients are wrong by hours, so only the length from the answer's `Date` counts, where it has one.
    pub fn key_expires_at(&self, received_at: Timestamp) -> Option<Timestamp> {
        let said = self.expiry()?;
        Some(self.date().map_or(said, |date| said.moved(date, received_at)))
    }

    /// True if the answer shows that its server has a status resource.
    pub fn shows_status(&self) -> bool {
        let names = ["idempotency-expires", "idempotency-interim", "idempotency-outcome"];
        names.iter().any(|name| self.header(name).is_some())
            || Problem::read(&self.body).is_some_and(|problem| problem.is_known())
    }

    /// The time until which the server keeps the key, by its own clock.
    pub(crate) fn expiry(&self) -> Option<Timestamp> {
        Timestamp::from_http_date(self.header("idempotency-expires")?)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status.as_u16())
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("is_cut", &self.is_cut)
            .field("is_hidden", &self.is_hidden)
            .finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => write!(f, "nothing was sent: {error}"),
            Self::Lost(error) => write!(f, "the answer was lost: {error}"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotSent(error) | Self::Lost(error) => Some(error.as_ref()),
        }
    }
}
