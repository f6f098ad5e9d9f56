//! Maps the server's and the driver's errors to store errors.

use std::error::Error as _;
use std::fmt;

use firstwrite_core::{StoreError, StoreErrorKind};
use mysql_async::Error;

pub(super) use crate::step_error::{corrupt, unavailable, unsupported};

/// An error between the store and the server.
#[derive(Debug)]
pub(super) enum DriverError {
    /// An error reported by the server or the driver.
    Driver(Error),
    /// Nothing came back in time.
    NoAnswer,
    /// No connection was to be had; nothing was sent.
    NoConnection(String),
    /// An answer was read and is invalid.
    Read(StoreError),
    /// It would not fit into one packet, so it was not sent.
    TooLarge { bytes: usize, bytes_max: usize },
}

/// The server's codes that matter here, by their names in its manual.
pub(super) mod code {
    pub(in crate::mysql) const DUP_ENTRY: u16 = 1062;
    pub(in crate::mysql) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(in crate::mysql) const LOCK_DEADLOCK: u16 = 1213;
    /// `NOWAIT` met a lock. MySQL only: MariaDB reports `LOCK_WAIT_TIMEOUT`.
    pub(in crate::mysql) const LOCK_NOWAIT: u16 = 3572;
    pub(in crate::mysql) const NO_SUCH_TABLE: u16 = 1146;
    pub(in crate::mysql) const SP_DOES_NOT_EXIST: u16 = 1305;
    /// A node of a cluster that is not part of it at the moment.
    pub(in crate::mysql) const NODE_NOT_READY: u16 = 1047;
    /// An overflow: by it, a pipeline of ours stops before its commit.
    pub(in crate::mysql) const OUT_OF_RANGE: u16 = 1690;
    /// A subquery with two rows: by it, a pipeline of ours stops if history is missing.
    pub(in crate::mysql) const SUBQUERY_NO_1_ROW: u16 = 1242;
    pub(in crate::mysql) const OPTION_PREVENTS_STATEMENT: u16 = 1290;
    pub(in crate::mysql) const READ_ONLY_MODE: u16 = 1836;
    /// Group replication undid the transaction before its commit.
    pub(in crate::mysql) const UNDONE_BEFORE_COMMIT: u16 = 3101;
}

/// Returns the kind of error for a server's code.
fn kind_of_code(number: u16) -> StoreErrorKind {
    match number {
        // No disk, no memory, a full table, no room for locks.
        1021 | 1037 | 1038 | 1041 | 1114 | 1206 => StoreErrorKind::Full,
        // Damaged tables and indexes.
        1034 | 1035 | 1194 | 1195 | 1712 => StoreErrorKind::Corrupt,
        // Too many connections, shutting down, killed, interrupted, network; locks; an error of the
        // engine; not a member of its cluster, read-only; out of time.
        1040
        | 1042
        | 1043
        | 1053
        | 1079
        | 1152
        | 1154..=1161
        | 1180
        | 1184
        | 1203
        | 1226
        | 1317
        | 1927
        | 1969
        | 1792
        | 1030
        | 3024
        | 3100
        | 3168
        | 4031
        | code::LOCK_WAIT_TIMEOUT
        | code::LOCK_DEADLOCK
        | code::LOCK_NOWAIT
        | code::NODE_NOT_READY
        | code::OPTION_PREVENTS_STATEMENT
        // A batch that stopped itself, on a connection that broke before it was done again one by one.
        | code::OUT_OF_RANGE
        | code::SUBQUERY_NO_1_ROW
        | code::READ_ONLY_MODE
        | code::UNDONE_BEFORE_COMMIT => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Unsupported,
    }
}

/// The error in words: a server's message and code. Values are never in our statements' errors but for
/// `DUP_ENTRY`, whose message repeats the key: it is said in our words.
fn text_of(error: &Error) -> String {
    match error {
        Error::Server(server) if server.code == code::DUP_ENTRY => {
            format!("a unique key stands there already ({})", server.code)
        }
        Error::Server(server) => format!("{} ({})", server.message, server.code),
        Error::Driver(_) | Error::Io(_) | Error::Other(_) | Error::Url(_) => match error.source() {
            Some(source) => source.to_string(),
            None => error.to_string(),
        },
    }
}

impl DriverError {
    /// The server's code, where it was the server that spoke.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Driver(Error::Server(server)) => Some(server.code),
            Self::Driver(_)
            | Self::NoAnswer
            | Self::NoConnection(_)
            | Self::Read(_)
            | Self::TooLarge { .. } => None,
        }
    }

    fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Driver(Error::Server(server)) => kind_of_code(server.code),
            Self::Driver(_) | Self::NoAnswer | Self::NoConnection(_) => StoreErrorKind::Unavailable,
            Self::Read(error) => error.kind(),
            Self::TooLarge { .. } => StoreErrorKind::Unsupported,
        }
    }

    /// The error of a step that certainly was not done.
    pub(super) fn definite(&self, doing: &'static str) -> StoreError {
        StoreError::definite(self.kind(), doing).caused_by(self.to_string())
    }

    /// Returns the error of a step that may or may not have taken effect.
    pub(super) fn indeterminate(&self, doing: &'static str) -> StoreError {
        StoreError::indeterminate(self.kind(), doing).caused_by(self.to_string())
    }

    /// Returns true if the server is alive and rolled back because of another transaction, so that the same
    /// may be tried again at once. In a Galera cluster the losing transaction gets this error too, at its
    /// commit.
    pub(super) fn is_deadlock(&self) -> bool {
        self.code() == Some(code::LOCK_DEADLOCK)
    }

    /// Returns true if a pipeline stopped because a count of commits went down.
    pub(super) fn is_history_missing(&self) -> bool {
        self.code() == Some(code::SUBQUERY_NO_1_ROW)
    }

    /// Returns true if another transaction's lock was in the way.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self.code(), Some(code::LOCK_WAIT_TIMEOUT | code::LOCK_NOWAIT))
    }

    /// Returns true if a concurrent write may be the cause.
    pub(super) fn may_be_rival(&self) -> bool {
        self.is_deadlock() || self.is_blocked() || self.code() == Some(code::DUP_ENTRY)
    }

    /// Returns true if an error in answer to `COMMIT` means that nothing was committed. After any other
    /// error the result is unknown.
    pub(super) fn undoes_commit(&self) -> bool {
        matches!(
            self.code(),
            Some(
                code::LOCK_DEADLOCK
                    | code::UNDONE_BEFORE_COMMIT
                    | code::OPTION_PREVENTS_STATEMENT
                    | code::READ_ONLY_MODE
            )
        )
    }

    /// Returns true if another server of the list may succeed.
    pub(super) fn is_about_server(&self) -> bool {
        match self.code() {
            Some(code) => matches!(
                code,
                code::NODE_NOT_READY
                    | code::OPTION_PREVENTS_STATEMENT
                    | code::READ_ONLY_MODE
                    | 1053
            ),
            None => matches!(self, Self::Driver(_) | Self::NoAnswer),
        }
    }
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl From<StoreError> for DriverError {
    fn from(error: StoreError) -> Self {
        Self::Read(error)
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => f.write_str(&text_of(error)),
            Self::NoAnswer => f.write_str("the server does not answer"),
            Self::NoConnection(text) => f.write_str(text),
            Self::Read(error) => error.fmt(f),
            Self::TooLarge { bytes, bytes_max } => write!(
                f,
                "it takes {bytes} bytes to send and the server takes {bytes_max} at most; \
                 raise max_allowed_packet"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::ServerError;

    use super::*;

    fn said(code: u16) -> DriverError {
        let (message, state) = ("Duplicate entry 'secret' for key".to_owned(), String::new());
        DriverError::Driver(Error::Server(ServerError { code, message, state }))
    }

    #[test]
    fn only_what_undid_the_transaction_makes_a_failed_commit_definite() {
        for code in [1213, 3101, 1290, 1836] {
            assert!(said(code).undoes_commit(), "{code}");
        }
        // Shutting down, killed, interrupted, an error of the engine during COMMIT, a lost node.
        for code in [1053, 1927, 1317, 1180, 1047, 1205] {
            assert!(!said(code).undoes_commit(), "{code}");
        }
        assert!(!DriverError::NoAnswer.undoes_commit());
    }

    #[test]
    fn a_deadlock_is_retryable_and_a_wrong_statement_is_not() {
        assert!(said(1213).definite("x").is_retryable() && said(1205).definite("x").is_retryable());
        assert_eq!(said(1064).definite("x").kind(), StoreErrorKind::Unsupported);
        assert_eq!(said(1114).definite("x").kind(), StoreErrorKind::Full);
    }

    #[test]
    fn the_key_in_the_servers_message_is_not_repeated() {
        assert!(!said(code::DUP_ENTRY).to_string().contains("secret"));
    }
}
