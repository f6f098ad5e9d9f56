//! `MariaDB` for the suites, and what one of them makes a cluster with.

use std::process::Command;

use firstwrite_chaos::mariadb;
use firstwrite_chaos::place::Place;

use super::Recipe;

pub(super) const RECIPE: Recipe = Recipe {
    name: "mariadb",
    variable: "FIRSTWRITE_TEST_MARIADB",
    needs: &[mariadb::SERVER, mariadb::CLIENT, mariadb::GALERA, mariadb::RSYNC],
    in_front_of: None,
    is_costly: false,
    user: Some(mariadb::USER),
    signal: "TERM",
    address: mariadb::address,
    prepare: mariadb::prepare,
    serve,
    is_ready: mariadb::is_ready,
};

fn serve(place: &Place) -> anyhow::Result<Command> {
    let mut command = mariadb::serve(place)?;
    mariadb::with_database(place, &mut command)?;
    command.args(mariadb::DURABLE);
    Ok(command)
}
