//! Number of messages of each destination in each state: updated with every change, never recounted.

use firstwrite_core::outbox::Tallies;
use rusqlite::params;

use super::super::session::Session;

impl Session {
    pub(super) fn put_tallies(&self, tallies: &Tallies) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_tallies (destination, state, count) VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET count = count + excluded.count";
        let mut put = self.connection.prepare_cached(sql)?;
        for (destination, tally, count) in tallies.differences() {
            put.execute(params![destination, tally.as_str(), count])?;
        }
        Ok(())
    }
}
