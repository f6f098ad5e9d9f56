//! TLS for clients, from the texts of PEM files.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Certificates of a listener, and the roots for those of its clients.
#[derive(Clone, Copy, Debug)]
pub struct Certificates<'a> {
    /// The chain, the server's own certificate first.
    pub chain: &'a str,
    /// Its private key.
    pub key: &'a str,
    /// Roots that client certificates must chain to, if clients are asked for one. A client without one may
    /// connect: the tenants decide what it may do.
    pub client_roots: Option<&'a str>,
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1. An error says what is wrong, and nothing of the key.
pub fn listener(certificates: &Certificates<'_>) -> Result<Arc<ServerConfig>, String> {
    let Certificates { chain, key, client_roots } = certificates;
    let chain = read(chain, "the certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_not_pem| "the private key cannot be read; PEM is expected".to_owned())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_roots {
        None => builder.with_no_client_auth(),
        Some(text) => {
            let mut roots = RootCertStore::empty();
            for root in read(text, "the clients' roots")? {
                roots.add(root).map_err(|error| format!("the clients' roots: {error}"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| format!("the clients' roots: {error}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("the certificate and its key: {error}"))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read(text: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match read {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(format!("{what} cannot be read; PEM is expected")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_said_to_be_none() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let fine = Certificates { chain: &chain, key: &key, client_roots: Some(&chain) };
        assert!(listener(&fine).is_ok());
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for (wrong, word) in [
            (Certificates { chain: "x", ..fine }, "the certificate cannot"),
            (Certificates { key: "x", ..fine }, "private key"),
            (Certificates { key: &other, ..fine }, "the certificate and its key"),
            (Certificates { client_roots: Some(""), ..fine }, "clients' roots"),
        ] {
            let error = listener(&wrong).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
