//! The pages of problems, `GET /.firstwrite/problems/{code}`: what the `type` of a problem document leads to.
//!
//! They need no credentials: they contain nothing about any key or tenant.

mod html;
mod links;

use bytes::Bytes;
use firstwrite_core::{ProblemBase, Rejection, RejectionKind};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY};
use http::request::Parts;
use http::{HeaderValue, Method, Response};

use crate::body::ResponseBody;
use crate::respond;

/// Pages change with the version of the process, which is replaced within hours of a deployment.
const CACHE_FOR: HeaderValue = HeaderValue::from_static("public, max-age=3600");
/// Text alone: nothing is loaded, and nothing runs.
const NOTHING_LOADED: HeaderValue = HeaderValue::from_static("default-src 'none'");

/// Includes the page of each code.
macro_rules! pages {
    ($($code:literal),+ $(,)?) => {
        &[$(($code, include_str!(concat!("../../../docs/problems/", $code, ".md")))),+]
    };
}

/// Every page by its code, in Markdown.
const PAGES: &[(&str, &str)] = pages![
    "answer-lost",
    "answer-not-kept",
    "attempt-failed",
    "body-too-large",
    "grpc-unsupported",
    "head-too-large",
    "in-progress",
    "key-expired",
    "key-invalid",
    "key-missing",
    "key-reused",
    "key-unknown",
    "method-not-allowed",
    "misconfigured",
    "not-found",
    "outcome-unknown",
    "overloaded",
    "rate-limited",
    "request-malformed",
    "request-timeout",
    "request-too-old",
    "store-unavailable",
    "target-too-long",
    "tenant-unknown",
    "upgrade-refused",
    "upstream-unreachable",
];

/// Returns true if a request is for a problem page.
pub(crate) fn is_page(request: &Parts) -> bool {
    request.uri.path().starts_with(ProblemBase::SERVED)
}

/// Answers a request for a page: in HTML for browsers, in Markdown for all other clients.
pub(crate) fn answer(request: &Parts) -> Response<ResponseBody> {
    if request.method != Method::GET && request.method != Method::HEAD {
        return respond::read_only();
    }
    let code = request.uri.path().strip_prefix(ProblemBase::SERVED).unwrap_or_default();
    // Links between pages in Markdown name files.
    let code = code.strip_suffix(".md").unwrap_or(code);
    let Some((_, page)) = PAGES.iter().find(|(known, _)| *known == code) else {
        return respond::rejection(&Rejection::new(RejectionKind::NotFound));
    };
    let (content_type, text) = if wants_html(request) {
        ("text/html; charset=utf-8", html::of_page(page))
    } else {
        ("text/markdown; charset=utf-8", links::of_page(page))
    };
    let text = if request.method == Method::HEAD { Bytes::new() } else { Bytes::from(text) };
    let mut response = Response::new(ResponseBody::whole(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_SECURITY_POLICY, NOTHING_LOADED);
    headers.insert(CACHE_CONTROL, CACHE_FOR);
    headers.insert(VARY, HeaderValue::from(ACCEPT));
    response
}

/// Browsers name HTML first; a client that takes anything is a program.
fn wants_html(request: &Parts) -> bool {
    let lines = request.headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let mut ranges = lines.flat_map(|line| line.split(','));
    ranges.any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default();
        // A weight of zero says that it is not wanted.
        essence.eq_ignore_ascii_case("text/html") && !parts.any(is_zero_weight)
    })
}

fn is_zero_weight(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, weight)| {
        name.trim().eq_ignore_ascii_case("q") && weight.trim().parse() == Ok(0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_page_that_says_what_the_documents_say() {
        for kind in RejectionKind::ALL {
            let page = PAGES.iter().find(|(code, _)| *code == kind.code());
            let (_, page) = page.unwrap_or_else(|| panic!("{} has no page", kind.code()));
            assert!(page.contains(&format!("**{}.**", kind.title())), "{kind:?}");
            let first = page.lines().next().unwrap_or_default();
            assert!(first.contains(kind.status().as_str()), "{kind:?}: {first}");
            let flags = page.lines().last().unwrap_or_default();
            let safe = kind.is_new_key_safe();
            assert!(
                flags.contains(&format!("| {safe} |")) || flags.contains('/'),
                "{kind:?}: {flags}"
            );
        }
        assert_eq!(PAGES.len(), RejectionKind::ALL.len());
    }

    #[test]
    fn html_is_for_those_who_want_it() {
        let wants = |accept: &str| {
            let request = http::Request::get("/").header(ACCEPT, accept).body(()).unwrap();
            wants_html(&request.into_parts().0)
        };
        for yes in
            ["text/html", "text/html;q=0.1", "a/b, Text/HTML; level=1 ; q=1", "text/html;q=1.0"]
        {
            assert!(wants(yes), "{yes}");
        }
        for no in ["*/*", "text/html;q=0", "text/html; Q=0.000", "text/html;level=1;q=0, */*"] {
            assert!(!wants(no), "{no}");
        }
    }
}
