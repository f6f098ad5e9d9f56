//! Entries of an account, made of the texts they are given as. Nothing in them is trusted.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use firstwrite_core::Timestamp;
use firstwrite_core::reconcile::{Amount, Theirs};

/// Form in which a provider writes times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeForm {
    /// `2026-01-31T12:00:00Z`, with or without a fraction; `Z`, or a distance from it as `+01:00`.
    #[default]
    Rfc3339,
    /// Whole seconds since 1970.
    UnixSeconds,
    /// Whole milliseconds since 1970.
    UnixMillis,
}

/// Selects the entries of an account that were made, by a status that each of them has. `P` is the place of the
/// status.
///
/// An account may have payments that failed, and those that are not decided yet. The first are passed over;
/// the second prove nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Made<P> {
    /// All of them: the account has nothing else.
    #[default]
    All,
    /// Those with one of these statuses.
    ByStatus {
        /// Place of the status.
        status: P,
        /// The statuses of what was made.
        made: Vec<String>,
        /// The statuses of what was not made, and never will be.
        not_made: Vec<String>,
    },
}

/// The texts of an entry, as a source was given them. Empty ones are as good as none, and so is a key that is white
/// space, signs, zeros or a word such as `null`.
#[derive(Clone, Copy, Default)]
pub struct Texts<'t> {
    /// The provider's id.
    pub id: Option<&'t str>,
    /// The key it was made under.
    pub key: Option<&'t str>,
    /// The amount.
    pub amount: Option<&'t str>,
    /// The currency.
    pub currency: Option<&'t str>,
    /// The time.
    pub at: Option<&'t str>,
    /// The provider says that it was made.
    pub is_made: bool,
}

impl<P> Made<P> {
    /// Those with one of the statuses `made`, and none with one of `not_made`.
    pub fn by_status(status: P, made: &[&str], not_made: &[&str]) -> Self {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Self::ByStatus { status, made: owned(made), not_made: owned(not_made) }
    }

    /// Returns true if an entry of this status was made; `None` if it was not and never will be.
    pub(crate) fn is_made(&self, found: Option<&str>) -> Option<bool> {
        let Self::ByStatus { made, not_made, .. } = self else { return Some(true) };
        let has = |list: &[String]| list.iter().any(|status| found == Some(status));
        if has(not_made) { None } else { Some(has(made)) }
    }
}

/// Rules by which a source reads texts into entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Form of times.
    pub time: TimeForm,
    /// Power of ten that amounts are multiplied by.
    pub amount_power: i32,
}

/// Maximum length of a provider's id; real ones are short.
const ID_BYTES_MAX: usize = 255;
/// Longer than any code in use.
const CURRENCY_BYTES_MAX: usize = 16;
/// An entry is an answer's body at most.
const RAW_BYTES_MAX: usize = 64 * 1024;

impl Reading {
    /// The entry, or what is wrong with it.
    pub fn entry(self, texts: Texts<'_>, raw: Bytes) -> Result<Theirs, &'static str> {
        let given = |text: Option<&str>| -> Option<String> {
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let id = given(texts.id).ok_or("it has no id")?;
        if id.len() > ID_BYTES_MAX || id.contains(char::is_control) {
            return Err("its id is longer than 255 bytes, or has control characters in it");
        }
        let key = given(texts.key.filter(|text| !stands_for_none(text)));
        let currency = given(texts.currency);
        if currency.as_ref().is_some_and(|currency| currency.len() > CURRENCY_BYTES_MAX) {
            return Err("its currency is longer than 16 bytes");
        }
        let amount = match texts.amount.filter(|text| !text.is_empty()) {
            Some(text) => {
                // The cause is not kept: its text says no more than this one.
                let Ok(amount) = Amount::parse(text) else {
                    return Err("its amount is not a decimal number");
                };
                Some(amount.shifted(self.amount_power))
            }
            None => None,
        };
        let at = texts.at.ok_or("it has no time")?;
        let at = self.time.parse(at).ok_or("its time cannot be read")?;
        let raw = if raw.len() > RAW_BYTES_MAX { Bytes::new() } else { raw };
        let is_made = texts.is_made;
        Ok(Theirs { provider_id: id, key, amount, currency, at, is_made, raw })
    }
}

/// Returns true if a text in the place of a key names nothing: it has no letter and no digit but zeros, or is a word
/// for nothing. An entry whose key were such a text would have a name, and nothing nameless is passed over.
fn stands_for_none(text: &str) -> bool {
    const WORDS: [&str; 5] = ["na", "null", "none", "nil", "undefined"];
    let plain: String = text.chars().filter(|each| each.is_alphanumeric()).collect();
    plain.chars().all(|each| each == '0')
        || WORDS.iter().any(|word| plain.eq_ignore_ascii_case(word))
}

impl fmt::Debug for Texts<'_> {
    /// Omits the key: it is other people's data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts")
            .field("id", &self.id)
            .field("amount", &self.amount)
            .field("currency", &self.currency)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl TimeForm {
    /// Reads a time.
    pub fn parse(self, text: &str) -> Option<Timestamp> {
        let whole = || text.parse::<i64>().ok().filter(|number| *number >= 0);
        match self {
            Self::UnixMillis => whole().map(Timestamp::from_millis),
            Self::UnixSeconds => whole()?.checked_mul(1000).map(Timestamp::from_millis),
            Self::Rfc3339 => rfc3339(text),
        }
    }

    /// Writes a time.
    pub fn write(self, at: Timestamp) -> String {
        match self {
            Self::UnixMillis => at.as_millis().to_string(),
            Self::UnixSeconds => at.as_millis().div_euclid(1000).to_string(),
            Self::Rfc3339 => humantime::format_rfc3339_millis(at.to_system_time()).to_string(),
        }
    }
}

fn rfc3339(text: &str) -> Option<Timestamp> {
    let (local, east) = match text.len().checked_sub(6).and_then(|at| text.split_at_checked(at)) {
        Some((local, offset)) if offset.starts_with(['+', '-']) && local.contains('T') => {
            (local, offset_seconds(offset)?)
        }
        _ => (text.strip_suffix(['Z', 'z'])?, 0),
    };
    if !local.ends_with(|last: char| last.is_ascii_digit()) {
        return None;
    }
    let time = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let millis = i64::try_from(since_epoch.as_millis()).ok()?;
    Some(Timestamp::from_millis(millis - east * 1000))
}

/// `+01:30` in seconds.
fn offset_seconds(text: &str) -> Option<i64> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let number = |text: &str, max: i64| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| is_number && *number <= max)
    };
    Some(sign * (number(hours, 23)? * 3600 + number(minutes, 59)? * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_each_form() {
        let noon = Timestamp::from_millis(1_769_860_800_250);
        for (form, text) in [
            (TimeForm::Rfc3339, "2026-01-31T12:00:00.250Z"),
            (TimeForm::Rfc3339, "2026-01-31T12:00:00.25Z"),
            (TimeForm::Rfc3339, "2026-01-31T13:30:00.250+01:30"),
            (TimeForm::Rfc3339, "2026-01-31T07:00:00.25-05:00"),
            (TimeForm::UnixMillis, "1769860800250"),
        ] {
            assert_eq!(form.parse(text), Some(noon), "{text}");
        }
        assert_eq!(
            TimeForm::UnixSeconds.parse("1769860800").unwrap().as_millis(),
            1_769_860_800_000
        );
        for form in [TimeForm::Rfc3339, TimeForm::UnixMillis] {
            assert_eq!(form.parse(&form.write(noon)), Some(noon));
        }
        assert_eq!(TimeForm::UnixSeconds.write(noon), "1769860800");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00+1:00",
            "2026-01-31T12:00:00+25:00",
            "2026-01-31T12:00:00Z+01:00",
            "ü026-01-31T12:00:00Z",
        ] {
            assert_eq!(TimeForm::Rfc3339.parse(text), None, "{text}");
        }
        for text in ["", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(TimeForm::UnixSeconds.parse(text), None, "{text}");
        }
    }

    /// Accounts write many things where there is no key.
    #[test]
    fn what_stands_for_no_key_is_none() {
        let read = |key| {
            let texts = Texts { id: Some("p"), key: Some(key), at: Some("0"), ..Texts::default() };
            let reading = Reading { time: TimeForm::UnixSeconds, ..Reading::default() };
            reading.entry(texts, Bytes::new()).unwrap().key
        };
        for text in [
            "",
            " ",
            "\t",
            "\u{a0}",
            "\u{200b}",
            "\u{feff} ",
            "-",
            "--",
            "\u{2014}",
            "N/A",
            "n/a",
            "null",
            "None",
            "NULL",
            " nil ",
            "undefined",
            "0",
            "\"\"",
            "''",
            "\"null\"",
            "(none)",
            "00000000-0000-0000-0000-000000000000",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        for text in ["7", "nullable", "order-0:charge:00000000000000a0", "no", "ü", " a", "-1"] {
            assert_eq!(read(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn an_entry_needs_an_id_and_a_time_and_says_nothing_else_wrongly() {
        let whole = Texts {
            id: Some("pay_1"),
            key: Some("k"),
            amount: Some("12.50"),
            currency: Some("EUR"),
            at: Some("2026-01-31T12:00:00Z"),
            is_made: true,
        };
        let read =
            |texts| Reading { amount_power: 2, ..Reading::default() }.entry(texts, Bytes::new());
        let entry = read(whole).unwrap();
        assert_eq!(entry.amount, Some("1250".parse().unwrap()));
        let bare =
            read(Texts { key: Some(""), amount: None, currency: Some(""), ..whole }).unwrap();
        assert_eq!((bare.key, bare.amount, bare.currency), (None, None, None));
        for (texts, problem) in [
            (Texts { id: None, ..whole }, "no id"),
            (Texts { id: Some(""), ..whole }, "no id"),
            (Texts { id: Some("a\nb"), ..whole }, "control"),
            (Texts { at: None, ..whole }, "no time"),
            (Texts { at: Some("now"), ..whole }, "time cannot"),
            (Texts { amount: Some("12,50"), ..whole }, "amount"),
            (Texts { currency: Some("a whole lot of euros"), ..whole }, "currency"),
        ] {
            let refused = read(texts).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
    }
}
