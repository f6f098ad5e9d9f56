//! The name of an operation: a method, and a path pattern that requests can have.

use axum::http::Method;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(in crate::config::gateway) struct OperationName {
    pub(in crate::config::gateway) method: Method,
    pub(in crate::config::gateway) pattern: String,
}

const EXPECTED: &str =
    "an operation is a method and a path, such as \"POST /payments/{id}/refunds\"";

impl TryFrom<String> for OperationName {
    type Error = String;

    /// Refuses a name that no request can have: its calls would pass through unprotected.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let parts = text.split_once(' ').filter(|(_, pattern)| pattern.starts_with('/'));
        let Some((method, pattern)) = parts else { return Err(EXPECTED.to_owned()) };
        let method = read_method(method)?;
        check_pattern(pattern)?;
        Ok(Self { method, pattern: pattern.to_owned() })
    }
}

/// Methods are case-sensitive, and the gateway refuses `put`, which some servers take for `PUT`.
fn read_method(text: &str) -> Result<Method, String> {
    let Ok(method) = text.parse::<Method>() else { return Err(EXPECTED.to_owned()) };
    let capital = text.to_ascii_uppercase();
    if text != capital {
        return Err(format!("no request has the method {text}; write {capital}"));
    }
    if method == Method::CONNECT {
        return Err("the gateway refuses every CONNECT; leave the operation out".to_owned());
    }
    Ok(method)
}

fn check_pattern(pattern: &str) -> Result<(), String> {
    if let Some(mark) = pattern.chars().find(|letter| matches!(letter, '?' | '#')) {
        return Err(format!("a query is no part of an operation; leave it out from the {mark} on"));
    }
    if pattern.contains('\\') {
        return Err("a pattern is a plain path; for the backslash, write / instead".to_owned());
    }
    if pattern == "/.firstwrite" || pattern.starts_with("/.firstwrite/") {
        return Err("everything under /.firstwrite/ is the gateway's own; leave the operation out"
            .to_owned());
    }
    let mut segments = pattern.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        check_segment(segment, segments.peek().is_none())?;
    }
    Ok(())
}

fn check_segment(segment: &str, is_last: bool) -> Result<(), String> {
    let wrong = |what: &str| Err(what.to_owned());
    if matches!(segment, "." | "..") {
        return wrong("a pattern is a plain path; write it without . and .. segments");
    }
    if let Some(escape) = escape(segment) {
        return Err(format!(
            "request paths are decoded before they are compared; for {escape}, write the character itself, or \
             {{name}} for the whole segment"
        ));
    }
    if segment.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return wrong("a pattern has no spaces; write {name} for a segment that has one");
    }
    if let Some(name) = segment.strip_prefix(':') {
        return Err(format!(":{name} stands for itself alone; for any segment, write {{{name}}}"));
    }
    if matches!(segment, "*" | "**") {
        return wrong(
            "* stands for itself alone; for all segments that follow, write {*rest}, for one {name}",
        );
    }
    let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some(name) if name.starts_with('*') && !is_last => {
            wrong("{*name} stands only at the end of a pattern; write {name} for one segment")
        }
        _ if name.unwrap_or(segment).contains(['{', '}']) => {
            wrong("{name} stands for a whole segment of a path, not for a part of one")
        }
        Some(_) | None => Ok(()),
    }
}

/// The first percent-encoded character.
fn escape(segment: &str) -> Option<&str> {
    let candidates = segment.match_indices('%').filter_map(|(at, _)| segment.get(at..at + 3));
    candidates
        .into_iter()
        .find(|found| found.bytes().skip(1).all(|digit| digit.is_ascii_hexdigit()))
}
