//! TLS to the server, by rustls.
//!
//! `sslmode=require` verifies the server's certificate and name, against `sslrootcert` if it is given and
//! otherwise against the platform's trusted certificates. `prefer`, the default, encrypts if the server
//! offers it and verifies nothing, as is usual for PostgreSQL: it protects against eavesdroppers, not
//! against impostors.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::options::Address;
use crate::OpenError;
use crate::open::check_is_file;

/// Returns the TLS connector for the server at `address`.
pub(super) fn connector(address: &Address) -> Result<MakeRustlsConnect, OpenError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::new("TLS cannot be set up").caused_by(error))?;
    let verifies = address.config.get_ssl_mode() == SslMode::Require;
    let config = if verifies {
        let roots = roots(address.root_certificates.as_deref())?;
        builder.with_root_certificates(roots).with_no_client_auth()
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth()
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    let (certificates, place) = match file {
        Some(path) => {
            let place = path.display().to_string();
            let unreadable = |error| {
                OpenError::new(format!(
                    "{place} cannot be read as certificates; give sslrootcert a PEM file"
                ))
                .caused_by(error)
            };
            check_is_file(path)?;
            let certificates = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(unreadable)?;
            (certificates, place)
        }
        None => (rustls_native_certs::load_native_certs().certs, "the platform".to_owned()),
    };
    // One certificate that cannot be understood does not spoil the others.
    let (added, _ignored) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(OpenError::new(format!(
            "{place} has no certificate to verify the server with; give sslrootcert=FILE"
        )));
    }
    Ok(roots)
}

/// Takes any certificate, and still checks that the server holds its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
