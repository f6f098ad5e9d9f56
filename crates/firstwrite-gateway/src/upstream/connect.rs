//! New connections to one server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use firstwrite_core::BoxError;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::pool::{Line, Sender};
use super::room::Open;
use super::{Calling, Target, UpstreamError};

/// Maximum size of an answer's head, the same as of a request's.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Connector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    http2: bool,
    open: Arc<AtomicUsize>,
}

impl Connector {
    /// `open`: counts the connections.
    pub(super) fn new(
        target: &Target,
        calling: &Calling,
        open: Arc<AtomicUsize>,
    ) -> Result<Self, UpstreamError> {
        let tls = if target.is_secure() { Some(tls(target, calling)?) } else { None };
        let (host, port) = (target.host().to_owned(), target.port());
        Ok(Self { host, port, tls, http2: calling.http2, open })
    }

    pub(super) async fn connect(&self) -> Result<Sender, BoxError> {
        let open = Open::one(&self.open);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.handshake(TokioIo::new(stream), open).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                self.handshake(TokioIo::new(stream), open).await
            }
        }
    }

    async fn handshake<T>(&self, io: T, open: Open) -> Result<Sender, BoxError>
    where
        T: Read + Write + Unpin + Send + 'static,
    {
        if self.http2 {
            let (sender, connection) =
                http2::Builder::new(TokioExecutor::new()).handshake(io).await?;
            tokio::spawn(async move {
                ended(connection).await;
                drop(open);
            });
            return Ok(Sender::Http2(sender));
        }
        let (sender, connection) =
            http1::Builder::new().max_buf_size(BUFFER_BYTES_MAX).handshake(io).await?;
        let moving = async move {
            let ended = connection.with_upgrades().await;
            drop(open);
            ended
        };
        Ok(Sender::Http1(Box::new(Line::new(sender, Box::pin(moving)))))
    }
}

/// Runs a connection and logs its error at debug level only: the caller learns how its call ended.
async fn ended(connection: impl Future<Output = Result<(), hyper::Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to an upstream ended");
    }
}

fn tls(
    target: &Target,
    calling: &Calling,
) -> Result<(TlsConnector, ServerName<'static>), UpstreamError> {
    let name = ServerName::try_from(target.host().to_owned())
        .map_err(|_not_a_name| UpstreamError(format!("{target}: no name for a certificate")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| UpstreamError(format!("{target}: {error}")))?
        .with_root_certificates(roots(calling)?);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![if calling.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn roots(calling: &Calling) -> Result<RootCertStore, UpstreamError> {
    let mut roots = RootCertStore::empty();
    match &calling.root_certificates {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let added = certificate.ok().map(|certificate| roots.add(certificate));
                if !matches!(added, Some(Ok(()))) {
                    let what = "a root certificate for upstreams cannot be read; PEM is expected";
                    return Err(UpstreamError(what.to_owned()));
                }
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let what =
            "no root certificates for upstreams with TLS: name them, or install the platform's";
        return Err(UpstreamError(what.to_owned()));
    }
    Ok(roots)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls.is_some())
            .field("http2", &self.http2)
            .finish_non_exhaustive()
    }
}
