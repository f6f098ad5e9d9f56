//! `MariaDB`: gives up being root by itself, and must not read the machine's own settings.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::Recipe;
use crate::packages::Need;
use crate::place::Place;
use crate::process;

/// Made at the first start; the server's own tables are no place for ours.
pub(super) const DATABASE: &str = "firstwrite";

pub(super) const SERVER: Need =
    Need { program: "mariadbd", packages: &["mariadb-server"], find: None };
pub(super) const CLIENT: Need =
    Need { program: "mariadb-admin", packages: &["mariadb-client"], find: None };

/// A suite makes a cluster of three of them.
const CLUSTER: Need = Need { program: "galera", packages: &["galera-4"], find: Some(galera) };
/// What a node that joins a cluster is sent goes by it.
const RSYNC: Need = Need { program: "rsync", packages: &["rsync"], find: None };

pub(super) const RECIPE: Recipe = Recipe {
    name: "mariadb",
    variable: "FIRSTWRITE_TEST_MARIADB",
    needs: &[SERVER, CLIENT, CLUSTER, RSYNC],
    in_front_of: None,
    is_costly: false,
    user: Some("mysql"),
    signal: "TERM",
    address: |port| format!("mysql://root@127.0.0.1:{port}/{DATABASE}"),
    prepare,
    serve,
    is_ready: |place| {
        let port = format!("--port={}", place.port);
        let ping = ["--no-defaults", "--host=127.0.0.1", &port, "--user=root", "ping"];
        super::answers("mariadb-admin", &ping)
    },
};

fn galera() -> Option<PathBuf> {
    Some(PathBuf::from("/usr/lib/galera/libgalera_smm.so")).filter(|path| path.exists())
}

fn prepare(place: &Place) -> anyhow::Result<()> {
    let program = process::find("mariadb-install-db").context("mariadb-install-db is missing")?;
    let mut command = place.command(&program);
    command.arg("--no-defaults").arg(format!("--datadir={}", place.data().display()));
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
    process::read(&mut command)?;
    std::fs::write(first_words(place), format!("create database if not exists {DATABASE};\n"))
        .context("cannot write the server's first statements")
}

/// A file of statements that the server runs before it listens.
fn first_words(place: &Place) -> PathBuf {
    place.folder.join("first.sql")
}

fn serve(place: &Place) -> anyhow::Result<Command> {
    let program = process::find("mariadbd").context("mariadbd is missing")?;
    let mut command = place.command(&program);
    command.arg("--no-defaults").arg(format!("--datadir={}", place.data().display()));
    command.args([&format!("--port={}", place.port), "--bind-address=127.0.0.1"]);
    // Relative names lie in the data folder; a full path may be too long for a socket.
    command.args(["--socket=socket", "--pid-file=pid"]);
    command.arg(format!("--init-file={}", first_words(place).display()));
    // A commit is on disk when it is acknowledged, or the crash tests would test nothing.
    command.arg("--innodb-flush-log-at-trx-commit=1");
    Ok(command)
}
