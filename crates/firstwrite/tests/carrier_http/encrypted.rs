//! TLS: whom we trust, and what is spoken inside.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firstwrite::carrier::http::HttpDestination;
use firstwrite_core::outbox::Ending;
use http::Version;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::provider::{Provider, answer, carry, settle_down};

fn certificate(name: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed([name.to_owned()]).unwrap()
}

fn pem(certificate: &CertifiedKey<KeyPair>) -> Vec<u8> {
    let encoded = STANDARD.encode(certificate.cert.der());
    format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n").into_bytes()
}

fn acceptor(certificate: &CertifiedKey<KeyPair>, protocols: &[&str]) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let mut config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
            .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

fn destination(provider: &Provider) -> HttpDestination {
    HttpDestination::new(&format!("https://localhost:{}/charges", provider.address.port()))
        .allow_network("127.0.0.1".parse().unwrap())
}

#[tokio::test]
async fn a_trusted_server_is_spoken_to_in_the_best_version_it_has() {
    let certificate = certificate("localhost");
    for (protocols, version) in [
        (&[][..], Version::HTTP_11),
        (&["http/1.1"], Version::HTTP_11),
        (&["h2", "http/1.1"], Version::HTTP_2),
    ] {
        let tls = acceptor(&certificate, protocols);
        let provider = Provider::start_over(Some(tls), |_| answer(200, "")).await;
        let carrier = destination(&provider).root_certificates(&pem(&certificate)).build().unwrap();
        for _ in 0..3 {
            let delivery = carry(&carrier).await;
            assert!(matches!(delivery.ending, Ending::Delivered(_)), "{}", delivery.detail);
            settle_down().await;
        }
        let seen = provider.seen();
        assert!(seen.iter().all(|(parts, _)| parts.version == version), "{protocols:?}");
        assert_eq!((seen.len(), provider.connection_count()), (3, 1));
    }
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_nothing() {
    let (ours, other) = (certificate("localhost"), certificate("other.test"));
    for (shown, trusted) in [(&ours, &[][..]), (&ours, &[&other]), (&other, &[&other])] {
        let tls = acceptor(shown, &["h2", "http/1.1"]);
        let provider = Provider::start_over(Some(tls), |_| answer(200, "")).await;
        let roots: Vec<u8> = trusted.iter().flat_map(|certificate| pem(certificate)).collect();
        let carrier = destination(&provider).root_certificates(&roots).build().unwrap();
        let delivery = carry(&carrier).await;
        assert_eq!(delivery.ending, Ending::Retry, "{}", delivery.detail);
        assert!(delivery.detail.contains("certificate"), "{}", delivery.detail);
        assert!(provider.seen().is_empty());
    }
}

#[tokio::test]
async fn a_server_without_tls_gets_nothing() {
    let provider = Provider::start(|_| answer(200, "")).await;
    let delivery = carry(&destination(&provider).build().unwrap()).await;
    assert_eq!(delivery.ending, Ending::Retry, "{}", delivery.detail);
    assert!(provider.seen().is_empty());
}

pub(crate) async fn start() -> (Provider, HttpDestination) {
    let certificate = certificate("localhost");
    let tls = acceptor(&certificate, &["h2"]);
    let provider = Provider::start_over(Some(tls), |_| answer(200, r#"{"id":"ch_1"}"#)).await;
    let destination = destination(&provider).root_certificates(&pem(&certificate));
    (provider, destination)
}
