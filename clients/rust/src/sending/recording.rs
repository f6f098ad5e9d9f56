//! Writing down what an answer means, before anybody learns of it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, StatusCode};

use super::Sending;
use crate::client::Written;
use crate::end::{Answer, Cause, Done, End, EndKind, Refused, Unresolved};
use crate::entry::Entry;
use crate::error::Error;
use crate::event::{Event, Next, Step};
use crate::rules::{Decision, Ending, Situation, Timestamp, back_off, decide};
use crate::transport::{Failure, Reply};

/// Headers of answers that are not written down: of credentials, and of one connection.
const NOT_KEPT: [HeaderName; 10] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::SET_COOKIE,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("keep-alive"),
];

/// An answer that does not end an intent, as it is written down.
struct Waiting {
    doubt: bool,
    wait: Duration,
    expires_at: Option<Timestamp>,
    status: Option<u16>,
    next: Next,
}

/// Headers of an answer that are kept at most, by the bytes of their names and values.
const HEADER_BYTES_MAX: usize = 64 * 1024;

impl Sending<'_> {
    /// Decides what an answer means and writes it down. `doubt` stood before the attempt.
    pub(super) async fn record(
        &mut self,
        answer: Result<Reply, Failure>,
        doubt: bool,
        refreshed: bool,
    ) -> Result<(), Error> {
        let (url, elapsed) = (&self.entry.request.url, self.core.clock.elapsed());
        if let Ok(reply) = &answer {
            self.core.origins.learn(url, elapsed, reply);
            if reply.status.is_success() {
                self.core.origins.give_token(url, elapsed);
            }
        }
        let (dialect, now) = (self.core.settings.dialect, self.core.clock.now());
        let situation = Situation { dialect, doubt, refreshed, now };
        let status = answer.as_ref().ok().map(|reply| reply.status.as_u16());
        let expires_at = answer.as_ref().ok().and_then(expiry);
        (self.asks, self.asked, self.refresh) = (false, 0, false);
        match decide(&situation, answer.as_ref()) {
            Decision::Retry { wait, doubt, refresh } => {
                self.refresh = refresh;
                let next = Next::Retry;
                self.record_waiting(Waiting { doubt, wait, expires_at, status, next }).await
            }
            Decision::Ask { wait } => {
                self.asks = true;
                let next = Next::Ask;
                self.record_waiting(Waiting { doubt: true, wait, expires_at, status, next }).await
            }
            Decision::End(ending) => self.record_end(end_of(ending, answer.ok()), status).await,
        }
    }

    async fn record_waiting(&mut self, waiting: Waiting) -> Result<(), Error> {
        let Waiting { mut doubt, wait, expires_at, status, next } = waiting;
        let now = self.core.clock.now();
        let wait = wait + back_off(self.entry.attempts, self.core.draw());
        loop {
            let mut waiting = self.entry.waiting(doubt, now, wait);
            waiting.expires_at = expires_at.or(waiting.expires_at);
            match self.core.write(&self.entry, waiting).await? {
                Written::Yes(entry) => {
                    self.entry = entry;
                    break;
                }
                // Another process has ended it.
                Written::No(Some(stands)) if stands.end.is_some() => {
                    return self.go_on_with(Some(stands));
                }
                Written::No(Some(stands)) => {
                    // Another process has begun an attempt, of which this answer says nothing.
                    doubt |= stands.doubt;
                    self.entry = stands;
                }
                Written::No(None) => return self.go_on_with(None),
            }
        }
        self.pause = wait;
        let mut event = Event::new(Step::Recorded, &self.entry.name, self.entry.attempts);
        (event.status, event.next) = (status, Some(next));
        self.core.tell(&event);
        Ok(())
    }

    async fn record_end(&mut self, end: End, status: Option<u16>) -> Result<(), Error> {
        let kind = end.kind();
        loop {
            let ended = self.entry.ended(end.clone());
            match self.core.write(&self.entry, ended).await? {
                Written::Yes(entry) => {
                    self.entry = entry;
                    self.tell_end(kind, status);
                    return Ok(());
                }
                // The first end stands.
                Written::No(Some(stands)) if stands.end.is_some() => {
                    return self.go_on_with(Some(stands));
                }
                Written::No(Some(stands)) => self.entry = stands,
                Written::No(None) => {
                    // Acknowledged by another process, which knows the end; it is true all the same.
                    self.entry = Entry { end: Some(end), ..self.entry.clone() };
                    return Ok(());
                }
            }
        }
    }

    pub(super) fn tell_end(&self, end: EndKind, status: Option<u16>) {
        for step in [Step::Recorded, Step::Ended] {
            let mut event = Event::new(step, &self.entry.name, self.entry.attempts);
            (event.status, event.next) = (status, Some(Next::End(end)));
            self.core.tell(&event);
        }
    }
}

/// The time until which the server keeps the key.
fn expiry(reply: &Reply) -> Option<Timestamp> {
    Timestamp::from_http_date(reply.header("idempotency-expires")?)
}

fn end_of(ending: Ending, reply: Option<Reply>) -> End {
    let Ending { end, safe_new_key, replayed, code, first_status } = ending;
    let cause = Cause::Answer;
    let answer = reply.map(|reply| kept(reply, first_status));
    match (end, answer) {
        (EndKind::Done, Some(answer)) => End::Done(Done { answer, replayed }),
        (EndKind::Refused, answer) => {
            End::Refused(Refused { answer, code, safe_new_key, replayed, cause })
        }
        (EndKind::Expired, answer) => {
            End::Expired(Unresolved { answer, code, safe_new_key, cause })
        }
        // Nothing is done without an answer.
        (EndKind::Unknown | EndKind::Done, answer) => {
            End::Unknown(Unresolved { answer, code, safe_new_key, cause })
        }
    }
}

/// The answer as it is written down and given to the caller.
fn kept(reply: Reply, first_status: Option<u16>) -> Answer {
    let first = first_status.and_then(|status| StatusCode::from_u16(status).ok());
    if let Some(status) = first {
        // This answer only says what became of the first one, which nobody kept.
        return Answer { status, headers: HeaderMap::new(), body: None };
    }
    let mut room = HEADER_BYTES_MAX;
    let mut headers = HeaderMap::new();
    for (name, value) in reply.headers.iter().filter(|(name, _)| !NOT_KEPT.contains(name)) {
        let length = name.as_str().len() + value.len();
        if length <= room {
            room -= length;
            headers.append(name.clone(), value.clone());
        }
    }
    let body: Option<Bytes> = (!reply.is_cut).then_some(reply.body);
    Answer { status: reply.status, headers, body }
}
