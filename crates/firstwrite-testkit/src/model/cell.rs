//! The record of the model in a form that can be hashed, and its way to core's types and back.

use std::sync::LazyLock;
use std::time::Duration;

use firstwrite_core::{
    Body, Change, Draft, Fence, Found, Guard, Lease, OnLostAnswer, Policy, Record, Request, State,
    Timestamp, Verdict, judge, judge_lapsed,
};

use crate::sample;

/// One record as the model keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cell {
    /// The fence it wears.
    pub(super) fence: Fence,
    /// Its state.
    pub(super) state: CellState,
    /// Number of renewals of its lease: a read from before a renewal is outdated.
    pub(super) renewals: u8,
}

/// The state of a [`Cell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CellState {
    /// Reserved, and the lease holds.
    Held,
    /// Reserved, and the lease ran out.
    Lapsed,
    /// Completed with the answer of this attempt.
    Completed(u8),
    /// The same, and its retention has ended.
    Spent(u8),
    /// The effect may or may not have happened.
    Uncertain,
    /// Given up, and the key is free: a note for pollers stands.
    Freed,
}

/// Requests and policies of the model, in core's types.
struct Stage {
    request: Request,
    uncertain: Policy,
    resend: Policy,
}

/// The model's present: leases and retentions end before it or after it.
const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
/// End of the first lease of a lapsed record; each renewal is a little later.
const LAPSED_AT: Timestamp = Timestamp::from_millis(999_000_000);
/// Completion time of an outcome whose retention has ended, while the record stays for its slack.
const SPENT_AT: Timestamp = Timestamp::from_millis(1_000_000_000 - 24 * 60 * 60 * 1000);

static STAGE: LazyLock<Stage> = LazyLock::new(|| Stage {
    request: sample::request(&sample::tenant("acme"), &sample::key("order-1"), 1),
    uncertain: sample::policy(OnLostAnswer::Uncertain),
    resend: sample::policy(OnLostAnswer::Resend),
});

impl Cell {
    /// Just reserved under `fence`.
    pub(super) fn held(fence: Fence) -> Self {
        Self { fence, state: CellState::Held, renewals: 0 }
    }

    /// Just completed under `fence` with the answer of this attempt.
    pub(super) fn completed(fence: Fence, answer: u8) -> Self {
        Self { fence, state: CellState::Completed(answer), renewals: 0 }
    }

    /// Returns true if it waits for its outcome.
    pub(super) fn is_open(self) -> bool {
        match self.state {
            CellState::Held | CellState::Lapsed | CellState::Uncertain => true,
            CellState::Completed(_) | CellState::Spent(_) | CellState::Freed => false,
        }
    }

    /// Returns true if it holds an outcome.
    pub(super) fn is_kept(self) -> bool {
        matches!(self.state, CellState::Completed(_) | CellState::Spent(_))
    }

    /// Returns true if it is reserved.
    pub(super) fn is_reserved(self) -> bool {
        matches!(self.state, CellState::Held | CellState::Lapsed)
    }
}

/// Core's verdict on what stands.
pub(super) fn verdict(cell: Option<Cell>, on_lost_answer: OnLostAnswer) -> Verdict {
    let found = cell.map(|cell| Found { record: record(cell, on_lost_answer), now: NOW });
    judge(found.as_ref(), &STAGE.request)
}

/// Core's choice for a sweep.
pub(super) fn sweep(cell: Cell, on_lost_answer: OnLostAnswer) -> Option<Change> {
    judge_lapsed(&record(cell, on_lost_answer), NOW)
}

/// The guard for a write that follows from having judged `cell`.
pub(super) fn seen(cell: Cell, on_lost_answer: OnLostAnswer) -> Guard {
    Guard::Seen(record(cell, on_lost_answer).seen())
}

/// A draft that reserves the key under `fence`.
pub(super) fn draft(fence: Fence, on_lost_answer: OnLostAnswer) -> Draft {
    sample::reserved(&STAGE.request, policy(on_lost_answer), fence)
}

/// A completion with the answer of this attempt.
pub(super) fn completion(answer: u8) -> Change {
    Change::Complete {
        outcome: sample::outcome(201, &answer.to_string()),
        retention: STAGE.uncertain.record_retention(),
    }
}

/// Applies `change` as a store does, if core's guard holds.
pub(super) fn swap(
    cell: &mut Option<Cell>,
    guard: Guard,
    change: Change,
    on_lost_answer: OnLostAnswer,
) -> bool {
    let Some(stands) = *cell else { return false };
    let before = record(stands, on_lost_answer);
    if !guard.holds(&before, &change) {
        return false;
    }
    let renewals = stands.renewals;
    *cell = match change {
        Change::Note { .. } => Some(stands),
        Change::Renew { lease_for } => {
            let until = NOW.plus(lease_for);
            let record = Record { state: State::Reserved(Lease { until }), ..before };
            Some(from_record(&record, renewals + 1))
        }
        Change::Complete { outcome, retention } => {
            let state = State::completed(outcome, retention, NOW);
            Some(from_record(&Record { state, ..before }, 0))
        }
        Change::MarkUncertain { ago } => {
            let state = State::Uncertain { since: NOW.minus(ago) };
            Some(from_record(&Record { state, ..before }, 0))
        }
        Change::TakeOver(draft) => Some(from_record(&Record::from_draft(&draft, NOW), 0)),
        Change::Remove => None,
    };
    true
}

fn policy(on_lost_answer: OnLostAnswer) -> &'static Policy {
    match on_lost_answer {
        OnLostAnswer::Uncertain | OnLostAnswer::Ask(_) => &STAGE.uncertain,
        OnLostAnswer::Resend => &STAGE.resend,
    }
}

fn record(cell: Cell, on_lost_answer: OnLostAnswer) -> Record {
    let mut record = Record::from_draft(&draft(cell.fence, on_lost_answer), NOW);
    let kept_at = |answer: u8, at| {
        let outcome = sample::outcome(201, &answer.to_string());
        State::completed(outcome, STAGE.uncertain.record_retention(), at)
    };
    let renewals = Duration::from_millis(cell.renewals.into());
    record.state = match cell.state {
        CellState::Held => State::Reserved(Lease { until: NOW.plus(renewals + sample::TICK) }),
        CellState::Lapsed => State::Reserved(Lease { until: LAPSED_AT.plus(renewals) }),
        CellState::Completed(answer) => kept_at(answer, NOW),
        CellState::Spent(answer) => kept_at(answer, SPENT_AT),
        CellState::Uncertain => State::Uncertain { since: NOW },
        CellState::Freed => {
            let Change::Complete { outcome, retention } = Change::free_given_up() else {
                unreachable!("a note is kept as an outcome is")
            };
            State::completed(outcome, retention, NOW)
        }
    };
    record
}

fn from_record(record: &Record, renewals: u8) -> Cell {
    let state = match &record.state {
        State::Reserved(lease) if NOW < lease.until => CellState::Held,
        State::Reserved(_) => CellState::Lapsed,
        State::Completed { outcome, .. } if outcome.is_release_note() => CellState::Freed,
        State::Completed { outcome, .. } => {
            let text = match &outcome.body {
                Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Body::Tombstone | Body::Sealed(_) | Body::Released => String::new(),
            };
            CellState::Completed(text.parse().expect("the model's answers are small numbers"))
        }
        State::Uncertain { .. } => CellState::Uncertain,
    };
    Cell { fence: record.fence, state, renewals }
}
