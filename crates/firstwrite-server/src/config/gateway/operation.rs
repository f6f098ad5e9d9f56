//! One operation: its policy, and what the gateway does for it beyond that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use firstwrite::{
    AfterRetention, BodyForm, FingerprintRules, HeaderPolicy, KeyRequirement, OnConflict,
    OnLostAnswer, OnServerError, Pointer, Policy, RespondAsync,
};
use firstwrite_core::{KeptStatuses, is_server_error};
use firstwrite_gateway::{AgeLimit, Calling, OperationExtras, Probe, ProbeSettings, Signed};
use serde::Deserialize;

use crate::config::Span;
use crate::config::given::Given;
use crate::config::probe::FormSettings;
use crate::config::reconcile::{MadeSection, Times};

mod name;

pub(super) use name::OperationName;

/// One operation, or what holds for those that are not named.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationSection {
    /// Method and path pattern, such as `"POST /payments/{id}/refunds"`: capital letters, no percent-encoding, no
    /// query. Not in `[gateway.default]`.
    pub(super) operation: Option<OperationName>,
    /// Reason for which the operation passes through unprotected. An operation has no other settings beside it.
    pub(super) unprotected: Option<String>,
    /// Refuses requests without a key, or lets them pass through. Default: `"required"`.
    key: Option<KeyWord>,
    /// Time for which a reservation stands without being renewed; at least 1 s. Default: `"30s"`.
    lease: Option<Span>,
    /// Time for which an outcome is replayed. Default: `"24h"`.
    retention: Option<Span>,
    /// Time for which the API recognises a forwarded key. One that is longer than a key lives, `retention` and what
    /// `after_retention` adds, is refused.
    dedupe_for: Option<Span>,
    /// Time after the retention before a record may be deleted. Default: `"1h"`.
    slack: Option<Span>,
    /// Largest body of a request, in bytes; larger ones are refused. Default: `1048576`.
    request_bytes_max: Option<usize>,
    /// Largest body of an answer that is kept, in bytes. Default: `1048576`.
    response_bytes_max: Option<usize>,
    /// Time for the body of an answer that is kept; a slower one is passed on and not kept. Default: `"10m"`.
    response_within: Option<Span>,
    /// Statuses that release the key, besides 401, 407, 421, 425, 429, 431 and those that `on_server_error` means.
    /// Never 2xx, 408 or a server error.
    #[serde(default)]
    released_statuses: BTreeSet<u16>,
    /// Headers of answers that are kept, besides the usual ones.
    #[serde(default)]
    kept_headers: Vec<String>,
    /// Answer to a duplicate while the first attempt runs: a 409 at once, or the first answer within a
    /// time. Default: `"reject"`.
    conflict: Option<Conflict>,
    /// Meaning of a lost answer: unknown, the API recognises the key, or a probe asks. Default:
    /// `"uncertain"`.
    on_lost_answer: Option<LostAnswer>,
    /// Meaning of a 5xx other than 502, 504 and one that is cut off, which count as a lost answer unless the API
    /// says `Firstwrite-Effect: none`. Default: `"release"`.
    on_server_error: Option<ServerError>,
    /// Meaning of a key after its retention: it is new, or refused for so much longer. Default:
    /// `"fresh"`.
    after_retention: Option<After>,
    /// Value of `Retry-After` with a 409. Default: `"1s"`.
    retry_after: Option<Span>,
    /// Honours `Prefer: respond-async`. Default: `true`.
    respond_async: Option<bool>,
    /// Parts of a request that a retry must repeat.
    fingerprint: Option<FingerprintSection>,
    /// Limit on a request's age, by its own timestamp.
    age: Option<AgeSection>,
    /// Binds a key to one principal of a tenant. Default: `false`.
    bind_to_principal: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgeSection {
    /// Header of the timestamp.
    header: String,
    /// Greatest age. A timestamp may be ahead by 5 minutes; with them, `max` is not longer than a key is known:
    /// `retention` and what `after_retention` adds.
    max: Span,
    /// Signature of the timestamp. Without it, any client can write what it likes.
    signature: Option<SignatureSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureSection {
    /// Header of the signature.
    header: String,
    /// Secret that signatures are made with.
    secret: Given,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeSection {
    /// Path of the upstream, or address of another server, with `{key}` for the key that was forwarded.
    url: String,
    /// Headers of the question, such as credentials.
    #[serde(default)]
    headers: BTreeMap<String, Given>,
    /// Status of the answer that a client gets if it happened, one that keeps its key. Default: the probe's own.
    status: Option<u16>,
    /// Place of the list in the probe's answer. Without it, the whole answer is the entry.
    list: Option<String>,
    /// Place of the key in an entry, such as `"/idempotency_key"`. A list needs it.
    key: Option<String>,
    /// Entries that were made: `"all"`, or `{ status = "/status", is = ["paid"], not = ["failed"] }`. Those that
    /// were not are passed over.
    made: MadeSection,
    /// Place of an entry's time. An entry that is more than five minutes older than the request is passed over. A
    /// list needs it, or `"none"`, which states that entries have no time.
    at: Option<String>,
    /// Form of times, with `at`: `"rfc3339"`, `"unix_seconds"` or `"unix_millis"`. Default: `"rfc3339"`.
    times: Option<Times>,
    /// Places in the answer whose values say nothing about whether an empty list is whole, such as `"/meta/took"`.
    #[serde(default)]
    harmless: Vec<String>,
    /// Statuses that mean that it did not happen, without `list`: 204, 404 or 410.
    #[serde(default)]
    absent_statuses: Vec<u16>,
    /// States that an empty list means that it did not happen. Unless set, it says nothing: with the token of another
    /// account every list is empty. Default: `false`.
    #[serde(default)]
    empty_is_absent: bool,
    /// Time after giving up an attempt until a *no* is believed; longer than `answer_within`. Default: two
    /// minutes, or twice `answer_within` where that is longer.
    grace: Option<Span>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeyWord {
    Required,
    Optional,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Conflict {
    Reject,
    Wait(Span),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LostAnswer {
    Uncertain,
    Resend,
    Probe(Box<ProbeSection>),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServerError {
    Release,
    Lost,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum After {
    Fresh,
    Refuse(Span),
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FingerprintSection {
    /// Form in which bodies are compared. Default: `"exact_json"`.
    body: Option<BodyWord>,
    /// Headers that count.
    #[serde(default)]
    headers: Vec<String>,
    /// Places in a JSON body that count. Without it, all do. Not with `body = "bytes"`.
    #[serde(default)]
    select: Vec<String>,
    /// Places in a JSON body that do not count. Not with `body = "bytes"`.
    #[serde(default)]
    ignore: Vec<String>,
    /// Lets a 422 name what differs though no secret keys fingerprints: a reader of the store can then guess
    /// at each part of a request by itself. Default: `false`.
    explain: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BodyWord {
    ExactJson,
    Bytes,
}

impl OperationSection {
    /// The settings of `base`, with what this section says instead.
    pub(super) fn policy(&self, base: &Policy) -> Result<Policy, String> {
        let mut policy = base.clone();
        let span = |given: Option<Span>, usual| given.map_or(usual, |span| span.0);
        policy.lease = span(self.lease, base.lease);
        policy.retention = span(self.retention, base.retention);
        policy.slack = span(self.slack, base.slack);
        policy.retry_after = span(self.retry_after, base.retry_after);
        policy.request_bytes_max = self.request_bytes_max.unwrap_or(base.request_bytes_max);
        policy.response_within = span(self.response_within, base.response_within);
        policy.response_bytes_max = self.response_bytes_max.unwrap_or(base.response_bytes_max);
        match self.key {
            Some(KeyWord::Required) => policy.key = KeyRequirement::Required,
            Some(KeyWord::Optional) => policy.key = KeyRequirement::Optional,
            None => {}
        }
        match self.conflict {
            Some(Conflict::Reject) => policy.on_conflict = OnConflict::Reject,
            Some(Conflict::Wait(span)) => policy.on_conflict = OnConflict::Wait(span.0),
            None => {}
        }
        match &self.on_lost_answer {
            Some(LostAnswer::Uncertain | LostAnswer::Probe(_)) => {
                policy.on_lost_answer = OnLostAnswer::Uncertain;
            }
            Some(LostAnswer::Resend) => policy.on_lost_answer = OnLostAnswer::Resend,
            None => {}
        }
        match self.on_server_error {
            Some(ServerError::Release) => policy.on_server_error = OnServerError::Release,
            Some(ServerError::Lost) => policy.on_server_error = OnServerError::Lost,
            None => {}
        }
        match self.after_retention {
            Some(After::Fresh) => policy.after_retention = AfterRetention::Fresh,
            Some(After::Refuse(span)) => policy.after_retention = AfterRetention::Refuse(span.0),
            None => {}
        }
        match self.respond_async {
            Some(true) => policy.respond_async = RespondAsync::Honour,
            Some(false) => policy.respond_async = RespondAsync::Ignore,
            None => {}
        }
        for code in &self.released_statuses {
            let status = released(*code)?;
            policy.kept_statuses = std::mem::take(&mut policy.kept_statuses).release_on(status);
        }
        if !self.kept_headers.is_empty() {
            let mut kept = HeaderPolicy::default();
            for name in headers("kept_headers", &self.kept_headers)? {
                if !kept.add(name.clone()) {
                    return Err(format!("kept_headers: {name} is never kept"));
                }
            }
            policy.kept_headers = kept;
        }
        if let Some(section) = &self.fingerprint {
            policy.fingerprint = section.rules()?;
        }
        policy.check().map_err(|error| error.to_string())?;
        Ok(policy)
    }
}

impl OperationSection {
    /// The first setting that means nothing for an operation that passes through.
    pub(super) fn beside_unprotected(&self) -> Option<&'static str> {
        let settings = [
            ("key", self.key.is_some()),
            ("lease", self.lease.is_some()),
            ("retention", self.retention.is_some()),
            ("dedupe_for", self.dedupe_for.is_some()),
            ("slack", self.slack.is_some()),
            ("request_bytes_max", self.request_bytes_max.is_some()),
            ("response_bytes_max", self.response_bytes_max.is_some()),
            ("response_within", self.response_within.is_some()),
            ("released_statuses", !self.released_statuses.is_empty()),
            ("kept_headers", !self.kept_headers.is_empty()),
            ("conflict", self.conflict.is_some()),
            ("on_lost_answer", self.on_lost_answer.is_some()),
            ("on_server_error", self.on_server_error.is_some()),
            ("after_retention", self.after_retention.is_some()),
            ("retry_after", self.retry_after.is_some()),
            ("respond_async", self.respond_async.is_some()),
            ("fingerprint", self.fingerprint.is_some()),
            ("age", self.age.is_some()),
            ("bind_to_principal", self.bind_to_principal.is_some()),
        ];
        settings.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Returns the time for which the API recognises a key: what the section says, or else `base` says.
    pub(super) fn dedupe_for(&self, base: Option<Duration>) -> Option<Duration> {
        self.dedupe_for.map(|span| span.0).or(base)
    }

    /// Returns true if the probe takes an empty list for a *no*.
    pub(super) fn believes_empty_lists(&self) -> bool {
        matches!(&self.on_lost_answer, Some(LostAnswer::Probe(probe)) if probe.empty_is_absent)
    }

    /// Returns the section's name, for people.
    pub(super) fn shown(&self) -> String {
        self.operation.as_ref().map_or_else(
            || "gateway.default".to_owned(),
            |OperationName { method, pattern }| format!("{method} {pattern}"),
        )
    }

    /// Tells whether the section itself asks for a key.
    pub(super) fn requires_key(&self) -> bool {
        matches!(self.key, Some(KeyWord::Required))
    }

    /// Returns the settings beyond the policy: those of `base`, overridden by this section.
    pub(super) fn extras(
        &self,
        base: &OperationExtras,
        calling: &Calling,
    ) -> Result<OperationExtras, String> {
        let mut extras = base.clone();
        if let Some(bound) = self.bind_to_principal {
            extras.bound_to_principal = bound;
        }
        if let Some(age) = &self.age {
            extras.age = Some(age.limit()?);
        }
        match &self.on_lost_answer {
            Some(LostAnswer::Probe(probe)) => extras.probe = Some(Arc::new(probe.build(calling)?)),
            Some(LostAnswer::Uncertain | LostAnswer::Resend) => extras.probe = None,
            None => {}
        }
        Ok(extras)
    }
}

/// A shorter one can be guessed.
const SECRET_BYTES_MIN: usize = 16;

impl AgeSection {
    fn limit(&self) -> Result<AgeLimit, String> {
        if self.max.0.is_zero() {
            return Err("age.max: more than 0s is needed, or every request is too old".to_owned());
        }
        let at = header("age", &self.header)?;
        let signed = match &self.signature {
            Some(SignatureSection { header: name, .. }) if header("age.signature", name)? == at => {
                return Err("age.signature: it needs another header than the timestamp".to_owned());
            }
            Some(SignatureSection { header: name, secret }) => {
                let secret = secret.read().map_err(|what| format!("age.signature: {what}"))?;
                if secret.len() < SECRET_BYTES_MIN {
                    return Err(format!(
                        "age.signature: a secret has {SECRET_BYTES_MIN} bytes or more"
                    ));
                }
                Some(Signed { header: header("age.signature", name)?, secret: secret.into_bytes() })
            }
            None => None,
        };
        Ok(AgeLimit { header: at, max: self.max.0, signed })
    }
}

impl ProbeSection {
    fn build(&self, calling: &Calling) -> Result<Probe, String> {
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            let value = value.read().map_err(|what| format!("probe.headers: {what}"))?;
            let Ok(mut value) = HeaderValue::try_from(value) else {
                return Err(format!("probe.headers: {name} cannot have this value"));
            };
            value.set_sensitive(true);
            headers.push((header("probe.headers", name)?, value));
        }
        let status = self.status.map(answered).transpose();
        let status = status.map_err(|what| format!("probe.status: {what}"))?;
        let form = FormSettings {
            list: self.list.as_deref(),
            key: self.key.as_deref(),
            made: &self.made,
            at: self.at.as_deref(),
            times: self.times,
            harmless: &self.harmless,
            absent_statuses: &self.absent_statuses,
            empty_is_absent: self.empty_is_absent,
        };
        let form = form.form()?;
        // Longer than any call that is still under way, unless set.
        let usual = Probe::GRACE.max(calling.answer_within.saturating_mul(2));
        let grace = self.grace.map_or(usual, |span| span.0);
        let settings = ProbeSettings { url: self.url.clone(), headers, status, form, grace };
        Probe::new(settings, calling).map_err(|error| error.to_string())
    }
}

impl FingerprintSection {
    fn rules(&self) -> Result<FingerprintRules, String> {
        let pointers = |what: &str, given: &[String]| -> Result<Vec<Pointer>, String> {
            let parse = |text: &String| {
                text.parse().map_err(|error| format!("fingerprint.{what}: {text}: {error}"))
            };
            given.iter().map(parse).collect()
        };
        let usual = FingerprintRules::default();
        let has_places = !self.select.is_empty() || !self.ignore.is_empty();
        if has_places && matches!(self.body, Some(BodyWord::Bytes)) {
            return Err("fingerprint: select and ignore need body = \"exact_json\"".to_owned());
        }
        Ok(FingerprintRules {
            body: match self.body {
                Some(BodyWord::ExactJson) => BodyForm::Canonical,
                Some(BodyWord::Bytes) => BodyForm::Raw,
                None => usual.body,
            },
            headers: headers("fingerprint.headers", &self.headers)?,
            select: pointers("select", &self.select)?,
            ignore: pointers("ignore", &self.ignore)?,
            explain: self.explain.unwrap_or(usual.explain),
        })
    }
}

/// A status that may release its key. Of the rest, the policy refuses 2xx.
fn released(code: u16) -> Result<StatusCode, String> {
    match StatusCode::from_u16(code) {
        Ok(StatusCode::REQUEST_TIMEOUT | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT) => {
            Err(format!("released_statuses: {code} is always a lost answer (on_lost_answer)"))
        }
        Ok(status) if is_server_error(status) => Err(format!(
            "released_statuses: {code} is a server error, whose meaning on_server_error sets; the API can say \
             Firstwrite-Effect: none"
        )),
        Ok(status) if (200..500).contains(&code) => Ok(status),
        Ok(_) | Err(_) => Err(format!("released_statuses: {code} is no status from 300 to 499")),
    }
}

/// A status that retries get: one that releases its key would let the request run again.
fn answered(code: u16) -> Result<StatusCode, String> {
    match StatusCode::from_u16(code) {
        Ok(status) if KeptStatuses::default().keeps(status) && code < 600 => Ok(status),
        Ok(_) if (200..600).contains(&code) => Err(format!("no retry is answered with {code}")),
        Ok(_) | Err(_) => Err("a status is a number from 200 to 499, such as 201".to_owned()),
    }
}

fn headers(what: &str, names: &[String]) -> Result<Vec<HeaderName>, String> {
    names.iter().map(|name| header(what, name)).collect()
}

fn header(what: &str, name: &str) -> Result<HeaderName, String> {
    name.parse().map_err(|_not_a_name| format!("{what}: {name} is no header's name"))
}
