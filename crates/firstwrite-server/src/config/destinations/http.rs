//! Destinations by HTTP.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, Method};
use firstwrite::Pointer;
use firstwrite::carrier::http::{HttpDestination, Network, ProbeSettings, SigningSecret, Statuses};
use firstwrite_core::outbox::{Carrier, Terms};
use serde::Deserialize;

use super::super::given::{Given, read_file};
use super::super::probe::FormSettings;
use super::super::reconcile::{MadeSection, Times};
use super::named;

/// The settings of `kind = "http"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpSection {
    /// Address that messages are sent to.
    url: Given,
    /// `POST`, `PUT` or `PATCH`. Default: `"POST"`.
    method: Option<String>,
    /// Headers of every request, probes included.
    #[serde(default)]
    headers: BTreeMap<String, Given>,
    /// Header that the key travels in. Default: `"idempotency-key"`.
    key_header: Option<String>,
    /// Sends the key in quotes, as a structured-field string.
    #[serde(default)]
    quoted_key: bool,
    /// Statuses of a message that arrived, from 200 to 499. Default: `"200-299"`.
    success_statuses: Option<String>,
    /// Statuses of a message that the provider will never take. Default:
    /// `"400,402,406,410-424,426-428,430-499"`.
    refusal_statuses: Option<String>,
    /// Statuses of a message that had no effect and may come again. Default: `"425,429"`.
    retry_statuses: Option<String>,
    /// Place of the provider's id in an answer, such as `"/id"`. A success without it is unknown.
    provider_id: Option<String>,
    /// Secrets that sign each message (Standard Webhooks): one, or two while one replaces the other.
    #[serde(default)]
    signing_secrets: Vec<Given>,
    /// Networks that are not public and may be sent to, such as `"127.0.0.0/8"`.
    #[serde(default)]
    allow_networks: Vec<String>,
    /// File of PEM certificates that are trusted besides the platform's.
    root_certificates: Option<String>,
    /// Question about whether a message had its effect.
    probe: Option<ProbeSection>,
}

/// The settings of `probe`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeSection {
    /// Address to ask, with `{key}` for the key.
    url: Given,
    /// Place of the list in the answer. Without it, the whole answer is the entry.
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
    /// Place of the provider's id in an entry.
    id: String,
}

impl HttpSection {
    pub(super) fn build(&self, terms: &mut Terms) -> Result<Arc<dyn Carrier>, String> {
        let url = named("url", self.url.read())?;
        let mut settings = HttpDestination::new(&url).timeout(terms.timeout);
        if let Some(method) = &self.method {
            settings = settings.method(parsed::<Method>("method", method)?);
        }
        for (name, value) in &self.headers {
            let what = format!("header {name}");
            let value = named(&what, value.read())?;
            let name = parsed::<HeaderName>("headers", name)?;
            // The cause is not told: it would be about the value.
            let Ok(value) = HeaderValue::from_str(&value) else {
                return Err(format!("{what}: its value cannot stand in a header"));
            };
            settings = settings.header(name, value);
        }
        if let Some(name) = &self.key_header {
            settings = settings.key_header(parsed("key_header", name)?);
        }
        if self.quoted_key {
            settings = settings.quoted_key();
        }
        settings = self.with_statuses(settings)?;
        if let Some(pointer) = &self.provider_id {
            settings = settings.provider_id(pointer_at("provider_id", pointer)?);
        }
        for secret in &self.signing_secrets {
            let secret = named("signing_secrets", secret.read())?;
            settings = settings.sign_with(parsed::<SigningSecret>("signing_secrets", &secret)?);
        }
        for network in &self.allow_networks {
            settings = settings.allow_network(parsed::<Network>("allow_networks", network)?);
        }
        if let Some(path) = &self.root_certificates {
            let pem = named("root_certificates", read_file(path))?;
            settings = settings.root_certificates(&pem);
        }
        if let Some(probe) = &self.probe {
            settings = settings.probe(probe.settings()?);
            terms.can_be_asked = true;
        }
        let carrier = settings.build().map_err(|error| error.to_string())?;
        Ok(Arc::new(carrier))
    }

    fn with_statuses(&self, mut settings: HttpDestination) -> Result<HttpDestination, String> {
        if let Some(text) = &self.success_statuses {
            let statuses = parsed::<Statuses>("success_statuses", text)?;
            if (100..200).chain(500..600).any(|status| statuses.contains(status)) {
                return Err("success_statuses: 1xx is no final answer, and 5xx no success; take statuses from \
                            200 to 499"
                    .to_owned());
            }
            settings = settings.success_statuses(statuses);
        }
        if let Some(text) = &self.refusal_statuses {
            settings = settings.refusal_statuses(parsed::<Statuses>("refusal_statuses", text)?);
        }
        if let Some(text) = &self.retry_statuses {
            settings = settings.retry_statuses(parsed::<Statuses>("retry_statuses", text)?);
        }
        Ok(settings)
    }
}

impl HttpSection {
    /// Returns true if the probe takes an empty list for a *no*.
    pub(super) fn believes_empty_lists(&self) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.empty_is_absent)
    }
}

impl ProbeSection {
    fn settings(&self) -> Result<ProbeSettings, String> {
        let url = named("probe.url", self.url.read())?;
        let id = pointer_at("probe.id", &self.id)?;
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
        Ok(ProbeSettings::formed(&url, form, id))
    }
}

/// The text as a `T`, or a complaint that names the setting.
fn parsed<T>(setting: &str, text: &str) -> Result<T, String>
where
    T: FromStr<Err: std::fmt::Display>,
{
    named(setting, text.parse().map_err(|error: T::Err| error.to_string()))
}

fn pointer_at(setting: &str, text: &str) -> Result<Pointer, String> {
    let pointer: Pointer = parsed(setting, text)?;
    if pointer.as_str().is_empty() {
        return Err(format!("{setting}: a place in the answer is needed, such as \"/id\""));
    }
    Ok(pointer)
}
