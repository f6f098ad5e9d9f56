//! Redis: with every write on disk before it is acknowledged, and nothing evicted.

use std::process::Command;

use anyhow::Context;

use super::Recipe;
use crate::packages::Need;
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
    address: |port| format!("redis://127.0.0.1:{port}"),
    prepare: |place| std::fs::create_dir_all(place.data()).context("cannot make a data folder"),
    serve,
    is_ready: |place| {
        let port = place.port.to_string();
        super::answers("redis-cli", &["-e", "-h", "127.0.0.1", "-p", &port, "ping"])
    },
};

fn serve(place: &Place) -> anyhow::Result<Command> {
    let program = process::find("redis-server").context("redis-server is missing")?;
    let mut command = place.command(&program);
    command.args(["--bind", "127.0.0.1", "--port", &place.port.to_string()]);
    command.arg("--dir").arg(place.data()).args(["--daemonize", "no"]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--maxmemory-policy", "noeviction"]);
    Ok(command)
}
