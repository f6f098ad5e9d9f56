//! Redis: with every write on disk before it is acknowledged, and nothing evicted. Its newest version and Valkey come
//! from a private root.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::{Recipe, debian_root};
use crate::packages::{self, Need};
use crate::place::Place;
use crate::process;

pub(super) const RECIPE: Recipe = Recipe {
    name: "redis",
    variable: "FIRSTWRITE_TEST_REDIS",
    needs: &[
        Need { program: "redis-server", packages: &["redis-server"], find: None },
        Need { program: "redis-cli", packages: &["redis-tools"], find: None },
    ],
    in_front_of: None,
    is_costly: false,
    user: None,
    signal: "TERM",
    address,
    prepare: |place| std::fs::create_dir_all(place.data()).context("cannot make a data folder"),
    serve,
    is_ready,
};

pub(super) const NEWEST: Recipe = Recipe {
    name: "redis-newest",
    variable: "FIRSTWRITE_TEST_REDIS_NEWEST",
    needs: IN_ROOT,
    is_costly: true,
    prepare: |place| prepare_root(place, "redis-server"),
    serve: |place| serve_in_root(place, Path::new("/usr/bin/redis-server")),
    ..RECIPE
};

pub(super) const VALKEY: Recipe = Recipe {
    name: "valkey",
    variable: "FIRSTWRITE_TEST_VALKEY",
    needs: IN_ROOT,
    is_costly: true,
    prepare: |place| prepare_root(place, "valkey-server"),
    serve: |place| serve_in_root(place, Path::new("/usr/bin/valkey-server")),
    ..RECIPE
};

/// The client asks whether it answers.
const IN_ROOT: &[Need] =
    &[debian_root::NEED, Need { program: "redis-cli", packages: &["redis-tools"], find: None }];

/// Seen from inside the root.
const FOLDER: &str = "/srv/redis";
const USER: &str = "nobody";

fn prepare_root(place: &Place, package: &str) -> anyhow::Result<()> {
    debian_root::make(&place.data(), package)?;
    let folder = place.data().join(FOLDER.trim_start_matches('/'));
    std::fs::create_dir_all(&folder).context("cannot make a folder in the root")?;
    process::read(Command::new("chown").arg(USER).arg(&folder)).map(drop)
}

fn serve_in_root(place: &Place, program: &Path) -> anyhow::Result<Command> {
    let mut command = debian_root::command(&place.data(), USER, program)?;
    // There are no others in the root.
    command.env("LC_ALL", "C").args(["--dir", FOLDER]);
    safely(&mut command, place);
    Ok(command)
}

/// Installs what is missing.
pub(crate) fn install() -> anyhow::Result<()> {
    packages::ensure(RECIPE.needs)
}

/// The address the suites and the commands take.
pub(crate) fn address(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// Whether it answers.
pub(crate) fn is_ready(place: &Place) -> bool {
    let port = place.port.to_string();
    super::answers("redis-cli", &["-e", "-h", "127.0.0.1", "-p", &port, "ping"])
}

/// The command that serves, in the foreground.
pub(crate) fn serve(place: &Place) -> anyhow::Result<Command> {
    let program = process::find("redis-server").context("redis-server is missing")?;
    let mut command = place.command(&program);
    command.arg("--dir").arg(place.data());
    safely(&mut command, place);
    Ok(command)
}

fn safely(command: &mut Command, place: &Place) {
    command.args(["--bind", "127.0.0.1", "--port", &place.port.to_string(), "--daemonize", "no"]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--maxmemory-policy", "noeviction"]);
}
