//! A stand-in for the network between a carrier and its broker, which loses answers.

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
    /// What is said to the server arrives; at an answer with this text in it the connection ends.
    CutAt(&'static str),
}

impl Proxy {
    /// Stands in front of the server at `url`.
    pub(crate) async fn new(url: &str) -> Self {
        let server = authority(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (network, seen) = watch::channel(Network::Up);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
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
        url.replace(authority(url), &format!("127.0.0.1:{}", self.port))
    }
}

/// The host and port in an address.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    rest.split('/').next().unwrap().rsplit('@').next().unwrap()
}

async fn carry(mut near: TcpStream, mut far: TcpStream, network: watch::Receiver<Network>) {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = near.read(&mut asked) => {
                let Ok(count @ 1..) = read else { return };
                if far.write_all(&asked[..count]).await.is_err() {
                    return;
                }
            }
            read = far.read(&mut answered) => {
                let Ok(count @ 1..) = read else { return };
                let (now, answer) = (*network.borrow(), &answered[..count]);
                match now {
                    Network::AnswersLost => continue,
                    Network::CutAt(text) if String::from_utf8_lossy(answer).contains(text) => return,
                    Network::Up | Network::CutAt(_) => {}
                }
                if near.write_all(answer).await.is_err() {
                    return;
                }
            }
        }
    }
}
