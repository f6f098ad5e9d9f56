//! HTTPS, verified against the platform's certificates and those the user adds.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::Error;

/// Whose certificates are believed.
#[derive(Clone)]
pub(crate) struct Trust(TlsConnector);

impl Trust {
    /// The platform's roots, and those in a file of the user's.
    pub(crate) fn load(extra: Option<&Path>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = extra {
            let name = path.display();
            let wrong = |error: String| {
                Error::usage(format!("cannot read certificates of {name}: {error}"))
            };
            // A pipe or a device would be waited for, perhaps for ever.
            if path.metadata().is_ok_and(|found| !found.is_file()) {
                return Err(wrong("it is not a regular file".to_owned()));
            }
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))?
            {
                let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
                roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::failed(format!("cannot set up TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // HTTP/1.1 is what the checks are written in.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    pub(super) async fn greet(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, String> {
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
        self.0.connect(name, tcp).await.map_err(|error| error.to_string())
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}
