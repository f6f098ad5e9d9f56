//! Spans, sent to a collector by OTLP over HTTP.
//!
//! A thread of its own sends them in batches; what it cannot keep up with is dropped, and requests never wait
//! for it. It brings a small runtime along, so that it goes on after the service's own has ended.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use firstwrite_gateway::Tracer;
use hyper_rustls::HttpsConnectorBuilder;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{
    Bytes, HeaderExtractor, HeaderInjector, HttpClient, HttpError, Request, Response,
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Runtime;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::Collector;

/// Ties our spans to those of others by the headers of W3C Trace Context.
#[derive(Debug, Default)]
pub(super) struct Otlp {
    propagator: TraceContextPropagator,
}

/// Spans are sent as long as this lives; those that are left, when it is dropped.
#[derive(Debug)]
pub(super) struct Sending(SdkTracerProvider);

/// Sends one batch after the other, on a runtime of its own.
struct Courier {
    runtime: Runtime,
    client: Box<dyn HttpClient>,
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Longer than any collector takes that is well.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// Longest time that the end of the process waits for the last spans.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Begins to send the spans of whatever is above info.
pub(super) fn start<S>(
    collector: &Collector,
) -> anyhow::Result<(Sending, impl Layer<S> + Send + Sync)>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let endpoint = collector.endpoint();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Courier::new(&endpoint)?)
        .with_endpoint(endpoint)
        .with_timeout(SEND_WITHIN)
        .build()
        .context("traces cannot be sent")?;
    let resource = Resource::builder()
        .with_service_name("firstwrite-gateway")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let spans = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("firstwrite"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target("firstwrite", LevelFilter::INFO));
    Ok((Sending(provider), spans))
}

impl Tracer for Otlp {
    fn continues(&self, span: &Span, headers: &HeaderMap) {
        let context = self.read(headers);
        // What cannot be continued begins here.
        if context.span().span_context().is_valid()
            && let Err(error) = span.set_parent(context)
        {
            tracing::debug!(%error, "a trace could not be continued");
        }
    }

    fn traceparent(&self, span: &Span) -> Option<HeaderValue> {
        let mut headers = HeaderMap::new();
        self.propagator.inject_context(&span.context(), &mut HeaderInjector(&mut headers));
        headers.remove(TRACEPARENT)
    }

    fn links(&self, span: &Span, traceparent: &HeaderValue) {
        let headers = HeaderMap::from_iter([(TRACEPARENT, traceparent.clone())]);
        let linked = self.read(&headers).span().span_context().clone();
        if linked.is_valid() {
            span.add_link(linked);
        }
    }
}

impl Otlp {
    fn read(&self, headers: &HeaderMap) -> Context {
        self.propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers))
    }
}

impl Courier {
    fn new(endpoint: &str) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime for traces")?;
        let client: Box<dyn HttpClient> = if endpoint.starts_with("https:") {
            let provider = rustls::crypto::ring::default_provider();
            let connector = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(provider)
                .context("the platform's certificates cannot be read")?
                .https_only()
                .enable_http1()
                .build();
            Box::new(HyperClient::new(connector, SEND_WITHIN, None))
        } else {
            Box::new(HyperClient::with_default_connector(SEND_WITHIN, None))
        };
        Ok(Self { runtime, client })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Called on the thread that sends batches, which belongs to no runtime.
        let sent = self.runtime.block_on(self.client.send_bytes(request));
        match &sent {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => tracing::warn!(status = %response.status(), "traces were not taken"),
            Err(error) => tracing::warn!(%error, "traces could not be sent"),
        }
        sent
    }
}

/// Return type that `async_trait` gives to the trait's one method.
type Sent<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Courier {
    fn send_bytes<'a, 'b>(&'a self, request: Request<Bytes>) -> Sent<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.send(request) })
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(END_WITHIN) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").finish_non_exhaustive()
    }
}
