//! NATS with `JetStream`, which stores what is published.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use firstwrite_chaos::packages::Need;
use firstwrite_chaos::place::Place;
use firstwrite_chaos::process;

use super::Recipe;

pub(super) const RECIPE: Recipe = Recipe {
    name: "nats",
    variable: "FIRSTWRITE_TEST_NATS",
    needs: &[Need { program: "nats-server", packages: &["nats-server"], find: None }],
    in_front_of: None,
    is_costly: false,
    user: None,
    signal: "TERM",
    address: |port| format!("nats://127.0.0.1:{port}"),
    prepare: |place| std::fs::create_dir_all(place.data()).context("cannot make a data folder"),
    serve,
    is_ready: |place| greeting(place.port).is_some_and(|line| line.contains("\"jetstream\":true")),
};

fn serve(place: &Place) -> anyhow::Result<Command> {
    let program = process::find("nats-server").context("nats-server is missing")?;
    let mut command = place.command(&program);
    command.args(["-a", "127.0.0.1", "-p", &place.port.to_string(), "-js", "-sd"]);
    command.arg(place.data());
    Ok(command)
}

/// The server speaks first, and says what it can do.
fn greeting(port: u16) -> Option<String> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(line)
}
