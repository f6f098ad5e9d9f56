//! The four ends of an intent.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::rules::Over;

/// End of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it says whether the action was carried out"]
pub enum End {
    /// It was carried out. A new key would carry it out again.
    Done(Done),
    /// Nothing happened.
    Refused(Refused),
    /// It may have happened, which is not known. A new key is not safe.
    Unknown(Unresolved),
    /// The server has forgotten the key, under which it may have happened. A new key is not safe.
    Expired(Unresolved),
}

/// Which of the four ends it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndKind {
    /// [`End::Done`].
    Done,
    /// [`End::Refused`].
    Refused,
    /// [`End::Unknown`].
    Unknown,
    /// [`End::Expired`].
    Expired,
}

/// Reason for which an intent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// By an answer of the server.
    Answer,
    /// The time to go on trying was over ([`give_up_after`](crate::Builder::give_up_after)).
    GivenUp,
    /// The life of the key was over, by the server's word or by [`retention`](crate::Builder::retention).
    KeyLife,
    /// The clock was set back while the intent was in doubt, so the age of the key is not known.
    ClockSetBack,
}

/// An action that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The first answer, or its replay.
    pub answer: Answer,
    /// True if it is a replay: an earlier attempt carried the action out.
    pub replayed: bool,
}

/// An action that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The answer that refused it, where there was one.
    pub answer: Option<Answer>,
    /// The code of the server's problem document.
    pub code: Option<String>,
    /// True if the action may be sent anew, under a new key: [`Draft::supersede`](crate::Draft::supersede).
    pub safe_new_key: bool,
    /// True if the answer is a replay of the first one.
    pub replayed: bool,
    /// Reason for the end.
    pub cause: Cause,
}

/// An action that may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The last answer, where there was one.
    pub answer: Option<Answer>,
    /// The code of the server's problem document.
    pub code: Option<String>,
    /// True if the server said that the action cannot happen twice under a new key. It is for the application to
    /// judge: [`Draft::supersede`](crate::Draft::supersede) does not go by it.
    pub safe_new_key: bool,
    /// Reason for the end.
    pub cause: Cause,
}

/// An answer of the server. `Debug` shows neither headers nor body.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, without cookies, challenges, and those of one connection.
    pub headers: HeaderMap,
    /// Its body. `None` where there is none to be had: the server did not keep it, or it is over the limit.
    pub body: Option<Bytes>,
}

impl End {
    /// Which of the four it is.
    pub fn kind(&self) -> EndKind {
        match self {
            Self::Done(_) => EndKind::Done,
            Self::Refused(_) => EndKind::Refused,
            Self::Unknown(_) => EndKind::Unknown,
            Self::Expired(_) => EndKind::Expired,
        }
    }

    /// True if the action cannot happen twice under a new key.
    pub fn is_new_key_safe(&self) -> bool {
        match self {
            Self::Done(_) => false,
            Self::Refused(refused) => refused.safe_new_key,
            Self::Unknown(unresolved) | Self::Expired(unresolved) => unresolved.safe_new_key,
        }
    }

    /// The answer that ended it, or the last one, where there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Done(done) => Some(&done.answer),
            Self::Refused(refused) => refused.answer.as_ref(),
            Self::Unknown(unresolved) | Self::Expired(unresolved) => unresolved.answer.as_ref(),
        }
    }

    /// The end of an intent whose time is up.
    pub(crate) fn by_time(over: Over) -> Self {
        let Over { end, safe_new_key, cause } = over;
        let (answer, code) = (None, None);
        match end {
            EndKind::Unknown => Self::Unknown(Unresolved { answer, code, safe_new_key, cause }),
            EndKind::Expired => Self::Expired(Unresolved { answer, code, safe_new_key, cause }),
            EndKind::Done | EndKind::Refused => {
                Self::Refused(Refused { answer, code, safe_new_key, replayed: false, cause })
            }
        }
    }

    /// True if the action may be opened anew under a new key: never after an unknown end, whatever a problem said.
    pub(crate) fn may_be_superseded(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.safe_new_key)
    }
}

impl EndKind {
    /// The word of the page, such as `done`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Answer {
    /// Reads the body as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.body.as_deref().unwrap_or_default())
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status.as_u16())
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.as_ref().map(Bytes::len))
            .finish()
    }
}
