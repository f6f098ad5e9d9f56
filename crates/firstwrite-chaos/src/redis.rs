//! A Redis of our own: every write is on disk before it is acknowledged, and nothing is evicted.

mod node;

use std::process::Command;

use anyhow::Context;

use crate::packages::Need;
use crate::place::Place;
use crate::process;

pub(crate) use node::Node;

/// The server.
pub const SERVER: Need = Need { program: "redis-server", packages: &["redis-server"], find: None };
/// The client, which asks a server for an answer.
pub const CLIENT: Need = Need { program: "redis-cli", packages: &["redis-tools"], find: None };

/// The address the suites and the commands take.
pub fn address(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// True if it answers.
pub fn is_ready(place: &Place) -> bool {
    let port = place.port.to_string();
    process::find(CLIENT.program).is_some_and(|program| {
        let ping = ["-e", "-h", "127.0.0.1", "-p", &port, "ping"];
        process::succeeds(Command::new(program).args(ping))
    })
}

/// The command that serves, in the foreground.
pub fn serve(place: &Place) -> anyhow::Result<Command> {
    let program = process::find(SERVER.program).context("redis-server is missing")?;
    let mut command = place.command(&program);
    command.arg("--dir").arg(place.data());
    safely(&mut command, place);
    Ok(command)
}

/// Tells a server where to listen, and to keep what it acknowledges.
pub fn safely(command: &mut Command, place: &Place) {
    command.args(["--bind", "127.0.0.1", "--port", &place.port.to_string(), "--daemonize", "no"]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--maxmemory-policy", "noeviction"]);
}
