//! Codecs that several crates need: hexadecimal digits, percent-encoding and paths.

/// Bytes as hexadecimal digits.
pub mod hex {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    /// Returns the digits of `bytes`, in lower case.
    pub fn encode(bytes: &[u8]) -> String {
        let mut text = String::new();
        push(&mut text, bytes);
        text
    }

    /// Appends the digits of `bytes`, in lower case.
    pub fn push(text: &mut String, bytes: &[u8]) {
        text.reserve(bytes.len() * 2);
        for byte in bytes {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }

    /// Returns the bytes that `digits` stand for, in either case; `None` if they stand for none.
    pub fn decode(digits: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = vec![0; digits.len() / 2];
        decode_into(digits, &mut bytes).then_some(bytes)
    }

    /// Fills `bytes` with what `digits` stand for. Returns false unless the digits are valid and fill it exactly.
    #[must_use]
    pub fn decode_into(digits: &[u8], bytes: &mut [u8]) -> bool {
        let pairs = digits.chunks_exact(2);
        digits.len() == bytes.len() * 2
            && pairs.zip(bytes).all(|(pair, byte)| {
                let decoded = super::byte(pair[0], pair[1]);
                *byte = decoded.unwrap_or(0);
                decoded.is_some()
            })
    }
}

/// Percent-encoding (RFC 3986).
pub mod percent {
    use std::borrow::Cow;
    use std::fmt::Write as _;

    /// Encodes everything that is not unreserved, so that the result is one path segment.
    pub fn encode(text: &str) -> String {
        let is_unreserved = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        encode_unless(text, is_unreserved)
    }

    /// Encodes each character that `is_plain` refuses, by its bytes in UTF-8.
    pub fn encode_unless(text: &str, is_plain: impl Fn(char) -> bool) -> String {
        let mut encoded = String::with_capacity(text.len());
        for character in text.chars() {
            if is_plain(character) {
                encoded.push(character);
                continue;
            }
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                write!(encoded, "%{byte:02X}").expect("a string takes any text");
            }
        }
        encoded
    }

    /// Decodes; what is not a proper escape stays as it is.
    pub fn decode_lenient(text: &str) -> impl Iterator<Item = u8> + '_ {
        let mut rest = text.as_bytes();
        std::iter::from_fn(move || {
            let (byte, after) =
                escaped(rest).or_else(|| rest.split_first().map(|(b, r)| (*b, r)))?;
            rest = after;
            Some(byte)
        })
    }

    /// Decodes; `None` if a percent sign begins no escape, or the bytes are not UTF-8.
    pub fn decode(text: &str) -> Option<String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((&first, tail)) = rest.split_first() {
            let (byte, after) = if first == b'%' { escaped(rest)? } else { (first, tail) };
            bytes.push(byte);
            rest = after;
        }
        String::from_utf8(bytes).ok()
    }

    /// Escapes everything beyond visible ASCII in a path, so that it can be shown in a log or on a terminal:
    /// a path on the wire may hold control characters, and letters that turn a line around.
    pub fn escape_path(path: &str) -> Cow<'_, str> {
        if path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Cow::Borrowed(path);
        }
        Cow::Owned(encode_unless(path, |character| character.is_ascii_graphic()))
    }

    /// The byte of the escape at the start of `text`, and the rest.
    fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
        let [b'%', high, low, rest @ ..] = text else { return None };
        super::byte(*high, *low).map(|byte| (byte, rest))
    }
}

/// Paths as other servers may read them.
pub mod path {
    use super::percent::decode_lenient;

    /// Tells whether some servers take a path for another one: a segment that is one or two dots, also with a
    /// parameter behind it, a backslash, or a control character. Escapes count as what they stand for.
    pub fn is_misread(path: &str) -> bool {
        // How many dots the segment consists of so far; none once it has anything else.
        let mut dots = Some(0);
        for byte in decode_lenient(path) {
            match byte {
                b'\\' => return true,
                byte if byte.is_ascii_control() => return true,
                b'/' | b';' if matches!(dots, Some(1 | 2)) => return true,
                b'/' => dots = Some(0),
                b'.' => dots = dots.map(|count: usize| count + 1),
                _ => dots = None,
            }
        }
        matches!(dots, Some(1 | 2))
    }
}

/// The byte that two hexadecimal digits stand for.
fn byte(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::path::is_misread;
    use super::{hex, percent};

    #[test]
    fn digits_are_read_back_and_nothing_else_is() {
        assert_eq!(hex::encode(&[0x00, 0xff, 0x1a]), "00ff1a");
        for digits in ["00ff1a", "00FF1a"] {
            assert_eq!(hex::decode(digits.as_bytes()), Some(vec![0x00, 0xff, 0x1a]));
        }
        for wrong in ["0", "0g", "+f", "é"] {
            assert_eq!(hex::decode(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(!hex::decode_into(b"0011", &mut [0; 3]));
    }

    #[test]
    fn decoding_undoes_encoding() {
        for text in ["order-1", "a/b?c#d%20 e", "\"quoted\\\"", "~._-", "100%", "é"] {
            let encoded = percent::encode(text);
            assert!(!encoded.contains(['/', '?', '#', ' ', '"']), "{encoded}");
            assert_eq!(percent::decode(&encoded).as_deref(), Some(text));
        }
    }

    #[test]
    fn broken_escapes_stay_as_they_are_or_are_refused() {
        for text in ["%", "%4", "%zz", "a%", "%+f"] {
            assert!(percent::decode_lenient(text).eq(text.bytes()), "{text}");
            assert_eq!(percent::decode(text), None, "{text}");
        }
        assert_eq!(percent::decode("%ff"), None, "not UTF-8");
    }

    #[test]
    fn what_is_shown_moves_no_cursor() {
        assert_eq!(percent::escape_path("/pay/%1b;a=1"), "/pay/%1b;a=1");
        assert_eq!(percent::escape_path("/\u{9b}31m\u{202e}é\n"), "/%C2%9B31m%E2%80%AE%C3%A9%0A");
    }

    #[test]
    fn segments_of_dots_backslashes_and_control_characters_are_misread() {
        for path in [
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/%2e",
            "/.%2E/a",
            "/..;/a",
            "/.;a=b",
            "/a%2f..",
            "/a\\b",
            "/a%5cb",
            "/%00",
            "/a%0a",
            "/%7f",
            "/a%2f%2e%2e%2fb",
            "..",
            "/a/..%3bb",
        ] {
            assert!(is_misread(path), "{path}");
        }
        for path in [
            "/",
            "*",
            "/a",
            "/a/",
            "//a",
            "/.a",
            "/a.",
            "/...",
            "/a..",
            "/..a/b",
            "/;..",
            "/a;../b",
            "/%",
            "/%2",
            "/%zz",
            "/%252e",
            "/a%20b",
            "/caf%c3%a9",
            "/.well-known/x",
        ] {
            assert!(!is_misread(path), "{path}");
        }
    }
}
