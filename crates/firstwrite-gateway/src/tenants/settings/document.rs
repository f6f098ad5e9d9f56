//! A text that stands in the settings or in a file beside them.

use std::fmt;

use serde::Deserialize;

use super::SettingsError;

/// A text that stands in the settings or in a file beside them: `{ text = "…" }` or
/// `{ file = "…" }`. Its `Debug` shows the name of the file and never the text.
#[derive(Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Document {
    /// The name of the file, which the program that reads files replaces by its text.
    File(String),
    /// The text.
    Text(String),
}

impl Document {
    /// The text, once it was read.
    pub(crate) fn text(&self, setting: &str) -> Result<&str, SettingsError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::File(name) => {
                Err(SettingsError::new(setting, format!("the file {name} was not read")))
            }
        }
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => f.debug_tuple("File").field(name).finish(),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
        }
    }
}
