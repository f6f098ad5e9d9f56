//! One Redis that is killed and started again on the same data.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::{CLIENT, SERVER};
use crate::clock::wait_until;
use crate::engine::Engine;
use crate::guard::{Guard, Running};
use crate::packages;
use crate::place::{Place, delete};

/// Reading its log back included, on a loaded machine.
const READY_MAX: Duration = Duration::from_mins(1);

/// A server on a port and a data folder of its own.
pub(crate) struct Node<'a> {
    place: Place,
    guard: &'a Guard,
    server: Option<(Child, Running)>,
    is_evidence: bool,
}

impl<'a> Node<'a> {
    /// An empty server below `folder`; it does not run yet.
    pub(crate) fn create(folder: &Path, guard: &'a Guard) -> anyhow::Result<Self> {
        packages::ensure(&[SERVER, CLIENT])?;
        let place = Place::make("redis", folder, None)?;
        std::fs::create_dir_all(place.data()).context("cannot make a data folder")?;
        Ok(Self { place, guard, server: None, is_evidence: false })
    }

    fn end(&mut self, how: impl FnOnce(&mut Child, &Running)) -> anyhow::Result<()> {
        let Some((mut child, running)) = self.server.take() else { return Ok(()) };
        how(&mut child, &running);
        child.wait().context("waiting for Redis")?;
        self.guard.forget(&running);
        Ok(())
    }
}

impl Engine for Node<'_> {
    fn address(&self) -> String {
        super::address(self.place.port)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        ensure!(self.server.is_none(), "redis runs already");
        let log = OpenOptions::new().create(true).append(true).open(self.place.log());
        let log = log.context("cannot write a server's log")?;
        let mut command = super::serve(&self.place)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.process_group(0).spawn().context("cannot start Redis")?;
        let Some(running) = Running::new(child.id(), "TERM") else {
            child.wait().context("waiting for Redis")?;
            bail!("redis ended at once; its last words: {}", self.place.last_words());
        };
        self.guard.watch(&running);
        self.server = Some((child, running));
        Ok(())
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let is_ready = wait_until(READY_MAX, || super::is_ready(&self.place));
        ensure!(is_ready, "redis does not answer; its last words: {}", self.place.last_words());
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        // One that has ended by itself is told by what comes next.
        self.end(|child, _| drop(child.kill()))
    }

    fn pids(&self) -> Vec<u32> {
        self.server.iter().map(|(_, running)| running.pid).collect()
    }

    fn keep(&mut self) {
        self.is_evidence = true;
        println!("redis: data stays in {}", self.place.folder.display());
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end(|_, running| running.stop()) {
            eprintln!("cannot stop redis: {error:#}");
        }
        if !self.is_evidence {
            delete(&self.place.folder);
        }
    }
}
