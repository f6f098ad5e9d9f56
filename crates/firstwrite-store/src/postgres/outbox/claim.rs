//! Claiming: messages are taken in, and what is wanted is given out, in one transaction and one pipeline.
//!
//! The commit is waited for, also by the disk: a claim that was lost would make its message look as if it
//! had never been sent.

use std::sync::{Arc, Mutex};

use firstwrite_core::encoding::as_i64;
use firstwrite_core::outbox::{ClaimRequest, Claimed, ClaimedMessage, Receipt};
use firstwrite_core::{Fence, StoreError, Timestamp, lock};
use futures_util::future::join4;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::hints::{Hints, Leases};
use super::intake::{Intake, Sight, Turn, add_destinations};
use super::parts::short_millis;
use crate::postgres::Shared;
use crate::postgres::columns::Values;
use crate::postgres::driver_error::{DriverError, corrupt, definite, failed_commit, unavailable};
use crate::postgres::history_loss::{self, HistoryCheck, Trust, verify_history_to_write};
use crate::postgres::link::{Link, OwnClient};
use crate::postgres::rows::{column, instant};
use crate::postgres::tx::{OTHER_SERVERS, VERIFICATIONS_MAX};
use crate::rows::{parts, pending};

/// Runs claims one at a time, on a connection of its own, and remembers what the last one learnt.
pub(super) struct Claiming {
    client: OwnClient,
    intake: Intake,
    hints: Hints,
    leases: Arc<Mutex<Leases>>,
    /// True if the next claim should look at as many messages as it can, since wanted messages lie behind others.
    looks_far: bool,
}

/// Result of one pipeline.
struct Committed {
    now: Timestamp,
    trust: Trust,
    closed: Vec<String>,
    /// Destinations that are not written down yet.
    strangers: Vec<String>,
    again: Again,
    messages: Vec<ClaimedMessage>,
}

/// Time at which another claim is worthwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// There is more.
    AtOnce,
    /// There will be more when another transaction has committed.
    Soon,
    WhenTold,
}

pub(super) const DOING: &str = "claiming messages";

/// The columns of the pending row behind those of the message, and of the head of the answer behind all.
const PENDING_FROM: usize = 6;
const HEAD_FROM: usize = 22;

/// A request for more messages than this is a request for all.
const COUNT_MAX: usize = 1_000_000;

/// Maximum number of messages that a pipeline looks at; the statement says so too.
const LOOKED_AT_MAX: i64 = 1000;

/// Maximum number of pipelines of one claim. It sends another one if other processes took in the messages that it
/// looked at, or if a message goes to a destination that has no row yet.
const PIPELINES_MAX: usize = 100;

impl Claiming {
    pub(super) fn new(client: OwnClient, leases: Arc<Mutex<Leases>>) -> Self {
        let (intake, hints) = (Intake::default(), Hints::default());
        Self { client, intake, hints, leases, looks_far: false }
    }

    /// Closes the connection; it comes back when it is needed.
    pub(super) fn close(&mut self) {
        self.client.drop_client();
    }

    /// See [`firstwrite_core::outbox::Outbox::claim`]. Also says whether to look again.
    pub(super) async fn claim(
        &mut self,
        shared: &Shared,
        requests: &[ClaimRequest],
        nonce: u64,
    ) -> Result<(Claimed, Again), StoreError> {
        let mut verification_count = 0;
        let mut taken_in_at = None;
        for _ in 0..PIPELINES_MAX {
            let written = self.send(shared, requests, nonce).await?;
            match written.trust {
                Trust::Unverified => {
                    verification_count += 1;
                    if verification_count > VERIFICATIONS_MAX {
                        return Err(unavailable(DOING, OTHER_SERVERS));
                    }
                    let client = self.client.get().await.map_err(definite(DOING))?;
                    verify_history_to_write(Link { client, shared })
                        .await
                        .map_err(definite(DOING))?;
                    self.intake.forget();
                    continue;
                }
                // What was claimed and sent may be in what was lost, and would look as if it never was.
                Trust::HistoryLost if !requests.is_empty() => {
                    return Err(history_loss::refuse(shared, DOING));
                }
                Trust::Whole | Trust::HistoryLost => {}
            }
            let Committed { now, closed, strangers, mut again, messages, .. } = written;
            shared.clock.heard(now);
            if !strangers.is_empty() {
                let client = self.client.get().await.map_err(definite(DOING))?;
                let added = add_destinations(shared, client, &strangers).await;
                added.map_err(definite(DOING))?;
                again = Again::AtOnce;
            }
            if again != Again::AtOnce || !messages.is_empty() {
                return Ok((Claimed { messages, now, closed }, again));
            }
            taken_in_at = Some(now).filter(|_| requests.is_empty());
        }
        // The oldest come first, so a caller that only takes in can go on, and come back for the rest.
        if let Some(now) = taken_in_at {
            let claimed = Claimed { messages: Vec::new(), now, closed: Vec::new() };
            return Ok((claimed, Again::AtOnce));
        }
        Err(unavailable(DOING, "too many messages are being taken in"))
    }

    async fn send(
        &mut self,
        shared: &Shared,
        requests: &[ClaimRequest],
        nonce: u64,
    ) -> Result<Committed, StoreError> {
        let client = self.client.get().await.map_err(definite(DOING))?.clone();
        let link = Link { client: &client, shared };
        self.intake.learn(&link).await.map_err(definite(DOING))?;
        let turn = self.intake.turn();
        let sql = &link.sql().outbox;
        for statement in [&sql.take_turn, &sql.claim] {
            link.prepare(statement).await.map_err(definite(DOING))?;
        }
        let asks: [&(dyn ToSql + Sync); 1] = [&turn.asks];
        // Who wants nothing has messages taken in, and nothing else.
        let looked_at_max = if self.looks_far || requests.is_empty() { LOOKED_AT_MAX } else { 0 };
        let looks = (&self.hints, &turn, looked_at_max);
        let given = given(requests, nonce, looks, shared.history.check());
        let given = given.parameters();
        firstwrite_core::crash_point!("outbox-claim-before-commit");
        let (begun, turned, rows, committed) = join4(
            link.tell(&shared.server.begins().outbox),
            link.query(&sql.take_turn, &asks),
            link.query(&sql.claim, &given),
            link.commit(),
        )
        .await;
        firstwrite_core::crash_point!("outbox-claim-after-commit");
        let written = begun.and(turned).and_then(|turned| Ok((turned, rows?)));
        let (turned, rows) = match written.and_then(|rows| committed.map(|()| rows)) {
            Ok(rows) => rows,
            Err(error) => {
                if !error.is_undone() {
                    self.client.drop_client();
                }
                return Err(failed_commit(DOING)(error));
            }
        };
        self.land(requests, &turn, &turned, &rows).map_err(definite(DOING))
    }

    /// Reads what was committed, and remembers what follows from it.
    fn land(
        &mut self,
        requests: &[ClaimRequest],
        turn: &Turn,
        turned: &[Row],
        rows: &[Row],
    ) -> Result<Committed, DriverError> {
        let is_head = |row: &Row| instant(row, HEAD_FROM).is_ok();
        let head = rows.iter().find(|row| is_head(row));
        let head = head.ok_or_else(|| corrupt("a claim does not say when it was made"))?;
        let now = instant(head, HEAD_FROM)?;
        let [is_known, history_lost, takes_in, leaves_some, wants_more] =
            [1, 2, 3, 10, 11].map(|index| column::<bool>(head, HEAD_FROM + index));
        let (takes_in, leaves_some) = (takes_in?, leaves_some?);
        let is_full: Option<bool> = column(head, HEAD_FROM + 8)?;
        let trust = Trust::of(history_lost?, is_known?);
        let again = match (is_full == Some(true) && wants_more?, leaves_some) {
            (true, _) => Again::AtOnce,
            (false, true) => Again::Soon,
            (false, false) => Again::WhenTold,
        };
        self.looks_far = again == Again::AtOnce;
        let strangers: Vec<String> = column(head, HEAD_FROM + 9)?;
        if trust == Trust::Whole {
            self.hints.found_all(&column::<Vec<String>>(head, HEAD_FROM + 5)?, now);
            self.hints.looked_for_lapsed(requests, column(head, HEAD_FROM + 6)?, now);
        }
        if takes_in {
            let turned = turned.first().ok_or_else(|| corrupt("a turn is not answered"))?;
            let holders = column(turned, 1)?;
            // What could not be taken in is looked at again.
            let is_whole = is_full == Some(false) && !leaves_some && strangers.is_empty();
            self.intake
                .looked(turn, Sight { holders, seen: column(head, HEAD_FROM + 7)?, is_whole });
        }
        let mut messages: Vec<ClaimedMessage> =
            rows.iter().filter(|row| !is_head(row)).filter_map(|row| readable(row, now)).collect();
        messages.sort_unstable_by_key(|message| message.number);
        let mut leases = lock(&self.leases);
        for message in &messages {
            let is_of = |request: &&ClaimRequest| request.destination == message.destination;
            if let Some(request) = requests.iter().find(is_of) {
                leases.begin(message.number, now.plus(request.lease_for));
            }
        }
        self.hints.not_later_than(leases.next(now));
        drop(leases);
        let closed = column(head, HEAD_FROM + 4)?;
        Ok(Committed { now, trust, closed, strangers, again, messages })
    }
}

/// The parameters of the statement that claims.
fn given<'a>(
    requests: &'a [ClaimRequest],
    nonce: u64,
    (hints, turn, looked_at_max): (&Hints, &'a Turn, i64),
    asked: HistoryCheck,
) -> Values<'a> {
    let (lapsed_from, lapsed_whole_at, lapsed_next) = hints.lapsed();
    let notes = turn.notes.as_ref();
    let count = |count: usize| as_i64(count.min(COUNT_MAX));
    Values::default()
        .and_each(requests, |request| request.destination.as_str())
        .and_each(requests, |request| count(request.count_max))
        .and_each(requests, |request| short_millis(request.lease_for))
        .and_each(requests, |request| hints.due(&request.destination).0)
        .and_each(requests, |request| hints.due(&request.destination).1)
        // Only its nonce; the statement counts.
        .and((Fence::first(nonce).as_u64() ^ Fence::first(0).as_u64()).cast_signed())
        .and(lapsed_from)
        .and(lapsed_whole_at)
        .and(lapsed_next)
        .and(&turn.ranges.starts[..])
        .and(&turn.ranges.stops[..])
        .and(asked.incarnation)
        .and(notes.map(|kept| &kept.starts[..]))
        .and(notes.map(|kept| &kept.stops[..]))
        .and(looked_at_max)
        .and(asked.writer)
        .and(asked.sweeps)
}

/// A message that cannot be read stays claimed until its lease runs out, and keeps no other from going.
fn readable(row: &Row, claimed_at: Timestamp) -> Option<ClaimedMessage> {
    match claimed_message(row, claimed_at) {
        Ok(claimed_message) => Some(claimed_message),
        Err(error) => {
            let message: Option<i64> = row.try_get(PENDING_FROM).ok().flatten();
            tracing::error!(message, %error, "a message cannot be read, and is left as it is");
            None
        }
    }
}

fn claimed_message(row: &Row, claimed_at: Timestamp) -> Result<ClaimedMessage, StoreError> {
    let has_arrived: bool = column(row, 20)?;
    let provider_id = column(row, 21)?;
    let parts = parts(row, has_arrived.then_some(Receipt { provider_id }))?;
    Ok(pending(row, PENDING_FROM)?.carried(parts, (column(row, 19)?, claimed_at)))
}
