//! TLS to brokers, by rustls.

/// Makes sure that rustls has a cryptography provider.
///
/// The clients of the brokers leave the choice to rustls, which panics in a program that links two
/// implementations and has chosen none. A choice made before is kept.
pub(in crate::carrier) fn provide_tls() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread chose in this very moment.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}
