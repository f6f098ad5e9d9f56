//! Percent-encoding (RFC 3986), for keys in paths, for comparing paths, and for showing them.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Encodes everything that is not unreserved, so that the result is one path segment.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a string");
        }
    }
    encoded
}

/// A path as it may be shown in a log or on a terminal: everything beyond visible ASCII is escaped. A path
/// on the wire may hold any UTF-8, with what moves a cursor or turns a line around in it.
pub fn escape_path(path: &str) -> Cow<'_, str> {
    if path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Cow::Borrowed(path);
    }
    let mut shown = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_graphic() {
            shown.push(char::from(byte));
        } else {
            write!(shown, "%{byte:02X}").expect("writing to a string");
        }
    }
    Cow::Owned(shown)
}

/// Decodes; what is not a proper escape stays as it is.
pub(crate) fn decode(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('%') {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                hex(*high).zip(hex(*low)).map(|(high, low)| (high << 4 | low, after))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, tail));
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_undoes_encoding() {
        for text in ["order-1", "a/b?c#d%20 e", "\"quoted\\\"", "~._-", "100%"] {
            let encoded = encode(text);
            assert!(!encoded.contains(['/', '?', '#', ' ', '"']), "{encoded}");
            assert_eq!(decode(&encoded), text.as_bytes());
        }
    }

    #[test]
    fn what_is_shown_moves_no_cursor() {
        assert_eq!(escape_path("/pay/%1b;a=1"), "/pay/%1b;a=1");
        assert_eq!(escape_path("/\u{9b}31m\u{202e}é\n"), "/%C2%9B31m%E2%80%AE%C3%A9%0A");
    }

    #[test]
    fn broken_escapes_stay_as_they_are() {
        for text in ["%", "%4", "%zz", "a%"] {
            assert_eq!(decode(text), text.as_bytes());
        }
    }
}
