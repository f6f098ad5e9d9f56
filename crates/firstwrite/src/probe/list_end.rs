//! Decides whether an answer with a list says that the list ends with it: the one rule for the empty list of
//! a probe and for the last page of an account.
//!
//! What is not in a whole list did not happen, and is done again. So everything in the answer besides the list
//! must be known to be harmless; a name that nobody thought of costs a proof, not a payment.
//!
//! 1. A value at a declared place is harmless: the list, the paging member, and what the settings call harmless.
//! 2. Null, 0, an empty text, an empty array and an empty object are harmless, but for names that affirm the end
//!    ([`SUCCESS`], [`END`]): these must be true.
//! 3. False is harmless under the names of [`FALSE_IS_HARMLESS`].
//! 4. A number is harmless under a name of [`COUNTS`] or [`PAGES`] if it is no greater than what was read.
//! 5. A number or a single word is harmless under the names of [`DESCRIPTIVE`], unless it speaks of trouble or of a
//!    part.
//! 6. An object is harmless under the names of [`CONTAINERS`] if everything in it is.
//! 7. Headers contradict the end that lead to a next page, count more than was read, or have a name with one of
//!    [`HEADER_PARTS`] in it that is not known; so do those of an old copy.

use firstwrite_core::Pointer;
use firstwrite_core::reconcile::Rules;
use http::header::{AGE, CONTENT_RANGE, LINK, WARNING};
use http::{HeaderMap, HeaderName};
use serde_json::Value;

/// Names are compared in small letters, without anything but letters and digits, and without `is` before them.
const SUCCESS: [&str; 4] = ["ok", "success", "successful", "succeeded"];
const END: [&str; 9] =
    ["done", "complete", "completed", "finished", "final", "last", "lastpage", "end", "nomore"];
const FALSE_IS_HARMLESS: [&str; 22] = [
    "more",
    "hasmore",
    "next",
    "hasnext",
    "hasnextpage",
    "hasprev",
    "hasprevpage",
    "hasprevious",
    "haspreviouspage",
    "truncated",
    "partial",
    "incomplete",
    "incompleteresults",
    "timedout",
    "timeout",
    "error",
    "errors",
    "haserror",
    "haserrors",
    "failed",
    "livemode",
    "testmode",
];
const COUNTS: [&str; 19] = [
    "total",
    "count",
    "totalcount",
    "totalresults",
    "totalitems",
    "totalelements",
    "totalrecords",
    "totalentries",
    "totalhits",
    "numfound",
    "found",
    "hits",
    "length",
    "itemcount",
    "resultcount",
    "recordcount",
    "numberofelements",
    "numresults",
    "returned",
];
const PAGES: [&str; 7] =
    ["page", "pages", "totalpages", "pagecount", "pagenumber", "currentpage", "numpages"];
const DESCRIPTIVE: [&str; 15] = [
    "object",
    "type",
    "kind",
    "url",
    "self",
    "href",
    "account",
    "apiversion",
    "version",
    "requestid",
    "traceid",
    "correlationid",
    "limit",
    "perpage",
    "pagesize",
];
const CONTAINERS: [&str; 8] =
    ["meta", "metadata", "links", "self", "paging", "pagination", "page", "pageinfo"];
/// Parts of the names that lead from page to page. On a page that is not the last one they say nothing new.
const PAGING_PARTS: [&str; 13] = [
    "more",
    "next",
    "prev",
    "cursor",
    "continu",
    "token",
    "page",
    "last",
    "remaining",
    "after",
    "offset",
    "truncated",
    "total",
];
/// Parts of texts and names that speak of trouble, also on a page that is not the last one.
const TROUBLE_PARTS: [&str; 8] =
    ["error", "fail", "partial", "timeout", "timedout", "timed out", "incomplete", "warn"];
/// Parts of texts that speak of trouble or of a part of a list, with spaces for `_` and `-`.
const PART_PHRASES: [&str; 8] =
    ["truncat", "abort", "interrupt", "cut short", "cut off", "degrad", "stale", "only "];
/// Headers by which APIs count a list, besides those of [`COUNTS`] and [`PAGES`], or lead to its next page, without
/// `x` before them.
const COUNT_HEADERS: [&str; 4] =
    ["paginationtotal", "paginationtotalcount", "paginationcount", "wptotal"];
const PAGE_HEADERS: [&str; 2] = ["paginationtotalpages", "wptotalpages"];
const NEXT_HEADERS: [&str; 9] = [
    "hasmore",
    "hasnext",
    "nextpage",
    "nextcursor",
    "nexttoken",
    "nextpagetoken",
    "continuation",
    "continuationtoken",
    "mscontinuation",
];

/// Parts of headers' names that can mean that a list goes on. The names that are known are above and in
/// [`is_about_no_list`].
const HEADER_PARTS: [&str; 8] =
    ["total", "count", "page", "paginat", "next", "more", "truncat", "range"];

/// The position of an answer in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// By the declared paging, another page follows.
    Middle,
    /// By the declared paging, the list ends here.
    End,
}

/// The extent of the whole list, as far as an answer states it; 0 where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedExtent {
    /// The greatest number of items that it states.
    pub items: u64,
    /// The greatest number of pages that it states.
    pub pages: u64,
}

/// An answer that has a list in it.
pub(crate) struct ListAnswer<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) document: &'a Value,
    /// The place of the list, which was found there.
    pub(crate) list: &'a Pointer,
    /// The place of the declared paging member, if there is one.
    pub(crate) paging: Option<&'a Pointer>,
    /// The places that the settings call harmless.
    pub(crate) harmless: &'a [Pointer],
}

impl ListAnswer<'_> {
    /// Returns the extent that the answer states, which the caller compares with what was read. The error names
    /// the place that is not known to be harmless at this position.
    pub(crate) fn check(&self, position: Position) -> Result<StatedExtent, String> {
        let mut stated = StatedExtent::default();
        self.check_headers(position, &mut stated)?;
        self.check_value(self.document, "", position, &mut stated)?;
        Ok(stated)
    }

    fn check_value(
        &self,
        value: &Value,
        path: &str,
        position: Position,
        stated: &mut StatedExtent,
    ) -> Result<(), String> {
        if self.is_declared(path) {
            return Ok(());
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_way = self.leads_to_declared(path);
        match value {
            Value::Object(members) if is_way || CONTAINERS.contains(&plain(name).as_str()) => {
                members.iter().try_for_each(|(name, value)| {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    self.check_value(value, &format!("{path}/{name}"), position, stated)
                })
            }
            Value::Array(items) if is_way => {
                items.iter().enumerate().try_for_each(|(at, value)| {
                    self.check_value(value, &format!("{path}/{at}"), position, stated)
                })
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {
                if is_harmless(name, value, position, stated) {
                    return Ok(());
                }
                Err(format!("has something at {:?}, and its list may go on", shown(path)))
            }
        }
    }

    fn declared(&self) -> impl Iterator<Item = &str> {
        let places = [Some(self.list), self.paging].into_iter().flatten();
        places.chain(self.harmless).map(Pointer::as_str)
    }

    fn is_declared(&self, path: &str) -> bool {
        self.declared().any(|place| place == path)
    }

    fn leads_to_declared(&self, path: &str) -> bool {
        self.declared().any(|place| leads_to(path, place))
    }

    fn check_headers(&self, position: Position, stated: &mut StatedExtent) -> Result<(), String> {
        if position == Position::End && links_on(self.headers) {
            return Err("has a Link header that leads to a next page".to_owned());
        }
        for (name, value) in self.headers {
            let plain = plain(name.as_str());
            let plain = plain.strip_prefix('x').unwrap_or(&plain);
            let text = value.to_str().unwrap_or("?").trim();
            let is_content_range = name == CONTENT_RANGE;
            let is_one_of = |names: &[&str]| names.contains(&plain);
            let (count, extent) = if is_content_range {
                (text.rsplit('/').next().unwrap_or(text), &mut stated.items)
            } else if is_one_of(&COUNT_HEADERS) || is_one_of(&COUNTS) {
                (text, &mut stated.items)
            } else if is_one_of(&PAGE_HEADERS) || is_one_of(&PAGES) {
                (text, &mut stated.pages)
            } else {
                check_header(name, plain, text, position)?;
                continue;
            };
            match count.parse::<u64>() {
                Ok(count) => *extent = count.max(*extent),
                // The size of the whole list is not known there.
                Err(_) if is_content_range && count == "*" => {}
                Err(_) => return Err(format!("has a header {name} that cannot be read")),
            }
        }
        Ok(())
    }
}

/// Returns true if `place` stands within what stands at `path`.
fn leads_to(path: &str, place: &str) -> bool {
    place.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns true if `place` is `outer`, or stands within it.
pub(crate) fn is_within(place: &Pointer, outer: &Pointer) -> bool {
    place == outer || leads_to(outer.as_str(), place.as_str())
}

impl StatedExtent {
    /// The greater of both, part by part.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { items: self.items.max(other.items), pages: self.pages.max(other.pages) }
    }

    /// Returns true if the list has more than was read.
    pub(crate) fn exceeds(self, items: usize, pages: usize) -> bool {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        count(items) < self.items || count(pages) < self.pages
    }
}

/// Returns true if a value that is no declared place is harmless under this name. Counts are noted in `stated`.
fn is_harmless(name: &str, value: &Value, position: Position, stated: &mut StatedExtent) -> bool {
    let name = plain(name);
    let name = name.strip_prefix("is").unwrap_or(&name);
    let is_one_of = |names: &[&str]| names.contains(&name);
    if let Some(count) = value.as_u64() {
        if is_one_of(&COUNTS) {
            stated.items = stated.items.max(count);
            return true;
        }
        if is_one_of(&PAGES) {
            stated.pages = stated.pages.max(count);
            return true;
        }
    }
    if is_one_of(&SUCCESS) {
        return *value == Value::Bool(true);
    }
    if position == Position::Middle
        && has_part(name, &PAGING_PARTS)
        && !has_part(name, &TROUBLE_PARTS)
    {
        return true;
    }
    if is_one_of(&END) {
        return position == Position::Middle || *value == Value::Bool(true);
    }
    match value {
        Value::Null => true,
        Value::Bool(true) => is_one_of(&["livemode", "testmode"]),
        Value::Bool(false) => is_one_of(&FALSE_IS_HARMLESS),
        Value::Number(number) => number.as_f64() == Some(0.0) || is_one_of(&DESCRIPTIVE),
        Value::String(text) => text.is_empty() || (is_one_of(&DESCRIPTIVE) && describes(text)),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Checks a header that counts nothing. `plain` is its name as names are compared.
fn check_header(
    name: &HeaderName,
    plain: &str,
    text: &str,
    position: Position,
) -> Result<(), String> {
    if name == WARNING {
        return Err("has a header warning".to_owned());
    }
    if name == AGE {
        let is_young = text.parse().is_ok_and(|age: u64| age <= Rules::TOLERANCE.as_secs());
        return is_young.then_some(()).ok_or_else(|| {
            "has a header age: it is a copy, of more than five minutes ago".to_owned()
        });
    }
    if matches!(text, "" | "0" | "false" | "null") || is_about_no_list(plain) {
        return Ok(());
    }
    if NEXT_HEADERS.contains(&plain) && position == Position::End {
        return Err(format!("has a header {name} that leads to a next page"));
    }
    let may_go_on = position == Position::End && has_part(plain, &HEADER_PARTS);
    if may_go_on || plain.contains("partial") {
        return Err(format!("has a header {name}, and its list may go on"));
    }
    Ok(())
}

/// Returns true for the names with one of [`HEADER_PARTS`] in them that say nothing of how long a list is.
fn is_about_no_list(plain: &str) -> bool {
    let is_account =
        plain.contains("account") && !has_part(&plain.replace("account", ""), &HEADER_PARTS);
    is_account
        || plain.contains("ratelimit")
        || matches!(plain, "acceptranges" | "perpage" | "pagesize")
}

/// Returns true if a text is a name or a version, which describes an answer: one word, and nothing in it speaks of
/// trouble or of a part.
fn describes(text: &str) -> bool {
    let spaced = text.to_ascii_lowercase().replace(['_', '-'], " ");
    let words: Vec<&str> = spaced.split(' ').collect();
    let is_number = |word: &str| word.ends_with(|last: char| last.is_ascii_digit());
    let counts = |words: &[&str]| is_number(words[0]) && words[1] == "of" && is_number(words[2]);
    !text.contains(char::is_whitespace)
        && !has_part(&text.to_ascii_lowercase(), &TROUBLE_PARTS)
        && !has_part(&spaced, &PART_PHRASES)
        && !words.windows(3).any(counts)
}

fn has_part(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}

/// The name in small letters, with nothing but letters and digits.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns the beginning of a place. Names are the provider's, and may be of any length.
fn shown(path: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    path.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Returns true if a `Link` header leads to a next page (RFC 8288).
fn links_on(headers: &HeaderMap) -> bool {
    // One that is no text could say anything.
    let links = headers.get_all(LINK).iter().map(|links| links.to_str().unwrap_or("rel=next"));
    links.flat_map(|links| links.split([',', ';'])).any(|parameter| {
        let relations = match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("rel") => value,
            _ => return false,
        };
        let mut relations = relations.trim().trim_matches('"').split_ascii_whitespace();
        relations.any(|relation| relation.eq_ignore_ascii_case("next"))
    })
}

#[cfg(test)]
mod tests;
