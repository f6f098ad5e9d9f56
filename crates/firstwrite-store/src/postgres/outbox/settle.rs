//! Settling: receipts, how claims ended, final answers and the next of each order, in one commit.

use std::collections::HashSet;

use firstwrite_core::StoreError;
use firstwrite_core::outbox::{Delivery, Ending, Held, Next, Receipt, Received, Sent, Settlement};
use futures_util::future::{OptionFuture, join4};
use tokio_postgres::types::ToSql;

use super::parts::{cut, ending_number, short_millis};
use crate::encoding::encode_outcome;
use crate::postgres::Shared;
use crate::postgres::dispatcher::OwnClient;
use crate::postgres::fault::{definite, failed_commit};
use crate::postgres::link::Link;
use crate::postgres::rows::column;

pub(super) const DOING: &str = "settling messages";

/// See [`firstwrite_core::outbox::Outbox::settle`].
pub(super) async fn settle(
    shared: &Shared,
    own: &mut OwnClient,
    receipts: &[Received],
    settlements: &[Settlement],
) -> Result<Vec<Held>, StoreError> {
    if receipts.is_empty() && settlements.is_empty() {
        return Ok(Vec::new());
    }
    let client = own.get().await.map_err(definite(DOING))?.clone();
    let link = Link { client: &client, shared };
    let sql = &link.sql().outbox;
    let (receipts, ends) = (Receipts::new(receipts), Ends::new(settlements));
    let given = [&receipts.parameters()[..], &ends.parameters()[..]].concat();
    let ended: Vec<i64> = settlements
        .iter()
        .filter(|one| matches!(one.next, Next::Delivered(_) | Next::Refused))
        .map(|one| one.number.0)
        .collect();
    let goes_on: Option<[&(dyn ToSql + Sync); 1]> = (!ended.is_empty()).then_some([&ended]);
    for statement in [&sql.settle, &sql.let_go] {
        link.prepare(statement).await.map_err(definite(DOING))?;
    }
    firstwrite_core::crash_point!("outbox-settle-before-commit");
    let (begun, settled, gone, committed) = join4(
        link.tell(&shared.server.begins().outbox),
        link.query(&sql.settle, &given),
        OptionFuture::from(goes_on.as_ref().map(|given| link.query(&sql.let_go, given))),
        link.commit(),
    )
    .await;
    firstwrite_core::crash_point!("outbox-settle-after-commit");
    let settled = begun.and(settled).and_then(|rows| gone.transpose().map(|_| rows));
    let rows = match settled.and_then(|rows| committed.map(|()| rows)) {
        Ok(rows) => rows,
        Err(trouble) => {
            if !trouble.is_undone() {
                own.drop_client();
            }
            return Err(failed_commit(DOING)(trouble));
        }
    };
    let held: Result<HashSet<i64>, StoreError> =
        rows.iter().filter_map(|row| column::<Option<i64>>(row, 1).transpose()).collect();
    let held = held?;
    let said = |one: &Settlement| if held.contains(&one.number.0) { Held::Yes } else { Held::No };
    Ok(settlements.iter().map(said).collect())
}

struct Receipts {
    messages: Vec<i64>,
    fences: Vec<i64>,
    statuses: Vec<Option<i32>>,
    details: Vec<String>,
    provider_ids: Vec<Option<String>>,
}

impl Receipts {
    fn new(receipts: &[Received]) -> Self {
        // Only what arrived is a receipt.
        let all = || receipts.iter().filter(|one| receipt(&one.delivery).is_some());
        Self {
            messages: all().map(|one| one.number.0).collect(),
            fences: all().map(|one| one.fence.as_u64().cast_signed()).collect(),
            statuses: all().map(|one| one.delivery.status.map(i32::from)).collect(),
            details: all().map(|one| cut(&one.delivery.detail)).collect(),
            provider_ids: all().map(|one| receipt(&one.delivery).and_then(provider_id)).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.messages, &self.fences, &self.statuses, &self.details, &self.provider_ids]
    }
}

#[derive(Default)]
struct Ends {
    messages: Vec<i64>,
    fences: Vec<i64>,
    nexts: Vec<i16>,
    pauses: Vec<i64>,
    counts: Vec<bool>,
    sents: Vec<i16>,
    problems: Vec<Option<String>>,
    answers: Vec<Option<Vec<u8>>>,
    endings: Vec<Option<i16>>,
    statuses: Vec<Option<i32>>,
    details: Vec<Option<String>>,
    provider_ids: Vec<Option<String>>,
}

impl Ends {
    fn new(settlements: &[Settlement]) -> Self {
        let mut ends = Self::default();
        for Settlement { number, fence, delivery, next, answer } in settlements {
            let delivery = delivery.as_ref();
            let wrong = delivery.filter(|one| !matches!(one.ending, Ending::Delivered(_)));
            let detail = wrong.map(|one| one.detail.as_str());
            let (code, pause, counts, sent, problem) = match next {
                Next::Delivered(_) => (0, 0, true, Sent::AsBefore, None),
                Next::Waiting { pause, counts, sent } => {
                    (1, short_millis(*pause), *counts, *sent, detail.map(str::to_owned))
                }
                Next::Unknown(why) => {
                    let problem = match detail {
                        Some(detail) => format!("{why}: {detail}"),
                        None => (*why).to_owned(),
                    };
                    (2, 0, false, Sent::Maybe, Some(problem))
                }
                Next::Refused => (4, 0, true, Sent::AsBefore, None),
                Next::Dead(_) => (3, 0, false, Sent::AsBefore, detail.map(str::to_owned)),
            };
            let known = match next {
                Next::Delivered(receipt) => Some(receipt),
                Next::Waiting { .. } | Next::Unknown(_) | Next::Refused | Next::Dead(_) => None,
            };
            ends.messages.push(number.0);
            ends.fences.push(fence.as_u64().cast_signed());
            ends.nexts.push(code);
            ends.pauses.push(pause);
            ends.counts.push(counts);
            ends.sents.push(match sent {
                Sent::No => 0,
                Sent::AsBefore => 1,
                Sent::Maybe => 2,
            });
            ends.problems.push(problem.as_deref().map(cut));
            ends.answers.push(answer.as_ref().map(encode_outcome));
            ends.endings.push(delivery.map(|one| ending_number(&one.ending)));
            ends.statuses.push(delivery.and_then(|one| one.status).map(i32::from));
            ends.details.push(delivery.map(|one| cut(&one.detail)));
            ends.provider_ids.push(delivery.and_then(receipt).or(known).and_then(provider_id));
        }
        ends
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 12] {
        [
            &self.messages,
            &self.fences,
            &self.nexts,
            &self.pauses,
            &self.counts,
            &self.sents,
            &self.problems,
            &self.answers,
            &self.endings,
            &self.statuses,
            &self.details,
            &self.provider_ids,
        ]
    }
}

/// That it arrived, if it did.
fn receipt(delivery: &Delivery) -> Option<&Receipt> {
    match &delivery.ending {
        Ending::Delivered(receipt) => Some(receipt),
        Ending::Refused | Ending::Retry | Ending::NotThere | Ending::Unknown => None,
    }
}

fn provider_id(receipt: &Receipt) -> Option<String> {
    receipt.provider_id.as_deref().map(cut)
}
