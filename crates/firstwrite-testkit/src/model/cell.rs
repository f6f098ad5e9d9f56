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
    /// What it stands for.
    pub(super) state: CellState,
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
    /// Nobody knows.
    Uncertain,
}

/// What the model's requests and policies look like to core.
struct Stage {
    request: Request,
    uncertain: Policy,
    resend: Policy,
}

/// The model's present: leases end before it or after it.
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const LAPSED_AT: Timestamp = Timestamp::from_millis(999_999);

static STAGE: LazyLock<Stage> = LazyLock::new(|| Stage {
    request: sample::request(&sample::tenant("acme"), &sample::key("order-1"), 1),
    uncertain: sample::policy(OnLostAnswer::Uncertain),
    resend: sample::policy(OnLostAnswer::Resend),
});

/// Core's verdict on what stands.
pub(super) fn verdict(cell: Option<Cell>, on_lost_answer: OnLostAnswer) -> Verdict {
    let found = cell.map(|cell| Found { record: record(cell, on_lost_answer), now: NOW });
    judge(found.as_ref(), &STAGE.request, policy(on_lost_answer))
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
        retention: STAGE.uncertain.retention(),
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
    *cell = match change {
        Change::Renew { lease_for } => {
            let until = NOW.plus(lease_for);
            Some(from_record(&Record { state: State::Reserved(Lease { until }), ..before }))
        }
        Change::Complete { outcome, retention } => {
            let state = State::completed(outcome, retention, NOW);
            Some(from_record(&Record { state, ..before }))
        }
        Change::MarkUncertain => Some(from_record(&Record { state: State::Uncertain, ..before })),
        Change::TakeOver(draft) => Some(from_record(&Record::from_draft(&draft, NOW))),
        Change::Remove => None,
    };
    true
}

fn policy(on_lost_answer: OnLostAnswer) -> &'static Policy {
    match on_lost_answer {
        OnLostAnswer::Uncertain => &STAGE.uncertain,
        OnLostAnswer::Resend => &STAGE.resend,
    }
}

fn record(cell: Cell, on_lost_answer: OnLostAnswer) -> Record {
    let mut record = Record::from_draft(&draft(cell.fence, on_lost_answer), NOW);
    record.state = match cell.state {
        CellState::Held => State::Reserved(Lease { until: NOW.plus(Duration::from_secs(1)) }),
        CellState::Lapsed => State::Reserved(Lease { until: LAPSED_AT }),
        CellState::Completed(answer) => {
            let outcome = sample::outcome(201, &answer.to_string());
            State::completed(outcome, STAGE.uncertain.retention(), NOW)
        }
        CellState::Uncertain => State::Uncertain,
    };
    record
}

fn from_record(record: &Record) -> Cell {
    let state = match &record.state {
        State::Reserved(lease) if NOW < lease.until => CellState::Held,
        State::Reserved(_) => CellState::Lapsed,
        State::Completed { outcome, .. } => {
            let text = match &outcome.body {
                Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Body::Tombstone | Body::Sealed(_) => String::new(),
            };
            CellState::Completed(text.parse().expect("the model's answers are small numbers"))
        }
        State::Uncertain => CellState::Uncertain,
    };
    Cell { fence: record.fence, state }
}
