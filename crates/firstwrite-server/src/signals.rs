//! The signals that ask a process to end.

use anyhow::Context as _;

/// The signals that ask a process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// From now on the signals are ours: before, they end the process at once.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).context("cannot listen for signals");
            let (interrupt, terminate) =
                (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
            Ok(Self { interrupt, terminate })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for Ctrl-C or SIGTERM.
    pub(crate) async fn received(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "cannot listen for Ctrl-C; stopping");
        }
    }
}
