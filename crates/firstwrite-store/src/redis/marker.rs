//! The key that marks a created store. Redis has no tables: without this key a mistyped database number or
//! prefix would be an empty store, in which every key used before runs again.

use redis::Value;

use super::admission::unreachable;
use super::command_args::CommandArgs;
use super::driver_error::DriverError;
use super::keys::Shard;
use super::link::bytes;
use super::routing::Router;
use super::scripts::{Call, Script};
use crate::{Migrated, OpenError};

/// The layout that this build reads and writes.
const VERSION: i64 = 1;

/// Refuses an address at which no store was created, and one of a newer build.
pub(super) async fn check(router: &Router) -> Result<(), OpenError> {
    let command = redis::cmd("GET").arg(router.keys.store()).clone();
    let asked = router.ask(Shard(0), &command).await;
    let address = &router.address;
    match version(&asked.map_err(|error| unreachable(router, &error))?) {
        0 => {
            let (prefix, text) =
                (&address.options.prefix, "has no firstwrite store under the prefix");
            Err(OpenError::missing(&format!("{address} {text} {prefix}"), address))
        }
        found if found > VERSION => Err(OpenError::new(format!(
            "{address} has layout version {found} and this build knows {VERSION}; use the newer build that \
             created it"
        ))),
        _ => Ok(()),
    }
}

/// Writes the key if it is not there.
pub(super) async fn put(router: &Router) -> Result<Migrated, DriverError> {
    let call = Call {
        script: Script::Create,
        keys: CommandArgs::from([router.keys.store()]),
        args: CommandArgs::from([VERSION.to_string()]),
    };
    let found = router.run(Shard(0), |_link| call.clone()).await?;
    let from = version(&found);
    Ok(Migrated { from, to: VERSION.max(from) })
}

/// The version that the key holds; 0 if there is none.
fn version(value: &Value) -> i64 {
    let text = bytes(value).and_then(|bytes| str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
