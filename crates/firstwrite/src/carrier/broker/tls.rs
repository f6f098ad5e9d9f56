//! TLS to brokers, by rustls.

/// Makes sure that rustls has cryptography to use.
///
/// The clients of the brokers leave the choice to rustls, which panics in a program that links two
/// implementations and has chosen none. Whoever has chosen is not overruled.
pub(in crate::carrier) fn provide_tls() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that somebody else chose in this very moment.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}
