//! One `PostgreSQL` that is killed, started again, copied and promoted.

use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::{DURABLE, Settings, processes};
use crate::clock::{pause, wait_until};
use crate::guard::{Guard, Running};
use crate::place::{Place, delete};
use crate::process;

/// Recovery after a kill included, on a loaded machine.
const READY_MAX: Duration = Duration::from_mins(1);
/// Ends by the hand of the kernel; only a machine that hangs takes this long.
const GONE_MAX: Duration = Duration::from_secs(20);
/// A standby on the same machine is a few milliseconds behind.
const REPLICATION_MAX: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A server on a port and a data folder of its own, which stay the same however often it starts.
#[derive(Debug)]
pub struct Node<'a> {
    name: &'static str,
    place: Place,
    guard: &'a Guard,
    postmaster: Option<(Child, Running)>,
    /// True if the folder is kept when this value is dropped.
    is_evidence: bool,
}

impl<'a> Node<'a> {
    /// An empty server below `folder`; it does not run yet.
    pub fn create(
        name: &'static str,
        folder: &Path,
        settings: &[Settings],
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        let node = Self::at(name, folder, guard)?;
        super::prepare(&node.place, DURABLE).with_context(|| format!("preparing {name}"))?;
        for more in settings {
            super::configure(&node.place, "postgresql.conf", more)?;
        }
        Ok(node)
    }

    /// A standby of `primary`, which runs; this one does not run yet.
    pub(crate) fn standby_of(
        primary: &Node<'_>,
        name: &'static str,
        folder: &Path,
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        let node = Self::at(name, folder, guard)?;
        node.copy_from(primary)?;
        Ok(node)
    }

    /// Throws away what this server had, and makes it a standby of `primary` under its old name and port.
    pub(crate) fn rebuild_from(&mut self, primary: &Node<'_>) -> anyhow::Result<()> {
        self.stop()?;
        self.free_shared_memory();
        delete(&self.place.data());
        self.copy_from(primary)
    }

    fn copy_from(&self, primary: &Node<'_>) -> anyhow::Result<()> {
        let (name, port) = (self.name, primary.place.port);
        let source = format!("host=127.0.0.1 port={port} user=postgres application_name={name}");
        let mut command = self.place.command(&super::program("pg_basebackup")?);
        command.args(["-d", &source, "-R", "-X", "stream", "-c", "fast", "-D"]);
        // A slot of its own: the primary keeps what this standby has not fetched yet.
        process::read(command.arg(self.place.data()).args(["-C", "-S", name]))
            .with_context(|| format!("copying {} to {name}", primary.name))?;
        // Whom it waits for is for a new primary to say, once it has a standby of its own.
        let alone = &[("synchronous_standby_names", ""), ("synchronous_commit", "on")];
        super::configure(&self.place, "postgresql.auto.conf", alone)
    }

    fn at(name: &'static str, folder: &Path, guard: &'a Guard) -> anyhow::Result<Self> {
        let place = Place::make(name, folder, Some(super::USER))?;
        Ok(Self { name, place, guard, postmaster: None, is_evidence: false })
    }

    pub(crate) fn port(&self) -> u16 {
        self.place.port
    }

    /// The address the suites and the demo take.
    pub fn address(&self) -> String {
        super::address(self.place.port)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.postmaster.is_some()
    }

    /// All its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        processes::of_server(&self.place.data())
    }

    /// Starts it; it may not take connections yet.
    pub fn start(&mut self) -> anyhow::Result<()> {
        ensure!(self.postmaster.is_none(), "{} runs already", self.name);
        let log = OpenOptions::new().create(true).append(true).open(self.place.log());
        let log = log.context("cannot write a server's log")?;
        let mut command = super::serve(&self.place)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.process_group(0).spawn().context("cannot start PostgreSQL")?;
        let Some(running) = Running::new(child.id(), "INT") else {
            child.wait().context("waiting for PostgreSQL")?;
            bail!("{} ended at once; its last words: {}", self.name, self.place.last_words());
        };
        self.guard.watch(&running);
        self.postmaster = Some((child, running));
        Ok(())
    }

    /// Waits until it takes connections.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let Some((child, _)) = &mut self.postmaster else { bail!("{} does not run", self.name) };
        let place = &self.place;
        let mut has_ended = false;
        let is_ready = wait_until(READY_MAX, || {
            has_ended = child.try_wait().is_ok_and(|status| status.is_some());
            has_ended || super::is_ready(place)
        });
        if is_ready && !has_ended {
            return Ok(());
        }
        let what = if has_ended { "ended" } else { "takes no connections" };
        bail!("{} {what}; its last words: {}", self.name, self.place.last_words())
    }

    /// SIGKILL to every process of this server at once; returns when the last of them is gone.
    ///
    /// A survivor would hold on to the data folder, and with it the shared memory that is to be lost.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let Some((mut child, running)) = self.postmaster.take() else { return Ok(()) };
        let data = self.place.data();
        let is_gone = wait_until(GONE_MAX, || {
            // The first process is named by us: until it has begun its work, it is in no folder.
            let first = child.try_wait().is_ok_and(|status| status.is_none()).then(|| child.id());
            let others = processes::of_server(&data).into_iter().filter(|&pid| Some(pid) != first);
            let pids: Vec<u32> = first.into_iter().chain(others).collect();
            if !pids.is_empty() {
                process::signal_all(&pids, "KILL");
            }
            pids.is_empty()
        });
        child.wait().context("waiting for PostgreSQL")?;
        self.guard.forget(&running);
        ensure!(is_gone, "processes of {} survive being killed", self.name);
        Ok(())
    }

    /// Ends it in good order: clients are cut off, data is written.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        let Some((mut child, running)) = self.postmaster.take() else { return Ok(()) };
        running.stop();
        child.wait().context("waiting for PostgreSQL")?;
        self.guard.forget(&running);
        Ok(())
    }

    /// Makes a standby the primary.
    pub(crate) fn promote(&self) -> anyhow::Result<()> {
        let mut command = self.place.command(&super::program("pg_ctl")?);
        command.arg("-D").arg(self.place.data()).args(["-w", "-t", "30", "-s", "promote"]);
        process::run(&mut command)
    }

    /// From now on no commit is acknowledged before `standby` has applied it.
    pub(crate) fn wait_for_standby_in_commits(&self, standby: &Node<'_>) -> anyhow::Result<()> {
        let names =
            format!("alter system set synchronous_standby_names = 'FIRST 1 ({})'", standby.name);
        self.ask(&names)?;
        self.ask("alter system set synchronous_commit = 'remote_apply'")?;
        self.ask("select pg_reload_conf()")?;
        self.wait_for("a synchronous standby", || {
            let states = self.ask("SELECT sync_state FROM pg_stat_replication")?;
            Ok(states.lines().any(|state| state == "sync"))
        })
    }

    /// Waits until `standby` has applied all that this one has written so far.
    pub(crate) fn wait_until_applied_by(&self, standby: &Node<'_>) -> anyhow::Result<()> {
        let written = self.ask("select pg_current_wal_flush_lsn()")?;
        self.wait_for("the standby to catch up", || {
            let has = format!("select pg_last_wal_replay_lsn() >= '{}'::pg_lsn", written.trim());
            Ok(standby.ask(&has)?.trim() == "t")
        })
    }

    /// Waits until the service has seen that commits wait for a standby: before that, a failover is one
    /// to a standby that may be behind.
    pub(crate) fn wait_until_service_knows_of_standby(&self) -> anyhow::Result<()> {
        self.wait_for("the service to see its standby", || {
            Ok(self.ask("select is_synchronous from firstwrite.mark")?.trim() == "t")
        })
    }

    /// The folder stays when this value goes, for a person to look at.
    pub(crate) fn keep(&mut self) {
        self.is_evidence = true;
        println!("{}: data stays in {}", self.name, self.place.folder.display());
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let mut answer = Ok(false);
        let is_over = wait_until(REPLICATION_MAX, || {
            answer = is_so();
            let goes_on = matches!(answer, Ok(false));
            if goes_on {
                pause(BETWEEN_LOOKS);
            }
            !goes_on
        });
        answer?;
        ensure!(is_over, "{} waits for {what}, in vain", self.name);
        Ok(())
    }

    fn ask(&self, question: &str) -> anyhow::Result<String> {
        process::read(super::psql(self.place.port)?.args(["-c", question]))
    }

    /// A killed server leaves a small piece of shared memory, by which the next one would know that the
    /// folder is in use; no next one will come.
    fn free_shared_memory(&self) {
        let Ok(text) = std::fs::read_to_string(self.place.data().join("postmaster.pid")) else {
            return;
        };
        if let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            process::succeeds(Command::new("ipcrm").args(["-m", id]));
        }
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("cannot stop {}: {error:#}", self.name);
        }
        self.free_shared_memory();
        if !self.is_evidence {
            delete(&self.place.folder);
        }
    }
}
