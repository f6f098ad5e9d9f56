//! Content type and content encoding of a request, by meaning.
//!
//! Two spellings of one meaning are written alike: case, white space, quotes, the order of parameters,
//! and a charset that is the type's default. Everything else counts, and a value that cannot be parsed
//! is taken as it stands. Stored format, like [`form`](super::form).

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use super::form::{append_length, append_sized};

/// Marks a content type that was parsed: its meaning follows.
const READ: u8 = 1;
/// Marks a missing or repeated content type, or one that cannot be parsed: each line follows as it
/// stands.
const UNREAD: u8 = 0;

/// The content type of nearly every request; checked first.
const JSON: &str = "application/json";

/// A content type, taken apart.
struct MediaType {
    /// In lower case.
    essence: String,
    /// Names in lower case, values without their quotes, sorted.
    parameters: Vec<(String, String)>,
}

/// Returns true if the content type is JSON: `application/json` or any type that ends in `+json`.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = only_line(headers).and_then(|line| line.to_str().ok()) else { return false };
    is_json_type(value.split(';').next().unwrap_or_default().trim())
}

fn is_json_type(essence: &str) -> bool {
    essence.eq_ignore_ascii_case(JSON)
        || essence
            .split_once('/')
            .and_then(|(_, subtype)| subtype.rsplit_once('+'))
            .is_some_and(|(_, suffix)| suffix.eq_ignore_ascii_case("json"))
}

/// Appends what the body is said to be.
pub(super) fn append_type(headers: &HeaderMap, out: &mut Vec<u8>) {
    let line = only_line(headers);
    if line.is_some_and(|line| line == JSON) {
        out.push(READ);
        append_sized(JSON.as_bytes(), out);
        return append_length(0, out);
    }
    let read = line.and_then(|line| line.to_str().ok()).and_then(MediaType::read);
    let Some(MediaType { essence, parameters }) = read else {
        out.push(UNREAD);
        let lines = headers.get_all(CONTENT_TYPE);
        append_length(lines.iter().count(), out);
        return lines.iter().for_each(|line| append_sized(line.as_bytes(), out));
    };
    out.push(READ);
    append_sized(essence.as_bytes(), out);
    append_length(parameters.len(), out);
    for (name, value) in &parameters {
        append_sized(name.as_bytes(), out);
        append_sized(value.as_bytes(), out);
    }
}

/// Appends the codings that the body went through, in their order; `identity` is none.
pub(super) fn append_encoding(headers: &HeaderMap, out: &mut Vec<u8>) {
    let count_at = out.len();
    append_length(0, out);
    let mut count = 0_u64;
    for line in headers.get_all(CONTENT_ENCODING) {
        for coding in line.as_bytes().split(|byte| *byte == b',') {
            let coding = match coding.trim_ascii().to_ascii_lowercase() {
                coding if coding.is_empty() || coding == b"identity" => continue,
                coding if coding == b"x-gzip" => b"gzip".to_vec(),
                coding if coding == b"x-compress" => b"compress".to_vec(),
                coding => coding,
            };
            append_sized(&coding, out);
            count += 1;
        }
    }
    out[count_at..count_at + 8].copy_from_slice(&count.to_be_bytes());
}

/// The content type, if there is one. Two are none: no reader could tell which one holds.
fn only_line(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let line = lines.next()?;
    lines.next().is_none().then_some(line)
}

impl MediaType {
    fn read(text: &str) -> Option<Self> {
        let (essence, mut rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        let essence = essence.trim().to_ascii_lowercase();
        let (kind, subtype) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) {
            return None;
        }
        let mut parameters = Vec::new();
        while let Some(after) = rest.strip_prefix(';') {
            let after = after.trim_start();
            // Nothing between two semicolons, or behind the last.
            if after.is_empty() || after.starts_with(';') {
                rest = after;
                continue;
            }
            let (name, after) = after.split_once('=')?;
            let name = name.trim_end().to_ascii_lowercase();
            let (value, after) = value(after.trim_start())?;
            if !is_token(&name) {
                return None;
            }
            parameters.push((name, value));
            rest = after.trim_start();
        }
        if !rest.is_empty() {
            return None;
        }
        for (name, value) in &mut parameters {
            if name == "charset" {
                value.make_ascii_lowercase();
            }
        }
        // JSON is UTF-8 and so is a form that a browser sends, whether or not they say it.
        if is_json_type(&essence) || essence == "application/x-www-form-urlencoded" {
            parameters.retain(|(name, value)| name != "charset" || value != "utf-8");
        }
        parameters.sort();
        Some(Self { essence, parameters })
    }
}

/// A parameter's value without its quotes, and what follows it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        let value = value.trim_end();
        return is_token(value).then(|| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            _ => value.push(character),
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    let is_mark = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn headers(name: &HeaderName, lines: &[&str]) -> HeaderMap {
        let line = |text: &&str| (name.clone(), HeaderValue::from_str(text).unwrap());
        let mut headers = HeaderMap::new();
        headers.extend(lines.iter().map(line));
        headers
    }

    fn check(name: &HeaderName, one: &[&str], other: &[&str], expected: bool) {
        let taken = |lines| {
            let mut out = Vec::new();
            match *name {
                CONTENT_TYPE => append_type(&headers(name, lines), &mut out),
                _ => append_encoding(&headers(name, lines), &mut out),
            }
            out
        };
        assert_eq!(taken(one) == taken(other), expected, "{one:?} and {other:?}");
    }

    #[test]
    fn spellings_of_one_content_type_are_one() {
        let check = |one: &str, other: &str| check(&CONTENT_TYPE, &[one], &[other], true);
        check("application/json", "application/json; charset=utf-8");
        check("application/json", "Application/JSON ;\tCharset=\"UTF-8\" ;");
        check("application/merge-patch+json", "application/merge-patch+json;charset=utf-8");
        check(
            "application/x-www-form-urlencoded",
            "application/x-www-form-urlencoded;charset=utf-8",
        );
        check("text/plain; charset=UTF-8", "Text/Plain;charset=\"utf-8\"");
        check("multipart/form-data; boundary=aB", "multipart/form-data;boundary=\"aB\"");
        check("multipart/form-data; boundary=\"a\\B\"", "multipart/form-data; boundary=\"aB\"");
        check("a/b; x=1; y=2", "a/b; Y=2; X=1");
        check("a/b; x=1", "a/b;; x=1;");
    }

    #[test]
    fn another_content_type_is_another() {
        let check = |one: &[&str], other: &[&str]| check(&CONTENT_TYPE, one, other, false);
        check(&["multipart/form-data; boundary=a"], &["multipart/form-data; boundary=A"]);
        check(&["application/json"], &["application/merge-patch+json"]);
        check(&["application/json"], &["application/json; charset=utf-7"]);
        check(&["application/json"], &["application/json; profile=x"]);
        check(&["text/plain"], &["text/plain; charset=utf-8"]);
        check(&["text/plain"], &["application/x-www-form-urlencoded"]);
        check(&["application/json"], &[]);
        check(&["application/json"], &["application/json", "application/json"]);
        check(&[], &[""]);
        // What cannot be read counts as it stands.
        check(&["a/b; x=\"1"], &["a/b; x=1"]);
        check(&["a/b; x=1 2"], &["a/b; x=1"]);
        check(&["a/b, c/d"], &["a/b"]);
        check(&["a/b; x=1; x=2"], &["a/b; x=1"]);
        check(&["a/b; xy=1"], &["a/b; x=y1"]);
    }

    #[test]
    fn codings_count_in_their_order_and_identity_is_none() {
        let check = |one: &[&str], other: &[&str], expected| {
            check(&CONTENT_ENCODING, one, other, expected);
        };
        check(&[], &["identity"], true);
        check(&[], &["", " , Identity"], true);
        check(&["gzip"], &[" GZip "], true);
        check(&["gzip"], &["x-gzip"], true);
        check(&["gzip, br"], &["gzip", "br"], true);
        check(&["gzip"], &[], false);
        check(&["gzip"], &["br"], false);
        check(&["gzip, br"], &["br, gzip"], false);
        check(&["gzip"], &["gzip, gzip"], false);
    }
}
