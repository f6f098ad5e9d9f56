//! What survives a restart, a lost attempt, time, and the loss of the store.

use std::time::Duration;

use tokio::time::{Instant, advance};

use super::super::Bed;
use super::super::delays::{LEASE, RETENTION};
use super::super::process::Shared;
use super::super::records::{Id, Verdict};
use super::client::{Ask, Connection, in_flight};
use super::{Seen, effects, ensure, promises};

promises! {
    a_restart_forgets_no_answer: [MemoryOnly, ReplyBeforeRecord];
    a_lost_attempt_frees_its_key: [OneLifetimeLong];
    an_answer_is_kept_as_long_as_it_says: [ExpiredEarly, ReplyBeforeRecord];
    nothing_runs_without_the_store: [FailsOpen];
    what_cannot_be_recorded_is_not_done: [FailsOpen];
}

async fn a_restart_forgets_no_answer(bed: Bed) -> Seen {
    let ask = Ask::order("kept");
    ask.send(&bed).await?.has_status(201)?;
    bed.restart().await;
    ask.send(&bed).await?;
    effects(&bed, 1)
}

async fn a_lost_attempt_frees_its_key(bed: Bed) -> Seen {
    const DEADLINE: Duration = Duration::from_secs(3);
    let ask = Ask::order("lost");
    let mut first = in_flight(&ask.clone().slow(Duration::from_secs(9)), &bed).await?;
    bed.restart().await;
    first.ends().await?;
    effects(&bed, 0)?;
    ask.settle(&bed, DEADLINE).await?.has_status(201)?;
    effects(&bed, 1)
}

async fn an_answer_is_kept_as_long_as_it_says(bed: Bed) -> Seen {
    const LOOKED_FOR: Duration = Duration::from_millis(1500);
    let ask = Ask::order("kept");
    ask.send(&bed).await?.has_status(201)?;
    let gone = ask.until(&bed, LOOKED_FOR, |_| bed.effects() > 1).await?;
    ensure(gone.is_none(), || format!("it ran again: {gone:?}"))
}

async fn nothing_runs_without_the_store(bed: Bed) -> Seen {
    let (known, fresh) = (Ask::order("known"), Ask::order("fresh"));
    known.send(&bed).await?.has_status(201)?;
    bed.store_down();
    for ask in [&known, &fresh] {
        let reply = ask.send(&bed).await?;
        reply.is_refusal(503)?;
        ensure(reply.header("Retry-After").is_some(), || "no word when to return".to_owned())?;
    }
    effects(&bed, 1)?;
    bed.store_up();
    fresh.send(&bed).await?.has_status(201)?;
    effects(&bed, 2)
}

async fn what_cannot_be_recorded_is_not_done(bed: Bed) -> Seen {
    let ask = Ask::order("late").slow(Duration::from_secs(3));
    let mut first = in_flight(&ask, &bed).await?;
    bed.store_down();
    first.reply().await?.is_refusal(503)?;
    effects(&bed, 0)?;
    bed.store_up();
    ask.send(&bed).await?.has_status(201)?;
    effects(&bed, 1)
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_keeps_its_key_for_its_lease() {
    const MOMENT: Duration = Duration::from_millis(1);
    let shared = Shared::new(None, RETENTION);
    let id = Id { tenant: "acme".into(), key: "lost".into(), body: Vec::new() };
    let judge = || shared.store().judge(&id, b"same");
    shared.change(|store| store.reserve(&id, Some(b"same"), None));
    advance(LEASE * 100).await;
    assert!(matches!(judge(), Verdict::InFlight), "while it runs");
    shared.restarted();
    advance(LEASE.saturating_sub(MOMENT)).await;
    assert!(matches!(judge(), Verdict::InFlight), "until its lease ends");
    let other = shared.store().judge(&id, b"other");
    assert!(matches!(other, Verdict::Mismatch { in_flight: true }), "also for another request");
    shared.restarted();
    advance(MOMENT).await;
    assert!(matches!(judge(), Verdict::Fresh), "and no longer, however often it restarts");
}

#[tokio::test]
async fn after_its_retention_a_key_runs_anew() {
    const KEPT: Duration = Duration::from_millis(400);
    const DEADLINE: Duration = Duration::from_secs(10);
    let bed = Bed::with_retention(None, KEPT).await;
    let ask = Ask::order("anew");
    let began = Instant::now();
    let first = ask.send(&bed).await.expect("it answers");
    let anew = ask.until(&bed, DEADLINE, |reply| !reply.is_replay()).await;
    let anew = anew.expect("it answers").expect("within the deadline");
    assert!(began.elapsed() >= KEPT, "too early");
    assert_eq!((first.status, anew.status, bed.effects()), (201, 201, 2));
    assert_ne!(first.body, anew.body);
}

/// A connection on which an answer has come, and the next could.
async fn served(bed: &Bed) -> Connection {
    let mut connection = Connection::to(bed).await.expect("it is there");
    connection.write(&Ask::get("/count").bytes()).await.expect("it listens");
    assert_eq!(connection.reply().await.expect("it answers").status, 200);
    connection
}

#[tokio::test]
async fn a_restart_cuts_connections_and_serves_others() {
    let bed = Bed::start(None).await;
    let mut before = served(&bed).await;
    bed.restart().await;
    assert_eq!(before.ends().await, Ok(()));
    served(&bed).await;
}

#[tokio::test]
async fn a_server_ends_with_its_last_handle_or_when_it_is_told() {
    let told = Bed::start(None).await;
    let mut connection = served(&told).await;
    told.stop().await;
    assert_eq!(connection.ends().await, Ok(()), "it was told");

    let first = Bed::start(None).await;
    let last = first.clone();
    let mut connection = served(&first).await;
    drop(first);
    served(&last).await;
    drop(last);
    assert_eq!(connection.ends().await, Ok(()), "nobody holds it");
}
