//! Steps of intents, told as they happen: for logs, metrics and tests.

use crate::end::EndKind;

/// Something that happened. It holds no key, no body and no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'a> {
    /// Which step it was.
    pub step: Step,
    /// The name of the intent.
    pub intent: &'a str,
    /// The number of the attempt, from 1; 0 before the first.
    pub attempt: u32,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Reason for which there is no answer.
    pub failure: Option<FailureKind>,
    /// The next thing to do.
    pub next: Option<Next>,
}

/// The steps of an intent, in order. Hooks and tests name them alike in every client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The entry is durable.
    Opened,
    /// The mark of an attempt is durable.
    Marked,
    /// The transport was given the request: its bytes may be on their way.
    Sent,
    /// An answer is there, or none will be.
    Answered,
    /// An answer that does not end the intent is durable.
    Recorded,
    /// An end is durable; no [`Recorded`](Self::Recorded) comes before it.
    Ended,
    /// The entry is deleted.
    Acknowledged,
}

/// Reasons for which there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Not a byte was sent.
    NotSent,
    /// The request may have arrived.
    Lost,
}

/// The next thing to do after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// The same request is sent again.
    Retry,
    /// The status resource is asked where there is one, and then the same request is sent again.
    Ask,
    /// The intent ends.
    End(EndKind),
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Opened,
        Self::Marked,
        Self::Sent,
        Self::Answered,
        Self::Recorded,
        Self::Ended,
        Self::Acknowledged,
    ];

    /// The name that tests and hooks use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Marked => "marked",
            Self::Sent => "sent",
            Self::Answered => "answered",
            Self::Recorded => "recorded",
            Self::Ended => "ended",
            Self::Acknowledged => "acknowledged",
        }
    }
}

impl<'a> Event<'a> {
    pub(crate) fn new(step: Step, intent: &'a str, attempt: u32) -> Self {
        Self { step, intent, attempt, status: None, failure: None, next: None }
    }
}
