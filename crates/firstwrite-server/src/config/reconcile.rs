//! The `[reconcile.NAME]` sections: whose account our books are compared with.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use firstwrite::carrier::http::Network;
use firstwrite::reconcile::{
    AnswerBody, AnswerTemplate, CsvColumns, CsvExport, HttpItems, HttpList, Limits, Made,
    MessageScope, Paging, RecordScope, Settings, Source, TimeForm,
};
use firstwrite::worker::Account;
use firstwrite::{Pointer, Tenant};
use firstwrite_core::Timestamp;
use serde::Deserialize;

use super::given::{Given, read_file};
use super::{Destinations, Span, UsageError};

/// The sections of one file, by their names.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Reconcile(BTreeMap<String, Section>);

/// An export that was named on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Export<'f> {
    /// The file.
    pub(crate) file: Option<&'f Path>,
    /// Up to when it is stated to reach.
    pub(crate) until: Option<Timestamp>,
}

/// One section: what is compared, and where the provider's account is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// Destination whose messages the provider gives account of.
    destination: Option<String>,
    /// Steps of these messages that count. Without it, all do.
    steps: Option<Vec<String>>,
    /// Place of the amount in a payload, such as `"/amount"`. The account then says where its own is.
    amount: Option<String>,
    /// Place of the currency in a payload, with `amount`. The account then says where its own is.
    currency: Option<String>,
    /// Requests whose handlers called the provider themselves.
    records: Option<RecordsSection>,
    /// Tenant whose messages and requests count, where tenants have accounts of their own. Without it, all do.
    tenant: Option<String>,
    /// Time that the provider may take to report something; more than zero. Default: `"1h"`.
    grace: Option<Span>,
    /// Greatest distance between the times of two entries that match by their amounts, and by which an
    /// entry may be dated before its request. Default: `"5m"`.
    tolerance: Option<Span>,
    /// Lets a match by amount and time prove something. Only with `amount`, where the account has neither our keys
    /// nor ids that we were told, and amounts tell entries apart.
    #[serde(default)]
    amount_is_proof: bool,
    /// Form of times in the account. Default: `"rfc3339"`.
    #[serde(default)]
    times: Times,
    /// Power of ten that the account's amounts are multiplied by, from -12 to 12: 2 where it has euros and
    /// messages have cents. Default: `0`.
    #[serde(default)]
    amount_power: i32,
    /// Lets a worker act on this source before a person has applied a first run. Needs `http`.
    #[serde(default)]
    apply_first_run: bool,
    /// Limits of a run.
    #[serde(default)]
    limits: LimitsSection,
    /// The account as a list by HTTP.
    http: Option<HttpSection>,
    /// The account as a CSV export, compared by hand.
    csv: Option<CsvSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsSection {
    /// Pages of the account, with `http`. Default: `10000`.
    pages_max: Option<NonZeroUsize>,
    /// Entries of the account, and as many messages and requests. Default: `500000`.
    entries_max: Option<NonZeroUsize>,
    /// Findings of one run. Default: `10000`.
    findings_max: Option<NonZeroUsize>,
    /// Requests for a page that cannot be had, with `http`. Default: `5`.
    tries_max: Option<NonZeroU32>,
    /// Pause before the second of them, with `http`; each further one is twice as long. Default: `"1s"`.
    pause_first: Option<Span>,
    /// Time before a window of which messages are read too: so long one can have waited to be sent.
    /// Default: `"72h"`.
    read_back: Option<Span>,
    /// Time that a scheduled run looks back at most, with `http`. Default: `"720h"`.
    reach_back_max: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordsSection {
    /// Step under whose key the handlers call.
    step: String,
    /// Operations, such as `"POST /payments"`.
    operations: Vec<String>,
    /// Longest time that an attempt can take until it has had its effect. Default: `"1h"`.
    attempt_max: Option<Span>,
    /// Retention of these operations. Default: `"24h"`.
    retention: Option<Span>,
    /// Status of the answer to a client whose request is proven to have been carried out, one that keeps its key.
    /// Default: `201`.
    status: Option<u16>,
    /// Body of that answer, with `{provider_id}` for the provider's id. Without it, the provider's own
    /// entry.
    body: Option<String>,
    /// Media type of `body`. The provider's id is spelt as inside a JSON string, whatever the type. Default: that of
    /// JSON.
    content_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpSection {
    /// Address of the list, with `{from}`, `{until}` and `{cursor}` in it.
    url: Given,
    /// Headers of every request.
    #[serde(default)]
    headers: BTreeMap<String, Given>,
    /// Place of the array in a page.
    list: String,
    /// Place of the provider's id in an item.
    id: String,
    /// Place of the key in an item.
    key: Option<String>,
    /// Place of the amount in an item.
    amount: Option<String>,
    /// Place of the currency in an item.
    currency: Option<String>,
    /// Place of the time in an item.
    at: String,
    /// Items that were made: `"all"`, or by their status.
    made: MadeSection,
    /// Place of the next page's cursor in a page, null in the last one. One of `next`, `more` and
    /// `single_page` is needed.
    next: Option<String>,
    /// Says that an empty text at `next` ends the list as null does. Without it, an empty text is a flaw.
    #[serde(default)]
    empty_next_ends: bool,
    /// Place in a page that is true while there are more; the id of the last item is the cursor then.
    more: Option<String>,
    /// Says that the list has one page.
    #[serde(default)]
    single_page: bool,
    /// Places in a page whose values say nothing about whether the list ends, such as `"/meta/took"`.
    #[serde(default)]
    harmless: Vec<String>,
    /// Time limit of a page. Default: `"30s"`.
    timeout: Option<Span>,
    /// Bytes of a page. Default: `16777216`.
    page_bytes_max: Option<NonZeroUsize>,
    /// Networks that are not public and may be asked, such as `"127.0.0.0/8"`.
    #[serde(default)]
    allow_networks: Vec<String>,
    /// File of PEM certificates that are trusted besides the platform's.
    root_certificates: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CsvSection {
    /// The file. Without it, `--csv` names one.
    file: Option<String>,
    /// Column of the provider's id.
    id: String,
    /// Column of the key.
    key: Option<String>,
    /// Column of the amount.
    amount: Option<String>,
    /// Column of the currency.
    currency: Option<String>,
    /// Column of the time.
    at: String,
    /// Rows that were made: `"all"`, or by their status.
    made: MadeSection,
    /// Character between fields, in ASCII. Default: `","`.
    delimiter: Option<String>,
    /// Bytes of the file. Default: `268435456`.
    bytes_max: Option<NonZeroU64>,
}

/// The entries of an account that count as made: `"all"`, or those with a status.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum MadeSection {
    All(All),
    ByStatus(StatusSection),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum All {
    All,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusSection {
    /// Place or column of an entry's status.
    status: String,
    /// Statuses of what was made.
    is: Vec<String>,
    /// Statuses of what was not made and never will be. All others are not decided yet.
    not: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Times {
    #[default]
    Rfc3339,
    UnixSeconds,
    UnixMillis,
}

impl Reconcile {
    /// Makes the accounts that a worker compares by schedule: the lists. Exports are compared by hand.
    pub(crate) fn scheduled(
        &self,
        destinations: &Destinations,
    ) -> Result<Vec<Account>, UsageError> {
        self.check_together(destinations)?;
        let lists = self.0.iter().filter(|(_, section)| section.http.is_some());
        lists.map(|(name, section)| section.account(name, &Export::default())).collect()
    }

    /// Makes every account in each of its forms, and returns their number. Only a run names an export that
    /// the file leaves to `--csv`.
    pub(crate) fn check(&self, destinations: &Destinations) -> Result<usize, UsageError> {
        self.check_together(destinations)?;
        let named = Export { file: Some(Path::new("export.csv")), until: None };
        for (name, section) in &self.0 {
            if section.http.is_some() || section.csv.is_none() {
                section.account(name, &Export::default())?;
            }
            if section.csv.is_some() {
                section.account(name, &named)?;
            }
        }
        Ok(self.0.len())
    }

    /// Makes the accounts of the named sources, or of all; `export` is where a named one's account is.
    pub(crate) fn build(
        &self,
        names: &[String],
        export: &Export<'_>,
        destinations: &Destinations,
    ) -> Result<Vec<Account>, UsageError> {
        self.check_together(destinations)?;
        if let Some(name) = names.iter().find(|name| !self.0.contains_key(*name)) {
            return Err(UsageError::new(format!(
                "no source is called `{}`; add a section [reconcile.NAME] to the config file",
                name.escape_debug()
            )));
        }
        let wanted = self.0.iter().filter(|(name, _)| names.is_empty() || names.contains(name));
        wanted.map(|(name, section)| section.account(name, export)).collect()
    }

    /// Checks the sections against each other and against the destinations of the file.
    fn check_together(&self, destinations: &Destinations) -> Result<(), UsageError> {
        let mut seen: Vec<Settings> = Vec::new();
        for (name, section) in &self.0 {
            let refused = |message| UsageError::new(format!("[reconcile.{name}]: {message}"));
            let settings = section.settings(name).map_err(refused)?;
            if let Some(destination) = &section.destination
                && !destinations.may_have(destination)
            {
                return Err(refused(format!(
                    "destination: the file has no [destinations.{}]; name one that it has",
                    destination.escape_debug()
                )));
            }
            if let Some(other) = seen.iter().find(|other| other.overlaps(&settings)) {
                return Err(refused(format!(
                    "its messages or requests may be in [reconcile.{}] too, and what one account lacks may \
                     stand in the other; make one section of them, or give each its own steps or tenant",
                    other.source
                )));
            }
            seen.push(settings);
        }
        Ok(())
    }
}

impl Section {
    fn account(&self, name: &str, export: &Export<'_>) -> Result<Account, UsageError> {
        let refused = |message| UsageError::new(format!("[reconcile.{name}]: {message}"));
        self.build(name, export).map_err(refused)
    }

    fn build(&self, name: &str, export: &Export<'_>) -> Result<Account, String> {
        let settings = self.settings(name)?;
        let times = self.times.form();
        let source: Arc<dyn Source> = match (export.file, &self.csv, &self.http) {
            (None, _, Some(http)) => Arc::new(http.source(times, self.amount_power)?),
            (_, Some(columns), None) | (Some(_), Some(columns), Some(_)) => {
                Arc::new(columns.source(export, times)?.amount_power(self.amount_power))
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

    fn settings(&self, name: &str) -> Result<Settings, String> {
        let mut settings = Settings::new(name, self.destination.as_deref().unwrap_or_default());
        settings.messages = match &self.destination {
            Some(destination) => Some(MessageScope {
                destination: destination.clone(),
                steps: self.steps.clone().unwrap_or_default(),
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
        settings.rules.is_amount_proof = self.amount_is_proof;
        let tenant = self.tenant.as_deref().map(Tenant::new).transpose();
        settings.tenant = tenant.map_err(|error| format!("tenant: {error}"))?;
        settings.limits = self.limits.limits();
        settings.apply_first_run = self.apply_first_run;
        settings.check().map_err(|error| error.to_string())?;
        self.check_effects()?;
        Ok(settings)
    }

    /// Refuses settings that could never take effect.
    fn check_effects(&self) -> Result<(), String> {
        let steps = self.steps.as_deref();
        let operations = self.records.as_ref().map_or(&[][..], |records| &records.operations);
        let has_list = self.http.is_some() || self.csv.is_none();
        let LimitsSection { pages_max, tries_max, pause_first, reach_back_max, .. } = &self.limits;
        let wrong = [
            (
                self.destination.is_none()
                    && (self.amount.is_some() || self.currency.is_some() || steps.is_some()),
                "amount, currency and steps are those of messages; set destination = \"…\", or leave them out",
            ),
            (
                steps.is_some_and(|steps| steps.is_empty() || has_repetition(steps)),
                "steps: name each step once, or leave steps out, and all count",
            ),
            (has_repetition(operations), "records.operations: name each operation once"),
            (
                self.amount.is_none() && self.currency.is_some(),
                "currency tells amounts apart; set amount = \"/…\" too, or leave it out",
            ),
            (
                self.amount.is_none() && (self.amount_power != 0 || self.amount_is_proof),
                "amount_power and amount_is_proof are about amounts; set amount = \"/…\", or leave them out",
            ),
            (
                self.amount_power.unsigned_abs() > AMOUNT_POWER_MAX,
                "amount_power: a power from -12 to 12 is needed",
            ),
            (
                self.grace.is_some_and(|Span(grace)| grace.is_zero()),
                "grace: more than 0s is needed; nothing is reported in the moment that it is made",
            ),
            (
                !has_list && self.apply_first_run,
                "apply_first_run is for scheduled runs, which need http = { … }; leave it out",
            ),
            (
                !has_list && (pages_max.is_some() || tries_max.is_some() || pause_first.is_some()),
                "limits: pages_max, tries_max and pause_first are those of http = { … }; leave them out",
            ),
            (
                !has_list && reach_back_max.is_some(),
                "limits: reach_back_max is for scheduled runs, which need http = { … }; leave it out",
            ),
        ];
        if let Some((_, message)) = wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(message.to_owned());
        }
        let list = self.http.as_ref().map(|http| (&http.key, &http.amount, &http.currency));
        let csv = self.csv.as_ref().map(|csv| (&csv.key, &csv.amount, &csv.currency));
        let forms = [("http", list), ("csv", csv)];
        forms.into_iter().filter_map(|(name, form)| Some((name, form?))).try_for_each(
            |(name, (key, amount, currency))| {
                if self.amount_is_proof && key.is_some() {
                    return Err(format!("amount_is_proof is for accounts without keys; leave out {name}.key, or it"));
                }
                // Requests have no amounts of their own; those of the account are shown.
                let is_compared = self.destination.is_some();
                for (what, here, there) in
                    [("amount", &self.amount, amount), ("currency", &self.currency, currency)]
                {
                    if here.is_some() != there.is_some() && (is_compared || here.is_some()) {
                        return Err(format!(
                            "{what}: it is compared where both sides have it; set {what} and {name}.{what}, or neither"
                        ));
                    }
                }
                Ok(())
            },
        )
    }
}

/// More than any two units of one currency are apart.
const AMOUNT_POWER_MAX: u32 = 12;

fn has_repetition(names: &[String]) -> bool {
    names.iter().enumerate().any(|(number, name)| names[..number].contains(name))
}

impl LimitsSection {
    fn limits(&self) -> Limits {
        let usual = Limits::default();
        let count = |given: Option<NonZeroUsize>, usual| given.map_or(usual, NonZeroUsize::get);
        let span = |given: Option<Span>, usual| given.map_or(usual, |Span(span)| span);
        Limits {
            pages_max: count(self.pages_max, usual.pages_max),
            entries_max: count(self.entries_max, usual.entries_max),
            findings_max: count(self.findings_max, usual.findings_max),
            tries_max: self.tries_max.map_or(usual.tries_max, NonZeroU32::get),
            pause_first: span(self.pause_first, usual.pause_first),
            read_back: span(self.read_back, usual.read_back),
            reach_back_max: span(self.reach_back_max, usual.reach_back_max),
        }
    }
}

impl RecordsSection {
    fn scope(&self) -> Result<RecordScope, String> {
        if let Some(name) = self.operations.iter().find(|name| with_method(name) != **name) {
            let meant = with_method(name);
            return Err(format!(
                "records.operations: no request belongs to `{name}`; write {meant}"
            ));
        }
        if self.operations.iter().any(String::is_empty) {
            return Err("records.operations: an empty name has no request".to_owned());
        }
        let status = self.status.unwrap_or(201);
        let status = StatusCode::from_u16(status).map_err(|error| format!("status: {error}"))?;
        let body = match &self.body {
            Some(text) => AnswerBody::Template(text.clone().into()),
            None => AnswerBody::Entry,
        };
        let content_type = match &self.content_type {
            Some(_) if self.body.is_none() => {
                let why = "content_type is that of body; set body, or leave it out";
                return Err(why.to_owned());
            }
            Some(text) => HeaderValue::from_str(text)
                .map_err(|_cause| "content_type: it cannot stand in a header".to_owned())?,
            None => HeaderValue::from_static("application/json"),
        };
        let answer = AnswerTemplate { status, content_type, body };
        let mut scope = RecordScope::new(&self.step, "", answer);
        scope.operations.clone_from(&self.operations);
        if let Some(Span(attempt_max)) = self.attempt_max {
            scope.attempt_max = attempt_max;
        }
        if let Some(Span(retention)) = self.retention {
            scope.retention.replay_for = retention;
        }
        Ok(scope)
    }
}

/// The name of an operation as requests have it: a method in capitals, one space, a path. Names that applications
/// made up stay as they are, but for white space around them.
fn with_method(name: &str) -> String {
    match name.trim().split_once(char::is_whitespace) {
        Some((method, path)) if path.trim_start().starts_with('/') => {
            format!("{} {}", method.to_ascii_uppercase(), path.trim_start())
        }
        _ => name.trim().to_owned(),
    }
}

impl HttpSection {
    fn source(&self, times: TimeForm, amount_power: i32) -> Result<impl Source + use<>, String> {
        let url = self.url.read().map_err(|error| format!("url: {error}"))?;
        let mut items = HttpItems::new(
            parsed("list", &self.list)?,
            parsed("id", &self.id)?,
            parsed("at", &self.at)?,
            self.made.made(|status| parsed("made", status))?,
        );
        items.key = pointer("key", self.key.as_deref())?;
        items.amount = pointer("amount", self.amount.as_deref())?;
        items.currency = pointer("currency", self.currency.as_deref())?;
        let paging = self.paging()?;
        let mut list = HttpList::new(&url, items, paging).times(times).amount_power(amount_power);
        for place in &self.harmless {
            list = list.harmless(parsed("harmless", place)?);
        }
        if let Some(Span(timeout)) = self.timeout {
            list = list.timeout(timeout);
        }
        if let Some(bytes) = self.page_bytes_max {
            list = list.page_bytes_max(bytes.get());
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

    fn paging(&self) -> Result<Paging, String> {
        if self.empty_next_ends && self.next.is_none() {
            return Err("empty_next_ends is said of next = \"/…\"".to_owned());
        }
        match (&self.next, &self.more, self.single_page) {
            (Some(next), None, false) if self.empty_next_ends => {
                Ok(Paging::NextOrEmpty(parsed("next", next)?))
            }
            (Some(next), None, false) => Ok(Paging::Next(parsed("next", next)?)),
            (None, Some(more), false) => Ok(Paging::LastId { more: parsed("more", more)? }),
            (None, None, true) => Ok(Paging::SinglePage),
            _ => Err("say how the list is paged, with one of next = \"/…\", more = \"/…\", \
                      single_page = true"
                .to_owned()),
        }
    }
}

impl MadeSection {
    /// The entries of a probe's answer that were made.
    pub(super) fn of_probe(&self) -> Result<Made<Pointer>, String> {
        let made = self.made(|status| status.parse().map_err(|error| format!("made: {error}")));
        made.map_err(|what| format!("probe.{what}"))
    }
}

impl Times {
    /// The form of times in a probe's answer, which only the place of a time makes use of.
    pub(super) fn of_probe(given: Option<Self>, has_at: bool) -> Result<TimeForm, String> {
        if given.is_some() && !has_at {
            return Err(
                "probe.times: it is the form of the time at `at`; set at = \"/…\" too".to_owned()
            );
        }
        Ok(given.unwrap_or_default().form())
    }

    pub(super) fn form(self) -> TimeForm {
        match self {
            Self::Rfc3339 => TimeForm::Rfc3339,
            Self::UnixSeconds => TimeForm::UnixSeconds,
            Self::UnixMillis => TimeForm::UnixMillis,
        }
    }
}

impl MadeSection {
    pub(super) fn made<P>(
        &self,
        place: impl FnOnce(&str) -> Result<P, String>,
    ) -> Result<Made<P>, String> {
        let Self::ByStatus(section) = self else { return Ok(Made::All) };
        let StatusSection { status, is, not } = section;
        let both = is.iter().find(|status| not.contains(status));
        if is.is_empty() || both.is_some() {
            return Err("made: `is` has at least one status, and none that `not` has".to_owned());
        }
        Ok(Made::ByStatus { status: place(status)?, made: is.clone(), not_made: not.clone() })
    }
}

impl CsvSection {
    fn source(&self, export: &Export<'_>, times: TimeForm) -> Result<CsvExport, String> {
        let made = self.made.made(|column| Ok(column.to_owned()))?;
        let mut columns = CsvColumns::new(&self.id, &self.at, made);
        columns.key.clone_from(&self.key);
        columns.amount.clone_from(&self.amount);
        columns.currency.clone_from(&self.currency);
        let status = match &columns.made {
            Made::All => None,
            Made::ByStatus { status, .. } => Some(status),
        };
        let roles = [Some(&columns.id), Some(&columns.at), status];
        let optional = [&columns.key, &columns.amount, &columns.currency];
        let roles = roles.into_iter().chain(optional.map(Option::as_ref)).flatten().cloned();
        if has_repetition(&roles.collect::<Vec<_>>()) {
            return Err(
                "csv: each of id, key, amount, currency, at and made.status is a column of its own"
                    .to_owned(),
            );
        }
        let file = export.file.or(self.file.as_deref().map(Path::new));
        let file = file.ok_or("say where the export is: file = \"…\", or --csv FILE")?;
        let mut source = CsvExport::file(file, columns).times(times);
        if let Some(text) = &self.delimiter {
            let [delimiter] = *text.as_bytes() else {
                return Err("delimiter: one character is needed, such as \";\"".to_owned());
            };
            if matches!(delimiter, b'"' | b'\r' | b'\n') {
                return Err(
                    "delimiter: a quote or a line break stands for something else".to_owned()
                );
            }
            source = source.delimiter(delimiter);
        }
        if let Some(bytes) = self.bytes_max {
            source = source.bytes_max(bytes.get());
        }
        Ok(match export.until {
            Some(until) => source.until(until),
            None => source,
        })
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
