//! Applies moves: receipts, guarded rows, final answers and the next of each order, in one commit.

use std::collections::HashSet;
use std::time::Duration;

use firstwrite_core::encoding::encode_outcome;
use firstwrite_core::outbox::{
    Becomes, ClaimStatus, HistoryRow, Kept, MessageState, Move, MoveGuard, Problem,
};
use firstwrite_core::{Fence, StoreError, Timestamp};
use futures_util::future::{OptionFuture, join4};
use tokio_postgres::types::ToSql;

use super::parts::{DEAD, SENDING, ending_number, short_millis, state_number, tally_number};
use crate::postgres::Shared;
use crate::postgres::columns::{At, Values};
use crate::postgres::driver_error::{definite, failed_commit};
use crate::postgres::link::{Link, OwnClient};
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
    let given = given(receipts, moves);
    let given = given.parameters();
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

/// The columns of receipts and of moves, in the order of the statement's parameters.
fn given<'a>(receipts: &'a [HistoryRow], moves: &'a [Move]) -> Values<'a> {
    let problem = |step: &'a Move| Draft::of(step).problem;
    let history = |step: &'a Move| step.history.as_ref();
    let audit = |step: &'a Move| step.audit.as_ref();
    let small = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
    Values::default()
        .and_each(receipts, |row| row.number.0)
        .and_each(receipts, |row| signed(row.fence))
        .and_each(receipts, |row| row.status.map(i32::from))
        .and_each(receipts, |row| &*row.detail)
        .and_each(receipts, |row| row.provider_id.as_deref())
        .and_each(moves, |step| step.number.0)
        .and_each(moves, |step| signed(step.guard.fence()))
        .and_each(moves, |step| needs(step.guard))
        .and_each(moves, |step| Draft::of(step).state.map(state_number))
        .and_each(moves, |step| short_millis(Draft::of(step).due_in))
        .and_each(moves, |step| Draft::of(step).fence.map(signed))
        .and_each(moves, |step| Draft::of(step).delivery_count.map(small))
        .and_each(moves, |step| Draft::of(step).lapse_count.map(small))
        .and_each(moves, |step| Draft::of(step).maybe_sent_at.map(At::Instant))
        .and_each(moves, |step| problem(step).is_some())
        .and_each(moves, |step| problem(step)?.status.map(i32::from))
        .and_each(moves, |step| problem(step).map(|problem| &*problem.text))
        .and_each(moves, |step| step.answer.as_ref().map(encode_outcome))
        .and_each(moves, |step| history(step).map(|row| ending_number(row.ending)))
        .and_each(moves, |step| history(step).map(|row| signed(row.fence)))
        .and_each(moves, |step| history(step)?.status.map(i32::from))
        .and_each(moves, |step| history(step).map(|row| &*row.detail))
        .and_each(moves, |step| history(step)?.provider_id.as_deref())
        .and_each(moves, |step| history(step).map(|row| kept(row.kept)))
        .and_each(moves, |step| step.becomes.state()?.tally().map(tally_number))
        .and_each(moves, |step| audit(step).map(|entry| &*entry.actor))
        .and_each(moves, |step| audit(step).map(|entry| &*entry.action))
        .and_each(moves, |step| audit(step).map(|entry| &*entry.reason))
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
