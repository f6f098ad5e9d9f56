//! Connections: accepting them, serving calls on them, and hanging up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Response;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;
/// A caller who sends a head more slowly than this has forgotten it.
const HEAD_WITHIN: Duration = Duration::from_mins(1);
/// Too many open files, most likely: they get fewer by themselves.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);

/// On a response: do not send it, close the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HangUp;

/// A response that is never sent: the caller sees the connection end.
pub(crate) fn hang_up() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(HangUp);
    response
}

/// Serves until `stopping` ends, then closes every connection.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    mut stopping: watch::Receiver<()>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropped with this function, and all connections with it.
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    let router = router.clone();
                    connections.spawn(async move {
                        converse(stream, router).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = stopping.changed() => {}
    }
}

async fn converse(stream: TcpStream, router: Router) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps its delay");
    }
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let answer = router.call(request);
        async move {
            let Ok(response) = answer.await;
            match response.extensions().get::<HangUp>() {
                None => Ok(response),
                Some(HangUp) => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        // A caller who sent everything and left has made its call.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}
