//! A `MariaDB` of our own: how it is set up, how it is served.
//!
//! It gives up being root by itself, and must not read the machine's own settings.

mod cluster;
mod node;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::packages::Need;
use crate::place::Place;
use crate::process;

pub(crate) use cluster::Cluster;
pub(crate) use node::Node;

/// Whom it runs as; it refuses to be root.
pub const USER: &str = "mysql";

/// The server's own tables are no place for ours.
pub const DATABASE: &str = "firstwrite";

/// A commit is on disk when it is acknowledged, or the crash tests would test nothing.
pub const DURABLE: &[&str] = &["--innodb-flush-log-at-trx-commit=1"];

/// Acknowledges a commit that is nowhere but in memory, and writes what there is once a second.
pub(crate) const FORGETFUL: &[&str] =
    &["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-log-at-timeout=10"];

/// The server.
pub const SERVER: Need = Need { program: "mariadbd", packages: &["mariadb-server"], find: None };
/// The client, which asks a server for an answer.
pub const CLIENT: Need =
    Need { program: "mariadb-admin", packages: &["mariadb-client"], find: None };

/// Library that makes servers a cluster.
pub const GALERA: Need = Need { program: "galera", packages: &["galera-4"], find: Some(galera) };
/// Program that sends the data to a node that joins a cluster.
pub const RSYNC: Need = Need { program: "rsync", packages: &["rsync"], find: None };

/// Returns the path of the library in Debian, if it is installed.
fn galera() -> Option<PathBuf> {
    Some(PathBuf::from("/usr/lib/galera/libgalera_smm.so")).filter(|path| path.exists())
}

/// The address the suites and the demo take.
pub fn address(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/{DATABASE}")
}

fn command(place: &Place, program: &Path) -> Command {
    let mut command = place.command(program);
    // A server that starts deletes the temporary files of others that keep theirs in the same folder.
    command.env("TMPDIR", &place.folder);
    command.arg("--no-defaults").arg(format!("--datadir={}", place.data().display()));
    command
}

/// Makes the server's own tables.
pub fn prepare(place: &Place) -> anyhow::Result<()> {
    let program = process::find("mariadb-install-db").context("mariadb-install-db is missing")?;
    let mut command = command(place, &program);
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    process::read(&mut command).map(drop)
}

/// The command that serves, in the foreground.
pub fn serve(place: &Place) -> anyhow::Result<Command> {
    let program = process::find(SERVER.program).context("mariadbd is missing")?;
    let mut command = command(place, &program);
    command.args([&format!("--port={}", place.port), "--bind-address=127.0.0.1"]);
    // Relative names lie in the data folder; a full path may be too long for a socket.
    command.args(["--socket=socket", "--pid-file=pid"]);
    Ok(command)
}

/// Has the server make our database before it listens.
pub fn with_database(place: &Place, command: &mut Command) -> anyhow::Result<()> {
    let first = place.folder.join("first.sql");
    std::fs::write(&first, format!("create database if not exists {DATABASE};\n"))
        .context("cannot write the server's first statements")?;
    command.arg(format!("--init-file={}", first.display()));
    Ok(())
}

/// Returns true if the server accepts connections.
pub fn is_ready(place: &Place) -> bool {
    let port = format!("--port={}", place.port);
    process::find(CLIENT.program).is_some_and(|program| {
        let ping = ["--no-defaults", "--host=127.0.0.1", &port, "--user=root", "ping"];
        process::succeeds(Command::new(program).args(ping))
    })
}
