//! A stand-in for the network between a store and its server, which can be cut.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on, or does not.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    port: u16,
    network: Arc<watch::Sender<Network>>,
}

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// They arrive.
    Up,
    /// What is said to the server arrives; its answers do not.
    AnswersLost,
    /// All connections end at once.
    Down,
}

impl Proxy {
    /// Stands in front of the server at `url`.
    pub(crate) async fn new(url: &str) -> Self {
        let server = url.split('@').nth(1).and_then(|rest| rest.split('/').next()).unwrap();
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (network, seen) = watch::channel(Network::Up);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                if *seen.borrow() == Network::Down {
                    continue;
                }
                let far = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(carry(near, far, seen.clone()));
            }
        });
        Self { port, network: Arc::new(network) }
    }

    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }

    /// The address of the server through here.
    pub(crate) fn url(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once('@').unwrap();
        let (_server, database) = rest.split_once('/').unwrap();
        format!("{scheme}@127.0.0.1:{}/{database}", self.port)
    }
}

async fn carry(mut near: TcpStream, mut far: TcpStream, mut network: watch::Receiver<Network>) {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        let is_down = *network.borrow_and_update() == Network::Down;
        if is_down {
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
                let is_lost = *network.borrow() == Network::AnswersLost;
                if !is_lost && near.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
