//! A request and its retry: what must be the same, and what must not be there.

use std::time::SystemTime;

use crate::call::shown;
use crate::probe::{Probe, Stop};
use crate::reply::Reply;
use crate::wire::Answer;

pub(super) const CHECKS: &[&str] = &[
    "replay-effects",
    "replay-status",
    "replay-body",
    "replay-headers",
    "replay-location",
    "replay-cookies",
    "replay-hop-by-hop",
    "replay-marker",
    "replay-expiry",
];

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let key = probe.key();
    let call = probe.call(&key);
    let mark = probe.mark().await?;
    let first = probe.send(&call).await?;
    // At once: an answer that goes out before it is recorded is found out here.
    let second = probe.send(&call).await?;
    // A rival may be told to come back; what counts is what it gets then.
    let is_told_to_wait = second.is_busy() && !second.repeats(&first);
    let retry = if is_told_to_wait { probe.settle(&call).await? } else { second };
    let third = probe.send(&call).await?;
    let effects = probe.effects(mark, &[&first, &retry, &third]).await?;
    let sent = format!("three times {}", call.summary());
    let found = format!("{}; then {}; then {}", first.summary(), retry.summary(), third.summary());
    probe.once("replay-effects", effects, &sent, &found);
    if probe.has_failed("replay-effects") {
        return Err(Stop(super::NO_RETRIES.to_owned()));
    }

    let (Some(answer), Some(again)) = (first.answer(), retry.answer()) else {
        return Err(Stop(format!("no two answers to compare: {found}")));
    };
    let (sent, found) = (call.summary(), format!("{}; then {}", first.summary(), retry.summary()));
    let same = |id: &'static str, is_same: bool, probe: &mut Probe| {
        if is_same { probe.pass(id, &sent, &found) } else { probe.fail(id, &sent, &found) }
    };
    same("replay-status", answer.status == again.status, probe);
    if answer.body == again.body {
        probe.pass("replay-body", &sent, &found);
    } else {
        probe.fail("replay-body", &sent, &difference(&answer.body, &again.body));
    }
    headers(probe, answer, again, &sent);
    location(probe, answer, again, &sent);
    cookies(probe, answer, again, &sent);
    hop_by_hop(probe, answer, again, &sent);
    marker(probe, answer, again, &sent);
    expiry(probe, [&first, &retry], &sent);
    Ok(())
}

fn headers(probe: &mut Probe, first: &Answer, retry: &Answer, sent: &str) {
    let names = probe.plan.same_headers.iter().map(|name| name.to_ascii_lowercase());
    let names = ["content-type".to_owned()].into_iter().chain(names);
    let lost: Vec<String> = names
        .filter(|name| !first.all(name).eq(retry.all(name)))
        .map(|name| {
            let (was, is) = (line(first, &name), line(retry, &name));
            format!("{name} was {was} and is {is}")
        })
        .collect();
    if lost.is_empty() {
        probe.pass("replay-headers", sent, "the same");
    } else {
        probe.fail("replay-headers", sent, &lost.join("; "));
    }
}

fn location(probe: &mut Probe, first: &Answer, retry: &Answer, sent: &str) {
    match first.header("location") {
        None => probe.does_not_apply("replay-location", "the first answer has no Location"),
        was if was == retry.header("location") => probe.pass("replay-location", sent, "the same"),
        Some(was) => {
            let found = format!("it was {was} and is {}", line(retry, "location"));
            probe.fail("replay-location", sent, &found);
        }
    }
}

/// Fails if the retry gets the first cookie again, which is a stored session. A new cookie comes from another layer.
fn cookies(probe: &mut Probe, first: &Answer, retry: &Answer, sent: &str) {
    let mut first = first.all("set-cookie").peekable();
    if first.peek().is_none() {
        probe.does_not_apply("replay-cookies", "the first answer sets no cookie");
    } else if first.any(|cookie| retry.all("set-cookie").any(|again| again == cookie)) {
        probe.fail("replay-cookies", sent, "the first answer's cookie came again");
    } else {
        probe.pass("replay-cookies", sent, "the first answer's cookie did not come again");
    }
}

fn hop_by_hop(probe: &mut Probe, first: &Answer, retry: &Answer, sent: &str) {
    let named: Vec<String> = first
        .all("connection")
        .flat_map(|line| line.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !matches!(name.as_str(), "close" | "keep-alive" | "upgrade" | ""))
        .filter(|name| first.header(name).is_some())
        .collect();
    if named.is_empty() {
        let why = "the first answer has no header of its own for the connection";
        probe.does_not_apply("replay-hop-by-hop", why);
    } else if let Some(name) = named.iter().find(|name| retry.header(name).is_some()) {
        probe.fail("replay-hop-by-hop", sent, &format!("`{name}` came again"));
    } else {
        probe.pass(
            "replay-hop-by-hop",
            sent,
            &format!("`{}` did not come again", named.join(", ")),
        );
    }
}

fn marker(probe: &mut Probe, first: &Answer, retry: &Answer, sent: &str) {
    match (first.is_marked(), retry.is_marked()) {
        (true, _) => probe.fail("replay-marker", sent, "the first answer is marked as a replay"),
        (false, true) => probe.pass("replay-marker", sent, "the retry is marked, the first is not"),
        (false, false) if probe.plan.profile.marks_replays() => {
            probe.fail("replay-marker", sent, "the retry is not marked");
        }
        (false, false) => probe.does_not_apply("replay-marker", "this profile asks for no marker"),
    }
}

fn expiry(probe: &mut Probe, replies: [&Reply; 2], sent: &str) {
    #[expect(clippy::disallowed_methods, reason = "a date that another server sent is compared")]
    let now = SystemTime::now();
    let told = replies.iter().find_map(|reply| reply.answer()?.header("idempotency-expires"));
    match told.map(|date| (date, httpdate::parse_http_date(date))) {
        Some((date, Ok(until))) if until > now => probe.pass("replay-expiry", sent, date),
        Some((date, Ok(_))) => probe.fail("replay-expiry", sent, &format!("`{date}` is past")),
        Some((date, Err(_))) => probe.fail("replay-expiry", sent, &format!("`{date}` is no date")),
        None if probe.plan.profile.tells_expiry() => {
            probe.fail("replay-expiry", sent, "no Idempotency-Expires");
        }
        None => probe.does_not_apply("replay-expiry", "this profile asks for no date of expiry"),
    }
}

/// Describes the position of the first difference between two bodies, and their bytes from there on.
fn difference(first: &[u8], again: &[u8]) -> String {
    let at = first.iter().zip(again).take_while(|(one, other)| one == other).count();
    // A few letters before it, to find the place.
    let from = at.saturating_sub(20);
    let (was, is) = (shown(&first[from..]), shown(&again[from..]));
    format!("they part at byte {at}: it was `{was}` and is `{is}`")
}

fn line(answer: &Answer, name: &str) -> String {
    answer.header(name).map_or_else(|| "absent".to_owned(), |value| format!("`{value}`"))
}
