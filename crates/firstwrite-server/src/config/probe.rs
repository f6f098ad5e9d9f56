//! Form of a probe's answers, as destinations and operations of the gateway set it.

use axum::http::StatusCode;
use firstwrite::{Pointer, ProbeForm};

use super::reconcile::{MadeSection, Times};

/// States that entries have no time that could be compared.
const NO_TIME: &str = "none";

/// The settings that both kinds of probes have.
pub(super) struct FormSettings<'a> {
    pub(super) list: Option<&'a str>,
    pub(super) key: Option<&'a str>,
    pub(super) made: &'a MadeSection,
    pub(super) at: Option<&'a str>,
    pub(super) times: Option<Times>,
    pub(super) harmless: &'a [String],
    pub(super) absent_statuses: &'a [u16],
    pub(super) empty_is_absent: bool,
}

impl FormSettings<'_> {
    /// Reads the form; the error names the setting.
    pub(super) fn form(&self) -> Result<ProbeForm, String> {
        let parse = |setting: &str, text: &str| {
            text.parse::<Pointer>().map_err(|error| format!("probe.{setting}: {error}"))
        };
        let place = |setting, text: Option<&str>| text.map(|text| parse(setting, text)).transpose();
        if self.list.is_some() && self.at.is_none() {
            return Err(
                "probe.at: a list needs the place of the time in its entries, such as \"/created_at\", or a \
                 payment of an earlier life of the key passes for this one; at = \"none\" if they have no time"
                    .to_owned(),
            );
        }
        let at = place("at", self.at.filter(|text| *text != NO_TIME))?;
        let status = |code: &u16| {
            StatusCode::from_u16(*code)
                .map_err(|_range| format!("probe.absent_statuses: {code} is no status"))
        };
        Ok(ProbeForm {
            list: place("list", self.list)?,
            key: place("key", self.key)?,
            made: self.made.of_probe()?,
            times: Times::of_probe(self.times, at.is_some())?,
            at,
            harmless: self
                .harmless
                .iter()
                .map(|text| parse("harmless", text))
                .collect::<Result<_, _>>()?,
            absent_statuses: self.absent_statuses.iter().map(status).collect::<Result<_, _>>()?,
            empty_is_absent: self.empty_is_absent,
        })
    }
}
