//! Lost history: a file that was deleted or replaced under the store, and what is refused from then on.
//!
//! While the process lives, its writes go into a file that no later process will find. So nothing new
//! begins: unknown keys, take-overs, handlers, messages and the application's own statements are refused.
//! Running attempts are still completed, since their callers must hear how they ended, and known keys are
//! answered.
//!
//! The loss is noted in the lock file. The next opening turns that note into a history loss, and unknown keys stay
//! refused until an operator has examined and cleared it.

use firstwrite_core::{HistoryLoss, StoreError, StoreErrorKind};
use rusqlite::{Connection, params};

use super::driver_error::Failure;
use super::readers::View;
use super::session::Session;
use crate::rows::history_loss;

/// State of the file: complete, missing acknowledged history, or lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The file holds everything that was acknowledged.
    Whole,
    /// The file may lack writes of an earlier process: unknown keys may have been used.
    HistoryLost(String),
    /// The file was deleted or replaced; writes from now on will be lost.
    Lost(String),
}

const OPEN: &str =
    "SELECT detail FROM firstwrite_history_losses WHERE cleared_at IS NULL ORDER BY loss";

impl Trust {
    /// Reads the state that the file itself records.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut query = connection.prepare(OPEN)?;
        let mut rows = query.query([])?;
        Ok(match rows.next()? {
            Some(row) => Self::HistoryLost(row.get(0)?),
            None => Self::Whole,
        })
    }
}

impl Session {
    /// Refuses steps that need a complete history: an unknown key, a message to be sent.
    pub(super) fn refuse_if_history_lost(&self, doing: &'static str) -> Result<(), Failure> {
        match &*self.trust.borrow() {
            Trust::Whole => Ok(()),
            Trust::HistoryLost(detail) => {
                Err(refused(doing, format!("{detail}; an operator must look, and clear the loss")))
            }
            Trust::Lost(what) => Err(lost(doing, what)),
        }
    }

    /// Refuses steps that must not begin because nothing of them would be kept.
    pub(super) fn refuse_lost(&self, doing: &'static str) -> Result<(), Failure> {
        match &*self.trust.borrow() {
            Trust::Whole | Trust::HistoryLost(_) => Ok(()),
            Trust::Lost(what) => Err(lost(doing, what)),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        *self.trust.borrow() == Trust::Whole
    }

    /// Checks that the files are still those that were opened. A loss is final: later writes may be in
    /// either file.
    pub(super) fn look_at_files(&self) {
        let Some((watch, lock)) = &self.files else { return };
        if matches!(*self.trust.borrow(), Trust::Lost(_)) {
            return;
        }
        let Some(what) = watch.loss() else { return };
        tracing::error!(
            loss = what,
            "the store's file is gone: what is acknowledged now is lost when this process ends. Unknown \
             keys are refused. Stop the process, put the file back (or restore a backup), start again, and \
             clear the loss with `firstwrite doctor`"
        );
        lock.note_loss(&what);
        *self.trust.borrow_mut() = Trust::Lost(what);
    }

    /// Writes down that history is missing, unless that is known.
    pub(super) fn raise_history_loss(&self, detail: &str) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_history_losses (noticed_at, detail) SELECT ?1, ?2
                   WHERE NOT EXISTS (SELECT 1 FROM firstwrite_history_losses WHERE cleared_at IS NULL)";
        self.connection.execute(sql, params![self.now().as_millis(), detail]).map(drop)
    }

    pub(super) fn clear_history_losses(&self, actor: &str, reason: &str) -> Result<usize, Failure> {
        const DOING: &str = "clearing history losses";
        self.refuse_lost(DOING)?;
        let sql =
            "UPDATE firstwrite_history_losses SET cleared_at = ?1, cleared_by = ?2, reason = ?3
                   WHERE cleared_at IS NULL";
        let given = params![self.now().as_millis(), actor, reason];
        self.connection.execute(sql, given).map_err(Failure::batch(DOING))
    }

    /// Reads the state from the file again, after it was changed.
    pub(super) fn believe_file(&self) -> Result<(), Failure> {
        const DOING: &str = "reading history losses";
        self.refuse_lost(DOING)?;
        self.trust.replace(Trust::of(&self.connection).map_err(Failure::batch(DOING))?);
        Ok(())
    }
}

impl View {
    /// Every loss there was, oldest first.
    pub(super) fn history_losses(&self) -> Result<Vec<HistoryLoss>, StoreError> {
        let sql = "SELECT noticed_at, detail, cleared_at, cleared_by, reason
                   FROM firstwrite_history_losses ORDER BY loss";
        self.all("reading history losses", sql, [], |row| history_loss(row))
    }
}

fn lost(doing: &'static str, what: &str) -> Failure {
    refused(doing, format!("{what} under the running store; stop the process and restore the file"))
}

fn refused(doing: &'static str, why: String) -> Failure {
    Failure::Own(StoreError::definite(StoreErrorKind::HistoryLost, doing).caused_by(why))
}
