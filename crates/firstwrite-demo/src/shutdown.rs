//! Serving and its end: told to stop, the demo takes no new requests and lets those under way end.

use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Serves until `told` returns, then drains for at most `drain`. Its second return ends the wait.
pub(crate) async fn serve_until_told(
    listener: TcpListener,
    router: Router,
    mut told: impl AsyncFnMut(),
    drain: Duration,
) -> anyhow::Result<()> {
    let (stop, stopping) = oneshot::channel::<()>();
    // Answers are small and whole: nothing is gained by waiting for more to send.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "cannot send small answers at once");
        }
    });
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        // An error means that the sender is gone, which is a reason to stop as well.
        drop(stopping.await);
    });
    let mut server = pin!(server.into_future());
    tokio::select! {
        ended = &mut server => return ended.context("cannot go on serving"),
        () = told() => {}
    }
    tracing::info!(?drain, "stopping: no new requests, those under way may end");
    drop(stop);
    tokio::select! {
        ended = tokio::time::timeout(drain, &mut server) => match ended {
            Ok(ended) => ended.context("cannot end serving"),
            Err(_elapsed) => {
                tracing::warn!("requests were still under way at the end of the drain");
                Ok(())
            }
        },
        () = told() => Ok(()),
    }
}
