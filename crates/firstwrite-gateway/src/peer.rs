//! The peer of a connection, as far as the connection itself proves its identity.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;

/// Peer of a connection. In the extensions of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address it connects from.
    pub address: IpAddr,
    /// True if the connection is encrypted.
    pub is_secure: bool,
    /// Its verified client certificate in DER, if it showed one.
    pub certificate: Option<Arc<[u8]>>,
    /// The address, as headers spell it: once for all requests of a connection.
    pub(crate) spelled: HeaderValue,
}

impl Peer {
    /// Creates a peer that connects from `address`.
    pub fn new(address: IpAddr, is_secure: bool, certificate: Option<Arc<[u8]>>) -> Self {
        let spelled = HeaderValue::try_from(address.to_string());
        let spelled = spelled.unwrap_or_else(|_never| HeaderValue::from_static("unknown"));
        Self { address, is_secure, certificate, spelled }
    }
}
