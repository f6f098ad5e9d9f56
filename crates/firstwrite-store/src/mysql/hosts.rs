//! Asks every host that an address names whether it takes writes: no more than one server may. An old
//! primary that came back next to the new one would be given keys that the other has.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql_async::Conn;
use tokio::task::JoinSet;

use super::connect::Server;
use super::driver_error::DriverError;
use super::history_loss::{ASK_CLUSTER, cluster};
use super::pipeline::Pipeline;
use super::rows::text;

/// The hosts that take writes, by name, if they are several servers. Nodes of one Galera cluster are one server, and
/// so are two names of the same; a host that does not answer is passed over.
pub(super) async fn rivals(server: &Server) -> Option<String> {
    let count = server.address.host_count();
    if count < 2 {
        return None;
    }
    let limit = server.address.options.connect_for;
    let mut asking = JoinSet::new();
    for place in 0..count {
        let (name, dial) = (server.address.host_name(place), server.dial(place));
        asking.spawn(async move {
            let asked = async { ask(&mut dial.conn().await?, limit).await };
            (name, tokio::time::timeout(limit, asked).await.unwrap_or(Err(DriverError::Silence)))
        });
    }
    let mut writable = BTreeMap::new();
    for (name, asked) in asking.join_all().await {
        if let Ok(Some(identity)) = asked {
            writable.insert(identity, name);
        }
    }
    let mut names: Vec<String> = writable.into_values().collect();
    names.sort_unstable();
    (names.len() > 1).then(|| names.join(", "))
}

/// Returns the identity of a server that takes writes; `None` if it takes none.
async fn ask(conn: &mut Conn, limit: Duration) -> Result<Option<String>, DriverError> {
    let mut pipeline = Pipeline::new();
    let is_read_only = pipeline.add("SELECT @@read_only", &[]);
    let clustered = pipeline.add(ASK_CLUSTER, &[]);
    let named = pipeline.add(
        "SHOW GLOBAL VARIABLES WHERE variable_name IN ('server_uuid', 'server_uid', 'hostname', \
         'port', 'datadir')",
        &[],
    );
    let answers = pipeline.send(conn, limit).await.map_err(|error| error.cause)?;
    if answers[is_read_only].rows.first().map(|row| text(row, 0)).transpose()? != Some("0") {
        return Ok(None);
    }
    if let Some(cluster) = cluster(&answers[clustered])? {
        return Ok(Some(cluster));
    }
    let mut identity = String::new();
    for row in &answers[named].rows {
        identity.push_str(text(row, 1)?);
        identity.push(' ');
    }
    Ok(Some(identity))
}
