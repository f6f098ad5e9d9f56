//! Many at once under one key.

use crate::call::Call;
use crate::catalogue::Severity;
use crate::probe::{Probe, Stop};
use crate::reply::{Reply, tally};

pub(super) const CHECKS: &[&str] =
    &["race-effects", "race-answers", "race-retry-after", "race-after"];
pub(super) const BODIES: &[&str] = &["race-bodies"];

/// A race is won by chance: one is not enough to see a loser that runs.
const ROUNDS: usize = 3;

/// A round, as it went.
struct Round {
    replies: Vec<Reply>,
    after: Reply,
    effects: Option<u64>,
}

pub(super) async fn run(probe: &mut Probe) -> Result<(), Stop> {
    let mut rounds = Vec::new();
    let racers = probe.plan.limits.racers;
    let mut sent = String::new();
    for _ in 0..ROUNDS {
        let key = probe.key();
        let call = probe.slow_call(&key);
        sent = format!("{racers} times at once {}", call.summary());
        let mark = probe.mark().await?;
        let replies = probe.send_all(&vec![call.clone(); racers]).await?;
        let after = probe.settle(&call).await?;
        let seen: Vec<&Reply> = replies.iter().chain([&after]).collect();
        let effects = probe.effects(mark, &seen).await?;
        rounds.push(Round { replies, after, effects });
    }
    effects(probe, &rounds, &sent);
    answers(probe, &rounds, &sent);
    retry_after(probe, &rounds, &sent);
    after(probe, &rounds, &sent);
    Ok(())
}

/// Different requests under one key: half of the racers ask for something else.
pub(super) async fn bodies(probe: &mut Probe) -> Result<(), Stop> {
    let Some(other) = probe.other_body("race-bodies") else { return Ok(()) };
    let key = probe.key();
    let one = probe.slow_call(&key);
    let two = one.clone().body(other);
    let racers = probe.plan.limits.racers;
    let calls: Vec<Call> =
        (0..racers).map(|index| if index % 2 == 0 { one.clone() } else { two.clone() }).collect();
    let sent = format!("{racers} at once, half of them with another body: {}", one.summary());
    let mark = probe.mark().await?;
    let replies = probe.send_all(&calls).await?;
    let seen: Vec<&Reply> = replies.iter().collect();
    let effects = probe.effects(mark, &seen).await?;
    let won = |offset: usize| replies.iter().skip(offset).step_by(2).any(Reply::is_success);
    let found = tally(&replies);
    match effects {
        Some(count) if count > 1 => {
            probe.fail("race-bodies", &sent, &format!("{count} effects; {found}"));
        }
        // It ran once, and somebody was told a lie about it.
        _ if won(0) && won(1) => {
            let found = format!("both requests were told that they succeeded: {found}");
            probe.fail_as(Severity::Major, "race-bodies", &sent, &found);
        }
        _ => probe.once("race-bodies", effects, &sent, &found),
    }
    Ok(())
}

fn effects(probe: &mut Probe, rounds: &[Round], sent: &str) {
    let worst = rounds.iter().max_by_key(|round| round.effects.map(|count| (count != 1, count)));
    if let Some(round) = worst {
        probe.once("race-effects", round.effects, sent, &tally(&round.replies));
    }
}

/// Whoever succeeds gets the same answer; the others are told to come back.
fn answers(probe: &mut Probe, rounds: &[Round], sent: &str) {
    let mut unusual = None;
    for Round { replies, .. } in rounds {
        let found = tally(replies);
        let winner = replies.iter().find(|reply| reply.is_success());
        for reply in replies {
            let is_winners = winner.is_some_and(|winner| winner.equals(reply));
            match reply.status() {
                _ if is_winners => {}
                Some(409) => {}
                // Safe; but clients that retry by themselves know 409.
                Some(423 | 425 | 429 | 503) => unusual = Some(found.clone()),
                Some(200..300) => {
                    let found = format!("different answers of success: {found}");
                    return probe.fail("race-answers", sent, &found);
                }
                Some(_) | None => return probe.fail("race-answers", sent, &found),
            }
        }
    }
    if let Some(found) = unusual {
        return probe.fail_as(Severity::Minor, "race-answers", sent, &found);
    }
    let found = rounds.first().map(|round| tally(&round.replies)).unwrap_or_default();
    probe.pass("race-answers", sent, &found);
}

fn retry_after(probe: &mut Probe, rounds: &[Round], sent: &str) {
    if !probe.plan.profile.asks_for_retry_after() {
        return probe.does_not_apply("race-retry-after", "this profile asks for no Retry-After");
    }
    let conflicts: Vec<&Reply> = rounds
        .iter()
        .flat_map(|round| &round.replies)
        .filter(|reply| reply.status() == Some(409))
        .collect();
    let told = |reply: &&&Reply| {
        let after = reply.answer().and_then(|answer| answer.header("retry-after"));
        after.is_some_and(|after| {
            after.parse::<u32>().is_ok() || httpdate::parse_http_date(after).is_ok()
        })
    };
    match (conflicts.len(), conflicts.iter().find(|reply| !told(reply))) {
        (0, _) => probe.does_not_apply("race-retry-after", "nobody was told 409"),
        (_, Some(reply)) => probe.fail("race-retry-after", sent, &reply.summary()),
        (count, None) => probe.pass("race-retry-after", sent, &format!("{count} × 409 with it")),
    }
}

fn after(probe: &mut Probe, rounds: &[Round], sent: &str) {
    for Round { replies, after, effects } in rounds {
        let mut winners = replies.iter().filter(|reply| reply.is_success()).peekable();
        let is_right = match winners.peek() {
            None => after.is_success(),
            Some(winner) if after.retries(winner, *effects) => true,
            Some(_) => winners.any(|winner| winner.equals(after)),
        };
        if !is_right {
            let found = format!("{}; afterwards {}", tally(replies), after.summary());
            return probe.fail("race-after", sent, &found);
        }
    }
    let found = rounds.last().map(|round| round.after.summary()).unwrap_or_default();
    probe.pass("race-after", sent, &found);
}
