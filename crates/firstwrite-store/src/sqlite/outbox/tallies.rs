//! How many messages of each destination stand where: kept with every change, never counted.

use rusqlite::params;

use super::super::session::Session;
use crate::pending::Tallies;

impl Session {
    pub(super) fn put_tallies(&self, tallies: &Tallies) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_tallies (destination, state, count) VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET count = count + excluded.count";
        let mut put = self.connection.prepare_cached(sql)?;
        for (destination, kind, count) in tallies.differences() {
            put.execute(params![destination, kind, count])?;
        }
        Ok(())
    }
}
