//! A caller: sends a request, loses patience, hangs up, tries again, asks what became of it; and the comparison of
//! every answer with the world's books.

use std::time::Duration;

use bytes::Bytes;
use firstwrite::IDEMPOTENT_REPLAYED;
use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};

use crate::cast::{AUTHORIZATION, REQUEST_NUMBER, key};
use crate::events::Event;
use crate::front::{Front, NOT_PAID, PAID};
use crate::ledger::NewKeySafe;
use crate::stage::Stage;
use crate::terms::Path;
use crate::world::World;

/// Request that a caller wants to be carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: usize,
    pub(crate) variant: u8,
}

/// Result of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// An answer that ends the matter.
    Final,
    /// A refusal for good: another request stands under the key.
    Mismatch,
    /// Come back later.
    Later,
    /// The answer says that the outcome is unknown.
    Unknown,
    /// No answer came.
    Nothing,
}

/// Sends the request up to `tries` times, as callers do.
pub(crate) async fn call(stage: Stage, wish: Wish, tries: u8) {
    let world = stage.world().clone();
    for _ in 0..tries {
        world.passes(0, 5000).await;
        let patience = Duration::from_millis(50 + world.draw(9000));
        let front = stage.any_front();
        match send(&world, &front, wish, patience).await {
            Told::Final | Told::Mismatch if world.chance(60) => return,
            Told::Final | Told::Mismatch | Told::Later | Told::Unknown | Told::Nothing => {}
        }
    }
}

/// Sends the request once.
pub(crate) async fn send(world: &World, front: &Front, wish: Wish, patience: Duration) -> Told {
    let number = {
        let mut state = world.state();
        state.ledger.requests += 1;
        state.ledger.requests
    };
    let is_early = world.terms().early_answers && world.chance(40);
    let mut request = Request::post("/pay")
        .header("host", "sim")
        .header("content-type", "application/json")
        .header("idempotency-key", key(wish.key).as_str())
        .header("authorization", AUTHORIZATION)
        .header(REQUEST_NUMBER, number);
    if is_early {
        request = request.header("prefer", "respond-async");
    }
    let body = Bytes::from(format!("{{\"variant\":{}}}", wish.variant));
    let request = request.body(body).expect("the parts of a request are plain");
    world.hop().await;
    if !world.is_alive(front.process.number) {
        return Told::Nothing;
    }
    world.state().ledger.began.insert(number, (Instant::now(), front.process.number));
    let answered = tokio::select! {
        biased;
        answered = front.answer(request) => answered,
        () = front.process.died() => None,
        () = sleep(patience) => {
            world.note(Event::HungUp, || format!("request {number}, {wish:?} at process {}", front.process.number));
            None
        }
    };
    let Some(answer) = answered else { return Told::Nothing };
    // A paused process hands nothing over, and a dead one never will.
    if timeout(Duration::from_mins(1), front.process.gate()).await.is_err() {
        return Told::Nothing;
    }
    if !world.state().is_healed && world.chance(5) {
        world.note(Event::ReplyLost, || format!("request {number}"));
        return Told::Nothing;
    }
    told(world, wish, number, &answer)
}

/// Compares an answer with the books.
fn told(world: &World, wish: Wish, number: u64, answer: &Response<Bytes>) -> Told {
    let status = answer.status();
    let text = String::from_utf8_lossy(answer.body());
    if text.contains("nothing was run") || text.contains("nothing was sent") {
        world.note(Event::NothingRun, || format!("request {number}: {status}"));
        world.state().ledger.nothing_run.push(number);
    }
    // Where running again is called safe, a lost answer frees the key, and what it was used for is forgotten with it.
    let is_remembered = !world.terms().upstream_honours_keys();
    if text.contains("\"safe_new_key\":true") && is_remembered {
        let ledger = &mut world.state().ledger;
        let (era, at) = (ledger.keys[wish.key].era, Instant::now());
        let Wish { key, variant } = wish;
        ledger.new_key_safe.push(NewKeySafe { key, variant, era, request: number, at });
    }
    let is_replay = answer.headers().contains_key(&IDEMPOTENT_REPLAYED);
    if is_replay && status.is_server_error() {
        world.violation(|| format!("request {number} was answered with a server error of before"));
    }
    match code(&text) {
        Some("in-progress") => {
            world.note(Event::InProgress, || format!("request {number}"));
            return Told::Later;
        }
        Some("outcome-unknown") => {
            world.note(Event::Unknown, || format!("request {number}: {status}"));
            return Told::Unknown;
        }
        Some("key-reused") => {
            world.note(Event::Mismatch, || format!("request {number}, {wish:?}"));
            return Told::Mismatch;
        }
        Some(_) => return Told::Later,
        None => {}
    }
    if answer.headers().contains_key("preference-applied") {
        world.note(Event::Accepted, || format!("request {number}, key {}", wish.key));
        let ledger = &mut world.state().ledger;
        let attempts = ledger.attempt_count(wish.key);
        ledger.accepted.push((wish.key, number, attempts));
        return Told::Later;
    }
    if !world.terms().policy(0).kept_statuses.keeps(status) {
        world.note(Event::PassedError, || format!("request {number}: {status}"));
        return Told::Later;
    }
    let event = if is_replay { Event::Replayed } else { Event::Ran };
    world.note(event, || format!("request {number}: {status} {text}"));
    let book = world.state().ledger.keys[wish.key].clone();
    let is_kept =
        book.kept.iter().any(|(_, kept)| kept.status == status && kept.body == *answer.body());
    if !is_kept {
        world.violation(|| {
            format!("request {number} was answered {status} {text}, which nobody kept")
        });
    }
    if world.terms().path != Path::Atomic && !text.ends_with('}') {
        world.violation(|| format!("request {number} was answered {status} with a part: {text}"));
    }
    // Of a record that was put back an operator finds the effect of another request under the same key.
    let is_excused = book.has_lost_history;
    if !is_excused
        && text.contains("\"variant\"")
        && !text.contains(&format!("\"variant\":{}", wish.variant))
    {
        world.violation(|| format!("request {number} was answered with another request's {text}"));
    }
    if status == StatusCode::ACCEPTED { Told::Later } else { Told::Final }
}

fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("\"code\":\"")?;
    rest.split_once('"').map(|(code, _)| code)
}

/// Asks for the status of every key for which a caller was told 202: it must be known.
pub(crate) async fn poll(world: &World, front: &Front) {
    let accepted = world.state().ledger.accepted.clone();
    for (at, number, attempts) in accepted {
        // A key that may be past its retention, or was forgotten, is excused.
        let is_forgotten = world.state().ledger.keys[at].has_lost_history;
        if is_forgotten || world.state().log.events.count(Event::RetentionJump) > 0 {
            continue;
        }
        let uri = format!("/.firstwrite/operations/{}", key(at).as_str());
        let request =
            Request::get(uri).header("host", "sim").header("authorization", AUTHORIZATION);
        let request = request.body(Bytes::new()).expect("the parts of a request are plain");
        let answered = tokio::select! {
            biased;
            answered = front.answer(request) => answered,
            () = front.process.died() => None,
            () = sleep(Duration::from_secs(20)) => None,
        };
        let Some(answer) = answered else { continue };
        world.note(Event::Polled, || {
            format!("request {number}: {} {:?}", answer.status(), answer.body())
        });
        // A key that was used again tells of its last use alone.
        let is_excused = {
            let state = world.state();
            state.ledger.attempt_count(at) > attempts
                || state.ledger.keys[at].has_lost_history
                || state.log.events.count(Event::RetentionJump) > 0
        };
        if answer.status() == StatusCode::NOT_FOUND && !is_excused {
            world.violation(|| {
                format!(
                    "request {number} was accepted with 202 ({:?}), and nobody knows of it",
                    world.terms().path
                )
            });
        }
    }
}

/// Returns what the final answer of an atomic handler says, paid or not; `None` for other answers. Callers compare it
/// with what the provider did.
pub(crate) fn is_final_answer(world: &World, body: &[u8]) -> Option<bool> {
    let is_ours = world.terms().path == Path::Atomic;
    match body {
        PAID if is_ours => Some(true),
        NOT_PAID if is_ours => Some(false),
        _ => None,
    }
}
