//! The `[reconcile.NAME]` sections: whose account our books are compared with.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use firstwrite::Pointer;
use firstwrite::carrier::http::Network;
use firstwrite::reconcile::{
    AnswerBody, AnswerTemplate, CsvColumns, CsvExport, HttpItems, HttpList, MessageScope,
    RecordScope, Settings, Source, TimeForm,
};
use firstwrite::worker::Account;
use serde::Deserialize;

use super::given::{Given, read_file};
use super::{Span, UsageError};

/// The sections of one file, by their names.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Reconcile(BTreeMap<String, Section>);

/// One section: what is compared, and where the provider's account is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// The messages that the provider gives account of: those to this destination.
    destination: Option<String>,
    /// Only those of these steps.
    #[serde(default)]
    steps: Vec<String>,
    /// Where in a payload the amount stands, such as `"/amount"`.
    amount: Option<String>,
    /// Where in a payload the currency stands.
    currency: Option<String>,
    /// The requests whose handlers called the provider themselves.
    records: Option<RecordsSection>,
    /// How long the provider may take to report something.
    grace: Option<Span>,
    /// How far apart the times of two entries may be that match by their amounts.
    tolerance: Option<Span>,
    /// How times are written: `rfc3339`, `unix_seconds` or `unix_millis`.
    #[serde(default)]
    times: Times,
    /// The account as a list by HTTP.
    http: Option<HttpSection>,
    /// The account as a CSV export.
    csv: Option<CsvSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordsSection {
    /// The step under whose key the handlers call.
    step: String,
    /// The operations, such as `"POST /payments"`.
    operations: Vec<String>,
    /// What a client is answered with whose request is proven to have been carried out.
    status: Option<u16>,
    /// `{provider_id}` in it stands for the provider's id; the provider's own entry unless set.
    body: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpSection {
    /// With `{from}`, `{until}` and `{cursor}` in it.
    url: Given,
    /// What is added to every request.
    #[serde(default)]
    headers: BTreeMap<String, Given>,
    /// Where in a page the array is.
    list: String,
    /// Where in an item things stand.
    id: String,
    key: Option<String>,
    amount: Option<String>,
    currency: Option<String>,
    at: String,
    /// Where in a page the cursor of the next one is.
    next: Option<String>,
    timeout: Option<Span>,
    #[serde(default)]
    allow_networks: Vec<String>,
    root_certificates: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CsvSection {
    /// The file; may be given with `--csv` instead.
    file: Option<String>,
    /// The names of the columns.
    id: String,
    key: Option<String>,
    amount: Option<String>,
    currency: Option<String>,
    at: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Times {
    #[default]
    Rfc3339,
    UnixSeconds,
    UnixMillis,
}

impl Reconcile {
    /// Makes the accounts of the named sources, or of all; `csv` is where a named one's account is.
    pub(crate) fn build(
        &self,
        names: &[String],
        csv: Option<&Path>,
    ) -> Result<Vec<Account>, UsageError> {
        if let Some(name) = names.iter().find(|name| !self.0.contains_key(*name)) {
            return Err(UsageError::new(format!(
                "no source is called `{}`; add a section [reconcile.NAME] to the config file",
                name.escape_debug()
            )));
        }
        let wanted = self.0.iter().filter(|(name, _)| names.is_empty() || names.contains(name));
        let build = |(name, section): (&String, &Section)| {
            section
                .build(name, csv)
                .map_err(|message| UsageError::new(format!("[reconcile.{name}]: {message}")))
        };
        wanted.map(build).collect()
    }
}

impl Section {
    fn build(&self, name: &str, csv: Option<&Path>) -> Result<Account, String> {
        let mut settings = Settings::new(name, self.destination.as_deref().unwrap_or_default());
        settings.messages = match &self.destination {
            Some(destination) => Some(MessageScope {
                destination: destination.clone(),
                steps: self.steps.clone(),
                amount: pointer("amount", self.amount.as_deref())?,
                currency: pointer("currency", self.currency.as_deref())?,
            }),
            None => None,
        };
        settings.records = self.records.as_ref().map(RecordsSection::scope).transpose()?;
        if let Some(Span(grace)) = self.grace {
            settings.rules.grace = grace;
        }
        if let Some(Span(tolerance)) = self.tolerance {
            settings.rules.tolerance = tolerance;
        }
        settings.check().map_err(|error| error.to_string())?;
        let times = match self.times {
            Times::Rfc3339 => TimeForm::Rfc3339,
            Times::UnixSeconds => TimeForm::UnixSeconds,
            Times::UnixMillis => TimeForm::UnixMillis,
        };
        let source: Arc<dyn Source> = match (csv, &self.csv, &self.http) {
            (None, _, Some(http)) => Arc::new(http.source(times)?),
            (file, Some(columns), None) | (file @ Some(_), Some(columns), Some(_)) => {
                Arc::new(columns.source(file, times)?)
            }
            (Some(_), None, _) => {
                return Err("say what its columns are called: csv = { … }".to_owned());
            }
            (None, None, None) => {
                return Err("say where the account is: http = { … } or csv = { … }".to_owned());
            }
        };
        Ok(Account { settings, source })
    }
}

impl RecordsSection {
    fn scope(&self) -> Result<RecordScope, String> {
        let status = self.status.unwrap_or(201);
        let status = StatusCode::from_u16(status).map_err(|error| format!("status: {error}"))?;
        let body = match &self.body {
            Some(text) => AnswerBody::Template(text.clone().into()),
            None => AnswerBody::Entry,
        };
        let content_type = HeaderValue::from_static("application/json");
        let answer = AnswerTemplate { status, content_type, body };
        let mut scope = RecordScope::new(&self.step, "", answer);
        scope.operations.clone_from(&self.operations);
        Ok(scope)
    }
}

impl HttpSection {
    fn source(&self, times: TimeForm) -> Result<impl Source + use<>, String> {
        let url = self.url.read().map_err(|error| format!("url: {error}"))?;
        let mut items = HttpItems::new(
            parsed("list", &self.list)?,
            parsed("id", &self.id)?,
            parsed("at", &self.at)?,
        );
        items.key = pointer("key", self.key.as_deref())?;
        items.amount = pointer("amount", self.amount.as_deref())?;
        items.currency = pointer("currency", self.currency.as_deref())?;
        let mut list = HttpList::new(&url, items).times(times);
        if let Some(next) = &self.next {
            list = list.next_cursor(parsed("next", next)?);
        }
        if let Some(Span(timeout)) = self.timeout {
            list = list.timeout(timeout);
        }
        for (name, value) in &self.headers {
            let value = value.read().map_err(|error| format!("header {name}: {error}"))?;
            // The cause is not told: it would be about the value.
            let Ok(value) = HeaderValue::from_str(&value) else {
                return Err(format!("header {name}: its value cannot stand in a header"));
            };
            list = list.header(parsed::<HeaderName>("headers", name)?, value);
        }
        for network in &self.allow_networks {
            list = list.allow_network(parsed::<Network>("allow_networks", network)?);
        }
        if let Some(path) = &self.root_certificates {
            let pem = read_file(path).map_err(|error| format!("root_certificates: {error}"))?;
            list = list.root_certificates(&pem);
        }
        list.build().map_err(|error| error.to_string())
    }
}

impl CsvSection {
    fn source(&self, file: Option<&Path>, times: TimeForm) -> Result<CsvExport, String> {
        let mut columns = CsvColumns::new(&self.id, &self.at);
        columns.key.clone_from(&self.key);
        columns.amount.clone_from(&self.amount);
        columns.currency.clone_from(&self.currency);
        let file = file.or(self.file.as_deref().map(Path::new));
        let file = file.ok_or("say where the export is: file = \"…\", or --csv FILE")?;
        Ok(CsvExport::file(file, columns).times(times))
    }
}

fn pointer(what: &str, text: Option<&str>) -> Result<Option<Pointer>, String> {
    text.map(|text| parsed(what, text)).transpose()
}

fn parsed<T>(what: &str, text: &str) -> Result<T, String>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error| format!("{what}: {error}"))
}
