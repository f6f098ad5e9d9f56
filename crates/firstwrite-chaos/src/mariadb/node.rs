//! One `MariaDB` that is killed and started again.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::clock::wait_until;
use crate::engine::Engine;
use crate::guard::{Guard, Running};
use crate::place::{Place, delete};

/// Recovery after a kill, or being sent everything by another node, on a loaded machine.
const READY_MAX: Duration = Duration::from_mins(2);

/// A server on a port and a data folder of its own, which stay the same however often it starts.
pub(crate) struct Node<'a> {
    pub(super) name: &'static str,
    pub(super) place: Place,
    /// Further words of its command line.
    settings: &'static [&'static str],
    guard: &'a Guard,
    server: Option<(Child, Running)>,
    /// True if the folder is kept when this value is dropped.
    is_evidence: bool,
}

impl<'a> Node<'a> {
    /// An empty server below `folder`; it does not run yet.
    pub(crate) fn create(
        name: &'static str,
        folder: &Path,
        settings: &'static [&'static str],
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        let place = Place::make(name, folder, Some(super::USER))?;
        super::prepare(&place).with_context(|| format!("preparing {name}"))?;
        Ok(Self { name, place, settings, guard, server: None, is_evidence: false })
    }

    pub(super) fn is_running(&self) -> bool {
        self.server.is_some()
    }

    /// Starts it with further words; it may not take connections yet.
    pub(super) fn start_with(
        &mut self,
        more: impl FnOnce(&mut Command) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        ensure!(self.server.is_none(), "{} runs already", self.name);
        let log = OpenOptions::new().create(true).append(true).open(self.place.log());
        let log = log.context("cannot write a server's log")?;
        let mut command = super::serve(&self.place)?;
        command.args(self.settings);
        more(&mut command)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.process_group(0).spawn().context("cannot start MariaDB")?;
        let Some(running) = Running::new(child.id(), "TERM") else {
            child.wait().context("waiting for MariaDB")?;
            bail!("{} ended at once; its last words: {}", self.name, self.place.last_words());
        };
        self.guard.watch(&running);
        self.server = Some((child, running));
        Ok(())
    }

    /// Waits until `is_ready` says so, or the server has ended.
    pub(super) fn wait_until(&mut self, is_ready: impl Fn(&Place) -> bool) -> anyhow::Result<()> {
        let Some((child, _)) = &mut self.server else { bail!("{} does not run", self.name) };
        let place = &self.place;
        let mut has_ended = false;
        let is_there = wait_until(READY_MAX, || {
            has_ended = child.try_wait().is_ok_and(|status| status.is_some());
            has_ended || is_ready(place)
        });
        if is_there && !has_ended {
            return Ok(());
        }
        let what = if has_ended { "ended" } else { "is not ready" };
        bail!("{} {what}; its last words: {}", self.name, self.place.last_words())
    }

    fn end(&mut self, how: impl FnOnce(&mut Child, &Running)) -> anyhow::Result<()> {
        let Some((mut child, running)) = self.server.take() else { return Ok(()) };
        how(&mut child, &running);
        child.wait().context("waiting for MariaDB")?;
        self.guard.forget(&running);
        Ok(())
    }
}

impl Engine for Node<'_> {
    fn address(&self) -> String {
        super::address(self.place.port)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let place = self.place.clone();
        self.start_with(|command| super::with_database(&place, command))
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        self.wait_until(super::is_ready)
    }

    /// SIGKILL; the server is one process.
    fn kill(&mut self) -> anyhow::Result<()> {
        // One that has ended by itself is told by what comes next.
        self.end(|child, _| drop(child.kill()))
    }

    fn pids(&self) -> Vec<u32> {
        self.server.iter().map(|(_, running)| running.pid).collect()
    }

    fn keep(&mut self) {
        self.is_evidence = true;
        println!("{}: data stays in {}", self.name, self.place.folder.display());
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end(|_, running| running.stop()) {
            eprintln!("cannot stop {}: {error:#}", self.name);
        }
        if !self.is_evidence {
            delete(&self.place.folder);
        }
    }
}
