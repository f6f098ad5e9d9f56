//! Forms of single settings in a file, and their defaults.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::{Anonymous, Carrier};

pub(super) fn nowhere() -> Anonymous {
    Anonymous::Never
}

pub(super) fn subject() -> String {
    "sub".to_owned()
}

/// Clocks that are kept by a time server differ by less than a second; this forgives a bad one.
pub(super) fn leeway() -> Duration {
    Duration::from_secs(30)
}

/// Plain tokens, and access tokens as RFC 9068 has them.
pub(super) fn token_types() -> Vec<String> {
    vec!["JWT".to_owned(), "at+jwt".to_owned()]
}

pub(super) fn both_carriers() -> Vec<Carrier> {
    vec![Carrier::Bearer, Carrier::Basic]
}

/// A length of time with its unit.
pub(super) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(D::Error::custom)
}

/// A text, or a list of texts.
pub(super) fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Texts;

    impl<'de> Visitor<'de> for Texts {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a list of texts")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = list.next_element()? {
                texts.push(text);
            }
            Ok(texts)
        }
    }

    from.deserialize_any(Texts)
}

impl<'de> Deserialize<'de> for Anonymous {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Where;

        impl<'de> Visitor<'de> for Where {
            type Value = Anonymous;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a list of operations such as [\"POST /sign-up\"]")
            }

            fn visit_bool<E: Error>(self, everywhere: bool) -> Result<Self::Value, E> {
                Ok(if everywhere { Anonymous::Everywhere } else { Anonymous::Never })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut names = BTreeSet::new();
                while let Some(name) = list.next_element()? {
                    names.insert(name);
                }
                Ok(Anonymous::Operations(names))
            }
        }

        from.deserialize_any(Where)
    }
}
