//! A stand-in for the network between a client and its server, which can be cut.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on, or does not.
#[derive(Clone, Debug)]
pub struct Proxy {
    port: u16,
    network: Arc<watch::Sender<Network>>,
    connected: Arc<AtomicUsize>,
    cut: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

/// State of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Bytes arrive.
    Up,
    /// Requests arrive at the server; its answers are lost.
    AnswersLost,
    /// Nothing arrives on either side, and connections stay open. What is held arrives when the network is up again,
    /// also what a client that has given up and gone had sent.
    Partitioned,
    /// Requests arrive at the server; an answer that contains this text ends the connection.
    CutAt(&'static str),
    /// The same once: afterwards the network is up.
    CutOnceAt(&'static str),
    /// All connections end at once, as when the server was killed.
    Down,
}

/// Fate of an answer of the server.
enum Answer {
    Arrives,
    IsLost,
    /// The answer is lost and the connection ends.
    Ends,
}

impl Proxy {
    /// Stands in front of the server at `url`, for as long as the runtime lives.
    pub async fn new(url: &str) -> io::Result<Self> {
        let server = authority(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let network = Arc::new(watch::Sender::new(Network::Up));
        let [connected, cut, open] = std::array::from_fn(|_| Arc::new(AtomicUsize::new(0)));
        let proxy = Self { port, network, connected, cut, open };
        let here = proxy.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                here.connected.fetch_add(1, Ordering::SeqCst);
                if *here.network.borrow() == Network::Down {
                    continue;
                }
                // A server that is not there looks to the client as one that hangs up.
                if let Ok(far) = TcpStream::connect(&server).await {
                    let here = here.clone();
                    here.open.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(async move {
                        here.carry(near, far).await;
                        here.open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            }
        });
        Ok(proxy)
    }

    /// Sets the state of the network from now on.
    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }

    /// The same address, through here.
    pub fn url(&self, url: &str) -> String {
        url.replacen(authority(url), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Returns the number of connections that a text in an answer ended.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections. After setting [`Network::Down`], wait until it is 0 before
    /// setting another state: a state that no connection has seen has no effect.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Returns the number of connections that clients have opened so far.
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::SeqCst)
    }

    async fn carry(&self, mut near: TcpStream, mut far: TcpStream) {
        let mut network = self.network.subscribe();
        let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            let now = *network.borrow_and_update();
            match now {
                Network::Down => return,
                Network::Partitioned => {
                    if network.changed().await.is_err() {
                        return;
                    }
                    continue;
                }
                Network::Up | Network::AnswersLost | Network::CutAt(_) | Network::CutOnceAt(_) => {}
            }
            tokio::select! {
                changed = network.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                read = near.read(&mut asked) => {
                    let Ok(count @ 1..) = read else { return };
                    reunited(&mut network).await;
                    if far.write_all(&asked[..count]).await.is_err() {
                        return;
                    }
                }
                read = far.read(&mut answered) => {
                    let Ok(count @ 1..) = read else { return };
                    reunited(&mut network).await;
                    let answer = &answered[..count];
                    match self.becomes_of(answer) {
                        Answer::Arrives => {}
                        Answer::IsLost => continue,
                        Answer::Ends => return,
                    }
                    if near.write_all(answer).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn becomes_of(&self, answer: &[u8]) -> Answer {
        let says = |text: &str| String::from_utf8_lossy(answer).contains(text);
        let now = *self.network.borrow();
        match now {
            Network::Down => Answer::Ends,
            Network::AnswersLost => Answer::IsLost,
            Network::CutAt(text) if says(text) => {
                self.cut.fetch_add(1, Ordering::SeqCst);
                Answer::Ends
            }
            Network::CutOnceAt(text) if says(text) => {
                // Of two connections at the same moment, one is cut.
                let is_first = self.network.send_if_modified(|network| {
                    *network == now && {
                        *network = Network::Up;
                        true
                    }
                });
                if !is_first {
                    return Answer::Arrives;
                }
                self.cut.fetch_add(1, Ordering::SeqCst);
                Answer::Ends
            }
            Network::Up | Network::Partitioned | Network::CutAt(_) | Network::CutOnceAt(_) => {
                Answer::Arrives
            }
        }
    }
}

/// Waits while the network is partitioned: bytes that were read at its very beginning are held, too.
async fn reunited(network: &mut watch::Receiver<Network>) {
    // The sender lives as long as the proxy, which the caller borrows.
    drop(network.wait_for(|now| *now != Network::Partitioned).await);
}

/// The host and port in an address.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let before_path = rest.split('/').next().unwrap_or(rest);
    before_path.rsplit('@').next().unwrap_or(before_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(stream: &mut TcpStream) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        let count = stream.read(&mut bytes).await.unwrap();
        bytes.truncate(count);
        bytes
    }

    /// Returns true if nothing arrives in many turns of the runtime, which is the proxy's too.
    async fn is_silent(stream: &TcpStream) -> bool {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
            if stream.try_read(&mut [0; 16]).is_ok() {
                return false;
            }
        }
        true
    }

    #[tokio::test]
    async fn a_partition_holds_what_is_sent_and_delivers_it_to_whom_is_still_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let proxy = Proxy::new(&server).await.unwrap();
        let mut client = TcpStream::connect(proxy.url(&server)).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        client.write_all(b"before").await.unwrap();
        assert_eq!(read(&mut far).await, b"before");
        proxy.set(Network::Partitioned);
        client.write_all(b"asked").await.unwrap();
        far.write_all(b"told").await.unwrap();
        assert!(is_silent(&far).await && is_silent(&client).await);
        assert_eq!(proxy.open(), 1);
        // Connections that are opened meanwhile are taken, and carry nothing.
        let mut late = TcpStream::connect(proxy.url(&server)).await.unwrap();
        late.write_all(b"late").await.unwrap();
        let (mut behind, _) = listener.accept().await.unwrap();
        assert!(is_silent(&behind).await);
        // Who gives up cannot take back what was sent.
        drop(late);
        proxy.set(Network::Up);
        assert_eq!(read(&mut far).await, b"asked");
        assert_eq!(read(&mut client).await, b"told");
        assert_eq!(read(&mut behind).await, b"late");
        assert_eq!(read(&mut behind).await, b"", "and then its end");
    }

    #[test]
    fn the_host_is_found_in_every_address() {
        for (url, expected) in [
            ("postgres://app:secret@127.0.0.1:5432/shop?a=b", "127.0.0.1:5432"),
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("amqp://guest@localhost:5672/%2f", "localhost:5672"),
            ("127.0.0.1:4222", "127.0.0.1:4222"),
        ] {
            assert_eq!(authority(url), expected);
        }
    }
}
