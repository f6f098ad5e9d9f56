//! Mistakes in a settings file, with their places.

/// A mistake, and its place in the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    offset: Option<usize>,
    pub(super) message: String,
}

impl Mistake {
    /// About what begins at `offset`.
    pub(super) fn at(offset: usize, message: impl Into<String>) -> Self {
        Self { offset: Some(offset), message: message.into() }
    }

    /// The line in `text`, from 1, if it is known.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        self.offset.map(|offset| line(text, offset))
    }
}

/// The line at `offset`, from 1.
pub(super) fn line(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

impl From<toml::de::Error> for Mistake {
    fn from(error: toml::de::Error) -> Self {
        // The parser's own message may run over several lines.
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { offset: error.span().map(|span| span.start), message: without_value(&message) }
    }
}

/// The message without the value that it repeats, which may be a secret.
fn without_value(message: &str) -> String {
    for kind in ["invalid type: string \"", "invalid value: string \""] {
        if let Some(rest) = message.strip_prefix(kind)
            && let Some((_, expected)) = rest.rsplit_once("\", expected ")
        {
            return format!("a text stands here; expected {expected}");
        }
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_repeated() {
        let told = |text: &str| {
            let error = toml::from_str::<std::collections::BTreeMap<String, u16>>(text);
            Mistake::from(error.unwrap_err())
        };
        let mistake = told("\nname = 'my\" secret, expected'\n");
        assert_eq!(mistake.line("\nname"), Some(2));
        assert_eq!(mistake.message, "a text stands here; expected u16");
        assert!(told("a = 70000").message.contains("70000"));
    }
}
