//! A destination that takes everything at once, and an address where nobody is.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) struct Sink {
    address: SocketAddr,
    dead: SocketAddr,
    count: Arc<AtomicU64>,
    arrivals: watch::Receiver<u64>,
}

impl Sink {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let dead = closed.local_addr().expect("an address");
        drop(closed);
        let count = Arc::new(AtomicU64::new(0));
        let (sender, arrivals) = watch::channel(0);
        let counting = Arc::clone(&count);
        tokio::spawn(async move {
            let sender = Arc::new(sender);
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                drop(stream.set_nodelay(true));
                let (count, sender) = (Arc::clone(&counting), Arc::clone(&sender));
                let answer = service_fn(move |request: Request<Incoming>| {
                    let (count, sender) = (Arc::clone(&count), Arc::clone(&sender));
                    async move {
                        drop(request.into_body().collect().await);
                        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                        sender.send_modify(|last| *last = number.max(*last));
                        let body = format!("{{\"id\":\"pay_{number}\"}}");
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { address, dead, count, arrivals }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/payments", self.address)
    }

    /// Where every connection is refused.
    pub(crate) fn dead_url(&self) -> String {
        format!("http://{}/v1/payments", self.dead)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until there were so many requests in all.
    pub(crate) async fn until(&self, count: u64) {
        let mut arrivals = self.arrivals.clone();
        let reached = arrivals.wait_for(|arrived| *arrived >= count);
        let reached = tokio::time::timeout(Duration::from_mins(2), reached).await;
        drop(reached.expect("everything is delivered within two minutes"));
    }

    /// Waits for one more request than there were when it was called.
    pub(crate) fn next(&self) -> impl Future<Output = ()> + use<> {
        let mut arrivals = self.arrivals.clone();
        arrivals.mark_unchanged();
        async move { drop(arrivals.changed().await) }
    }
}
