//! TLS to database servers, by rustls.
//!
//! `sslmode=require` verifies the server's certificate and name, against `sslrootcert` if it is given and
//! otherwise against the platform's trusted certificates. `prefer`, the default, encrypts if the server offers
//! it and verifies nothing: it protects against eavesdroppers, not against impostors.

#[cfg(feature = "_address")]
use std::path::Path;
#[cfg(feature = "_sql")]
use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
#[cfg(feature = "_sql")]
use rustls::{RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject as _};

#[cfg(feature = "_address")]
use crate::OpenError;

/// Encryption of a connection.
#[cfg(feature = "_sql")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// Never encrypts.
    Off,
    /// Encrypts if the server offers it; verifies nothing.
    Prefer,
    /// Always encrypts, and verifies the server's certificate and name, against this file if it is given
    /// and otherwise against the platform's trusted certificates.
    Require(Option<PathBuf>),
}

#[cfg(feature = "_sql")]
impl Tls {
    /// Reads the values of the parameters `sslmode` and `sslrootcert`.
    pub(crate) fn parse(mode: &str, root_certificates: Option<PathBuf>) -> Result<Self, OpenError> {
        match (mode, root_certificates) {
            ("disable", None) => Ok(Self::Off),
            ("prefer", None) => Ok(Self::Prefer),
            // Whatever is verified is verified in full.
            ("require" | "verify-ca" | "verify-full", file) => Ok(Self::Require(file)),
            ("disable" | "prefer", Some(_)) => Err(OpenError::new(
                "sslrootcert is for sslmode=require; nothing is verified without it",
            )),
            _ => Err(OpenError::new("sslmode is disable, prefer or require")),
        }
    }
}

/// Returns the process's crypto provider, which some drivers expect to be installed. Installs one if there is
/// none.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    if let Some(provider) = CryptoProvider::get_default() {
        return Arc::clone(provider);
    }
    // An error means that another thread installed one at the same moment.
    drop(ring::default_provider().install_default());
    CryptoProvider::get_default().map_or_else(|| Arc::new(ring::default_provider()), Arc::clone)
}

/// Returns the usable certificates of `file`, or those that the platform trusts.
#[cfg(feature = "_sql")]
pub(crate) fn roots(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let (certificates, place) = match file {
        Some(path) => {
            let pem = read_pem(path)?;
            let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
            (
                certificates.map_err(|error| unreadable(path).caused_by(error))?,
                path.display().to_string(),
            )
        }
        None => (rustls_native_certs::load_native_certs().certs, "the platform".to_owned()),
    };
    // One certificate that cannot be understood does not spoil the others.
    let is_usable =
        |certificate: &CertificateDer<'_>| RootCertStore::empty().add(certificate.clone()).is_ok();
    let usable: Vec<_> = certificates.into_iter().filter(is_usable).collect();
    if usable.is_empty() {
        return Err(OpenError::new(format!(
            "{place} has no certificate to verify the server with; give sslrootcert=FILE"
        )));
    }
    Ok(usable)
}

/// Reads a file of certificates. Refuses what is not a regular file: reading a pipe or a device could block
/// for ever.
#[cfg(feature = "_address")]
pub(crate) fn read_pem(path: &Path) -> Result<Vec<u8>, OpenError> {
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        let place = path.display();
        return Err(OpenError::new(format!(
            "{place} is not a regular file; give sslrootcert a PEM file"
        )));
    }
    std::fs::read(path).map_err(|error| unreadable(path).caused_by(error))
}

#[cfg(feature = "_address")]
fn unreadable(path: &Path) -> OpenError {
    let place = path.display();
    OpenError::new(format!("{place} cannot be read as certificates; give sslrootcert a PEM file"))
}

#[cfg(all(test, unix, feature = "_address"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_refused_as_certificates() {
        for path in ["/dev/null", "/tmp"] {
            let refused = read_pem(Path::new(path)).unwrap_err().to_string();
            assert!(refused.starts_with(path) && refused.contains("regular file"), "{refused}");
        }
        let missing = read_pem(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(missing.contains("cannot be read"), "{missing}");
    }
}
