//! `PgBouncer` in transaction mode in front of `PostgreSQL`: Debian's version, and a newer one.
//!
//! Debian's knows nothing of prepared statements: one made in a session is missing in the next. Versions
//! from 1.21 on follow them. Both are in use, so the suites run through both.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use firstwrite_chaos::packages::Need;
use firstwrite_chaos::place::Place;
use firstwrite_chaos::process;

use super::{Recipe, debian_root, postgres};

/// Fewer sessions than a suite has clients, so that they are really shared.
const POOL_SIZE: u32 = 8;

pub(super) const RECIPE: Recipe = Recipe {
    name: "pgbouncer",
    variable: "FIRSTWRITE_TEST_PGBOUNCER",
    needs: &[
        Need { program: "pgbouncer", packages: &["pgbouncer"], find: None },
        firstwrite_chaos::postgres::PSQL,
    ],
    in_front_of: Some(&postgres::RECIPE),
    is_costly: false,
    // It refuses to be root, and needs no rights of its own.
    user: Some(firstwrite_chaos::postgres::USER),
    // At once: clients are cut off.
    signal: "TERM",
    address: |port| format!("{}?pooler=transaction", firstwrite_chaos::postgres::address(port)),
    prepare: |place| write_settings(place, &place.folder, ""),
    serve: |place| {
        let program = process::find("pgbouncer").context("pgbouncer is missing")?;
        let mut command = place.command(&program);
        command.arg(place.folder.join(SETTINGS));
        Ok(command)
    },
    is_ready,
};

/// From a private root of Debian's newest packages: costs a minute, and needs root to enter it.
pub(super) const NEW: Recipe = Recipe {
    name: "pgbouncer-new",
    variable: "FIRSTWRITE_TEST_PGBOUNCER_NEW",
    needs: &[debian_root::NEED, firstwrite_chaos::postgres::PSQL],
    in_front_of: Some(&postgres::RECIPE),
    is_costly: true,
    // It gives up being root itself, after entering its own root.
    user: None,
    // At once; since 1.23, TERM waits until the last client has gone.
    signal: "QUIT",
    address: firstwrite_chaos::postgres::address,
    prepare: |place| {
        let root = place.data();
        debian_root::make(&root, "pgbouncer")?;
        write_settings(place, &root, "max_prepared_statements = 100\n")
    },
    serve: |place| {
        let program = Path::new("/usr/sbin/pgbouncer");
        let mut command =
            debian_root::command(&place.data(), firstwrite_chaos::postgres::USER, program)?;
        command.arg(Path::new("/").join(SETTINGS));
        Ok(command)
    },
    is_ready,
};

const SETTINGS: &str = "pgbouncer.ini";

fn write_settings(place: &Place, folder: &Path, more: &str) -> anyhow::Result<()> {
    let server =
        place.behind.context("PgBouncer stands in front of a server, and there is none")?;
    let path = folder.join(SETTINGS);
    std::fs::write(&path, settings(place.port, server) + more)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// No start-up parameter is ignored: what a client of ours sends must be what any pooler takes.
fn settings(port: u16, server: u16) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {POOL_SIZE}\n\
         max_client_conn = 500\n\
         query_wait_timeout = 30\n\
         log_connections = 0\n\
         log_disconnections = 0\n"
    )
}

/// Asked through it, so that the server behind it has answered too.
fn is_ready(place: &Place) -> bool {
    firstwrite_chaos::postgres::psql(place.port)
        .is_ok_and(|mut psql| process::succeeds(Command::args(&mut psql, ["-c", "select 1"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_shared_and_the_server_behind_is_named() {
        let text = settings(20_001, 20_002);
        for line in ["port=20002 user", "listen_port = 20001\n", "pool_mode = transaction\n"] {
            assert!(text.contains(line), "`{line}` is missing in\n{text}");
        }
        assert!(!text.contains("ignore_startup_parameters"));
    }

    #[test]
    fn without_a_server_behind_it_there_is_nothing_to_pool() {
        let place = Place { folder: "/nowhere".into(), port: 1, user: None, behind: None };
        let error = write_settings(&place, Path::new("/nowhere"), "").unwrap_err();
        assert!(error.to_string().contains("there is none"), "{error}");
    }
}
