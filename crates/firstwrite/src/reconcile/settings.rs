//! Settings of a reconciliation: the entries to compare with a source, and limits.

use std::fmt;
use std::time::Duration;

use firstwrite_core::reconcile::{AnswerTemplate, Rules};
use firstwrite_core::{KeptStatuses, Message, Pointer, Policy, Retention, Tenant};

/// Settings for comparing our books with one source.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The source's name, shown in findings and audit entries. 1 to 64 visible characters without a colon.
    pub source: String,
    /// The messages it gives account of.
    pub messages: Option<MessageScope>,
    /// The requests it gives account of whose handlers called the provider themselves.
    pub records: Option<RecordScope>,
    /// Compares only this tenant's entries, where tenants have accounts of their own. All tenants unless set.
    pub tenant: Option<Tenant>,
    /// Rules by which entries are matched and judged.
    pub rules: Rules,
    /// Limits on reading.
    pub limits: Limits,
    /// Looks, and neither settles nor notes anything.
    pub dry_run: bool,
    /// Lets a scheduled run act on a source of which no run has been applied yet. Unless set, the first
    /// run is a person's, who has seen what it would do.
    pub apply_first_run: bool,
}

/// Messages that a source gives account of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageScope {
    /// Those to this destination.
    pub destination: String,
    /// Only those of these steps, if there are any: a list of payments says nothing about refunds.
    pub steps: Vec<String>,
    /// Place of the amount in a payload.
    pub amount: Option<Pointer>,
    /// Place of the currency in a payload.
    pub currency: Option<Pointer>,
}

/// Requests that a source gives account of.
///
/// Their handlers ran in reserved mode and called the provider under the wire key of a step
/// ([`crate::Attempt::wire_key`]). Every request of these operations that was answered with success did
/// this step, and no other has an effect: whatever the source does not have of a request that is
/// uncertain is free to run again.
#[derive(Clone, Debug)]
pub struct RecordScope {
    /// The step under whose key the handlers call.
    pub step: String,
    /// The operations, as records have them: `POST /payments`.
    pub operations: Vec<String>,
    /// Answer to a client whose request is proven to have been carried out.
    pub answer: AnswerTemplate,
    /// Time for which the operations' policy keeps answers. Entries of the source for requests older than this
    /// are not judged: their records may be gone.
    pub retention: Retention,
    /// The longest an attempt can take until it has had its effect.
    pub attempt_max: Duration,
}

/// Limits on reading, and on retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages of a source.
    pub pages_max: usize,
    /// Entries of a source, and as many of ours.
    pub entries_max: usize,
    /// Findings of one run.
    pub findings_max: usize,
    /// Maximum number of tries for a page that cannot be read.
    pub tries_max: u32,
    /// Time to wait before the second try; doubled with each further one.
    pub pause_first: Duration,
    /// Time before a window from which our messages are read: the longest that one can have waited to be sent.
    pub read_back: Duration,
    /// Maximum time that a scheduled run looks back.
    pub reach_back_max: Duration,
}

/// Settings that cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsError(&'static str);

impl Settings {
    /// Compares messages to `destination` with the source of this name.
    pub fn new(source: &str, destination: &str) -> Self {
        Self {
            source: source.to_owned(),
            messages: Some(MessageScope {
                destination: destination.to_owned(),
                steps: Vec::new(),
                amount: None,
                currency: None,
            }),
            records: None,
            tenant: None,
            rules: Rules::default(),
            limits: Limits::default(),
            dry_run: false,
            apply_first_run: false,
        }
    }

    /// Checks that the settings are valid.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !Message::is_name(&self.source) {
            return Err(SettingsError(
                "a source's name is 1 to 64 visible characters without a colon",
            ));
        }
        if self.messages.is_none() && self.records.is_none() {
            return Err(SettingsError("a source is compared with messages, records or both"));
        }
        if let Some(records) = &self.records {
            if !Message::is_name(&records.step) {
                return Err(SettingsError("a step is 1 to 64 visible characters without a colon"));
            }
            // Without them, uncertain requests would be freed that have nothing to do with it.
            if records.operations.is_empty() {
                return Err(SettingsError("say which operations the source gives account of"));
            }
            if !KeptStatuses::default().keeps(records.answer.status) {
                return Err(SettingsError(
                    "status: no retry is answered with it; take one from 200 to 499 but 401, 407, 408, \
                     421, 425, 429 and 431",
                ));
            }
        }
        let Limits { pages_max, entries_max, findings_max, tries_max, reach_back_max, .. } =
            self.limits;
        if pages_max.min(entries_max).min(findings_max) == 0 || tries_max == 0 {
            return Err(SettingsError("a run reads at least one page, entry and finding, once"));
        }
        if reach_back_max.is_zero() {
            return Err(SettingsError("a scheduled run must look back: reach_back_max is zero"));
        }
        Ok(())
    }

    /// Returns true if a message or request may be in the account of both: the same destination or operation,
    /// a step that both have, and a tenant that both have.
    ///
    /// Two sources that overlap must not run beside each other: what one of them lacks may be in the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        let shares = |one: &[String], other: &[String]| one.iter().any(|each| other.contains(each));
        let messages = |one: &MessageScope, other: &MessageScope| {
            one.destination == other.destination
                && (one.steps.is_empty()
                    || other.steps.is_empty()
                    || shares(&one.steps, &other.steps))
        };
        let share_messages = self
            .messages
            .as_ref()
            .zip(other.messages.as_ref())
            .is_some_and(|(a, b)| messages(a, b));
        let share_records = self
            .records
            .as_ref()
            .zip(other.records.as_ref())
            .is_some_and(|(a, b)| shares(&a.operations, &b.operations));
        let share_tenants =
            self.tenant.is_none() || other.tenant.is_none() || self.tenant == other.tenant;
        share_tenants && (share_messages || share_records)
    }

    /// Name of the actor that settles what is proven.
    pub(super) fn actor(&self) -> String {
        format!("reconcile {}", self.source)
    }
}

impl RecordScope {
    /// Longer than any request should take. Set a longer one if handlers may run longer.
    pub const ATTEMPT_MAX: Duration = Duration::from_hours(1);

    /// Requests of `operation` whose handlers call under the key of `step`, kept as by default.
    pub fn new(step: &str, operation: &str, answer: AnswerTemplate) -> Self {
        Self {
            step: step.to_owned(),
            operations: vec![operation.to_owned()],
            answer,
            retention: Policy::default().record_retention(),
            attempt_max: Self::ATTEMPT_MAX,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A hundred items on a page is what most providers give.
            pages_max: 10_000,
            // About half a gigabyte, if entries are a kilobyte.
            entries_max: 500_000,
            // A person cannot look into more; and then something else is wrong.
            findings_max: 10_000,
            tries_max: 5,
            pause_first: Duration::from_secs(1),
            // A weekend.
            read_back: Duration::from_hours(72),
            reach_back_max: Duration::from_hours(30 * 24),
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_hold_are_refused() {
        let good = Settings::new("provider", "provider");
        assert_eq!(good.check(), Ok(()));
        assert!(Settings::new("a b", "provider").check().is_err());
        assert!(Settings { messages: None, ..good.clone() }.check().is_err());
        let scope = RecordScope::new("charge", "POST /payments", AnswerTemplate::created("{}"));
        let with = |scope: RecordScope| Settings { records: Some(scope), ..good.clone() };
        assert_eq!(with(scope.clone()).check(), Ok(()));
        assert!(with(RecordScope { operations: Vec::new(), ..scope.clone() }).check().is_err());
        assert!(with(RecordScope { step: "a:b".to_owned(), ..scope }).check().is_err());
        for status in [102, 401, 407, 408, 421, 425, 429, 431, 500, 503, 700] {
            let mut scope = RecordScope::new("charge", "POST /a", AnswerTemplate::created("{}"));
            scope.answer.status = http::StatusCode::from_u16(status).unwrap();
            assert!(with(scope).check().is_err(), "{status}");
        }
        let usual = Limits::default();
        for limits in [
            Limits { pages_max: 0, ..usual },
            Limits { entries_max: 0, ..usual },
            Limits { findings_max: 0, ..usual },
            Limits { tries_max: 0, ..usual },
            Limits { reach_back_max: Duration::ZERO, ..usual },
        ] {
            assert!(Settings { limits, ..good.clone() }.check().is_err(), "{limits:?}");
        }
    }

    #[test]
    fn sources_overlap_that_can_have_the_same_message_or_request() {
        let of = |destination: &str, steps: &[&str], tenant: Option<&str>| {
            let mut settings = Settings::new("provider", destination);
            settings.messages.as_mut().unwrap().steps =
                steps.iter().map(|step| (*step).to_owned()).collect();
            settings.tenant = tenant.map(|name| Tenant::new(name).unwrap());
            settings
        };
        let records = |operation: &str| {
            let scope = RecordScope::new("charge", operation, AnswerTemplate::created("{}"));
            Settings { messages: None, records: Some(scope), ..of("p", &[], None) }
        };
        let all = of("p", &[], None);
        for (one, overlaps) in [
            (of("p", &["charge"], None), true),
            (of("p", &[], Some("acme")), true),
            (of("q", &[], None), false),
            (records("POST /a"), false),
        ] {
            assert_eq!((all.overlaps(&one), one.overlaps(&all)), (overlaps, overlaps), "{one:?}");
        }
        assert!(of("p", &["a", "b"], None).overlaps(&of("p", &["b", "c"], None)));
        assert!(!of("p", &["a"], None).overlaps(&of("p", &["b"], None)));
        assert!(!of("p", &[], Some("acme")).overlaps(&of("p", &[], Some("other"))));
        assert!(records("POST /a").overlaps(&records("POST /a")));
        assert!(!records("POST /a").overlaps(&records("POST /b")));
    }
}
