//! Ends as they are written down.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

use super::{header, text};
use crate::end::{Answer, Cause, Done, End, EndKind, Refused, Unresolved};

#[derive(Serialize, Deserialize)]
pub(super) struct EndText {
    end: EndWord,
    cause: CauseWord,
    code: Option<String>,
    safe_new_key: bool,
    replayed: bool,
    pub(super) answer: Option<AnswerText>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct AnswerText {
    status: u16,
    headers: Vec<(String, String)>,
    pub(super) body_bytes: Option<usize>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EndWord {
    Done,
    Refused,
    Unknown,
    Expired,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CauseWord {
    Answer,
    GivenUp,
    KeyLife,
    ClockSetBack,
}

pub(super) fn end_text(end: &End, body_bytes: Option<usize>) -> EndText {
    let answer = end.answer().map(|answer| AnswerText {
        status: answer.status.as_u16(),
        headers: answer.headers.iter().map(|(name, value)| text(name, value)).collect(),
        body_bytes,
    });
    let (code, replayed, cause) = match end {
        End::Done(done) => (None, done.replayed, Cause::Answer),
        End::Refused(refused) => (refused.code.clone(), refused.replayed, refused.cause),
        End::Unknown(unresolved) | End::Expired(unresolved) => {
            (unresolved.code.clone(), false, unresolved.cause)
        }
    };
    let safe_new_key = end.is_new_key_safe();
    let end = match end.kind() {
        EndKind::Done => EndWord::Done,
        EndKind::Refused => EndWord::Refused,
        EndKind::Unknown => EndWord::Unknown,
        EndKind::Expired => EndWord::Expired,
    };
    let cause = match cause {
        Cause::Answer => CauseWord::Answer,
        Cause::GivenUp => CauseWord::GivenUp,
        Cause::KeyLife => CauseWord::KeyLife,
        Cause::ClockSetBack => CauseWord::ClockSetBack,
    };
    EndText { end, cause, code, safe_new_key, replayed, answer }
}

pub(super) fn end_of(text: EndText, body: Option<Bytes>) -> Option<End> {
    let answer = match text.answer {
        Some(answer) => Some(Answer {
            status: StatusCode::from_u16(answer.status).ok()?,
            headers: answer.headers.into_iter().map(header).collect::<Option<HeaderMap>>()?,
            body,
        }),
        None => None,
    };
    let EndText { code, safe_new_key, replayed, .. } = text;
    let cause = match text.cause {
        CauseWord::Answer => Cause::Answer,
        CauseWord::GivenUp => Cause::GivenUp,
        CauseWord::KeyLife => Cause::KeyLife,
        CauseWord::ClockSetBack => Cause::ClockSetBack,
    };
    Some(match text.end {
        EndWord::Done => End::Done(Done { answer: answer?, replayed }),
        EndWord::Refused => End::Refused(Refused { answer, code, safe_new_key, replayed, cause }),
        EndWord::Unknown => End::Unknown(Unresolved { answer, code, safe_new_key, cause }),
        EndWord::Expired => End::Expired(Unresolved { answer, code, safe_new_key, cause }),
    })
}
