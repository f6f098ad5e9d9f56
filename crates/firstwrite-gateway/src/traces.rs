//! Traces: a request goes on with what its caller began, and a replay points at the attempt whose answer it
//! is.
//!
//! Where the attempt's trace was is kept with its outcome, as a header of our own that no caller is shown.
//! Without a [`Tracer`] nothing of this happens.

use std::sync::Arc;

use firstwrite::{ATTEMPT_TRACEPARENT, IDEMPOTENT_REPLAYED};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use tracing::field::Empty;
use tracing::{Span, info_span};

/// Header that continues a trace (W3C Trace Context).
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Interface of the gateway to a collector of spans.
pub trait Tracer: Send + Sync + 'static {
    /// Makes `span` a part of the trace that a request's headers name, if they do.
    fn continues(&self, span: &Span, headers: &HeaderMap);

    /// The value of `traceparent` for whatever follows from `span`.
    fn traceparent(&self, span: &Span) -> Option<HeaderValue>;

    /// Points from `span` at the one that this `traceparent` names.
    fn links(&self, span: &Span, traceparent: &HeaderValue);
}

/// The span of a request.
pub(crate) fn request(tracer: &dyn Tracer, method: &Method, headers: &HeaderMap) -> Span {
    let span = info_span!(
        "request",
        otel.kind = "server",
        otel.name = %method,
        http.request.method = %method,
        http.response.status_code = Empty,
        firstwrite.replayed = Empty,
    );
    tracer.continues(&span, headers);
    span
}

/// The request that `span` is of was answered.
pub(crate) fn answered<B>(tracer: &dyn Tracer, span: &Span, response: &Response<B>) {
    span.record("http.response.status_code", i64::from(response.status().as_u16()));
    let headers = response.headers();
    if headers.contains_key(IDEMPOTENT_REPLAYED) {
        span.record("firstwrite.replayed", true);
        if let Some(attempt) = headers.get(ATTEMPT_TRACEPARENT) {
            tracer.links(span, attempt);
        }
    }
}

/// The span of a call to an upstream, which is told to go on with it.
pub(crate) fn call(
    tracer: Option<&Arc<dyn Tracer>>,
    method: &Method,
    headers: &mut HeaderMap,
) -> Span {
    let Some(tracer) = tracer else { return Span::none() };
    let span = info_span!(
        "upstream",
        otel.kind = "client",
        otel.name = %method,
        http.request.method = %method,
        http.response.status_code = Empty,
        otel.status_code = Empty,
    );
    if let Some(value) = tracer.traceparent(&span) {
        headers.insert(TRACEPARENT, value);
    }
    span
}

/// Records how the call of `span` ended.
pub(crate) fn called(span: &Span, status: Option<StatusCode>) {
    match status {
        Some(status) => span.record("http.response.status_code", i64::from(status.as_u16())),
        None => span.record("otel.status_code", "ERROR"),
    };
}
