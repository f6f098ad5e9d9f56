//! MySQL proper, from a private root of Debian's newest packages: Debian's releases have MariaDB only.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use firstwrite_chaos::mariadb;
use firstwrite_chaos::place::Place;
use firstwrite_chaos::process;

use super::{Recipe, debian_root};

/// Costs a minute and 330 MB, and needs root to enter its root.
pub(super) const RECIPE: Recipe = Recipe {
    name: "mysql",
    variable: "FIRSTWRITE_TEST_MYSQL",
    // MariaDB brings the user, and the client that asks whether it answers.
    needs: &[debian_root::NEED, mariadb::SERVER, mariadb::CLIENT],
    in_front_of: None,
    is_costly: true,
    // It is entered as root and given up at once.
    user: None,
    signal: "TERM",
    address: mariadb::address,
    prepare,
    serve,
    is_ready: mariadb::is_ready,
};

const PROGRAM: &str = "/usr/sbin/mysqld";
const FOLDER: &str = "srv/mysql";
const FIRST: &str = "first.sql";

fn prepare(place: &Place) -> anyhow::Result<()> {
    debian_root::make(&place.data(), "mysql-server-core")?;
    let folder = folder(place);
    std::fs::create_dir_all(&folder).context("cannot make a folder in the root")?;
    let first = format!("create database if not exists {};\n", mariadb::DATABASE);
    std::fs::write(folder.join(FIRST), first).context("cannot write the first statements")?;
    process::read(Command::new("chown").args(["-R", "mysql:mysql"]).arg(&folder))?;
    let mut command = server(place)?;
    command.arg("--initialize-insecure");
    process::read(&mut command).map(drop)
}

fn serve(place: &Place) -> anyhow::Result<Command> {
    let mut command = server(place)?;
    command.arg(format!("--port={}", place.port)).arg("--bind-address=127.0.0.1");
    command.arg(format!("--socket=/{FOLDER}/socket")).arg(format!("--pid-file=/{FOLDER}/pid"));
    command.arg(format!("--init-file=/{FOLDER}/{FIRST}"));
    command.args(["--mysqlx=OFF", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"]);
    Ok(command)
}

fn server(place: &Place) -> anyhow::Result<Command> {
    let mut command = debian_root::command(&place.data(), "mysql", Path::new(PROGRAM))?;
    // No script of the package has run, so its folders are not there.
    command.arg("--no-defaults").arg(format!("--datadir=/{FOLDER}/data"));
    command.args(["--secure-file-priv=NULL", &format!("--tmpdir=/{FOLDER}")]);
    Ok(command)
}

/// The server's folder, seen from outside its root.
fn folder(place: &Place) -> PathBuf {
    place.data().join(FOLDER)
}
