//! A stand-in for the network between the cache and Redis, which can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on, or does not.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    port: u16,
    network: Arc<watch::Sender<Network>>,
    connected: Arc<AtomicUsize>,
}

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// They arrive.
    Up,
    /// Redis hears them; its answers do not come back.
    Silent,
    /// All connections end at once, as when Redis was killed.
    Down,
}

impl Proxy {
    /// Stands in front of the Redis at `url`.
    pub(crate) async fn new(url: &str) -> Self {
        let server = url.strip_prefix("redis://").unwrap().trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (network, seen) = watch::channel(Network::Up);
        let connected = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connected);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                if *seen.borrow() != Network::Down {
                    let far = TcpStream::connect(&server).await.unwrap();
                    tokio::spawn(carry(near, far, seen.clone()));
                }
            }
        });
        Self { port, network: Arc::new(network), connected }
    }

    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How often somebody connected.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::SeqCst)
    }
}

async fn carry(mut near: TcpStream, mut far: TcpStream, mut network: watch::Receiver<Network>) {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        if *network.borrow_and_update() == Network::Down {
            return;
        }
        tokio::select! {
            changed = network.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            read = near.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                if far.write_all(&asked[..count]).await.is_err() {
                    return;
                }
            }
            read = far.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                let is_lost = *network.borrow() == Network::Silent;
                if !is_lost && near.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
