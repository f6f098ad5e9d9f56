//! What a retry is told.

use std::time::{Duration, SystemTime};

use super::super::Bed;
use super::client::{Ask, Reply};
use super::{Seen, effects, ensure, promises};

promises! {
    it_is_done_once: [ReplyBeforeRecord];
    the_status_is_the_first: [OtherStatus];
    the_body_is_the_first: [NewBodyOnReplay, ReplyBeforeRecord];
    the_location_is_the_first: [LostLocation, ReplyBeforeRecord];
    other_headers_are_the_first: [LostContentType];
    only_a_replay_says_that_it_is_one: [NoMarker, ReplyBeforeRecord];
    every_answer_says_until_when_it_is_kept: [NoExpiryHeader];
    a_cookie_is_for_one: [ReplayedCookie, ReplyBeforeRecord];
    hop_by_hop_headers_are_for_one: [ReplayedHopByHop, ReplyBeforeRecord];
    an_invalid_order_is_refused_for_good: [NoMarker, LostContentType, ReplyBeforeRecord];
    a_failure_is_not_kept: [Cached500];
    an_order_can_be_looked_at: [];
}

/// A first call and a retry.
async fn twice(bed: &Bed) -> Result<(Reply, Reply), String> {
    let ask = Ask::order("twice");
    let first = ask.send(bed).await?;
    first.has_status(201)?;
    Ok((first, ask.send(bed).await?))
}

async fn it_is_done_once(bed: Bed) -> Seen {
    twice(&bed).await?;
    effects(&bed, 1)
}

async fn the_status_is_the_first(bed: Bed) -> Seen {
    twice(&bed).await?.1.has_status(201)
}

async fn the_body_is_the_first(bed: Bed) -> Seen {
    let (first, again) = twice(&bed).await?;
    ensure(first.body.starts_with(r#"{"id":"ord_"#), || format!("no order: {first:?}"))?;
    ensure(first.body.ends_with(r#","amount":100}"#), || format!("another order: {first:?}"))?;
    ensure(first.body == again.body, || format!("{} and then {}", first.body, again.body))
}

async fn the_location_is_the_first(bed: Bed) -> Seen {
    let (first, again) = twice(&bed).await?;
    let location = first.header("Location").ok_or("no location")?;
    ensure(again.header("Location") == Some(location), || format!("another: {again:?}"))
}

async fn other_headers_are_the_first(bed: Bed) -> Seen {
    let (first, again) = twice(&bed).await?;
    for (name, value) in [("Content-Type", "application/json"), ("X-Order-Kind", "standard")] {
        for reply in [&first, &again] {
            ensure(reply.header(name) == Some(value), || format!("{name} is another: {reply:?}"))?;
        }
    }
    Ok(())
}

async fn only_a_replay_says_that_it_is_one(bed: Bed) -> Seen {
    let (first, again) = twice(&bed).await?;
    let marks = [first.is_replay(), again.is_replay()];
    ensure(marks == [false, true], || format!("marked: {marks:?}"))
}

#[expect(clippy::disallowed_methods, reason = "the date in the answer is that of the host")]
async fn every_answer_says_until_when_it_is_kept(bed: Bed) -> Seen {
    const DAY: Duration = Duration::from_hours(24);
    const SLACK: Duration = Duration::from_mins(1);
    let (first, again) = twice(&bed).await?;
    for reply in [&first, &again] {
        let date = reply.header("Idempotency-Expires").ok_or("no date")?;
        let date = httpdate::parse_http_date(date).map_err(|error| error.to_string())?;
        let kept = date.duration_since(SystemTime::now()).map_err(|error| error.to_string())?;
        ensure(kept <= DAY && kept + SLACK > DAY, || format!("kept for {kept:?}"))?;
    }
    let is_moved = first.header("Idempotency-Expires") != again.header("Idempotency-Expires");
    ensure(!is_moved || !again.is_replay(), || "a replay is kept for longer".to_owned())
}

async fn a_cookie_is_for_one(bed: Bed) -> Seen {
    let (first, again) = twice(&bed).await?;
    let cookies = [&first, &again].map(|reply| reply.header("Set-Cookie").is_some());
    ensure(cookies == [true, false], || format!("set: {cookies:?}"))
}

async fn hop_by_hop_headers_are_for_one(bed: Bed) -> Seen {
    let (first, again) = twice(&bed).await?;
    let hops = [&first, &again].map(|reply| (reply.header("Connection"), reply.header("X-Hop")));
    let expected = [(Some("keep-alive, X-Hop"), Some("1")), (None, None)];
    ensure(hops == expected, || format!("sent: {hops:?}"))
}

async fn an_invalid_order_is_refused_for_good(bed: Bed) -> Seen {
    for (at, body) in ["", "no JSON", "[1]", "{}", r#"{"amount":"1"}"#, r#"{"amount":01}"#]
        .into_iter()
        .enumerate()
    {
        let ask = Ask::order(&format!("invalid-{at}")).body(body);
        let first = ask.send(&bed).await?;
        first.is_refusal(400)?;
        let again = ask.send(&bed).await?;
        again.is_refusal(400)?;
        ensure(again.is_replay() && first.body == again.body, || format!("not kept: {again:?}"))?;
    }
    effects(&bed, 0)
}

async fn a_failure_is_not_kept(bed: Bed) -> Seen {
    let ask = Ask::order("failure");
    for _ in 0..2 {
        let failed = ask.clone().and("X-Fault", "500").send(&bed).await?;
        failed.is_refusal(500)?;
        ensure(!failed.is_replay(), || "a failure is replayed".to_owned())?;
    }
    effects(&bed, 0)?;
    ask.send(&bed).await?.has_status(201)?;
    effects(&bed, 1)
}

async fn an_order_can_be_looked_at(bed: Bed) -> Seen {
    let made = Ask::order("look").send(&bed).await?;
    let location = made.header("Location").ok_or("no location")?;
    Ask::get(location).send(&bed).await?.has_status(200)?;
    Ask::get(location).globex().send(&bed).await?.has_status(404)?;
    Ask::get(location).without("Authorization").send(&bed).await?.has_status(401)?;
    Ask::get("/orders/ord_other").send(&bed).await?.has_status(404)?;
    let count = Ask::get("/count").without("Authorization").send(&bed).await?;
    ensure(count.body == r#"{"count":1}"#, || format!("counted: {count:?}"))?;
    ensure(bed.effects_url().ends_with("/count"), || bed.effects_url())
}
