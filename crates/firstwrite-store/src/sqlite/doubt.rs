//! Lost history: a file that was deleted or replaced under the store, and what is refused from then on.
//!
//! While the process lives, what it can still write goes into a file that nobody will find. Nothing is
//! begun any more: unknown keys, take-overs, handlers, messages and the application's own statements are
//! refused. What runs is completed all the same, since its caller must hear how it ended, and what is known
//! is answered.
//!
//! The lock beside the file keeps word of it. The next opening turns that word into a doubt, and unknown keys
//! stay refused until an operator has looked and cleared it.

use firstwrite_core::{StoreError, StoreErrorKind, Timestamp};
use rusqlite::{Connection, Row, params};

use super::fault::Failure;
use super::session::Session;
use crate::doubt::{ClearedDoubt, Doubt};

/// Whether the file holds everything that was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// It does.
    Whole,
    /// It may lack what an earlier life wrote: unknown keys may have been used.
    InDoubt(String),
    /// What is written now will be lost.
    Lost(String),
}

const OPEN: &str = "SELECT detail FROM firstwrite_doubts WHERE cleared_at IS NULL ORDER BY doubt";

impl Trust {
    /// What the file itself says.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut query = connection.prepare(OPEN)?;
        let mut rows = query.query([])?;
        Ok(match rows.next()? {
            Some(row) => Self::InDoubt(row.get(0)?),
            None => Self::Whole,
        })
    }
}

impl Session {
    /// Refuses what only a whole history allows: a key that is not known, a message to be sent.
    pub(super) fn refuse_in_doubt(&self, doing: &'static str) -> Result<(), Failure> {
        match &*self.trust.borrow() {
            Trust::Whole => Ok(()),
            Trust::InDoubt(detail) => {
                Err(refused(doing, format!("{detail}; an operator must look, and clear the doubt")))
            }
            Trust::Lost(what) => Err(lost(doing, what)),
        }
    }

    /// Refuses what must not be begun because nothing of it would be kept.
    pub(super) fn refuse_lost(&self, doing: &'static str) -> Result<(), Failure> {
        match &*self.trust.borrow() {
            Trust::Whole | Trust::InDoubt(_) => Ok(()),
            Trust::Lost(what) => Err(lost(doing, what)),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        *self.trust.borrow() == Trust::Whole
    }

    /// Looks whether the files are still those that were opened. Once one is not, that is final: what was
    /// written meanwhile may be in either.
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
             settle the doubt with `firstwrite doctor`"
        );
        lock.note_loss(&what);
        *self.trust.borrow_mut() = Trust::Lost(what);
    }

    /// Writes down that history is missing, unless that is known.
    pub(super) fn raise_doubt(&self, detail: &str) -> rusqlite::Result<()> {
        let sql = "INSERT INTO firstwrite_doubts (noticed_at, detail) SELECT ?1, ?2
                   WHERE NOT EXISTS (SELECT 1 FROM firstwrite_doubts WHERE cleared_at IS NULL)";
        self.connection.execute(sql, params![self.now().as_millis(), detail]).map(drop)
    }

    pub(super) fn clear_doubts(&self, actor: &str, reason: &str) -> Result<usize, Failure> {
        const DOING: &str = "clearing doubts";
        self.refuse_lost(DOING)?;
        let sql = "UPDATE firstwrite_doubts SET cleared_at = ?1, cleared_by = ?2, reason = ?3
                   WHERE cleared_at IS NULL";
        let given = params![self.now().as_millis(), actor, reason];
        self.connection.execute(sql, given).map_err(Failure::batch(DOING))
    }

    /// Goes by what the file says, now that it was changed.
    pub(super) fn believe_file(&self) -> Result<(), Failure> {
        const DOING: &str = "reading doubts";
        self.refuse_lost(DOING)?;
        self.trust.replace(Trust::of(&self.connection).map_err(Failure::batch(DOING))?);
        Ok(())
    }
}

/// Every doubt there was, oldest first.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<Doubt>> {
    let sql = "SELECT noticed_at, detail, cleared_at, cleared_by, reason FROM firstwrite_doubts
               ORDER BY doubt";
    connection.prepare(sql)?.query_map([], read)?.collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<Doubt> {
    let at = |millis| Timestamp::from_millis(millis);
    let cleared = match row.get::<_, Option<i64>>(2)?.map(at) {
        Some(at) => Some(ClearedDoubt { at, by: row.get(3)?, reason: row.get(4)? }),
        None => None,
    };
    Ok(Doubt { noticed_at: at(row.get(0)?), detail: row.get(1)?, cleared })
}

fn lost(doing: &'static str, what: &str) -> Failure {
    refused(doing, format!("{what} under the running store; stop the process and restore the file"))
}

fn refused(doing: &'static str, why: String) -> Failure {
    Failure::Own(StoreError::definite(StoreErrorKind::InDoubt, doing).caused_by(why))
}
