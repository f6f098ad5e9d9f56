//! The signals that ask a process to end.

use anyhow::Context as _;

/// The signals that ask a process to end, or to read its settings again.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

/// Request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// To end.
    Stop,
    /// To read the settings again.
    Reload,
}

impl Signals {
    /// From now on the signals are ours: before, they end the process at once.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let listen = |kind| signal(kind).context("cannot listen for signals");
            Ok(Self {
                hangup: listen(SignalKind::hangup())?,
                interrupt: listen(SignalKind::interrupt())?,
                terminate: listen(SignalKind::terminate())?,
            })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Waits for Ctrl-C or SIGTERM, or for SIGHUP.
    pub(crate) async fn told(&mut self) -> Told {
        #[cfg(unix)]
        tokio::select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.terminate.recv() => Told::Stop,
        }
        #[cfg(not(unix))]
        {
            self.received().await;
            Told::Stop
        }
    }

    /// Waits for Ctrl-C in a process that is ending already. A further SIGTERM changes nothing: supervisors repeat
    /// it, and what is under way must not be cut off by that.
    pub(crate) async fn hurried(&mut self) {
        #[cfg(unix)]
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => tracing::warn!(
                    "SIGTERM once more changes nothing: what is under way ends first; Ctrl-C (SIGINT) cuts it off"
                ),
                _ = self.hangup.recv() => {
                    tracing::warn!("SIGHUP changes nothing: the process is ending");
                }
            }
        }
        #[cfg(not(unix))]
        self.received().await;
    }

    /// Waits for Ctrl-C or SIGTERM, for a process that reads its settings at its start alone: SIGHUP is answered in
    /// the log.
    pub(crate) async fn received(&mut self) {
        #[cfg(unix)]
        while self.told().await == Told::Reload {
            tracing::warn!(
                "SIGHUP changes nothing here: the settings, [sealing] and its dropped tenants included, are \
                 read at the start; start the process again"
            );
        }
        #[cfg(not(unix))]
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "cannot listen for Ctrl-C; stopping");
        }
    }
}
