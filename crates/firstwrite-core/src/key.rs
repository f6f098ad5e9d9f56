//! The key a client sends in `Idempotency-Key`, in both spellings.
//!
//! Promises that a key is visible ASCII and bounded, so nothing later checks again, and that no error
//! or log line made here carries a whole key: a caller that knows a key can ask for its outcome.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

/// A client's name for one action: 1 to 255 visible ASCII characters.
///
/// A key has no `Display`, so it cannot slip into a message by accident; logs show [`Key::redacted`].
///
/// ```
/// use firstwrite_core::Key;
///
/// let quoted = Key::parse(r#""order-1"; attempt=2"#)?;
/// assert_eq!(quoted, Key::parse("order-1")?);
/// assert_eq!(quoted.as_str(), "order-1");
/// # Ok::<(), firstwrite_core::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Reason why a header value is not a key. The messages never repeat the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing between the quotes, or no value at all.
    Empty,
    /// More than [`Key::BYTES_MAX`] bytes.
    TooLong {
        /// Length of the value.
        bytes: usize,
    },
    /// A space, a control character or a byte outside ASCII.
    NotVisibleAscii,
    /// Another structured type: an inner list, byte sequence, boolean, date or display string.
    NotAString,
    /// Neither one quoted string nor a bare key.
    Malformed,
    /// More than one key: a second header line, or a list.
    Several,
}

impl Key {
    /// Long enough for any identifier in use, short enough for an index in every backend.
    pub const BYTES_MAX: usize = 255;

    /// The header a key travels in.
    pub const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

    /// Makes a key from its plain value, as [`Key::as_str`] returns it.
    pub fn new(value: &str) -> Result<Self, KeyError> {
        if value.is_empty() {
            return Err(KeyError::Empty);
        }
        if value.len() > Self::BYTES_MAX {
            return Err(KeyError::TooLong { bytes: value.len() });
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(KeyError::NotVisibleAscii);
        }
        Ok(Self(value.into()))
    }

    /// Parses one header field value, quoted or bare.
    ///
    /// Quoted is what the header asks for: a structured-field string (RFC 9651), whose parameters
    /// are accepted and ignored. Bare is what many clients send: the same characters unquoted.
    ///
    /// Bare is meant for identifiers, so whatever could be read in a second way is refused instead
    /// of guessed at: a comma (two lines joined by a proxy), a semicolon (parameters), quotes and
    /// backslashes (a damaged quoted form), and a first character that opens another structured
    /// type: `(`, `:`, `?`, `@` or `%`. Any such key can still be sent quoted.
    pub fn parse(header_value: &str) -> Result<Self, KeyError> {
        let value = header_value.trim_matches(' ');
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(KeyError::NotVisibleAscii);
        }
        match value.bytes().next() {
            None => Err(KeyError::Empty),
            Some(b'"') => Self::parse_quoted(value),
            Some(b'(' | b':' | b'?' | b'@' | b'%') => Err(KeyError::NotAString),
            Some(_) if value.contains(',') => Err(KeyError::Several),
            Some(_) if value.contains([';', '"', '\\']) => Err(KeyError::Malformed),
            Some(_) => Self::new(value),
        }
    }

    /// The key of a request; `None` if it has none.
    ///
    /// Two header lines are refused even if they are equal: which of them the next hop would use
    /// is not known.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, KeyError> {
        let mut lines = headers.get_all(Self::HEADER).iter();
        let Some(line) = lines.next() else { return Ok(None) };
        if lines.next().is_some() {
            return Err(KeyError::Several);
        }
        let Ok(value) = line.to_str() else { return Err(KeyError::NotVisibleAscii) };
        Self::parse(value).map(Some)
    }

    /// The plain value, without quotes. Not for logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a form that is safe to log: the length, and the first four characters if at least eight
    /// stay hidden.
    pub fn redacted(&self) -> impl fmt::Display {
        let shown = if self.0.len() >= 12 { &self.0[..4] } else { "" };
        let length = self.0.len();
        fmt::from_fn(move |f| write!(f, "{shown}…({length})"))
    }

    /// The quoted form, as it goes into a header.
    pub fn to_header_value(&self) -> HeaderValue {
        let mut quoted = String::with_capacity(self.0.len() + 2);
        quoted.push('"');
        for character in self.0.chars() {
            if matches!(character, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
        quoted.push('"');
        HeaderValue::try_from(quoted).expect("a key is visible ASCII, which any header may carry")
    }

    fn parse_quoted(value: &str) -> Result<Self, KeyError> {
        let Ok(item) = sfv::Parser::new(value).parse::<sfv::Item>() else {
            return Err(KeyError::Malformed);
        };
        let string = item.bare_item.as_string().ok_or(KeyError::NotAString)?;
        Self::new(string.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.redacted())
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the key is empty"),
            Self::TooLong { bytes } => {
                write!(f, "the key has {bytes} bytes, {} are allowed", Key::BYTES_MAX)
            }
            Self::NotVisibleAscii => f.write_str("the key may hold visible ASCII characters only"),
            Self::NotAString => f.write_str("the key is not a string; put it in double quotes"),
            Self::Malformed => {
                f.write_str("the key is neither one quoted string nor plain characters")
            }
            Self::Several => f.write_str("there is more than one key; send exactly one"),
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests;
