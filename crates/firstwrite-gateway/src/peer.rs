//! Who is at the other end of a connection, as far as the connection itself proves it.

use std::net::IpAddr;
use std::sync::Arc;

/// Who is at the other end of a connection. In the extensions of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it connects from.
    pub address: IpAddr,
    /// Whether what it says cannot be read on the way.
    pub is_secure: bool,
    /// Its verified client certificate in DER, if it showed one.
    pub certificate: Option<Arc<[u8]>>,
}
