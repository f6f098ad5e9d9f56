//! A `PostgreSQL` of our own: where its programs are, how it is set up, how it is served.

mod node;
mod processes;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::packages::Need;
use crate::place::Place;
use crate::process;

pub use node::Node;

/// Debian's place for its programs; one folder per version.
pub const VERSIONS: &str = "/usr/lib/postgresql";

/// Whom it runs as; it refuses to be root.
pub const USER: &str = "postgres";

/// Names and values for `postgresql.conf`.
pub type Settings = &'static [(&'static str, &'static str)];

/// Settings of a team that takes payments: a commit is on disk when it is acknowledged.
///
/// They are in the file and not on the command line, so that a test can change them with `ALTER SYSTEM`.
pub const DURABLE: Settings = &[
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("autovacuum", "on"),
    // Suites run side by side, each test with a pool of its own.
    ("max_connections", "300"),
    ("shared_buffers", "256MB"),
    // Nothing of ours may need two-phase commit: hosted servers switch it off.
    ("max_prepared_transactions", "0"),
    // In the data folder instead of /dev/shm: a server that was killed leaves nothing anywhere else.
    ("dynamic_shared_memory_type", "mmap"),
];

/// Settings with which the figures in the documentation were measured: durable, and no checkpoint in between.
pub const MEASURED: Settings = &[
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "on"),
    ("max_connections", "400"),
    ("shared_buffers", "2GB"),
    ("wal_buffers", "16MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "15min"),
    ("wal_compression", "off"),
    ("dynamic_shared_memory_type", "mmap"),
];

/// Acknowledges a commit that is nowhere but in shared memory, and leaves it there for long.
pub(crate) const FORGETFUL: Settings = &[
    ("synchronous_commit", "off"),
    ("wal_writer_delay", "10s"),
    ("wal_writer_flush_after", "1GB"),
    ("wal_buffers", "64MB"),
];

/// The server.
pub const SERVER: Need =
    Need { program: "initdb", packages: &["postgresql"], find: Some(|| program("initdb").ok()) };

/// The client.
pub const PSQL: Need =
    Need { program: "psql", packages: &["postgresql-client"], find: Some(|| program("psql").ok()) };

/// The measure that batched reservations are held against. Since version 15 the server's package has it.
pub const PGBENCH: Need = Need {
    program: "pgbench",
    packages: &["postgresql", "postgresql-contrib"],
    find: Some(|| program("pgbench").ok()),
};

/// Arguments of `initdb`. Page checksums, as in production; a rewind after a failover needs them too.
pub const INITIAL: [&str; 6] = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--locale=C",
    "--data-checksums",
    "--no-instructions",
];

/// The address the suites and the demo take.
pub fn address(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// Makes an empty database cluster.
pub fn prepare(place: &Place, settings: Settings) -> anyhow::Result<()> {
    let mut command = place.command(&program("initdb")?);
    command.arg("--pgdata").arg(place.data()).args(INITIAL);
    process::read(&mut command)?;
    configure(place, "postgresql.conf", settings)
}

/// Adds settings to a file of the data folder; of two lines for one setting the later one counts.
pub fn configure(place: &Place, file: &str, settings: &[(&str, &str)]) -> anyhow::Result<()> {
    let path = place.data().join(file);
    let lines: Vec<_> =
        settings.iter().map(|(name, value)| format!("{name} = '{value}'\n")).collect();
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(lines.concat().as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The command that serves, in the foreground.
pub fn serve(place: &Place) -> anyhow::Result<Command> {
    let mut command = place.command(&program("postgres")?);
    command.arg("-D").arg(place.data());
    listen(&mut command, place.port);
    Ok(command)
}

/// Tells a server where to listen.
pub fn listen(command: &mut Command, port: u16) {
    command.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
    // No socket file: its path may be no longer than a hundred characters, and ours may be.
    command.args(["-c", "unix_socket_directories="]);
}

/// Returns true if the server accepts connections.
pub fn is_ready(place: &Place) -> bool {
    let port = place.port.to_string();
    program("pg_isready").is_ok_and(|program| {
        process::succeeds(Command::new(program).args(["--host=127.0.0.1", "--port", &port]))
    })
}

/// `psql` that reads no settings of the person at the terminal, prints bare values and fails on an error.
pub fn psql(port: u16) -> anyhow::Result<Command> {
    let mut command = Command::new(program("psql")?);
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-d", "postgres"]);
    // A connection that hangs is an answer too, and this is how long we wait for it.
    command.env("PGCONNECT_TIMEOUT", "5");
    Ok(command)
}

/// A program of the newest version that is installed.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    newest_in(Path::new(VERSIONS), name)
        .or_else(|| process::find(name))
        .with_context(|| format!("PostgreSQL's {name} is missing"))
}

/// The same in a folder that has one folder per version.
pub fn newest_in(versions: &Path, name: &str) -> Option<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(versions).into_iter().flatten().flatten() {
        let version = entry.file_name().to_string_lossy().parse::<u32>();
        let path = entry.path().join("bin").join(name);
        if let (Ok(version), true) = (version, path.is_file()) {
            found.push((version, path));
        }
    }
    found.into_iter().max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_added_and_the_last_word_counts() {
        let folder = std::env::temp_dir().join(format!("firstwrite-conf-{}", std::process::id()));
        let place = Place { folder: folder.clone(), port: 1, user: None, behind: None };
        std::fs::create_dir_all(place.data()).unwrap();
        std::fs::write(place.data().join("postgresql.conf"), "fsync = off\n").unwrap();
        configure(&place, "postgresql.conf", &DURABLE[..2]).unwrap();
        configure(&place, "postgresql.conf", &FORGETFUL[..1]).unwrap();
        let text = std::fs::read_to_string(place.data().join("postgresql.conf")).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        assert_eq!(
            text,
            "fsync = off\nfsync = 'on'\nsynchronous_commit = 'on'\nsynchronous_commit = 'off'\n"
        );
    }
}
