//! Errors of a server or of the connection to it, and whether a write may have happened all the same.

use std::fmt;

use firstwrite_core::{StoreError, StoreErrorKind};
use redis::{RedisError, ServerError};

pub(super) use crate::step_error::{corrupt, unsupported};

/// Reason why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DriverError {
    /// Nothing was sent.
    NotSent(String),
    /// It was sent, and no answer came.
    Lost(String),
    /// It was done, and too few replicas or disks have it.
    Unconfirmed(String),
    /// The server answered with an error.
    Reply(ErrorReply),
}

/// An error that a server answered with. The text after the code is kept only if it is an address:
/// otherwise it may repeat what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorReply {
    pub(super) code: String,
    /// The host that has the slot instead, if the server redirects.
    pub(super) redirect: Option<String>,
}

/// Answers after which nothing was written. A script fails with them at its first write or before.
const NOTHING_WRITTEN: [&str; 17] = [
    "OOM",
    "READONLY",
    "LOADING",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "NOSCRIPT",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CROSSSLOT",
    "NOAUTH",
    "NOPERM",
    "WRONGPASS",
    "CORRUPT",
];

impl DriverError {
    /// Converts the driver's error about a command that it was given.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.code() {
            Some(code) => Self::Reply(ErrorReply::new(code, error.detail())),
            None => Self::Lost(text_of(error)),
        }
    }

    /// Converts the driver's error about a connection that was not established.
    pub(super) fn unconnected(error: &RedisError) -> Self {
        Self::NotSent(text_of(error))
    }

    pub(super) fn of_reply(error: &ServerError) -> Self {
        Self::Reply(ErrorReply::new(error.code(), error.details()))
    }

    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Reply(reply) => Some(&reply.code),
            Self::NotSent(_) | Self::Lost(_) | Self::Unconfirmed(_) => None,
        }
    }

    /// Returns true if this server can no longer be used, so that another must be looked for.
    pub(super) fn is_about_server(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Lost(_) => true,
            Self::Unconfirmed(_) => false,
            Self::Reply(reply) => {
                matches!(&*reply.code, "READONLY" | "LOADING" | "CLUSTERDOWN" | "MASTERDOWN")
            }
        }
    }

    /// Converts to the error of a step that writes.
    pub(super) fn error(&self, doing: &'static str) -> StoreError {
        let (kind, is_definite) = match self {
            Self::NotSent(_) => (StoreErrorKind::Unavailable, true),
            Self::Lost(_) | Self::Unconfirmed(_) => (StoreErrorKind::Unavailable, false),
            Self::Reply(reply) => (reply.kind(), NOTHING_WRITTEN.contains(&&*reply.code)),
        };
        let error = if is_definite {
            StoreError::definite(kind, doing)
        } else {
            StoreError::indeterminate(kind, doing)
        };
        error.caused_by(self.to_string())
    }

    /// Converts to the error of a step that only reads.
    pub(super) fn read_error(&self, doing: &'static str) -> StoreError {
        let kind = match self {
            Self::NotSent(_) | Self::Lost(_) | Self::Unconfirmed(_) => StoreErrorKind::Unavailable,
            Self::Reply(reply) => reply.kind(),
        };
        StoreError::definite(kind, doing).caused_by(self.to_string())
    }
}

impl ErrorReply {
    /// An error that a script met and passed on as text.
    pub(super) fn of_script(text: &str) -> Self {
        let code = text.split_whitespace().next().unwrap_or("ERR");
        Self::new(code.trim_start_matches('-'), None)
    }

    fn new(code: &str, detail: Option<&str>) -> Self {
        let is_redirection = matches!(code, "MOVED" | "ASK");
        let redirect =
            detail.filter(|_| is_redirection).and_then(|text| text.split_whitespace().last());
        Self { code: code.to_owned(), redirect: redirect.map(str::to_owned) }
    }

    fn kind(&self) -> StoreErrorKind {
        match &*self.code {
            "OOM" => StoreErrorKind::Full,
            // A key of ours holds something else.
            "WRONGTYPE" | "CORRUPT" => StoreErrorKind::Corrupt,
            "NOAUTH" | "NOPERM" | "WRONGPASS" | "CROSSSLOT" | "ERR" => StoreErrorKind::Unsupported,
            _ => StoreErrorKind::Unavailable,
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(text) | Self::Lost(text) | Self::Unconfirmed(text) => f.write_str(text),
            Self::Reply(reply) => write!(f, "the server says {}", reply.code),
        }
    }
}

/// Returns the category of an error: its own text may repeat what was sent.
fn text_of(error: &RedisError) -> String {
    error.code().map_or_else(|| error.category().to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use firstwrite_core::Certainty;

    use super::*;

    fn replied(code: &str) -> DriverError {
        DriverError::Reply(ErrorReply::new(code, Some("7 10.0.0.1:6379")))
    }

    #[test]
    fn what_a_server_refuses_is_certain_and_silence_is_not() {
        for (code, kind) in [
            ("OOM", StoreErrorKind::Full),
            ("READONLY", StoreErrorKind::Unavailable),
            ("LOADING", StoreErrorKind::Unavailable),
            ("CLUSTERDOWN", StoreErrorKind::Unavailable),
            ("MASTERDOWN", StoreErrorKind::Unavailable),
            ("NOREPLICAS", StoreErrorKind::Unavailable),
            ("MISCONF", StoreErrorKind::Unavailable),
            ("NOPERM", StoreErrorKind::Unsupported),
        ] {
            let error = replied(code).error("x");
            assert_eq!((error.kind(), error.certainty()), (kind, Certainty::Definite), "{code}");
        }
        assert_eq!(
            DriverError::Lost(String::new()).error("x").certainty(),
            Certainty::Indeterminate
        );
        assert_eq!(DriverError::NotSent(String::new()).error("x").certainty(), Certainty::Definite);
    }

    #[test]
    fn a_script_that_failed_in_its_middle_may_have_written() {
        for code in ["ERR", "WRONGTYPE", "UNHEARD"] {
            assert_eq!(replied(code).error("x").certainty(), Certainty::Indeterminate, "{code}");
        }
    }

    #[test]
    fn a_redirection_says_where_to() {
        let DriverError::Reply(moved) = replied("MOVED") else { panic!("a reply") };
        assert_eq!(moved.redirect.as_deref(), Some("10.0.0.1:6379"));
        let DriverError::Reply(other) = replied("ERR") else { panic!("a reply") };
        assert_eq!(other.redirect, None);
    }
}
