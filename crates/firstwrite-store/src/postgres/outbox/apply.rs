//! Taking moves: receipts, guarded rows, final answers and the next of each order, in one commit.

use std::collections::HashSet;
use std::time::Duration;

use firstwrite_core::outbox::{
    Becomes, ClaimStatus, HistoryRow, Kept, MessageState, Move, MoveGuard, Problem,
};
use firstwrite_core::{Fence, StoreError, Timestamp};
use futures_util::future::{OptionFuture, join4};
use tokio_postgres::types::ToSql;

use super::parts::{DEAD, SENDING, ending_number, short_millis, state_number, tally_number};
use crate::encoding::encode_outcome;
use crate::postgres::Shared;
use crate::postgres::columns::At;
use crate::postgres::dispatcher::OwnClient;
use crate::postgres::driver_error::{definite, failed_commit};
use crate::postgres::link::Link;
use crate::postgres::rows::column;

pub(super) const DOING: &str = "moving messages";

/// See [`firstwrite_core::outbox::Outbox::apply`].
pub(super) async fn apply(
    shared: &Shared,
    own: &mut OwnClient,
    receipts: &[HistoryRow],
    moves: &[Move],
) -> Result<Vec<ClaimStatus>, StoreError> {
    if receipts.is_empty() && moves.is_empty() {
        return Ok(Vec::new());
    }
    let client = own.get().await.map_err(definite(DOING))?.clone();
    let link = Link { client: &client, shared };
    let sql = &link.sql().outbox;
    let (receipts, given) = (Receipts::new(receipts), Given::new(moves));
    let given = [&receipts.parameters()[..], &given.parameters()[..]].concat();
    let settled: Vec<i64> = moves
        .iter()
        .filter(|step| matches!(step.becomes, Becomes::Settled(_)))
        .map(|step| step.number.0)
        .collect();
    let goes_on: Option<[&(dyn ToSql + Sync); 1]> = (!settled.is_empty()).then_some([&settled]);
    for statement in [&sql.apply, &sql.let_go] {
        link.prepare(statement).await.map_err(definite(DOING))?;
    }
    firstwrite_core::crash_point!("outbox-settle-before-commit");
    let (begun, applied, gone, committed) = join4(
        link.tell(&shared.server.begins().outbox),
        link.query(&sql.apply, &given),
        OptionFuture::from(goes_on.as_ref().map(|given| link.query(&sql.let_go, given))),
        link.commit(),
    )
    .await;
    firstwrite_core::crash_point!("outbox-settle-after-commit");
    let applied = begun.and(applied).and_then(|rows| gone.transpose().map(|_| rows));
    let rows = match applied.and_then(|rows| committed.map(|()| rows)) {
        Ok(rows) => rows,
        Err(error) => {
            if !error.is_undone() {
                own.drop_client();
            }
            return Err(failed_commit(DOING)(error));
        }
    };
    let mut held = HashSet::new();
    for row in &rows {
        if let Some(number) = column::<Option<i64>>(row, 1)? {
            held.insert((number, column::<i64>(row, 2)?));
        }
    }
    let said = |step: &Move| {
        let is_held = held.contains(&(step.number.0, signed(step.guard.fence())));
        if is_held { ClaimStatus::Current } else { ClaimStatus::Lost }
    };
    Ok(moves.iter().map(said).collect())
}

struct Receipts<'a> {
    messages: Vec<i64>,
    fences: Vec<i64>,
    statuses: Vec<Option<i32>>,
    details: Vec<&'a str>,
    provider_ids: Vec<Option<&'a str>>,
}

impl<'a> Receipts<'a> {
    fn new(receipts: &'a [HistoryRow]) -> Self {
        let all = || receipts.iter();
        Self {
            messages: all().map(|row| row.number.0).collect(),
            fences: all().map(|row| signed(row.fence)).collect(),
            statuses: all().map(|row| row.status.map(i32::from)).collect(),
            details: all().map(|row| &*row.detail).collect(),
            provider_ids: all().map(|row| row.provider_id.as_deref()).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.messages, &self.fences, &self.statuses, &self.details, &self.provider_ids]
    }
}

/// The columns of moves, in the order of the statement's parameters.
struct Given<'a> {
    messages: Vec<i64>,
    guards: Vec<i64>,
    needs: Vec<i16>,
    states: Vec<Option<i16>>,
    due_in: Vec<i64>,
    fences: Vec<Option<i64>>,
    delivery_counts: Vec<Option<i32>>,
    lapse_counts: Vec<Option<i32>>,
    maybe_sent_at: Vec<Option<At>>,
    has_problem: Vec<bool>,
    statuses: Vec<Option<i32>>,
    problems: Vec<Option<&'a str>>,
    answers: Vec<Option<Vec<u8>>>,
    endings: Vec<Option<i16>>,
    told_fences: Vec<Option<i64>>,
    told_statuses: Vec<Option<i32>>,
    details: Vec<Option<&'a str>>,
    provider_ids: Vec<Option<&'a str>>,
    kept: Vec<Option<i16>>,
    tallies: Vec<Option<i16>>,
    audits: [Vec<Option<&'a str>>; 3],
}

impl<'a> Given<'a> {
    fn new(moves: &'a [Move]) -> Self {
        let all = || moves.iter();
        let drafts = || all().map(Draft::of);
        let problems = || drafts().map(|draft| draft.problem);
        let rows = || all().map(|step| step.history.as_ref());
        let audits = || all().map(|step| step.audit.as_ref());
        let small = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        Self {
            messages: all().map(|step| step.number.0).collect(),
            guards: all().map(|step| signed(step.guard.fence())).collect(),
            needs: all().map(|step| needs(step.guard)).collect(),
            states: drafts().map(|draft| draft.state.map(state_number)).collect(),
            due_in: drafts().map(|draft| short_millis(draft.due_in)).collect(),
            fences: drafts().map(|draft| draft.fence.map(signed)).collect(),
            delivery_counts: drafts().map(|draft| draft.delivery_count.map(small)).collect(),
            lapse_counts: drafts().map(|draft| draft.lapse_count.map(small)).collect(),
            maybe_sent_at: drafts().map(|d| d.maybe_sent_at.map(At::Instant)).collect(),
            has_problem: problems().map(|problem| problem.is_some()).collect(),
            statuses: problems().map(|problem| problem?.status.map(i32::from)).collect(),
            problems: problems().map(|problem| problem.map(|one| &*one.text)).collect(),
            answers: all().map(|step| step.answer.as_ref().map(encode_outcome)).collect(),
            endings: rows().map(|row| row.map(|row| ending_number(row.ending))).collect(),
            told_fences: rows().map(|row| row.map(|row| signed(row.fence))).collect(),
            told_statuses: rows().map(|row| row?.status.map(i32::from)).collect(),
            details: rows().map(|row| row.map(|row| &*row.detail)).collect(),
            provider_ids: rows().map(|row| row?.provider_id.as_deref()).collect(),
            kept: rows().map(|row| row.map(|row| kept(row.kept))).collect(),
            tallies: all().map(|step| step.becomes.state()?.tally().map(tally_number)).collect(),
            audits: [
                audits().map(|entry| entry.map(|entry| &*entry.actor)).collect(),
                audits().map(|entry| entry.map(|entry| &*entry.action)).collect(),
                audits().map(|entry| entry.map(|entry| &*entry.reason)).collect(),
            ],
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 23] {
        let [actors, actions, reasons] = &self.audits;
        [
            &self.messages,
            &self.guards,
            &self.needs,
            &self.states,
            &self.due_in,
            &self.fences,
            &self.delivery_counts,
            &self.lapse_counts,
            &self.maybe_sent_at,
            &self.has_problem,
            &self.statuses,
            &self.problems,
            &self.answers,
            &self.endings,
            &self.told_fences,
            &self.told_statuses,
            &self.details,
            &self.provider_ids,
            &self.kept,
            &self.tallies,
            actors,
            actions,
            reasons,
        ]
    }
}

/// The columns that a move writes of a pending row. One that ends the message has no fence; one that leaves
/// its state has no state.
#[derive(Default)]
struct Draft<'a> {
    state: Option<MessageState>,
    due_in: Duration,
    fence: Option<Fence>,
    delivery_count: Option<u32>,
    lapse_count: Option<u32>,
    maybe_sent_at: Option<Timestamp>,
    problem: Option<&'a Problem>,
}

impl<'a> Draft<'a> {
    fn of(step: &'a Move) -> Self {
        match &step.becomes {
            Becomes::Pending(draft) => Self {
                state: Some(draft.state),
                due_in: draft.due_in,
                fence: Some(draft.fence),
                delivery_count: Some(draft.delivery_count),
                lapse_count: Some(draft.lapse_count),
                maybe_sent_at: draft.maybe_sent_at,
                problem: draft.problem.as_ref(),
            },
            Becomes::Settled(_) => Self::default(),
            Becomes::MaybeSent(draft) => Self {
                due_in: draft.rest_for,
                fence: Some(draft.fence),
                maybe_sent_at: Some(draft.maybe_sent_at),
                problem: draft.problem.as_ref(),
                ..Self::default()
            },
        }
    }
}

/// The state that a guard asks for; zero for any but a claim that is current, -1 for any.
fn needs(guard: MoveGuard) -> i16 {
    match guard {
        MoveGuard::Claimed(_) => SENDING,
        MoveGuard::Dead(_) => DEAD,
        MoveGuard::Idle(_) => 0,
        MoveGuard::Unsettled(_) => -1,
    }
}

fn kept(kept: Kept) -> i16 {
    match kept {
        Kept::WithMove => 0,
        Kept::Always => 1,
        Kept::IfNew => 2,
    }
}

fn signed(fence: Fence) -> i64 {
    fence.as_u64().cast_signed()
}
