//! Writing down what an answer means, before it is told.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, StatusCode};

use super::Sending;
use crate::client::Written;
use crate::end::{Answer, Cause, Done, End, EndKind, Refused, Unresolved};
use crate::entry::Entry;
use crate::error::Error;
use crate::event::{Event, Next, Step};
use crate::rules::{Decision, Ending, Situation, decide, wait};
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

/// Headers of an answer that are kept at most, by the bytes of their names and values.
const HEADER_BYTES_MAX: usize = 64 * 1024;

impl Sending<'_> {
    /// Decides what an answer means and writes it down. `doubt` stood before the attempt.
    ///
    /// Another process may have written meanwhile. Then the answer is decided again, since it says nothing of an
    /// attempt that the other began; and what the other learned stands beside it.
    pub(super) async fn record(
        &mut self,
        answer: Result<Reply, Failure>,
        mut doubt: bool,
        refreshed: bool,
    ) -> Result<(), Error> {
        self.learn(&answer);
        let (dialect, now) = (self.spelling().dialect, self.core.clock.now());
        let status = answer.as_ref().ok().map(|reply| reply.status.as_u16());
        let (attempts, random) = (self.entry.attempts, self.core.draw());
        let mut is_crossed = false;
        loop {
            let situation = Situation { dialect, doubt, refreshed, now };
            let decision = decide(&situation, answer.as_ref());
            let recorded = self.recorded(&decision, &answer, random, is_crossed);
            match self.core.write(&self.entry, recorded.clone()).await? {
                Written::Yes(entry) => {
                    self.entry = entry;
                    self.follow(&decision, status);
                    return Ok(());
                }
                // The first end stands.
                Written::No(Some(stands)) if stands.end.is_some() => {
                    return self.go_on_with(Some(stands));
                }
                Written::No(Some(stands)) => {
                    is_crossed |= stands.attempts != attempts;
                    doubt |= is_crossed;
                    self.entry = stands;
                }
                Written::No(None) if recorded.end.is_some() => {
                    // Acknowledged by another process, which knows the end; it is true all the same.
                    self.entry = recorded;
                    return Ok(());
                }
                Written::No(None) => return self.go_on_with(None),
            }
        }
    }

    /// Learns of the server.
    fn learn(&self, answer: &Result<Reply, Failure>) {
        let (url, elapsed) = (&self.entry.request.url, self.core.clock.elapsed());
        if answer.as_ref().is_ok_and(Reply::shows_status) {
            self.core.origins.learn_status(url, elapsed);
        }
    }

    /// The entry after a decision. `is_crossed`: another process began an attempt since the mark of this one.
    fn recorded(
        &self,
        decision: &Decision,
        answer: &Result<Reply, Failure>,
        random: f64,
        is_crossed: bool,
    ) -> Entry {
        let (asked, doubt) = match decision {
            Decision::Retry { wait, doubt, .. } => (*wait, *doubt),
            Decision::Ask { wait } => (*wait, true),
            Decision::End(ending) => {
                return self.entry.ended(end_of(ending.clone(), answer.as_ref().ok().cloned()));
            }
        };
        let wait = wait(asked, self.entry.attempts, random);
        let now = self.core.clock.now();
        let mut entry = self.entry.waiting(doubt, now, wait);
        entry.shows_status = self.knows_status();
        let expires_at = answer.as_ref().ok().and_then(|reply| reply.key_expires_at(now));
        entry.expires_at = expires_at.or(self.entry.expires_at);
        if is_crossed {
            entry.keep_later_wait(&self.entry);
            entry.expires_at = expires_at.max(self.entry.expires_at);
        }
        let is_not_sent = matches!(answer, Err(Failure::NotSent(_)));
        if is_not_sent && !doubt && entry.place.is_some() {
            // An offline queue waits as long as it takes.
            return entry.without_age();
        }
        entry
    }

    /// Goes on as was decided and written down.
    fn follow(&mut self, decision: &Decision, status: Option<u16>) {
        self.asks = matches!(decision, Decision::Ask { .. });
        self.refresh = matches!(decision, Decision::Retry { refresh: true, .. });
        self.asked = 0;
        let next = match decision {
            Decision::End(ending) => {
                if ending.end == EndKind::Done {
                    let (url, elapsed) = (&self.entry.request.url, self.core.clock.elapsed());
                    self.core.origins.give_token(url, elapsed);
                }
                return self.tell_end(ending.end, status);
            }
            Decision::Retry { .. } => Next::Retry,
            Decision::Ask { .. } => Next::Ask,
        };
        self.pause = self.core.wait_left(&self.entry);
        let mut event = Event::new(Step::Recorded, &self.entry.name, self.entry.attempts);
        (event.status, event.next) = (status, Some(next));
        self.core.tell(&event);
    }

    pub(super) fn tell_end(&self, end: EndKind, status: Option<u16>) {
        let mut event = Event::new(Step::Ended, &self.entry.name, self.entry.attempts);
        (event.status, event.next) = (status, Some(Next::End(end)));
        self.core.tell(&event);
    }
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
