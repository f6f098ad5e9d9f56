//! TLS to the server, by rustls.
//!
//! `sslmode=require` verifies the server's certificate and name, against `sslrootcert` if it is given and
//! otherwise against the platform's trusted certificates. `prefer`, the default, encrypts if the server
//! offers it and verifies nothing: it protects against eavesdroppers, not against impostors.

use std::path::Path;

use mysql_async::SslOpts;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::options::Tls;
use crate::OpenError;
use crate::open::check_is_file;

/// Returns the driver's TLS settings; `None` without encryption.
pub(super) fn settings(tls: &Tls) -> Result<Option<SslOpts>, OpenError> {
    if *tls != Tls::Off && CryptoProvider::get_default().is_none() {
        // The driver takes the process's own, and there may be none or the choice of two. Where another
        // thread was quicker, that is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    match tls {
        Tls::Off => Ok(None),
        Tls::Prefer => {
            let settings = SslOpts::default().with_danger_accept_invalid_certs(true);
            Ok(Some(settings.with_danger_skip_domain_validation(true)))
        }
        Tls::Require(file) => {
            let roots = roots(file.as_deref())?;
            let roots = roots.into_iter().map(|root| root.to_vec().into()).collect();
            let settings = SslOpts::default().with_disable_built_in_roots(true);
            Ok(Some(settings.with_root_certs(roots)))
        }
    }
}

fn roots(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, OpenError> {
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
    let certificates = usable(certificates);
    if certificates.is_empty() {
        return Err(OpenError::new(format!(
            "{place} has no certificate to verify the server with; give sslrootcert=FILE"
        )));
    }
    Ok(certificates)
}

/// One certificate that cannot be understood does not spoil the others.
fn usable(certificates: Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>> {
    let is_usable =
        |certificate: &CertificateDer<'_>| RootCertStore::empty().add(certificate.clone()).is_ok();
    certificates.into_iter().filter(is_usable).collect()
}
