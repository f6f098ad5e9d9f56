//! The dispatcher that looks up ids: requests that arrive while look-ups are under way form the next
//! look-up.
//!
//! At most two are under way, on one connection, so that the server works while answers are read here.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use firstwrite_core::{Found, RecordId};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::Shared;
use super::connect::Role;
use super::driver_error::DriverError;
use super::link::{Link, OwnClient};
use super::replays::Mark;
use super::rows::LookupResult;
use crate::dispatcher::{Dispatcher, Queue, Reply};

/// One caller's question.
pub(super) struct LookupRequest {
    pub(super) id: RecordId,
    pub(super) reply: Reply<Option<Found>>,
}

/// Callers that wait for each id.
type Replies = HashMap<RecordId, Vec<Reply<Option<Found>>>>;

pub(super) const DOING: &str = "looking a record up";

/// A look-up that was answered, and the callers that wait for it.
struct FinishedLookup {
    replies: Replies,
    mark: Mark,
    results: Result<Vec<LookupResult>, DriverError>,
}

const PIPELINES_MAX: usize = 2;

/// Starts the dispatcher, with the connection to begin with.
pub(super) fn start(shared: &Arc<Shared>, client: ClientWrapper) -> Dispatcher<LookupRequest> {
    let client = OwnClient::new(shared, Role::Reader, Some(client));
    let limits = shared.server.address.options.queue_limits();
    Dispatcher::start(limits, |waiting| run(Arc::clone(shared), waiting, client))
}

async fn run(shared: Arc<Shared>, mut waiting: Queue<LookupRequest>, mut client: OwnClient) {
    let mut lookups = Vec::new();
    let mut pipelines = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !pipelines.is_empty() {
        tokio::select! {
            biased;
            Some(finished) = pipelines.next(), if !pipelines.is_empty() => {
                answer_all(&shared, &mut client, finished).await;
            }
            has_more = waiting.take(&mut lookups), if is_open && pipelines.len() < PIPELINES_MAX => {
                is_open = has_more;
                let replies = by_id(lookups.drain(..));
                if replies.is_empty() {
                    continue;
                }
                match client.get().await {
                    Ok(client) => pipelines.push(send(&shared, Arc::clone(client), replies)),
                    Err(error) => refuse(replies, &error),
                }
            }
        }
    }
}

fn by_id(lookups: impl Iterator<Item = LookupRequest>) -> Replies {
    let mut replies = Replies::new();
    for LookupRequest { id, reply } in lookups {
        // Skip callers that no longer wait for the answer.
        if !reply.is_closed() {
            replies.entry(id).or_default().push(reply);
        }
    }
    replies
}

async fn send(shared: &Shared, client: Arc<ClientWrapper>, replies: Replies) -> FinishedLookup {
    let mark = shared.replays.mark();
    let ids: Vec<RecordId> = replies.keys().copied().collect();
    let results = Link { client: &client, shared }.look(&ids).await;
    FinishedLookup { replies, mark, results }
}

/// Answers every caller whose look-up was in the pipeline.
async fn answer_all(shared: &Shared, client: &mut OwnClient, finished: FinishedLookup) {
    let FinishedLookup { mut replies, mark, results } = finished;
    match results {
        Ok(results) => {
            for result in results {
                let replies = replies.remove(&result.id).unwrap_or_default();
                let found = result.found();
                if let Some(found) = &found {
                    shared.replays.keep(found, mark);
                }
                answer(replies, found);
            }
        }
        // One row that cannot be understood must not hide the others.
        Err(error @ DriverError::Read(_)) if replies.len() == 1 => refuse(replies, &error),
        Err(DriverError::Read(_)) => {
            for (id, replies) in replies {
                let results = match client.get().await {
                    Ok(client) => Link { client, shared }.look(&[id]).await,
                    Err(error) => Err(error),
                };
                match results {
                    Ok(mut results) => answer(replies, results.pop().and_then(LookupResult::found)),
                    Err(error) => refuse(HashMap::from([(id, replies)]), &error),
                }
            }
        }
        Err(error) => {
            client.drop_client();
            refuse(replies, &error);
        }
    }
}

fn answer(mut replies: Vec<Reply<Option<Found>>>, found: Option<Found>) {
    // As a rule only one has asked, and gets it without a copy.
    let last = replies.pop();
    for reply in replies {
        drop(reply.send(Ok(found.clone())));
    }
    if let Some(reply) = last {
        drop(reply.send(Ok(found)));
    }
}

fn refuse(replies: Replies, error: &DriverError) {
    for reply in replies.into_values().flatten() {
        drop(reply.send(Err(error.definite(DOING))));
    }
}
