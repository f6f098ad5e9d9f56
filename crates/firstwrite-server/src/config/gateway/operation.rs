//! One operation: its policy, and what the gateway does for it beyond that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use firstwrite::{
    AfterRetention, BodyForm, FingerprintRules, HeaderPolicy, KeyRequirement, OnConflict,
    OnLostAnswer, Pointer, Policy, RespondAsync,
};
use firstwrite_gateway::{AgeLimit, Calling, Care, Probe, ProbeSettings, Signed};
use serde::Deserialize;

use crate::config::Span;
use crate::config::given::Given;

/// One operation, or what holds for those that are not named.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationSection {
    /// Method and path pattern, such as `"POST /payments/{id}/refunds"`.
    pub(super) operation: Option<OperationName>,
    /// Why it passes through unprotected.
    pub(super) unprotected: Option<String>,
    key: Option<KeyWord>,
    lease: Option<Span>,
    retention: Option<Span>,
    slack: Option<Span>,
    request_bytes_max: Option<usize>,
    response_bytes_max: Option<usize>,
    /// Statuses that free the key, besides 5xx, 408, 425 and 429.
    #[serde(default)]
    released_statuses: BTreeSet<u16>,
    /// Headers of answers that are kept, besides the usual ones.
    #[serde(default)]
    kept_headers: Vec<String>,
    conflict: Option<Conflict>,
    on_lost_answer: Option<LostAnswer>,
    after_retention: Option<After>,
    retry_after: Option<Span>,
    respond_async: Option<bool>,
    fingerprint: Option<FingerprintSection>,
    /// How old a request may be, by its own word.
    age: Option<AgeSection>,
    /// Whether a key belongs to one principal of a tenant.
    bind_to_principal: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgeSection {
    /// Where the timestamp stands.
    header: String,
    max: Span,
    /// Where its signature stands, and what it is made with.
    signature: Option<SignatureSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureSection {
    header: String,
    secret: Given,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeSection {
    /// With `{key}` in it: a path of the upstream, or the address of another server.
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, Given>,
    status: Option<u16>,
    list: Option<String>,
    grace: Option<Span>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct OperationName {
    pub(super) method: Method,
    pub(super) pattern: String,
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
    Probe(ProbeSection),
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
    /// `exact_json` or `bytes`.
    body: Option<BodyWord>,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    select: Vec<String>,
    #[serde(default)]
    ignore: Vec<String>,
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
            let Ok(status) = StatusCode::from_u16(*code) else {
                return Err(format!("released_statuses: {code} is no status"));
            };
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
    /// What the gateway does beyond the policy: that of `base`, with what this section says instead.
    pub(super) fn care(&self, base: &Care, calling: &Calling) -> Result<Care, String> {
        let mut care = base.clone();
        if let Some(bound) = self.bind_to_principal {
            care.bound_to_principal = bound;
        }
        if let Some(age) = &self.age {
            care.age = Some(age.limit()?);
        }
        match &self.on_lost_answer {
            Some(LostAnswer::Probe(probe)) => care.probe = Some(Arc::new(probe.build(calling)?)),
            Some(LostAnswer::Uncertain | LostAnswer::Resend) => care.probe = None,
            None => {}
        }
        Ok(care)
    }
}

impl AgeSection {
    fn limit(&self) -> Result<AgeLimit, String> {
        let signed = match &self.signature {
            Some(SignatureSection { header: name, secret }) => {
                let secret = secret.read().map_err(|what| format!("age.signature: {what}"))?;
                Some(Signed { header: header("age.signature", name)?, secret: secret.into_bytes() })
            }
            None => None,
        };
        Ok(AgeLimit { header: header("age", &self.header)?, max: self.max.0, signed })
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
        let status = match self.status {
            Some(code) => Some(
                StatusCode::from_u16(code)
                    .map_err(|_not_one| format!("probe.status: {code} is no status"))?,
            ),
            None => None,
        };
        let list = match &self.list {
            Some(text) => Some(text.parse().map_err(|error| format!("probe.list: {error}"))?),
            None => None,
        };
        let grace = self.grace.map_or(Probe::GRACE, |span| span.0);
        let settings = ProbeSettings { url: self.url.clone(), headers, status, list, grace };
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
        Ok(FingerprintRules {
            body: match self.body {
                Some(BodyWord::ExactJson) => BodyForm::Canonical,
                Some(BodyWord::Bytes) => BodyForm::Raw,
                None => usual.body,
            },
            headers: headers("fingerprint.headers", &self.headers)?,
            select: pointers("select", &self.select)?,
            ignore: pointers("ignore", &self.ignore)?,
        })
    }
}

fn headers(what: &str, names: &[String]) -> Result<Vec<HeaderName>, String> {
    names.iter().map(|name| header(what, name)).collect()
}

fn header(what: &str, name: &str) -> Result<HeaderName, String> {
    name.parse().map_err(|_not_a_name| format!("{what}: {name} is no header's name"))
}

impl TryFrom<String> for OperationName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const EXPECTED: &str =
            "an operation is a method and a path, such as \"POST /payments/{id}/refunds\"";
        let Some((method, pattern)) = text.split_once(' ') else { return Err(EXPECTED) };
        let Ok(method) = method.parse::<Method>() else { return Err(EXPECTED) };
        if !pattern.starts_with('/') || pattern.contains([' ', '?', '#']) {
            return Err(EXPECTED);
        }
        Ok(Self { method, pattern: pattern.to_owned() })
    }
}
