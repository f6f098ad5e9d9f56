//! `PostgreSQL` for the suites, with the settings of a team that takes payments.

use anyhow::Context;

use super::Recipe;
use crate::packages::OPENSSL;
use crate::place::Place;
use crate::{postgres, process};

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

/// What its certificate says. A client that verifies takes it for the authority too, so it must not be
/// one: the end of a chain may not.
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
