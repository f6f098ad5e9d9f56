//! The fate of an intent after each answer: the only place where that is decided.

use std::time::Duration;

use super::backoff::retry_after;
use super::problem::Problem;
use super::time::Timestamp;
use crate::end::EndKind;
use crate::transport::{Failure, Reply};

/// The words in which a server speaks of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The profile of draft-ietf-httpapi-idempotency-key-header-07, as firstwrite speaks it.
    #[default]
    Draft07,
    /// The words of Stripe.
    Stripe,
    /// None that is known: only HTTP's own.
    Generic,
}

/// State of an intent when an attempt began, and the time of its answer.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The server's words.
    pub dialect: Dialect,
    /// True if an earlier attempt may have been carried out.
    pub doubt: bool,
    /// True if the attempt had fresh credentials.
    pub refreshed: bool,
    /// The time when the answer came, for a `Retry-After` that is a date in an answer without `Date`.
    pub now: Timestamp,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The same request is sent again under the same key.
    Retry {
        /// Not before so much time has passed.
        wait: Duration,
        /// True if an attempt may have been carried out.
        doubt: bool,
        /// True if fresh credentials are fetched first.
        refresh: bool,
    },
    /// The same, but where the server has a status resource, that is asked first. The intent is in doubt.
    Ask {
        /// Not before so much time has passed.
        wait: Duration,
    },
    /// The intent ends.
    End(Ending),
}

/// End of an intent by an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Which of the four ends it is.
    pub end: EndKind,
    /// True if the action cannot happen twice under a new key.
    pub safe_new_key: bool,
    /// True if the answer is a replay of the first one.
    pub replayed: bool,
    /// The code of the server's problem document.
    pub code: Option<String>,
    /// The status of the first answer, which the server did not keep.
    pub first_status: Option<u16>,
}

/// Says what to do after an answer, or after the failure to get one.
pub fn decide(situation: &Situation, answer: Result<&Reply, &Failure>) -> Decision {
    match answer {
        Err(Failure::NotSent(_)) => {
            Decision::Retry { wait: Duration::ZERO, doubt: situation.doubt, refresh: false }
        }
        Err(Failure::Lost(_)) => Decision::Ask { wait: Duration::ZERO },
        Ok(reply) => Answered::new(situation, reply).decide(),
    }
}

/// An answer in its situation.
struct Answered<'a> {
    situation: &'a Situation,
    reply: &'a Reply,
    status: u16,
    /// The server said that it keeps this answer.
    is_kept: bool,
    /// True if an earlier attempt may have been carried out, or this one in spite of its answer.
    doubt: bool,
    problem: Option<Problem>,
}

impl<'a> Answered<'a> {
    fn new(situation: &'a Situation, reply: &'a Reply) -> Self {
        let is_kept = reply.expiry().is_some() || reply.is_replay();
        // A gateway of ours in front of another dialect's server says by these what stands under the key.
        let is_ours = |problem: &Problem| {
            situation.dialect == Dialect::Draft07 || problem.tells_what_stands_under_the_key()
        };
        let problem = Problem::read(&reply.body).filter(is_ours);
        // What is kept is the API's own answer, whatever is in it; but one that tells of another answer that was not
        // kept says when its key expires, and a new key would carry the action out again.
        let problem = problem.filter(|problem| !is_kept || problem.code == "answer-not-kept");
        let status = reply.status.as_u16();
        // A header that cannot be read may say that the key stays uncertain.
        let may_be_uncertain = reply.is_hidden
            && situation.dialect == Dialect::Draft07
            && (400..500).contains(&status)
            && problem.is_none();
        let doubt = situation.doubt || may_be_uncertain;
        Self { situation, reply, status, is_kept, doubt, problem }
    }

    fn decide(&self) -> Decision {
        if (200..300).contains(&self.status) {
            return self.by_success();
        }
        self.by_named_problem()
            .or_else(|| self.reply.stays_uncertain().then(|| self.ask()))
            .or_else(|| self.by_credentials())
            .or_else(|| self.by_other_problem())
            .or_else(|| self.by_kept_answer())
            .or_else(|| self.by_stripes_word())
            .unwrap_or_else(|| self.by_status())
    }

    fn by_success(&self) -> Decision {
        let is_interim = self.situation.dialect == Dialect::Draft07 && self.is_interim();
        if is_interim || self.reply.stays_uncertain() {
            return self.ask();
        }
        self.end(EndKind::Done, false)
    }

    /// The final answer is still to come.
    fn is_interim(&self) -> bool {
        let is_async =
            || self.reply.is_hidden || self.reply.lists("preference-applied", "respond-async");
        self.reply.says("idempotency-interim", "true") || (self.status == 202 && is_async())
    }

    fn by_named_problem(&self) -> Option<Decision> {
        let problem = self.problem.as_ref()?;
        Some(match problem.code.as_str() {
            "in-progress" | "outcome-unknown" => self.ask(),
            "key-reused" => self.reused(),
            "key-expired" => self.end(EndKind::Expired, false),
            "answer-not-kept" => match problem.first_status {
                Some(..400) => self.end(EndKind::Done, false),
                Some(_) => self.end(EndKind::Refused, false),
                // It was carried out, and it is not said how it ended.
                None => self.end(EndKind::Unknown, false),
            },
            "answer-lost" if problem.retryable => self.ask(),
            "answer-lost" => self.end(EndKind::Unknown, false),
            "rate-limited"
            | "store-unavailable"
            | "overloaded"
            | "upstream-unreachable"
            | "request-timeout"
            | "attempt-failed" => self.retry(self.doubt),
            _ => return None,
        })
    }

    fn by_credentials(&self) -> Option<Decision> {
        let is_unknown = self.problem.as_ref().is_some_and(|own| own.code == "tenant-unknown");
        if !matches!(self.status, 401 | 407) && !is_unknown {
            return None;
        }
        if self.situation.refreshed {
            return Some(self.nothing_ran());
        }
        let wait = self.wait();
        Some(Decision::Retry { wait, doubt: self.doubt, refresh: true })
    }

    fn by_other_problem(&self) -> Option<Decision> {
        let problem = self.problem.as_ref()?;
        if problem.is_known() && !problem.retryable {
            return Some(self.nothing_ran());
        }
        if problem.retryable {
            return Some(self.retry(self.doubt || !problem.safe_new_key));
        }
        let may_have_run = self.doubt || self.status >= 500;
        Some(if may_have_run {
            self.end(EndKind::Unknown, problem.safe_new_key && !self.doubt)
        } else {
            self.end(EndKind::Refused, problem.safe_new_key)
        })
    }

    fn by_kept_answer(&self) -> Option<Decision> {
        let is_reuse = self.situation.dialect == Dialect::Stripe && self.is_stripes_reuse();
        if is_reuse && matches!(self.status, 400 | 422) {
            return Some(self.reused());
        }
        if !self.is_kept {
            return None;
        }
        match self.status {
            300..400 if self.situation.dialect != Dialect::Stripe => {
                Some(self.end(EndKind::Done, false))
            }
            400..500 => Some(self.end(EndKind::Refused, true)),
            500..600 => Some(self.end(EndKind::Unknown, false)),
            _ => None,
        }
    }

    fn is_stripes_reuse(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct Document {
            error: Kind,
        }
        #[derive(serde::Deserialize)]
        struct Kind {
            r#type: String,
        }
        serde_json::from_slice::<Document>(&self.reply.body)
            .is_ok_and(|document| document.error.r#type == "idempotency_error")
    }

    fn by_stripes_word(&self) -> Option<Decision> {
        if self.situation.dialect != Dialect::Stripe {
            return None;
        }
        if self.reply.says("stripe-should-retry", "true") {
            let ran_nothing = self.status < 500 && self.status != 409;
            return Some(self.retry(self.doubt || !ran_nothing));
        }
        let is_server_error = (500..600).contains(&self.status);
        if is_server_error && self.reply.says("stripe-should-retry", "false") {
            return Some(self.end(EndKind::Unknown, false));
        }
        (self.status == 402).then(|| self.end(EndKind::Refused, true))
    }

    fn by_status(&self) -> Decision {
        match self.status {
            408 | 409 | 502 | 504 => self.ask(),
            425 | 429 => self.retry(self.doubt),
            301..=303 => self.end(EndKind::Unknown, false),
            300..500 => self.nothing_ran(),
            500..600 => self.retry(true),
            _ => self.end(EndKind::Unknown, false),
        }
    }

    /// Another request was sent under this key: by an earlier life of the intent, or by another caller.
    fn reused(&self) -> Decision {
        let end = if self.doubt { EndKind::Unknown } else { EndKind::Refused };
        self.end(end, false)
    }

    /// This attempt ran nothing, and none of its kind will; an earlier one may have.
    fn nothing_ran(&self) -> Decision {
        if self.doubt {
            self.end(EndKind::Unknown, false)
        } else {
            self.end(EndKind::Refused, true)
        }
    }

    fn ask(&self) -> Decision {
        Decision::Ask { wait: self.wait() }
    }

    fn retry(&self, doubt: bool) -> Decision {
        Decision::Retry { wait: self.wait(), doubt, refresh: false }
    }

    fn wait(&self) -> Duration {
        let member = self.problem.as_ref().and_then(|problem| problem.retry_after);
        let header = self.reply.header("retry-after");
        let now = self.reply.date().unwrap_or(self.situation.now);
        retry_after(header, member, now).unwrap_or_default()
    }

    fn end(&self, end: EndKind, safe_new_key: bool) -> Decision {
        let first_status = self.problem.as_ref().and_then(|problem| problem.first_status);
        Decision::End(Ending {
            end,
            safe_new_key,
            replayed: self.reply.is_replay(),
            code: self.problem.as_ref().map(|problem| problem.code.clone()),
            first_status,
        })
    }
}
