//! Redis for the suites. Its newest version and Valkey come from a private root.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use firstwrite_chaos::packages::Need;
use firstwrite_chaos::place::Place;
use firstwrite_chaos::{process, redis};

use super::{Recipe, debian_root};

pub(super) const RECIPE: Recipe = Recipe {
    name: "redis",
    variable: "FIRSTWRITE_TEST_REDIS",
    needs: &[redis::SERVER, redis::CLIENT],
    in_front_of: None,
    is_costly: false,
    user: None,
    signal: "TERM",
    address: redis::address,
    prepare: |place| std::fs::create_dir_all(place.data()).context("cannot make a data folder"),
    serve: redis::serve,
    is_ready: redis::is_ready,
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
const IN_ROOT: &[Need] = &[debian_root::NEED, redis::CLIENT];

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
    redis::safely(&mut command, place);
    Ok(command)
}
