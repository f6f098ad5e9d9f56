//! One server: started in its folder, watched while it starts, stopped by its pid.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use firstwrite_chaos::clock::{Stopwatch, wait_until};
use firstwrite_chaos::guard::Running;
use firstwrite_chaos::place::{Place, delete};

use super::Recipe;

/// The slowest server, RabbitMQ, takes five seconds on an idle machine.
const START_MAX: Duration = Duration::from_mins(1);

/// A server started by this process.
pub(crate) struct Server {
    recipe: &'static Recipe,
    place: Place,
    child: Child,
    running: Running,
}

/// Record, in a file, of a server that outlives the task which started it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) running: Running,
    pub(crate) port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts one server below `folder`, in front of the one that listens on `behind`; `watch` hears of the
    /// process before anything can go wrong.
    pub(crate) fn start(
        recipe: &'static Recipe,
        folder: &Path,
        behind: Option<u16>,
        watch: impl FnOnce(&Running),
    ) -> anyhow::Result<Self> {
        let started = Stopwatch::start();
        let mut place = Place::make(recipe.name, folder, recipe.user)?;
        place.behind = behind;
        if let Err(error) = (recipe.prepare)(&place) {
            delete(&place.folder);
            return Err(error.context(format!("preparing {}", recipe.name)));
        }
        let log = File::create(place.log()).context("cannot write a server's log")?;
        let mut command = (recipe.serve)(&place)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Its own process group: Ctrl-C at the terminal is for the task, which stops it in good order.
        let child = command.process_group(0).spawn().context("cannot start a server")?;
        let running = Running::new(child.id(), recipe.signal)
            .with_context(|| format!("{} ended at once", recipe.name))?;
        watch(&running);
        let mut server = Self { recipe, place, child, running };
        if let Err(error) = server.wait_until_ready() {
            server.stop();
            return Err(error);
        }
        println!("# {} answers after {:.1} s", recipe.name, started.seconds());
        Ok(server)
    }

    pub(crate) fn running(&self) -> &Running {
        &self.running
    }

    pub(crate) fn recipe(&self) -> &'static Recipe {
        self.recipe
    }

    pub(crate) fn port(&self) -> u16 {
        self.place.port
    }

    /// The environment variable that tells the suites about it.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        (self.recipe.variable, (self.recipe.address)(self.place.port))
    }

    /// Stops it and deletes its data.
    pub(crate) fn stop(mut self) {
        self.running.stop();
        if let Err(error) = self.child.wait() {
            eprintln!("waiting for {}: {error}", self.recipe.name);
        }
        delete(&self.place.folder);
    }

    /// Writes it down, so that a later task can stop it.
    pub(crate) fn leave_running(self, folder: &Path) -> anyhow::Result<Running> {
        let path = state_path(self.recipe, folder);
        let state = State {
            running: self.running.clone(),
            port: self.place.port,
            folder: self.place.folder.clone(),
        };
        if let Err(error) = std::fs::write(&path, state.to_text()) {
            self.stop();
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
        Ok(state.running)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let mut has_ended = false;
        let is_ready = wait_until(START_MAX, || {
            has_ended = self.child.try_wait().is_ok_and(|status| status.is_some());
            has_ended || (self.recipe.is_ready)(&self.place)
        });
        if is_ready && !has_ended {
            return Ok(());
        }
        let what = if has_ended { "ended" } else { "does not answer" };
        bail!("{} {what}; its last words: {}", self.recipe.name, self.place.last_words());
    }
}

impl State {
    pub(crate) fn read(recipe: &Recipe, folder: &Path) -> Option<Self> {
        Self::from_text(&std::fs::read_to_string(state_path(recipe, folder)).ok()?)
    }

    /// Forgets the server and deletes its data.
    pub(crate) fn clear(self, recipe: &Recipe, folder: &Path) {
        delete(&self.folder);
        let path = state_path(recipe, folder);
        if let Err(error) = std::fs::remove_file(&path) {
            eprintln!("leaving {}: {error}", path.display());
        }
    }

    fn to_text(&self) -> String {
        format!("{}\n{}\n{}\n", self.running.to_line(), self.port, self.folder.display())
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        Some(Self {
            running: Running::from_line(lines.next()?)?,
            port: lines.next()?.parse().ok()?,
            folder: PathBuf::from(lines.next()?),
        })
    }
}

fn state_path(recipe: &Recipe, folder: &Path) -> PathBuf {
    folder.join(format!("{}.state", recipe.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let state = State {
            running: Running { pid: 7, started_at: 99, signal: "INT".to_owned() },
            port: 25_401,
            folder: PathBuf::from("target/services/postgres"),
        };
        assert_eq!(State::from_text(&state.to_text()), Some(state));
        assert_eq!(State::from_text("7 99 INT\n"), None);
    }
}
