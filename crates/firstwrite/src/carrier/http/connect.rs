//! Connections to a destination: looked up, guarded, encrypted, and all that within a time.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use firstwrite_core::BoxFuture;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use super::destination::HttpDestinationError;
use super::guard::Guard;

pub(super) type HttpClient = Client<Timed<HttpsConnector<Guarded>>, Full<Bytes>>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Many servers close a connection that was idle for five seconds. A request that crosses such a closing
/// on its way ends as unknown, so we let go first.
const IDLE_FOR: Duration = Duration::from_secs(4);

/// A dead HTTP/2 connection would let every message on it run into its timeout.
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_WITHIN: Duration = Duration::from_secs(10);

/// Makes the client for requests to one destination.
///
/// It follows no redirects, uses no proxies, and sends nothing twice: only the code that settles the message
/// decides whether a request may be repeated.
pub(super) fn client(guard: Guard, tls: ClientConfig, connect_within: Duration) -> HttpClient {
    let resolver = GuardedResolver { guard: guard.clone(), names: GaiResolver::new() };
    let mut http = HttpConnector::new_with_resolver(resolver);
    // The scheme is checked with the settings; this connector only opens the socket below TLS.
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(Guarded { guard, http });
    Client::builder(TokioExecutor::new())
        .retry_canceled_requests(false)
        .pool_idle_timeout(IDLE_FOR)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_WITHIN)
        .build(Timed { connector: https, connect_within })
}

/// TLS that trusts what the platform trusts, and `more` certificates (PEM).
///
/// Without `is_needed`, nothing is trusted and the platform is not asked: no URL is `https`.
pub(super) fn tls(more: &[u8], is_needed: bool) -> Result<ClientConfig, HttpDestinationError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(more) {
        let added = certificate
            .map_err(|error| HttpDestinationError::caused("root certificates are not PEM", error))
            .and_then(|certificate| {
                roots.add(certificate).map_err(|error| {
                    HttpDestinationError::caused("a root certificate cannot be used", error)
                })
            });
        added?;
    }
    if !more.is_empty() && roots.is_empty() {
        return Err(HttpDestinationError::new(
            "root certificates are given and there is none in them",
        ));
    }
    if is_needed {
        // One certificate that cannot be understood does not spoil the others.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(HttpDestinationError::new(
                "the platform has no certificates to verify https with; give root certificates",
            ));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| HttpDestinationError::caused("TLS cannot be set up", error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Looks names up and leaves the addresses that the guard lets pass.
#[derive(Clone, Debug)]
pub(super) struct GuardedResolver {
    guard: Guard,
    names: GaiResolver,
}

impl Service<Name> for GuardedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.names.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.guard.clone();
        let found = self.names.call(name);
        Box::pin(async move { Ok(guard.leave_allowed(found.await?)?.into_iter()) })
    }
}

/// Opens sockets; a host that is an address, which no resolver sees, is checked here.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    guard: Guard,
    http: HttpConnector<GuardedResolver>,
}

impl Service<Uri> for Guarded {
    type Response = <HttpConnector<GuardedResolver> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = host.parse::<IpAddr>()
            && let Err(refused) = self.guard.check(address)
        {
            return Box::pin(async move { Err(refused.into()) });
        }
        let connecting = self.http.call(uri);
        Box::pin(async move { Ok(connecting.await?) })
    }
}

/// Gives up on a connection that is not ready, TLS included, within a time.
#[derive(Clone, Debug)]
pub(super) struct Timed<C> {
    connector: C,
    connect_within: Duration,
}

impl<C> Service<Uri> for Timed<C>
where
    C: Service<Uri, Error = BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let within = self.connect_within;
        let connecting = self.connector.call(uri);
        Box::pin(async move {
            match tokio::time::timeout(within, connecting).await {
                Ok(connected) => connected,
                Err(_elapsed) => {
                    Err(format!("not connected within {}", humantime::format_duration(within))
                        .into())
                }
            }
        })
    }
}
