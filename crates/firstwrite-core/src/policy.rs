//! The settings of an operation, each with a default and the reason for it.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use sha2::{Digest as _, Sha256};

use crate::record::Retention;
use crate::{FingerprintRules, HeaderPolicy};

/// The settings of a protected operation.
///
/// ```
/// use std::time::Duration;
/// use firstwrite_core::{OnConflict, Policy};
///
/// let policy = Policy::atomic()
///     .retention(Duration::from_hours(72))
///     .on_conflict(OnConflict::Wait(Duration::from_secs(5)));
/// assert!(policy.check().is_ok());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// Refuses requests without a key, or lets them run unprotected. Default: required.
    pub key: KeyRequirement,
    /// Mode in which the handler runs. Default: [`Mode::Reserved`], which needs nothing of the handler.
    pub mode: Mode,
    /// Time after which an unrenewed reservation lapses; a live owner renews it. Default: 30 s.
    pub lease: Duration,
    /// Time for which an outcome is replayed. Default: 24 h.
    pub retention: Duration,
    /// Time after retention before a record is reaped. Default: 1 h.
    pub slack: Duration,
    /// Bodies of answers above this are passed on and leave a tombstone. Default: 1 MiB.
    pub response_bytes_max: usize,
    /// Bodies of requests above this are refused before any work. Default: 1 MiB.
    pub request_bytes_max: usize,
    /// Time within which the body of an answer must end to be kept; a later one is passed on and leaves
    /// a tombstone. Default: 10 min.
    pub response_within: Duration,
    /// Statuses that end a key. Default: 2xx, 3xx and 4xx except 401, 407, 408, 421, 425, 429 and 431.
    pub kept_statuses: KeptStatuses,
    /// Meaning of a server error that does not report a lost answer. Default: release.
    pub on_server_error: OnServerError,
    /// Response headers kept beyond the fixed allow-list. Default: none.
    pub kept_headers: HeaderPolicy,
    /// Answer to a duplicate while the first attempt runs. Default: a 409 at once.
    pub on_conflict: OnConflict,
    /// Meaning of a lost answer: the attempt ended, and its answer is unknown. Default: uncertain.
    pub on_lost_answer: OnLostAnswer,
    /// State of a key once retention has ended. Default: it is free again.
    pub after_retention: AfterRetention,
    /// Time that a client is told to wait after a 409. Default: 1 s.
    pub retry_after: Duration,
    /// Honours `Prefer: respond-async`, or ignores it. Default: honoured.
    pub respond_async: RespondAsync,
    /// Rules for what counts as the same request. Default: everything, JSON in exact canonical form.
    pub fingerprint: FingerprintRules,
}

/// Requires a key for an operation, or makes it optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRequirement {
    /// A request without a key is refused with `key-missing`.
    Required,
    /// A request without a key runs unprotected.
    Optional,
}

/// Mode in which the handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The reservation is committed first, the handler runs, the outcome is committed after.
    Reserved,
    /// The handler writes its rows and the outcome in one transaction of the store.
    Atomic,
}

/// Answer to a duplicate while the first attempt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// A 409 with `Retry-After`, at once.
    Reject,
    /// The first attempt's answer if it comes within this time, else the 409.
    Wait(Duration),
}

/// Meaning of a lost answer: the attempt ended, and its answer is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLostAnswer {
    /// The effect may have happened: the record becomes uncertain and waits for proof.
    Uncertain,
    /// The same, and this probe can tell what happened. No other probe may: it asks another API, or by a key
    /// that the API never saw.
    Ask(ProbeId),
    /// Running again is safe, because effect and outcome share a transaction or because whatever
    /// is behind the handler honours the same key: the next request takes over.
    Resend,
}

/// Identity of a probe, stored with the records that it may settle: a digest of the API that it asks and of the
/// way it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeId(u32);

impl ProbeId {
    /// Derives the identity from everything that makes two probes different.
    pub fn of(parts: &[&str]) -> Self {
        let digest = parts.iter().fold(Sha256::new(), |digest, part| {
            digest.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
        });
        let digest = digest.finalize();
        let number = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        // Within a signed integer of four bytes, and none of the numbers of the other choices.
        Self((number >> 1).max(OnLostAnswer::FIRST_PROBE))
    }
}

impl OnLostAnswer {
    const FIRST_PROBE: u32 = 2;

    /// Returns the number that stores keep.
    pub const fn to_number(self) -> u32 {
        match self {
            Self::Uncertain => 0,
            Self::Resend => 1,
            Self::Ask(ProbeId(number)) => number,
        }
    }

    /// Restores the choice from its number; `None` if there is no such choice.
    pub const fn from_number(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Uncertain),
            1 => Some(Self::Resend),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "within the bounds of the pattern"
            )]
            2..=0x7fff_ffff => Some(Self::Ask(ProbeId(number as u32))),
            _ => None,
        }
    }
}

/// Meaning of a 5xx of the handler or upstream for its key, in [`Mode::Reserved`].
///
/// Does not apply to 502, 504 and 408: an inner proxy sends these when it lost an answer, so they count as a lost
/// answer. So does a 5xx whose body breaks off. [`Effect::None`] in the answer takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnServerError {
    /// The key is free: the error is not cached, and a retry runs afresh. An effect that happened before
    /// the error happens again then.
    Release,
    /// The effect may have happened before the error: it counts as a lost answer, see [`OnLostAnswer`].
    Lost,
}

/// Tells whether a handler or upstream that answers "not now" had its effect.
///
/// A handler puts it into its response's extensions. It takes precedence over what the status alone
/// would mean, and changes nothing about an answer that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing happened: the key is released.
    None,
    /// It happened, or may have: the answer counts as lost.
    Happened,
}

/// Meaning of an answer for its key, in [`Mode::Reserved`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerMeaning {
    /// The answer ends the key and is replayed.
    Kept,
    /// The key is free, and a retry runs afresh.
    Released,
    /// The effect may have happened: see [`OnLostAnswer`].
    Lost,
}

/// State of a key once its retention has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRetention {
    /// The key is free: the same request runs as new.
    Fresh,
    /// The key is spent: it is refused with `key-expired` for this much longer.
    Refuse(Duration),
}

/// Honours or ignores a client's wish for an early 202.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RespondAsync {
    /// `Prefer: respond-async` gets a 202 with the status resource in `Location`.
    Honour,
    /// The preference is ignored, as RFC 7240 allows.
    Ignore,
}

/// Statuses that end a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptStatuses {
    released: Vec<StatusCode>,
}

/// A policy whose settings contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyError(&'static str);

impl Policy {
    /// Longer than nearly every handler, short enough that a crash blocks a key for half a minute.
    pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);
    /// The retention that payment clients expect.
    pub const RETENTION_DEFAULT: Duration = Duration::from_hours(24);
    /// Reaping early would free a key that a client believes is still protected; an hour late
    /// costs only space.
    pub const SLACK_DEFAULT: Duration = Duration::from_hours(1);
    /// API answers are kilobytes; what is larger is a download.
    pub const RESPONSE_BYTES_MAX_DEFAULT: usize = 1024 * 1024;
    /// A body is held in memory while it is fingerprinted.
    pub const REQUEST_BYTES_MAX_DEFAULT: usize = 1024 * 1024;
    /// Far longer than a client waits for a megabyte. An attempt counts as running until its answer is
    /// kept, so a body that trickles must end some time.
    pub const RESPONSE_WITHIN_DEFAULT: Duration = Duration::from_mins(10);
    /// A lease shorter than this cannot be renewed reliably over a slow store.
    pub const LEASE_MIN: Duration = Duration::from_secs(1);

    /// The defaults in [`Mode::Atomic`].
    pub fn atomic() -> Self {
        Self::default().mode(Mode::Atomic)
    }

    /// Checks that the settings do not contradict each other.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.lease < Self::LEASE_MIN {
            return Err(PolicyError("lease must be at least 1s, or it cannot be renewed in time"));
        }
        if self.retention < self.lease {
            return Err(PolicyError("retention must not be shorter than the lease"));
        }
        if self.request_bytes_max == 0 {
            return Err(PolicyError("request_bytes_max must be at least 1"));
        }
        if self.response_within.is_zero() {
            return Err(PolicyError("response_within must be more than 0s, or no answer is kept"));
        }
        if self.kept_statuses.released.iter().any(StatusCode::is_success) {
            return Err(PolicyError(
                "a 2xx cannot release its key: the request took effect, and a retry would run again",
            ));
        }
        if self.kept_statuses.released.iter().copied().any(is_server_error) {
            return Err(PolicyError(
                "a server error is never kept: on_server_error says whether it releases its key, not the list",
            ));
        }
        if self.fingerprint.ignore.iter().any(|pointer| pointer.as_str().is_empty()) {
            return Err(PolicyError(
                "the empty pointer ignores the whole body: another order would get the first one's answer",
            ));
        }
        Ok(())
    }

    /// Returns the meaning of an answer with `status` for its key, given what the answer itself tells about its
    /// effect.
    pub fn meaning(&self, status: StatusCode, said: Option<Effect>) -> AnswerMeaning {
        if self.kept_statuses.keeps(status) {
            return AnswerMeaning::Kept;
        }
        match said {
            Some(Effect::None) => return AnswerMeaning::Released,
            Some(Effect::Happened) => return AnswerMeaning::Lost,
            None => {}
        }
        match (status, self.on_server_error) {
            (
                StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT,
                _,
            ) => AnswerMeaning::Lost,
            (status, OnServerError::Lost) if is_server_error(status) => AnswerMeaning::Lost,
            (_, OnServerError::Release | OnServerError::Lost) => AnswerMeaning::Released,
        }
    }

    /// Returns the meaning of an answer whose body did not arrive whole, by its head alone.
    ///
    /// It is lost, unless its status or the answer itself says that nothing ran: a client cannot be given what is
    /// missing, and a server that breaks off has not said how its work ended. So a server error releases the key
    /// only where it arrives whole.
    pub fn meaning_of_cut(&self, status: StatusCode, said: Option<Effect>) -> AnswerMeaning {
        match (self.meaning(status, said), said) {
            (AnswerMeaning::Released, Some(Effect::None)) => AnswerMeaning::Released,
            (AnswerMeaning::Released, _) if !is_server_error(status) => AnswerMeaning::Released,
            (AnswerMeaning::Released | AnswerMeaning::Kept | AnswerMeaning::Lost, _) => {
                AnswerMeaning::Lost
            }
        }
    }

    /// Returns the time for which a record completed under this policy is replayed, and for which it stays.
    pub fn record_retention(&self) -> Retention {
        let (linger_for, refuses_spent) = match self.after_retention {
            AfterRetention::Fresh => (self.slack, false),
            AfterRetention::Refuse(remember_for) => (remember_for.max(self.slack), true),
        };
        Retention { replay_for: self.retention, linger_for, refuses_spent }
    }
}

/// One setter for each field, with the field's name.
impl Policy {
    /// Sets [`key`](field@Self::key).
    #[must_use]
    pub fn key(mut self, key: KeyRequirement) -> Self {
        self.key = key;
        self
    }

    /// Sets [`mode`](field@Self::mode).
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets [`lease`](field@Self::lease).
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets [`retention`](field@Self::retention).
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets [`slack`](field@Self::slack).
    #[must_use]
    pub fn slack(mut self, slack: Duration) -> Self {
        self.slack = slack;
        self
    }

    /// Sets [`response_bytes_max`](field@Self::response_bytes_max).
    #[must_use]
    pub fn response_bytes_max(mut self, response_bytes_max: usize) -> Self {
        self.response_bytes_max = response_bytes_max;
        self
    }

    /// Sets [`request_bytes_max`](field@Self::request_bytes_max).
    #[must_use]
    pub fn request_bytes_max(mut self, request_bytes_max: usize) -> Self {
        self.request_bytes_max = request_bytes_max;
        self
    }

    /// Sets [`response_within`](field@Self::response_within).
    #[must_use]
    pub fn response_within(mut self, response_within: Duration) -> Self {
        self.response_within = response_within;
        self
    }

    /// Sets [`kept_statuses`](field@Self::kept_statuses).
    #[must_use]
    pub fn kept_statuses(mut self, kept_statuses: KeptStatuses) -> Self {
        self.kept_statuses = kept_statuses;
        self
    }

    /// Sets [`on_server_error`](field@Self::on_server_error).
    #[must_use]
    pub fn on_server_error(mut self, on_server_error: OnServerError) -> Self {
        self.on_server_error = on_server_error;
        self
    }

    /// Sets [`kept_headers`](field@Self::kept_headers).
    #[must_use]
    pub fn kept_headers(mut self, kept_headers: HeaderPolicy) -> Self {
        self.kept_headers = kept_headers;
        self
    }

    /// Sets [`on_conflict`](field@Self::on_conflict).
    #[must_use]
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// Sets [`on_lost_answer`](field@Self::on_lost_answer).
    #[must_use]
    pub fn on_lost_answer(mut self, on_lost_answer: OnLostAnswer) -> Self {
        self.on_lost_answer = on_lost_answer;
        self
    }

    /// Sets [`after_retention`](field@Self::after_retention).
    #[must_use]
    pub fn after_retention(mut self, after_retention: AfterRetention) -> Self {
        self.after_retention = after_retention;
        self
    }

    /// Sets [`retry_after`](field@Self::retry_after).
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// Sets [`respond_async`](field@Self::respond_async).
    #[must_use]
    pub fn respond_async(mut self, respond_async: RespondAsync) -> Self {
        self.respond_async = respond_async;
        self
    }

    /// Sets [`fingerprint`](field@Self::fingerprint).
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: FingerprintRules) -> Self {
        self.fingerprint = fingerprint;
        self
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            key: KeyRequirement::Required,
            mode: Mode::Reserved,
            lease: Self::LEASE_DEFAULT,
            retention: Self::RETENTION_DEFAULT,
            slack: Self::SLACK_DEFAULT,
            response_bytes_max: Self::RESPONSE_BYTES_MAX_DEFAULT,
            request_bytes_max: Self::REQUEST_BYTES_MAX_DEFAULT,
            response_within: Self::RESPONSE_WITHIN_DEFAULT,
            kept_statuses: KeptStatuses::default(),
            on_server_error: OnServerError::Release,
            kept_headers: HeaderPolicy::default(),
            on_conflict: OnConflict::Reject,
            on_lost_answer: OnLostAnswer::Uncertain,
            after_retention: AfterRetention::Fresh,
            retry_after: Duration::from_secs(1),
            respond_async: RespondAsync::Honour,
            fingerprint: FingerprintRules::default(),
        }
    }
}

impl KeptStatuses {
    /// Also releases the key on `status`, so that a retry runs afresh. Not a 2xx, nor a 5xx, whose meaning
    /// [`Policy::on_server_error`](field@Policy::on_server_error) sets; [`Policy::check`] refuses them.
    #[must_use]
    pub fn release_on(mut self, status: StatusCode) -> Self {
        self.released.push(status);
        self
    }

    /// Returns true if an answer with this status ends the key.
    ///
    /// A 5xx never does: the server does not know the result, and replaying it would make a passing
    /// failure permanent.
    pub fn keeps(&self, status: StatusCode) -> bool {
        !is_server_error(status) && !status.is_informational() && !self.released.contains(&status)
    }
}

/// Returns true for a 5xx, and for a status that HTTP does not define: RFC 9110 has a client treat an invalid one
/// as a server error.
pub fn is_server_error(status: StatusCode) -> bool {
    status.as_u16() >= 500
}

impl Default for KeptStatuses {
    /// 408, 425 and 429 say "not now", not "no". 401, 407, 421 and 431 say that nothing was run: the same
    /// request with a fresh token, by another connection or with smaller headers may succeed, and who has no
    /// token at all must not fill the store.
    fn default() -> Self {
        let not_now =
            [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
        let nothing_ran = [
            StatusCode::UNAUTHORIZED,
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            StatusCode::MISDIRECTED_REQUEST,
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        ];
        Self { released: [&not_now[..], &nothing_ran].concat() }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_holds_together() {
        assert_eq!(Policy::default().check(), Ok(()));
    }

    #[test]
    fn contradictions_are_refused() {
        let short = Policy::default().lease(Duration::from_millis(10));
        let upside_down = Policy::default().retention(Duration::from_secs(5));
        let mute = Policy::default().request_bytes_max(0);
        let hasty = Policy::default().response_within(Duration::ZERO);
        let freeing = KeptStatuses::default().release_on(StatusCode::CREATED);
        let freeing = Policy::default().kept_statuses(freeing);
        let fingerprint =
            FingerprintRules { ignore: vec!["".parse().unwrap()], ..FingerprintRules::default() };
        let blind = Policy::default().fingerprint(fingerprint);
        let idle = KeptStatuses::default().release_on(StatusCode::SERVICE_UNAVAILABLE);
        let idle = Policy::default().kept_statuses(idle);
        for policy in [short, upside_down, mute, hasty, freeing, idle, blind] {
            assert!(policy.check().is_err());
        }
        let kept_statuses = KeptStatuses::default().release_on(StatusCode::CONFLICT);
        assert_eq!(Policy::default().kept_statuses(kept_statuses).check(), Ok(()));
    }

    #[test]
    fn no_server_error_is_ever_kept() {
        let kept = KeptStatuses::default();
        for code in 500..600 {
            assert!(!kept.keeps(StatusCode::from_u16(code).unwrap()), "{code}");
        }
        for (code, expected) in [(200, true), (201, true), (303, true), (404, true), (422, true)]
            .into_iter()
            .chain([(408, false), (425, false), (429, false), (100, false)])
            .chain([(500, false), (599, false), (600, false), (999, false)])
            .chain([(401, false), (407, false), (421, false), (431, false), (403, true)])
        {
            assert_eq!(kept.keeps(StatusCode::from_u16(code).unwrap()), expected, "{code}");
        }
        assert!(!kept.release_on(StatusCode::CONFLICT).keeps(StatusCode::CONFLICT));
    }

    #[test]
    fn a_lost_answer_is_told_from_a_refusal_by_status_policy_and_the_answer_itself() {
        use AnswerMeaning::{Kept, Lost, Released};
        let release = Policy::default();
        let lost = Policy::default().on_server_error(OnServerError::Lost);
        for (code, released, doubted) in [
            (200, Kept, Kept),
            (404, Kept, Kept),
            (401, Released, Released),
            (403, Kept, Kept),
            (407, Released, Released),
            (408, Lost, Lost),
            (421, Released, Released),
            (425, Released, Released),
            (429, Released, Released),
            (431, Released, Released),
            (500, Released, Lost),
            (600, Released, Lost),
            (501, Released, Lost),
            (502, Lost, Lost),
            (503, Released, Lost),
            (504, Lost, Lost),
            (505, Released, Lost),
            (599, Released, Lost),
        ] {
            let status = StatusCode::from_u16(code).unwrap();
            assert_eq!(release.meaning(status, None), released, "{code}");
            assert_eq!(lost.meaning(status, None), doubted, "{code}");
            for policy in [&release, &lost] {
                let says = |effect| policy.meaning(status, Some(effect));
                let is_kept = released == Kept;
                assert_eq!(says(Effect::None), if is_kept { Kept } else { Released }, "{code}");
                assert_eq!(says(Effect::Happened), if is_kept { Kept } else { Lost }, "{code}");
            }
        }
        let also_released = KeptStatuses::default().release_on(StatusCode::CONFLICT);
        let policy = Policy::default().kept_statuses(also_released);
        assert_eq!(policy.meaning(StatusCode::CONFLICT, None), Released);
    }

    #[test]
    fn a_cut_answer_is_lost_unless_it_says_that_nothing_ran() {
        use AnswerMeaning::{Lost, Released};
        let also_released = KeptStatuses::default().release_on(StatusCode::CONFLICT);
        let lost = Policy::default().on_server_error(OnServerError::Lost);
        for policy in [Policy::default().kept_statuses(also_released), lost] {
            for code in 200..=999 {
                let status = StatusCode::from_u16(code).unwrap();
                let is_listed = !policy.kept_statuses.keeps(StatusCode::CONFLICT);
                let nothing_ran =
                    matches!(code, 401 | 407 | 421 | 425 | 429 | 431) || (code == 409 && is_listed);
                let expected = if nothing_ran { Released } else { Lost };
                assert_eq!(policy.meaning_of_cut(status, None), expected, "{code}");
                assert_eq!(policy.meaning_of_cut(status, Some(Effect::Happened)), Lost, "{code}");
                let is_kept = policy.kept_statuses.keeps(status);
                let expected = if is_kept { Lost } else { Released };
                assert_eq!(policy.meaning_of_cut(status, Some(Effect::None)), expected, "{code}");
            }
        }
    }

    #[test]
    fn a_refusing_policy_remembers_spent_keys() {
        let month = Duration::from_hours(24 * 30);
        let policy = Policy::default().after_retention(AfterRetention::Refuse(month));
        assert_eq!(policy.record_retention().linger_for, month);
        assert_eq!(Policy::default().record_retention().linger_for, Policy::SLACK_DEFAULT);
    }
}
