//! `PostgreSQL`: refuses to be root, and keeps its programs in a folder per version.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::{Place, Recipe};
use crate::packages::Need;
use crate::process;

/// Debian's place for them; one folder per version.
const VERSIONS: &str = "/usr/lib/postgresql";

pub(super) const RECIPE: Recipe = Recipe {
    name: "postgres",
    variable: "FIRSTWRITE_TEST_POSTGRES",
    needs: &[Need { program: "initdb", packages: &["postgresql"], find: Some(initdb) }],
    user: Some("postgres"),
    // Fast shutdown: clients are cut off, data is written.
    signal: "INT",
    address: |port| format!("postgres://postgres@127.0.0.1:{port}/postgres"),
    prepare,
    serve,
    is_ready,
};

fn prepare(place: &Place) -> anyhow::Result<()> {
    let mut command = place.command(&program("initdb")?);
    command.arg("--pgdata").arg(place.data());
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
    // Page checksums, as in production; a rewind after a failover needs them too.
    command.args(["--data-checksums", "--no-instructions"]);
    process::read(&mut command)?;
    Ok(())
}

fn serve(place: &Place) -> anyhow::Result<Command> {
    let mut command = place.command(&program("postgres")?);
    command.arg("-D").arg(place.data()).args(["-p", &place.port.to_string()]);
    command.args(["-c", "listen_addresses=127.0.0.1"]);
    // No socket file: its path may be no longer than a hundred characters, and ours may be.
    command.args(["-c", "unix_socket_directories="]);
    Ok(command)
}

fn is_ready(place: &Place) -> bool {
    let port = place.port.to_string();
    program("pg_isready").is_ok_and(|program| {
        process::succeeds(Command::new(program).args(["--host=127.0.0.1", "--port", &port]))
    })
}

fn initdb() -> Option<PathBuf> {
    program("initdb").ok()
}

/// A program of the newest version that is installed.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(VERSIONS).into_iter().flatten().flatten() {
        let version = entry.file_name().to_string_lossy().parse::<u32>();
        let path = entry.path().join("bin").join(name);
        if let (Ok(version), true) = (version, path.is_file()) {
            found.push((version, path));
        }
    }
    let newest = found.into_iter().max().map(|(_, path)| path);
    newest
        .or_else(|| process::find(name))
        .with_context(|| format!("PostgreSQL's {name} is missing"))
}
