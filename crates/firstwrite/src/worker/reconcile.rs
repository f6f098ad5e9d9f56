//! Reconcile: compare our books with what providers say they did, once a day.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{Findings, Store, StoreError, Timestamp};
use tokio::sync::watch;

use super::{Load, repeat};
use crate::reconcile::{ReconcileError, Report, Settings, Source, next_window, reconcile_once};

/// Providers close their books daily.
pub const RECONCILE_EVERY: Duration = Duration::from_hours(24);

/// Interval between checks whether a run is due. A run that failed or was incomplete is repeated at the
/// next check, and a run that has fallen due begins at the next check.
pub const RECONCILE_LOOK_EVERY: Duration = Duration::from_mins(30);

/// A source, and how our books are compared with it.
#[derive(Clone, Debug)]
pub struct Account {
    /// Scope and rules of the comparison.
    pub settings: Settings,
    /// Source of the provider's account.
    pub source: Arc<dyn Source>,
}

/// Compares our books with sources, each when its time has come.
///
/// When that is, is kept in the store: of many workers one runs, as a rule, and two that run at once do
/// not disturb each other.
#[derive(Clone)]
pub struct Reconcile {
    store: Arc<dyn Store>,
    accounts: Arc<[Account]>,
    every: Duration,
    look_every: Duration,
}

impl Reconcile {
    /// Compares what `store` holds with each source, once a day.
    pub fn new(store: Arc<dyn Store>, accounts: Vec<Account>) -> Result<Self, ReconcileError> {
        for account in &accounts {
            account.settings.check().map_err(ReconcileError::Settings)?;
        }
        let overlaps = |(number, one): (usize, &Account)| {
            accounts[..number].iter().any(|other| one.settings.overlaps(&other.settings))
        };
        if accounts.iter().enumerate().any(overlaps) {
            return Err(ReconcileError::Unsupported(
                "two sources can have the same message or request; make them one source",
            ));
        }
        if accounts.iter().any(|account| account.source.as_export().is_some()) {
            return Err(ReconcileError::Unsupported(
                "an export is compared by hand, not by schedule",
            ));
        }
        if store.documents().is_none() {
            return Err(ReconcileError::Unsupported("the store keeps no findings"));
        }
        let (every, look_every) = (RECONCILE_EVERY, RECONCILE_LOOK_EVERY);
        Ok(Self { store, accounts: accounts.into(), every, look_every })
    }

    /// Sets how long after a complete run the next one is due; a day unless set.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self.look_every = self.look_every.min(every);
        self
    }

    /// Runs each source that is due, and says how it went. One that fails does not hold up the others.
    pub async fn run_once(&self) -> Vec<(String, Result<Report, ReconcileError>)> {
        let mut reports = Vec::new();
        for Account { settings, source } in &*self.accounts {
            match self.is_due(settings).await {
                Ok(false) => continue,
                Ok(true) => {}
                Err(error) => {
                    reports.push((settings.source.clone(), Err(error.into())));
                    continue;
                }
            }
            let report = self.run_source(settings, &**source).await;
            say(&settings.source, &report);
            reports.push((settings.source.clone(), report));
        }
        reports
    }

    async fn run_source(
        &self,
        settings: &Settings,
        source: &dyn Source,
    ) -> Result<Report, ReconcileError> {
        let window = next_window(&*self.store, settings).await?;
        reconcile_once(&*self.store, source, settings, window, &mut |_| {}).await
    }

    async fn is_due(&self, settings: &Settings) -> Result<bool, StoreError> {
        let Some(findings) = Findings::of(&*self.store) else { return Ok(false) };
        let last = findings.last_run(&settings.source).await?;
        if last.is_none() && !settings.apply_first_run {
            let source = &settings.source;
            tracing::warn!(source, "nobody has applied a first run: the source is not compared");
            return Ok(false);
        }
        let now: Timestamp = self.store.now().await?;
        Ok(last.is_none_or(|last| last.at.plus(self.every) <= now))
    }

    /// Runs sources until all stop senders are dropped. Then it aborts a run under way: the next one does
    /// the rest.
    pub(super) async fn run(self, stopped: watch::Receiver<()>) {
        if self.accounts.is_empty() {
            return;
        }
        let look_every = self.look_every;
        let mut ended = stopped.clone();
        let looking = repeat(stopped, look_every, "reconcile", move || {
            let reconcile = self.clone();
            Box::pin(async move {
                for (_, report) in reconcile.run_once().await {
                    if let Err(ReconcileError::Store(error)) = report {
                        return Err(error);
                    }
                }
                Ok(Load::Light)
            })
        });
        tokio::select! {
            () = looking => {}
            _ = ended.changed() => {}
        }
    }
}

fn say(source: &str, report: &Result<Report, ReconcileError>) {
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            tracing::warn!(source, %error, "a reconciliation failed");
            return;
        }
    };
    let Report { delivered, resent, completed, freed, .. } = *report;
    let (new, reopened) = (report.noted.new, report.noted.reopened);
    if !report.is_complete {
        let flaw = report.flaws.first().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(source, flaw, "a provider's account is not complete");
    }
    if new + reopened > 0 {
        tracing::warn!(source, new, reopened, "a reconciliation found discrepancies");
    }
    tracing::info!(source, delivered, resent, completed, freed, "books were compared");
}

impl fmt::Debug for Reconcile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.accounts.iter().map(|account| account.settings.source.as_str()).collect();
        f.debug_struct("Reconcile").field("sources", &names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
