//! Servers for the suites: databases and brokers: on loopback, on private ports, in private folders, stopped by pid.
//!
//! What a server needs is data and four small functions, one file per server; how servers are started,
//! watched and stopped is the same for all and lives in `server.rs`.

mod debian_root;
mod dynamodb;
mod mariadb;
mod mysql;
mod nats;
mod pgbouncer;
mod postgres;
mod rabbitmq;
mod redis;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use firstwrite_chaos::args::{Args, Usage};
use firstwrite_chaos::guard::Guard;
use firstwrite_chaos::packages::{self, Need};
use firstwrite_chaos::place::Place;
use firstwrite_chaos::workspace::Workspace;

use server::{Server, State};

pub(crate) const HELP: &str = "\
  up       installs (as root) and starts the named servers, or all but the costly ones; prints the
           environment to set
  status   says which run, and the environment to set
  down     stops the named servers, or all, and deletes their data

  postgres        with the settings of a team that takes payments
  postgres-newest Debian's newest PostgreSQL, from a private root: costly (a minute, 250 MB, root), so
                  only when named
  pgbouncer       transaction mode, 8 sessions, in front of that PostgreSQL; starts it too
  pgbouncer-new   the same with a version that follows prepared statements, from a private root of
                  Debian's newest packages: costly (a minute, 150 MB, root), so only when named
  nats            with JetStream
  rabbitmq        starts epmd too, the name server of Erlang
  mysql           MySQL proper, from a private root of Debian's newest packages: costly (a minute,
                  330 MB, root), so only when named
  redis-newest    Debian's newest Redis, from a private root: costly (half a minute, 100 MB, root)
  valkey          Valkey, from a private root: costly (half a minute, 100 MB, root)
  dynamodb        the emulator ministack, installed from the Python index (15 s, 90 MB)
  dynamodb-moto   the emulator moto, a second opinion: costly (two minutes, 320 MB), so only when named
  mariadb, redis

A server that stands in front of another is stopped with it.

The servers listen on 127.0.0.1 only, on ports of their own, without passwords; their data lies below
target/services. A task that needs servers starts its own and does not touch these.";

const RECIPES: &[&Recipe] = &[
    &postgres::RECIPE,
    &postgres::NEWEST,
    &pgbouncer::RECIPE,
    &pgbouncer::NEW,
    &mariadb::RECIPE,
    &mysql::RECIPE,
    &dynamodb::RECIPE,
    &dynamodb::MOTO_RECIPE,
    &redis::RECIPE,
    &redis::NEWEST,
    &redis::VALKEY,
    &nats::RECIPE,
    &rabbitmq::EPMD,
    &rabbitmq::RECIPE,
];

/// Servers that the stores need, and no more.
pub(crate) const STORES: &[&Recipe] =
    &[&postgres::RECIPE, &pgbouncer::RECIPE, &mariadb::RECIPE, &dynamodb::RECIPE, &redis::RECIPE];
/// The same, and those that are costly.
pub(crate) const STORES_FULL: &[&Recipe] = &[
    &postgres::RECIPE,
    &postgres::NEWEST,
    &pgbouncer::RECIPE,
    &mariadb::RECIPE,
    &mysql::RECIPE,
    &dynamodb::RECIPE,
    &redis::RECIPE,
    &redis::NEWEST,
    &redis::VALKEY,
];

/// Servers that the suites of every run need.
pub(crate) const SUITES: &[&Recipe] = &[
    &postgres::RECIPE,
    &pgbouncer::RECIPE,
    &mariadb::RECIPE,
    &dynamodb::RECIPE,
    &redis::RECIPE,
    &nats::RECIPE,
    &rabbitmq::RECIPE,
];
/// The same, and those that cost more than every run should pay.
pub(crate) const SUITES_FULL: &[&Recipe] = &[
    &postgres::RECIPE,
    &postgres::NEWEST,
    &pgbouncer::RECIPE,
    &pgbouncer::NEW,
    &mariadb::RECIPE,
    &mysql::RECIPE,
    &dynamodb::RECIPE,
    &dynamodb::MOTO_RECIPE,
    &redis::RECIPE,
    &redis::NEWEST,
    &redis::VALKEY,
    &nats::RECIPE,
    &rabbitmq::RECIPE,
];

/// Recipe to run one kind of server.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    /// The environment variable in which the suites look for its address.
    variable: &'static str,
    needs: &'static [Need],
    /// The server it passes everything on to; started before it and stopped after it.
    in_front_of: Option<&'static Recipe>,
    /// Started only when it is named.
    is_costly: bool,
    /// The user it runs as when we are root, for servers that refuse to be root.
    user: Option<&'static str>,
    /// The signal that ends it in good order.
    signal: &'static str,
    address: fn(port: u16) -> String,
    /// Fills an empty folder.
    prepare: fn(&Place) -> anyhow::Result<()>,
    /// The command that serves, in the foreground, until it is told to stop.
    serve: fn(&Place) -> anyhow::Result<Command>,
    /// Returns true if the server answers; asked again until it does.
    is_ready: fn(&Place) -> bool,
}

/// Servers that live as long as this value.
pub(crate) struct Services<'a> {
    servers: Vec<(Server, &'a Guard)>,
    /// Deleted with the last of them.
    folder: Option<PathBuf>,
}

impl<'a> Services<'a> {
    /// Installs what is missing and starts all of `recipes` below `folder`.
    pub(crate) fn start(
        recipes: &[&'static Recipe],
        folder: &Path,
        guard: &'a Guard,
    ) -> anyhow::Result<Self> {
        let recipes = with_those_behind(recipes);
        install(&recipes)?;
        let mut services = Self { servers: Vec::new(), folder: Some(folder.to_owned()) };
        for recipe in recipes {
            let behind = recipe.in_front_of.and_then(|behind| services.port_of(behind));
            let server = Server::start(recipe, folder, behind, |running| guard.watch(running))?;
            services.servers.push((server, guard));
        }
        Ok(services)
    }

    fn port_of(&self, recipe: &Recipe) -> Option<u16> {
        let named = |(server, _): &&(Server, _)| server.recipe().name == recipe.name;
        self.servers.iter().find(named).map(|(server, _)| server.port())
    }

    /// Returns the environment variables that the suites look for.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        self.servers.iter().map(|(server, _)| server.variable()).collect()
    }
}

impl Drop for Services<'_> {
    fn drop(&mut self) {
        for (server, guard) in self.servers.drain(..).rev() {
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
    let names = args.rest();
    let recipes = named(&names)?;
    let folder = workspace.target.join("services");
    match verb.as_str() {
        "up" if names.is_empty() => {
            let usual: Vec<_> = recipes.into_iter().filter(|recipe| !recipe.is_costly).collect();
            up(&usual, &folder)
        }
        "up" => up(&with_those_behind(&recipes), &folder),
        "down" => down(&with_those_in_front(&recipes), &folder),
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

/// Each after the one it stands in front of.
fn with_those_behind(recipes: &[&'static Recipe]) -> Vec<&'static Recipe> {
    let mut all: Vec<&'static Recipe> = Vec::new();
    for recipe in recipes.iter().flat_map(|recipe| recipe.in_front_of.into_iter().chain([*recipe]))
    {
        if all.iter().all(|known| known.name != recipe.name) {
            all.push(recipe);
        }
    }
    all
}

/// Each after those that stand in front of it, which are of no use without it.
fn with_those_in_front(recipes: &[&'static Recipe]) -> Vec<&'static Recipe> {
    let is_named = |recipe: &Recipe| recipes.iter().any(|named| named.name == recipe.name);
    let is_meant = |recipe: &Recipe| is_named(recipe) || recipe.in_front_of.is_some_and(is_named);
    let mut meant: Vec<_> = RECIPES.iter().copied().filter(|recipe| is_meant(recipe)).collect();
    meant.reverse();
    meant
}

fn up(recipes: &[&'static Recipe], folder: &Path) -> anyhow::Result<()> {
    install(recipes)?;
    // Until a server is up and written down, an interrupted start must not leave it behind.
    let guard = Guard::start()?;
    let mut started = Vec::new();
    for recipe in recipes {
        if let Some(state) = State::read(recipe, folder) {
            // One whose server behind it is a new one knows the wrong port.
            let is_stale = recipe.in_front_of.is_some_and(|behind| started.contains(&behind.name));
            if is_stale {
                state.running.stop();
            }
            if state.running.is_alive() {
                println!("# {} runs already, pid {}", recipe.name, state.running.pid);
                tell(recipe.variable, &(recipe.address)(state.port));
                continue;
            }
            state.clear(recipe, folder);
        }
        let behind = recipe.in_front_of.and_then(|behind| State::read(behind, folder));
        let behind = behind.map(|state| state.port);
        let server = Server::start(recipe, folder, behind, |running| guard.watch(running))?;
        let (variable, address) = server.variable();
        println!("# {} is up, pid {}", recipe.name, server.running().pid);
        tell(variable, &address);
        guard.forget(&server.leave_running(folder)?);
        started.push(recipe.name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_name_and_others_refused() {
        assert_eq!(named(&[]).unwrap().len(), RECIPES.len());
        assert_eq!(named(&["redis".to_owned()]).unwrap()[0].name, "redis");
        assert!(named(&["oracle".to_owned()]).err().unwrap().is::<Usage>());
    }

    fn names(recipes: &[&Recipe]) -> Vec<&'static str> {
        recipes.iter().map(|recipe| recipe.name).collect()
    }

    #[test]
    fn a_server_comes_after_the_one_it_stands_in_front_of() {
        let asked = named(&["pgbouncer".to_owned(), "redis".to_owned()]).unwrap();
        assert_eq!(names(&with_those_behind(&asked)), ["postgres", "pgbouncer", "redis"]);
        assert_eq!(names(&with_those_behind(RECIPES)), names(RECIPES), "the list is in order");
    }

    #[test]
    fn a_server_is_stopped_after_those_in_front_of_it() {
        let asked = named(&["postgres".to_owned()]).unwrap();
        let stopped = names(&with_those_in_front(&asked));
        assert_eq!(stopped, ["pgbouncer-new", "pgbouncer", "postgres"]);
        let asked = named(&["pgbouncer".to_owned()]).unwrap();
        assert_eq!(names(&with_those_in_front(&asked)), ["pgbouncer"]);
    }
}
