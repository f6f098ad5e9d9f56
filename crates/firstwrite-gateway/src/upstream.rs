//! The API behind the gateway: one or several servers that do the same.
//!
//! What matters most of a call that fails is whether a byte of it was sent. What certainly was not
//! can be sent elsewhere, or again; what may have been is never repeated here.

mod answer;
mod connect;
mod health;
mod line;
mod pool;
mod room;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use firstwrite::Attempt;
use firstwrite_core::BoxError;
use http::header::TRANSFER_ENCODING;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use tokio::time::timeout;

pub(crate) use answer::AnswerBody;
use connect::Connector;
pub(crate) use health::watch;
pub use line::{Line, LineBody, LineFailure};
use pool::{Pool, Sender};
use room::Room;
pub(crate) use room::{CallPermit, Caller};

use crate::body::RequestBody;

/// Scheme and authority of a server that calls go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    scheme: Scheme,
    authority: Authority,
}

/// Settings of calls.
#[derive(Clone, Debug)]
pub struct Calling {
    /// Timeout for connecting, TLS included.
    pub connect_within: Duration,
    /// Timeout for an answer to begin, from the moment of sending.
    pub answer_within: Duration,
    /// Time for which the other side may be silent in the middle of a body.
    pub idle_for_max: Duration,
    /// Time for which an unused connection is kept. Shorter than the upstreams' own: if one closes a connection
    /// just as a request is sent, the gateway cannot know whether it took the request.
    pub keep_alive: Duration,
    /// Unused connections kept for each server, by each thread that serves.
    pub idle_max: usize,
    /// Bytes of heads and bodies of protected requests that are held at the same time, of all together, until
    /// they are sent; who comes beyond is told to come back. As many again of answers that are gathered to be
    /// kept; what comes beyond is passed on and not kept.
    pub held_bytes_max: usize,
    /// Attempts that are under way at the same time, of all clients together, where as many calls have room. An
    /// attempt goes on when its client hangs up, so the number of connections is no limit to it. Where callers are
    /// verified here, all others together have three quarters of them at the most.
    pub attempts_max: usize,
    /// Connections to upstreams at the same time. Half of them, or `attempts_max` and a few where that is less, are
    /// for attempts under keys and probes alone; the others bound the requests without protection that are under
    /// way.
    pub upstream_connections_max: usize,
    /// The part of `held_bytes_max` and `attempts_max` that is a tenant's share, and where callers are verified
    /// here, also the share of all others together. More than 0, at most 1.
    pub tenant_share: f64,
    /// Time for which a connection that left HTTP may be silent in both directions.
    pub tunnel_idle_for_max: Duration,
    /// If true, one connection carries many calls (HTTP/2, known to be spoken there).
    pub http2: bool,
    /// Certificates in PEM that servers are trusted by, instead of the platform's.
    pub root_certificates: Option<String>,
    /// Active health check of each server; none: only failed calls count.
    pub health: Option<HealthCheck>,
}

/// Settings of active health checks.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// Path to request with GET; an answer below 500 is healthy.
    pub path: String,
    /// Interval between checks.
    pub every: Duration,
}

/// All servers of an API.
#[derive(Debug)]
pub(crate) struct Upstreams {
    servers: Vec<Arc<Server>>,
    turn: AtomicUsize,
    calling: Calling,
    room: Room,
    /// Transport that replaces the network, in simulations.
    line: Option<Arc<dyn Line>>,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    target: Target,
    connector: Connector,
    pool: Pool,
    health: health::Health,
}

/// Reason why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// There are too many calls under way for another one to begin.
    NoRoom,
    /// The attempt's lease ended before the call could begin: not a byte was sent, and no server is to blame.
    LeaseEnded,
    /// Not a byte was sent.
    NotSent(BoxError),
    /// All or part of it was sent, and its effect is unknown.
    Lost(BoxError),
}

/// A target that makes no sense, or certificates that do not.
#[derive(Debug)]
pub struct UpstreamError(String);

/// A connection that was kept may turn out to be closed; of two in a row, the next one is new.
const KEPT_TRIED_MAX: usize = 2;

/// Calls for probes alone, beside those of attempts: about as many as are asked in a turn.
const PROBES_MAX: usize = 64;

/// A call does not begin later than this before its attempt's lease ends. Between this look and the first byte lie
/// a few polls of this thread, however long the lease is: a hundred milliseconds are for a thread that others hold up.
/// The rest of the call need not fit in. The lease is renewed meanwhile, and where it cannot be, a probe and an
/// operator are believed only after their patience, and with `resend` the API knows the key. The attempt itself began
/// with half of its lease left.
const LEASE_LEFT_MIN: Duration = Duration::from_millis(100);

impl Upstreams {
    pub(crate) fn new(targets: &[Target], calling: Calling) -> Result<Self, UpstreamError> {
        if let Some(health) = &calling.health {
            health.check()?;
        }
        let room = Room::new(&calling);
        let server = |target| Server::new(target, &calling, &room).map(Arc::new);
        let servers: Vec<Arc<Server>> =
            targets.iter().map(server).collect::<Result<_, UpstreamError>>()?;
        if servers.is_empty() {
            return Err(UpstreamError("at least one upstream is needed".to_owned()));
        }
        Ok(Self { servers, turn: AtomicUsize::new(0), calling, room, line: None })
    }

    /// The same, with a quarter of the attempts for verified callers, if there are some.
    pub(crate) fn for_verified(self, are_some_verified: bool) -> Self {
        if !are_some_verified {
            return self;
        }
        Self { room: self.room.with_quarter_for_verified(&self.calling), ..self }
    }

    /// The same, with calls that go over `line` instead of a network.
    pub(crate) fn over(self, line: Option<Arc<dyn Line>>) -> Self {
        Self { line, ..self }
    }

    pub(crate) fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Returns the authority of the first server, for requests that name no host.
    pub(crate) fn authority(&self) -> Option<HeaderValue> {
        let first = self.servers.first()?;
        HeaderValue::from_str(first.target.authority()).ok()
    }

    pub(crate) fn calling(&self) -> &Calling {
        &self.calling
    }

    /// Makes a call, once; that of an attempt only while the attempt owns its key.
    pub(crate) async fn call(
        &self,
        mut request: Box<Request<RequestBody>>,
        caller: Caller<'_>,
    ) -> Result<Response<AnswerBody>, CallError> {
        let attempt = caller.attempt();
        if let Some(line) = &self.line {
            return Box::pin(line::call(&**line, *request, &self.calling, attempt)).await;
        }
        let Some(permit) = self.room.permit(caller, &self.calling).await else {
            return Err(CallError::NoRoom);
        };
        if self.room.is_full() {
            self.servers.iter().for_each(|server| server.pool.clear());
        }
        let mut causes = None;
        // Each server once, the healthy ones first; only what was not sent goes to another.
        for server in self.order() {
            match server.call(request, &self.calling, attempt).await {
                Ok(response) => return Ok(response.map(|body| body.holding(permit))),
                Err(Failed::Lost(cause)) => return Err(CallError::Lost(cause)),
                Err(Failed::LeaseEnded) => return Err(CallError::LeaseEnded),
                Err(Failed::NotSent(cause, given_back)) => {
                    server.health.failed();
                    causes = Some(cause);
                    match given_back {
                        Some(given_back) => request = given_back,
                        None => break,
                    }
                }
            }
        }
        Err(CallError::NotSent(causes.unwrap_or_else(|| "no server is there".into())))
    }

    /// Whose turn it is.
    fn order(&self) -> impl Iterator<Item = &Arc<Server>> {
        let count = self.servers.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let turned = move || (0..count).map(move |step| &self.servers[(first + step) % count]);
        let (well, ill) = (
            |server: &&Arc<Server>| server.health.is_well(),
            |server: &&Arc<Server>| !server.health.is_well(),
        );
        turned().filter(well).chain(turned().filter(ill))
    }
}

/// Returns true if enough of the attempt's lease is left for its call to begin.
fn may_begin(attempt: Option<&Attempt>) -> bool {
    attempt.and_then(Attempt::lease_left).is_none_or(|left| left >= LEASE_LEFT_MIN)
}

/// Returns true if a body has another transfer coding than chunked, once: what is read of it is not what was
/// meant, and to keep or pass it on as plain would make something else of it.
fn has_other_coding(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(line) = lines.next() else { return false };
    lines.next().is_some() || !line.as_bytes().eq_ignore_ascii_case(b"chunked")
}

/// A call that failed, with the request where it can still be sent.
enum Failed {
    LeaseEnded,
    NotSent(BoxError, Option<Box<Request<RequestBody>>>),
    Lost(BoxError),
}

impl Server {
    fn new(target: &Target, calling: &Calling, room: &Room) -> Result<Self, UpstreamError> {
        Ok(Self {
            target: target.clone(),
            connector: Connector::new(target, calling, room.open())?,
            pool: Pool::new(calling.keep_alive, calling.idle_max),
            health: health::Health::default(),
        })
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn is_well(&self) -> bool {
        self.health.is_well()
    }

    async fn call(
        self: &Arc<Self>,
        mut request: Box<Request<RequestBody>>,
        calling: &Calling,
        attempt: Option<&Attempt>,
    ) -> Result<Response<AnswerBody>, Failed> {
        let mut kept_tried = 0;
        loop {
            let kept = if kept_tried < KEPT_TRIED_MAX { self.kept().await } else { None };
            let is_kept = kept.is_some();
            let sender = match kept {
                Some(sender) => sender,
                // Boxed: most calls connect nowhere, and the room for it would be moved with each.
                None => match Box::pin(self.connect(calling)).await {
                    Ok(sender) => sender,
                    Err(cause) => return Err(Failed::NotSent(cause, Some(request))),
                },
            };
            // Connecting may take longer than a lease that is not renewed.
            if !may_begin(attempt) {
                return Err(Failed::LeaseEnded);
            }
            match self.send(sender, request, calling).await {
                // It was closed meanwhile.
                Err(Failed::NotSent(_, Some(given_back))) if is_kept => {
                    request = given_back;
                    kept_tried += 1;
                }
                ended => return ended,
            }
        }
    }

    /// A connection that waits for a call and can take one.
    async fn kept(&self) -> Option<Sender> {
        loop {
            let mut sender = self.pool.take()?;
            if sender.is_ready_now().await {
                return Some(sender);
            }
        }
    }

    async fn connect(&self, calling: &Calling) -> Result<Sender, BoxError> {
        timeout(calling.connect_within, self.connector.connect()).await?
    }

    async fn send(
        self: &Arc<Self>,
        mut sender: Sender,
        request: Box<Request<RequestBody>>,
        calling: &Calling,
    ) -> Result<Response<AnswerBody>, Failed> {
        match timeout(calling.answer_within, sender.send(*request)).await {
            Ok(Ok(response)) if has_other_coding(response.headers()) => {
                Err(Failed::Lost("the answer has another transfer coding than chunked".into()))
            }
            Ok(Ok(response)) => {
                self.health.answered();
                Ok(AnswerBody::wrap(response, sender, self, calling.idle_for_max))
            }
            Ok(Err((cause, None))) => Err(Failed::Lost(cause.into())),
            Ok(Err((cause, unsent))) => Err(Failed::NotSent(cause.into(), unsent)),
            Err(elapsed) => Err(Failed::Lost(elapsed.into())),
        }
    }
}

impl Target {
    /// `http://host:port` or `https://host:port`, without a path.
    pub fn new(url: &str) -> Result<Self, UpstreamError> {
        let wrong = || {
            let example = "http://127.0.0.1:3000 or https://api.example";
            UpstreamError(format!("an upstream is a scheme, a host and a port, such as {example}"))
        };
        let uri: Uri = url.parse().map_err(|_not_a_uri| wrong())?;
        let parts = uri.into_parts();
        let is_bare = parts.path_and_query.is_none_or(|target| target == "/");
        match (parts.scheme, parts.authority) {
            (Some(scheme), Some(authority))
                if is_bare
                    && (scheme == Scheme::HTTP || scheme == Scheme::HTTPS)
                    && !authority.as_str().contains('@')
                    && has_usable_port(&authority) =>
            {
                Ok(Self { scheme, authority })
            }
            _ => Err(wrong()),
        }
    }

    pub(crate) fn authority(&self) -> &str {
        self.authority.as_str()
    }

    fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_secure() { 443 } else { 80 })
    }
}

/// Tells whether a port that is written can be connected to. The parser takes any text for one, and
/// falls silent about what is no number: calls would go to the usual port.
fn has_usable_port(authority: &Authority) -> bool {
    let is_written = authority.as_str().len() > authority.host().len();
    !is_written || authority.port_u16().is_some_and(|port| port != 0)
}

impl HealthCheck {
    /// Refuses a path that no request can ask for: the check would fail for ever.
    fn check(&self) -> Result<(), UpstreamError> {
        if is_target(&self.path) {
            return Ok(());
        }
        Err(UpstreamError("health.path is a path of the upstream, such as /healthz".to_owned()))
    }
}

/// Tells whether `text` can be sent as a request's path and query, and arrives as it is written.
pub(crate) fn is_target(text: &str) -> bool {
    let parsed = text.parse::<PathAndQuery>();
    text.starts_with('/') && parsed.is_ok_and(|parsed| parsed.as_str() == text)
}

impl Default for Calling {
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(5),
            answer_within: Duration::from_mins(1),
            idle_for_max: Duration::from_mins(1),
            keep_alive: Duration::from_millis(1500),
            idle_max: 256,
            held_bytes_max: 256 * 1024 * 1024,
            attempts_max: 10_000,
            upstream_connections_max: Self::UPSTREAM_CONNECTIONS_MAX,
            tenant_share: 0.25,
            tunnel_idle_for_max: Duration::from_mins(10),
            http2: false,
            root_certificates: None,
            health: None,
        }
    }
}

impl Calling {
    /// One for each client's connection, and one for each attempt.
    pub const UPSTREAM_CONNECTIONS_MAX: usize = 30_000;

    /// Number of calls under keys, and of probes, that may be under way.
    pub(crate) fn protected_max(&self) -> usize {
        let wanted = self.attempts_max.saturating_add(PROBES_MAX);
        wanted.min(self.upstream_connections_max / 2).max(1)
    }

    /// Number of attempts that may be under way. Each finds room for its call: where calls wait for room, they
    /// wait in turn, whichever tenant's they are.
    pub(crate) fn seats_max(&self) -> usize {
        let protected_max = self.protected_max();
        self.attempts_max.min(protected_max - PROBES_MAX.min(protected_max / 4))
    }

    /// A tenant's share of so many, at least one.
    pub(crate) fn tenant_part_of(&self, all: usize) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a part need not be exact, and floats that do not fit become the nearest that do"
        )]
        let part = (all as f64 * self.tenant_share) as usize;
        part.clamp(1, all.max(1))
    }
}

impl UpstreamError {
    pub(crate) fn new(what: String) -> Self {
        Self(what)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UpstreamError {}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom => f.write_str("not sent: too many calls are under way"),
            Self::LeaseEnded => f.write_str("not sent: the lease ended before the call began"),
            Self::NotSent(cause) => write!(f, "not sent: {cause}"),
            Self::Lost(cause) => write!(f, "sent, and no answer: {cause}"),
        }
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_scheme_a_host_and_a_port() {
        let target = Target::new("http://127.0.0.1:3000").unwrap();
        assert_eq!((target.host(), target.port(), target.is_secure()), ("127.0.0.1", 3000, false));
        let target = Target::new("https://[::1]/").unwrap();
        assert_eq!((target.host(), target.port(), target.is_secure()), ("::1", 443, true));
        for wrong in
            ["", "127.0.0.1:3000", "ftp://a", "http://a/b", "http://a?b", "http://u:p@a", "/"]
        {
            assert!(Target::new(wrong).is_err(), "{wrong}");
        }
        for wrong in
            ["http://a:99999", "http://a:x", "http://a:", "http://a:0", "http://[::1]:99999"]
        {
            assert!(Target::new(wrong).is_err(), "{wrong}");
        }
    }
}
