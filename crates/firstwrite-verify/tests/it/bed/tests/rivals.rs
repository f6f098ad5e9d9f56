//! Requests under one key at the same time.

use std::time::Duration;

use futures_util::future::join_all;

use super::super::Bed;
use super::client::{Ask, Connection, PATIENCE, Reply, in_flight};
use super::{Seen, effects, ensure, promises};

promises! {
    of_many_at_once_one_runs: [CheckThenInsert];
    a_rival_is_told_to_come_back: [NoRetryAfter, Conflict500];
    another_request_is_refused_in_flight: [InFlightMismatchWaits, NoBodyComparison, RunsOtherBody];
    a_long_attempt_keeps_its_key: [OneLifetimeShort, ReplyBeforeRecord];
}

/// Long enough for rivals to arrive, and longer than a reservation lives that nobody renews.
const IN_FLIGHT: Duration = Duration::from_millis(1500);

async fn of_many_at_once_one_runs(bed: Bed) -> Seen {
    let ask = Ask::order("many").slow(IN_FLIGHT);
    let mut connections = Vec::new();
    for _ in 0..8 {
        connections.push(Connection::to(&bed).await?);
    }
    let replies = connections.iter_mut().map(async |connection| {
        connection.write(&ask.bytes()).await?;
        connection.reply().await
    });
    let replies: Result<Vec<Reply>, String> = join_all(replies).await.into_iter().collect();
    ensure(replies?.iter().any(|reply| reply.status == 201), || "nobody got it".to_owned())?;
    effects(&bed, 1)
}

async fn a_rival_is_told_to_come_back(bed: Bed) -> Seen {
    let ask = Ask::order("rival").slow(IN_FLIGHT);
    let _first = in_flight(&ask, &bed).await?;
    let rival = ask.send(&bed).await?;
    rival.is_refusal(409)?;
    ensure(rival.header("Retry-After") == Some("1"), || format!("when? {rival:?}"))?;
    effects(&bed, 0)
}

async fn another_request_is_refused_in_flight(bed: Bed) -> Seen {
    let ask = Ask::order("rival").slow(IN_FLIGHT);
    let _first = in_flight(&ask, &bed).await?;
    ask.body(r#"{"amount":5}"#).send(&bed).await?.is_refusal(422)?;
    effects(&bed, 0)
}

async fn a_long_attempt_keeps_its_key(bed: Bed) -> Seen {
    let ask = Ask::order("long");
    let long = ask.clone().slow(IN_FLIGHT);
    let mut first = in_flight(&long, &bed).await?;
    // How fast the handler is asked to be is no part of the request.
    ask.settle(&bed, PATIENCE).await?;
    first.reply().await?.has_status(201)?;
    effects(&bed, 1)
}
