//! Recorded steps as lines of words, for processes that hand their part of a history on.

use std::fmt;
use std::str::SplitAsciiWhitespace;

use firstwrite_core::{Fence, RecordId, StateKind, Timestamp};

use crate::linearizability::{Answer, Call, Check, Edit, LeaseEnd, Operation, Standing};

/// A line that is no step of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine(String);

/// One step as a line, without its end.
pub fn to_line(id: RecordId, step: &Operation) -> String {
    let call = match &step.call {
        Call::Get => "get".to_owned(),
        Call::Insert(draft) => format!("insert {}", standing(draft)),
        Call::Swap(check, edit) => format!("swap {} {}", guard(*check), change(*edit)),
    };
    let answer = match &step.answer {
        Answer::Done => "done".to_owned(),
        Answer::Stands(None) => "free".to_owned(),
        Answer::Stands(Some(stands)) => format!("stands {}", standing(stands)),
        Answer::Lost => "lost".to_owned(),
    };
    let id = u128::from_be_bytes(*id.as_bytes());
    format!("{id:032x} {} {} {call} {answer}", step.called_at, step.returned_at)
}

/// Reads a line that [`to_line`] wrote.
pub fn from_line(line: &str) -> Result<(RecordId, Operation), BadLine> {
    let mut words = Words(line.split_ascii_whitespace());
    words.step().ok_or_else(|| BadLine(line.to_owned()))
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no step of a history: {}", self.0)
    }
}

impl std::error::Error for BadLine {}

fn standing(stands: &Standing) -> String {
    let lease = stands.lease.map_or("-".to_owned(), lease);
    format!("{} {} {lease} {}", stands.fence, stands.state, stands.tag)
}

fn lease(end: LeaseEnd) -> String {
    match end {
        LeaseEnd::Known(until) => until.as_millis().to_string(),
        LeaseEnd::Unknown => "?".to_owned(),
    }
}

fn guard(check: Check) -> String {
    match check {
        Check::Owner(fence) => format!("owner {fence}"),
        Check::Seen(fence, state, until) => {
            let until = until.map_or("-".to_owned(), |until| lease(LeaseEnd::Known(until)));
            format!("seen {fence} {state} {until}")
        }
    }
}

fn change(edit: Edit) -> String {
    match edit {
        Edit::Renew(end) => format!("renew {}", lease(end)),
        Edit::Complete(tag) => format!("complete {tag}"),
        Edit::MarkUncertain => "mark".to_owned(),
        Edit::TakeOver(next) => format!("take-over {}", standing(&next)),
        Edit::Remove => "remove".to_owned(),
    }
}

/// A lease where there is one.
struct Ended(Option<LeaseEnd>);

struct Words<'a>(SplitAsciiWhitespace<'a>);

impl Words<'_> {
    fn step(&mut self) -> Option<(RecordId, Operation)> {
        let id = self.id()?;
        let (called_at, returned_at) = (self.number()?, self.number()?);
        let call = match self.0.next()? {
            "get" => Call::Get,
            "insert" => Call::Insert(self.standing()?),
            "swap" => Call::Swap(self.guard()?, self.change()?),
            _ => return None,
        };
        let answer = match self.0.next()? {
            "done" => Answer::Done,
            "free" => Answer::Stands(None),
            "stands" => Answer::Stands(Some(self.standing()?)),
            "lost" => Answer::Lost,
            _ => return None,
        };
        let is_whole = self.0.next().is_none();
        is_whole.then_some((id, Operation { call, answer, called_at, returned_at }))
    }

    fn id(&mut self) -> Option<RecordId> {
        let number = u128::from_str_radix(self.0.next()?, 16).ok()?;
        Some(RecordId::from_bytes(number.to_be_bytes()))
    }

    fn number(&mut self) -> Option<u64> {
        self.0.next()?.parse().ok()
    }

    fn fence(&mut self) -> Option<Fence> {
        self.number().map(Fence::from_u64)
    }

    fn state(&mut self) -> Option<StateKind> {
        let word = self.0.next()?;
        let all = [StateKind::Reserved, StateKind::Completed, StateKind::Uncertain];
        all.into_iter().find(|kind| kind.as_str() == word)
    }

    fn lease(&mut self) -> Option<Ended> {
        Some(match self.0.next()? {
            "-" => Ended(None),
            "?" => Ended(Some(LeaseEnd::Unknown)),
            millis => Ended(Some(LeaseEnd::Known(Timestamp::from_millis(millis.parse().ok()?)))),
        })
    }

    fn standing(&mut self) -> Option<Standing> {
        let (fence, state) = (self.fence()?, self.state()?);
        Some(Standing { fence, state, lease: self.lease()?.0, tag: self.number()? })
    }

    fn guard(&mut self) -> Option<Check> {
        Some(match self.0.next()? {
            "owner" => Check::Owner(self.fence()?),
            "seen" => {
                let (fence, state) = (self.fence()?, self.state()?);
                let until = match self.lease()?.0 {
                    Some(LeaseEnd::Known(until)) => Some(until),
                    None => None,
                    Some(LeaseEnd::Unknown) => return None,
                };
                Check::Seen(fence, state, until)
            }
            _ => return None,
        })
    }

    fn change(&mut self) -> Option<Edit> {
        Some(match self.0.next()? {
            "renew" => Edit::Renew(self.lease()?.0?),
            "complete" => Edit::Complete(self.number()?),
            "mark" => Edit::MarkUncertain,
            "take-over" => Edit::TakeOver(self.standing()?),
            "remove" => Edit::Remove,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_read_back_as_it_was_written() {
        let until = Timestamp::from_millis(7);
        let reserved = Standing {
            fence: Fence::first(5),
            state: StateKind::Reserved,
            lease: Some(LeaseEnd::Known(until)),
            tag: 5,
        };
        let unknown = Standing { lease: Some(LeaseEnd::Unknown), ..reserved };
        let completed = Standing { state: StateKind::Completed, lease: None, ..reserved };
        let owner = Check::Owner(reserved.fence);
        let seen = Check::Seen(reserved.fence, StateKind::Reserved, Some(until));
        let spent = Check::Seen(reserved.fence, StateKind::Completed, None);
        let id = RecordId::from_bytes([0xab; 16]);
        for (call, answer) in [
            (Call::Get, Answer::Stands(None)),
            (Call::Get, Answer::Stands(Some(completed))),
            (Call::Insert(reserved), Answer::Done),
            (Call::Insert(unknown), Answer::Lost),
            (Call::Swap(owner, Edit::Renew(LeaseEnd::Known(until))), Answer::Done),
            (Call::Swap(seen, Edit::Renew(LeaseEnd::Unknown)), Answer::Lost),
            (Call::Swap(spent, Edit::Complete(9)), Answer::Done),
            (Call::Swap(owner, Edit::MarkUncertain), Answer::Stands(Some(reserved))),
            (Call::Swap(owner, Edit::TakeOver(reserved)), Answer::Done),
            (Call::Swap(owner, Edit::Remove), Answer::Done),
        ] {
            let step = Operation { call, answer, called_at: 3, returned_at: u64::MAX };
            let (read_id, read) = from_line(&to_line(id, &step)).unwrap();
            assert_eq!(read_id, id);
            assert_eq!(format!("{read:?}"), format!("{step:?}"));
        }
        assert!(from_line("get").is_err());
    }
}
