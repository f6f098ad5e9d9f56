//! Asking a destination whether a message had its effect.

use std::fmt;
use std::ops::RangeInclusive;

use firstwrite_core::codec::percent;
use firstwrite_core::outbox::{Probed, Receipt};
use firstwrite_core::{Pointer, Timestamp};
use http::{StatusCode, Uri};

use super::destination::{HttpDestinationError, check_url};
use super::exchange::{Answer, id_at, json};
use super::statuses::not_there;
use crate::ProbeForm;

/// Stands for the message's wire key in a URL.
const PLACE: &str = "{key}";

/// Settings of a probe: the request that asks a destination whether a message had its effect, and how its
/// answer is read.
///
/// The request is a GET with the destination's headers, timeout and guard. Set a probe only for a destination
/// whose answer can be trusted: "it did not happen" frees the message to be sent again, so the answer must not
/// come from a replica that lags behind, and no delivery may still be under way there unseen.
#[derive(Clone)]
pub struct ProbeSettings {
    template: String,
    form: ProbeForm,
    id: Pointer,
}

/// Settings that were checked.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    settings: ProbeSettings,
    is_https: bool,
}

impl ProbeSettings {
    /// The URL is that of one thing: 200 with an id at `id` says that it happened. That it did not is said by the
    /// statuses of [`Self::absent_on`] alone.
    ///
    /// In `url_template`, `{key}` is replaced by the wire key, percent-encoded:
    /// `https://api.example.com/payments/by-key/{key}`.
    pub fn one(url_template: &str, id: Pointer) -> Self {
        Self { template: url_template.to_owned(), form: ProbeForm::default(), id }
    }

    /// The URL is that of a list: 200 with an array at `list`. One entry with the wire key at `key` says that it
    /// happened, and `id` leads to its id. Any other list says nothing: an API that ignores the filter lists what
    /// others made, and one that is asked with the token of another account lists nothing. That an empty list
    /// means that it did not happen is stated by [`Self::empty_is_absent`].
    ///
    /// In `url_template`, `{key}` is replaced by the wire key, percent-encoded:
    /// `https://api.example.com/payments?reference={key}`.
    pub fn list(url_template: &str, list: Pointer, key: Pointer, id: Pointer) -> Self {
        let form = ProbeForm { list: Some(list), key: Some(key), ..ProbeForm::default() };
        Self::formed(url_template, form, id)
    }

    /// These statuses say that it did not happen: 204, 404 or 410, and only without a list. Ask once about a key
    /// that was used before you set them: a probe with a wrong path gets 404 for everything.
    #[must_use]
    pub fn absent_on(mut self, statuses: &[StatusCode]) -> Self {
        self.form.absent_statuses = statuses.to_vec();
        self
    }

    /// An empty list says that it did not happen. Ask once about a key that was used, with the token that the probe
    /// has, before you set this: with the token of another account every list is empty.
    #[must_use]
    pub fn empty_is_absent(mut self) -> Self {
        self.form.empty_is_absent = true;
        self
    }

    /// A probe whose answers have this form.
    pub fn formed(url_template: &str, form: ProbeForm, id: Pointer) -> Self {
        Self { template: url_template.to_owned(), form, id }
    }
}

impl Probe {
    pub(super) fn new(settings: ProbeSettings) -> Result<Self, HttpDestinationError> {
        // A name that no template has by chance, and that is the same encoded or not.
        const MARK: &str = "firstwrite-key-stands-here";
        let uri = check_url(&settings.template.replace(PLACE, MARK))
            .map_err(|error| error.of("the probe's URL"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let after = uri.path_and_query().map_or("", |after| after.as_str());
        if authority.contains(MARK) || !after.contains(MARK) {
            return Err(HttpDestinationError::new(
                "the probe's URL has {key} in its path or query, where the key is to stand",
            ));
        }
        settings
            .form
            .check()
            .map_err(|why| HttpDestinationError::new(format!("the probe: {why}")))?;
        let form = &settings.form;
        if [&form.key, &form.at].into_iter().any(|place| place.as_ref() == Some(&settings.id)) {
            return Err(HttpDestinationError::new(
                "the probe: each of id, key and at is in a place of its own",
            ));
        }
        Ok(Self { is_https: uri.scheme_str() == Some("https"), settings })
    }

    pub(super) fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the URL to ask about the message with this key.
    pub(super) fn url(&self, wire_key: &str) -> Result<Uri, http::uri::InvalidUri> {
        self.settings.template.replace(PLACE, &percent::encode(wire_key)).parse()
    }

    /// Reads the answer to the question about a message under `wire_key`, where `between` is the time from its
    /// writing to the question.
    pub(super) fn read(
        &self,
        answer: &Answer,
        wire_key: &str,
        between: RangeInclusive<Timestamp>,
    ) -> Probed {
        let ProbeSettings { form, id, .. } = &self.settings;
        match answer.status {
            status if form.says_absent(status) => Probed::NotHappened,
            StatusCode::OK => {
                let document = match json(answer) {
                    Ok(document) => document,
                    Err(reason) => return silent(answer, reason),
                };
                match form.find_between(&answer.headers, &document, wire_key, between) {
                    Ok(Some(entry)) => match id_at(entry, id) {
                        Some(id) => Probed::Happened(Receipt { provider_id: Some(id) }),
                        None => silent(answer, &format!("has no id at {:?}", id.as_str())),
                    },
                    Ok(None) => Probed::NotHappened,
                    Err(reason) => silent(answer, &reason),
                }
            }
            status if not_there().contains(status.as_u16()) => {
                Probed::NotThere(format!("answered {status}, as if it were not there"))
            }
            status => Probed::Silent(format!("answered {status}")),
        }
    }
}

impl fmt::Debug for ProbeSettings {
    /// Without the URL, which may have a secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeSettings")
            .field("form", &self.form)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

fn silent(answer: &Answer, reason: &str) -> Probed {
    Probed::Silent(format!("answered {}, but {reason}", answer.status))
}

#[cfg(test)]
mod tests;
