//! Reserves listen addresses before the gateway accepts connections.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Number of connections that the system queues until they are accepted.
const BACKLOG: u32 = 1024;

/// Listen address reserved for this process. Claim it before opening a store, so that no store is left behind
/// if the address is in use. Connections are refused until [`Gateway::start_at`](crate::Gateway::start_at).
#[derive(Debug)]
pub struct Claim(TcpSocket);

impl Claim {
    /// Takes the address.
    pub fn of(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of an earlier process may linger; an address with a listener is still an error.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self(socket))
    }

    pub(crate) fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)
    }
}
