//! A process that an example needs: started, waited for, stopped with the task.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use firstwrite_chaos::clock::wait_until;
use firstwrite_chaos::guard::{Guard, Running};
use firstwrite_chaos::place::free_port;

use super::Ground;

/// Maximum time until a process listens: Python reads a thousand files first.
const START_MAX: Duration = Duration::from_secs(30);

/// Something that listens on loopback. Dropped, it is killed.
pub(super) struct Actor<'a> {
    child: Child,
    running: Option<Running>,
    guard: &'a Guard,
    pub(super) address: SocketAddr,
}

impl Ground<'_> {
    /// Starts what listens on `port`, and waits until it does. What it says is in a file of its name.
    pub(super) fn start(
        &self,
        name: &str,
        command: &mut Command,
        port: u16,
    ) -> anyhow::Result<Actor<'_>> {
        let log = self.folder.join(format!("{name}.log"));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let running = Running::new(child.id(), "KILL");
        if let Some(running) = &running {
            self.guard.watch(running);
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut actor = Actor { child, running, guard: self.guard, address };
        let listens = wait_until(START_MAX, || {
            actor.has_ended() || TcpStream::connect_timeout(&address, START_MAX).is_ok()
        });
        ensure!(listens && !actor.has_ended(), "{name} does not listen");
        Ok(actor)
    }

    /// A gateway in front of `upstream`.
    pub(super) fn gateway(&self, upstream: SocketAddr, store: &str) -> anyhow::Result<Actor<'_>> {
        let port = free_port()?;
        let mut command = Command::new(&self.binary);
        command.args(["gateway", "--tenants", "authorization"]).current_dir(&self.folder);
        command.args(["--upstream", &format!("http://{upstream}"), "--create", "--store", store]);
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        self.start("gateway", &mut command, port)
    }
}

impl Actor<'_> {
    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Actor<'_> {
    fn drop(&mut self) {
        // It may have ended by itself, which one example is about.
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(running) = self.running.take() {
            self.guard.forget(&running);
        }
    }
}
