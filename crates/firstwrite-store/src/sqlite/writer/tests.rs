//! Tests of the answers after a failed commit, which a test cannot make a real disk produce.

use std::sync::Arc;

use firstwrite_core::{Certainty, Timestamp};
use rusqlite::Connection;
use rusqlite::ffi;

use super::super::schema;
use super::*;
use firstwrite_core::host_clock::StoreClock;

fn session() -> Session {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(schema::SQL).unwrap();
    let (wall, stopwatch) = (Arc::new(|| Timestamp::EPOCH), Arc::new(|| Duration::ZERO));
    let clock = Arc::new(StoreClock::new(wall, stopwatch, Timestamp::EPOCH, Vec::new()));
    Session::new(connection, clock, Arc::default()).unwrap()
}

fn failure(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

/// Returns the error reported to a batch whose commit failed with `code`, and whether the writer goes on.
fn ended(code: i32) -> (StoreErrorKind, Certainty, bool) {
    let session = session();
    session.begin().unwrap();
    let Ended { told, goes_on } = commit_failed(&session, &failure(code));
    assert!(!session.is_in_transaction(), "the batch is rolled back");
    let error = told.expect_err("a failed commit is not answered as done").to_error("testing");
    (error.kind(), error.certainty(), goes_on.is_ok())
}

#[test]
fn a_full_disk_is_definite_and_the_writer_goes_on() {
    assert_eq!(ended(ffi::SQLITE_FULL), (StoreErrorKind::Full, Certainty::Definite, true));
    assert_eq!(ended(ffi::SQLITE_BUSY), (StoreErrorKind::Unavailable, Certainty::Definite, true));
}

#[test]
fn after_a_failed_flush_nobody_knows_and_the_writer_stops() {
    for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_CORRUPT] {
        let (_, certainty, goes_on) = ended(code);
        assert_eq!((certainty, goes_on), (Certainty::Indeterminate, false), "code {code}");
    }
}

#[tokio::test]
async fn who_asks_after_the_writer_has_stopped_is_refused_definitely() {
    let (reply, answer) = oneshot::channel();
    let work = |_session: &Session| -> Result<(), Failure> { panic!("nothing runs any more") };
    let stopped = BatchError::stopped(&failure(ffi::SQLITE_IOERR_FSYNC));
    Box::new(Command::new("testing", work, reply)).answer(Err(&stopped));
    let error = answer.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert_eq!(error.certainty(), Certainty::Definite);
    assert!(error.to_string().contains("restart the process"), "{error}");
}
