//! `PostgreSQL` for the suites, with the settings of a team that takes payments. Its newest version comes from a
//! private root.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use firstwrite_chaos::packages::OPENSSL;
use firstwrite_chaos::place::Place;
use firstwrite_chaos::{postgres, process};

use super::{Recipe, debian_root};

pub(super) const RECIPE: Recipe = Recipe {
    name: "postgres",
    variable: "FIRSTWRITE_TEST_POSTGRES",
    needs: &[postgres::SERVER, postgres::PSQL, OPENSSL],
    in_front_of: None,
    is_costly: false,
    user: Some(postgres::USER),
    // Fast shutdown: clients are cut off, data is written.
    signal: "INT",
    address: postgres::address,
    prepare,
    serve: postgres::serve,
    is_ready: postgres::is_ready,
};

/// Costs a minute and 250 MB, and needs root to enter its root.
pub(super) const NEWEST: Recipe = Recipe {
    name: "postgres-newest",
    variable: "FIRSTWRITE_TEST_POSTGRES_NEWEST",
    // The version of this machine brings the user, and the client that asks whether it answers.
    needs: &[debian_root::NEED, postgres::SERVER, postgres::PSQL],
    is_costly: true,
    // It is entered as root and given up at once.
    user: None,
    prepare: prepare_root,
    serve: serve_in_root,
    ..RECIPE
};

/// Contents of its certificate. A client that verifies also takes it as the certificate authority, so it must not be
/// marked as one: the end of a chain may not be.
const CERTIFICATE: &str = "\
[req]
prompt = no
distinguished_name = name
x509_extensions = extensions
[name]
CN = localhost
[extensions]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:localhost, IP:127.0.0.1
";

/// A cluster that also speaks TLS, with a certificate of its own: `server.crt` in its data folder.
fn prepare(place: &Place) -> anyhow::Result<()> {
    postgres::prepare(place, postgres::DURABLE)?;
    let data = place.data();
    let request = data.join("certificate.conf");
    std::fs::write(&request, CERTIFICATE).context("cannot write what a certificate says")?;
    let openssl = process::find(OPENSSL.program).context("openssl is not installed")?;
    let mut command = place.command(&openssl);
    command.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-config"]).arg(&request);
    command.arg("-keyout").arg(data.join("server.key")).arg("-out").arg(data.join("server.crt"));
    process::read(&mut command)?;
    postgres::configure(place, "postgresql.conf", &[("ssl", "on")])
}

/// Seen from inside the root.
const FOLDER: &str = "/srv/postgres";

fn prepare_root(place: &Place) -> anyhow::Result<()> {
    // `initdb` asks the server for its version, through a shell.
    debian_root::make(&place.data(), "dash,postgresql")?;
    let inside = inside(place);
    std::fs::create_dir_all(&inside.folder).context("cannot make a folder in the root")?;
    let owner = format!("{0}:{0}", postgres::USER);
    process::read(Command::new("chown").arg(owner).arg(&inside.folder))?;
    // It wants to know its own name, and no script of the package has written that down.
    let user = process::read(Command::new("getent").args(["passwd", postgres::USER]))?;
    std::fs::write(place.data().join("etc/passwd"), user).context("cannot name the user")?;
    let mut command = in_root(place, "initdb")?;
    command.arg(format!("--pgdata={FOLDER}/data")).args(postgres::INITIAL);
    process::read(&mut command)?;
    postgres::configure(&inside, "postgresql.conf", postgres::DURABLE)
}

fn serve_in_root(place: &Place) -> anyhow::Result<Command> {
    let mut command = in_root(place, "postgres")?;
    command.args(["-D", &format!("{FOLDER}/data")]);
    postgres::listen(&mut command, place.port);
    Ok(command)
}

fn in_root(place: &Place, program: &str) -> anyhow::Result<Command> {
    let root = place.data();
    let found =
        postgres::newest_in(&root.join(postgres::VERSIONS.trim_start_matches('/')), program)
            .with_context(|| format!("the private root has no {program}"))?;
    let program = Path::new("/").join(found.strip_prefix(&root).context("outside its root")?);
    let mut command = debian_root::command(&root, postgres::USER, &program)?;
    // There are no others in the root.
    command.env("LC_ALL", "C");
    Ok(command)
}

/// The place of the data, seen from outside the root.
fn inside(place: &Place) -> Place {
    Place { folder: place.data().join(FOLDER.trim_start_matches('/')), ..place.clone() }
}
