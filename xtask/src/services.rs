//! Database servers for the suites: on loopback, on private ports, in private folders, stopped by pid.
//!
//! What a server needs is data and four small functions, one file per server; how servers are started,
//! watched and stopped is the same for all and lives in `server.rs`.

mod mariadb;
mod postgres;
mod redis;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{Args, Usage};
use crate::guard::Guard;
use crate::packages::{self, Need};
use crate::process;
use crate::workspace::Workspace;
use server::{Server, State};

pub(crate) const HELP: &str = "\
  up       installs (as root) and starts the named servers, or all; prints the environment to set
  status   says which run, and the environment to set
  down     stops the named servers, or all, and deletes their data

The servers listen on 127.0.0.1 only, on ports of their own, without passwords; their data lies below
target/services. A task that needs servers starts its own and does not touch these.";

const RECIPES: &[&Recipe] = &[&postgres::RECIPE, &mariadb::RECIPE, &redis::RECIPE];

/// How one kind of server is run.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    /// The environment variable in which the suites look for its address.
    variable: &'static str,
    needs: &'static [Need],
    /// The user it runs as when we are root, for servers that refuse to be root.
    user: Option<&'static str>,
    /// The signal that ends it in good order.
    signal: &'static str,
    address: fn(port: u16) -> String,
    /// Fills an empty folder.
    prepare: fn(&Place) -> anyhow::Result<()>,
    /// The command that serves, in the foreground, until it is told to stop.
    serve: fn(&Place) -> anyhow::Result<Command>,
    /// Whether it answers; asked again until it does.
    is_ready: fn(&Place) -> bool,
}

/// Where one server lives.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    folder: PathBuf,
    port: u16,
    user: Option<&'static str>,
}

/// Servers that live as long as this value.
pub(crate) struct Services<'a> {
    servers: Vec<(Server, &'a Guard)>,
    /// Deleted with the last of them.
    folder: Option<PathBuf>,
}

impl Place {
    /// A program, run as the user the server runs as.
    fn command(&self, program: &Path) -> Command {
        match self.user {
            None => Command::new(program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args([&format!("--reuid={user}"), &format!("--regid={user}")]);
                command.arg("--init-groups").arg(program);
                command
            }
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

impl<'a> Services<'a> {
    pub(crate) fn none() -> Self {
        Self { servers: Vec::new(), folder: None }
    }

    /// Installs what is missing and starts all of `recipes` below `folder`.
    pub(crate) fn start(
        recipes: &[&'static Recipe],
        folder: &Path,
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        install(recipes)?;
        let mut services = Self { servers: Vec::new(), folder: Some(folder.to_owned()) };
        for recipe in recipes {
            let server = Server::start(recipe, folder, |running| guard.watch(running))?;
            services.servers.push((server, guard));
        }
        Ok(services)
    }

    /// What the suites look for.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        self.servers.iter().map(|(server, _)| server.variable()).collect()
    }
}

impl Drop for Services<'_> {
    fn drop(&mut self) {
        for (server, guard) in self.servers.drain(..) {
            let running = server.running().clone();
            server.stop();
            guard.forget(&running);
        }
        if let Some(folder) = self.folder.take()
            && folder.exists()
            && let Err(error) = std::fs::remove_dir_all(&folder)
        {
            eprintln!("leaving {}: {error}", folder.display());
        }
    }
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let verb = args.word().unwrap_or_default();
    let recipes = named(&args.rest())?;
    let folder = workspace.target.join("services");
    match verb.as_str() {
        "up" => up(&recipes, &folder),
        "down" => down(&recipes, &folder),
        "status" => {
            for recipe in recipes {
                match State::read(recipe, &folder) {
                    Some(state) if state.running.is_alive() => {
                        println!("{}: runs, pid {}", recipe.name, state.running.pid);
                        tell(recipe.variable, &(recipe.address)(state.port));
                    }
                    _ => println!("{}: does not run", recipe.name),
                }
            }
            Ok(())
        }
        other => Err(Usage(format!("`{other}` is none of up, down, status")).into()),
    }
}

fn named(names: &[String]) -> anyhow::Result<Vec<&'static Recipe>> {
    if names.is_empty() {
        return Ok(RECIPES.to_vec());
    }
    let find = |name: &String| {
        let known = RECIPES.iter().copied().find(|recipe| recipe.name == name);
        let offer = RECIPES.iter().map(|recipe| recipe.name).collect::<Vec<_>>().join(", ");
        known.ok_or_else(|| Usage(format!("there is no server `{name}`; there are {offer}")).into())
    };
    names.iter().map(find).collect()
}

fn up(recipes: &[&'static Recipe], folder: &Path) -> anyhow::Result<()> {
    install(recipes)?;
    // Until a server is up and written down, an interrupted start must not leave it behind.
    let guard = Guard::start()?;
    for recipe in recipes {
        if let Some(state) = State::read(recipe, folder) {
            if state.running.is_alive() {
                println!("# {} runs already, pid {}", recipe.name, state.running.pid);
                tell(recipe.variable, &(recipe.address)(state.port));
                continue;
            }
            state.clear(recipe, folder);
        }
        let server = Server::start(recipe, folder, |running| guard.watch(running))?;
        let (variable, address) = server.variable();
        println!("# {} is up, pid {}", recipe.name, server.running().pid);
        tell(variable, &address);
        guard.forget(&server.leave_running(folder)?);
    }
    Ok(())
}

fn down(recipes: &[&'static Recipe], folder: &Path) -> anyhow::Result<()> {
    for recipe in recipes {
        let Some(state) = State::read(recipe, folder) else {
            println!("{}: does not run", recipe.name);
            continue;
        };
        state.running.stop();
        anyhow::ensure!(!state.running.is_alive(), "{} does not stop", recipe.name);
        state.clear(recipe, folder);
        println!("{}: stopped", recipe.name);
    }
    Ok(())
}

fn install(recipes: &[&'static Recipe]) -> anyhow::Result<()> {
    let needs: Vec<Need> = recipes.iter().flat_map(|recipe| recipe.needs).copied().collect();
    packages::ensure(&needs)
}

/// In a form that a shell takes.
fn tell(variable: &str, address: &str) {
    println!("export {variable}={address}");
}

/// Whether `program` with `arguments` succeeds, for the questions in the recipes.
fn answers(program: &str, arguments: &[&str]) -> bool {
    process::find(program).is_some_and(|path| process::succeeds(Command::new(path).args(arguments)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_name_and_others_refused() {
        assert_eq!(named(&[]).unwrap().len(), RECIPES.len());
        assert_eq!(named(&["redis".to_owned()]).unwrap()[0].name, "redis");
        assert!(named(&["oracle".to_owned()]).err().unwrap().is::<Usage>());
    }

    #[test]
    fn a_foreign_user_is_taken_on_by_setpriv() {
        let mut place = Place { folder: "/x".into(), port: 1, user: None };
        assert_eq!(process::spelled(&place.command(Path::new("/bin/initdb"))), "initdb");
        place.user = Some("postgres");
        assert_eq!(
            process::spelled(&place.command(Path::new("/bin/initdb"))),
            "setpriv --reuid=postgres --regid=postgres --init-groups /bin/initdb"
        );
    }
}
