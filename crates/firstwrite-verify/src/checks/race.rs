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
        // The handler ran once, but one of the two requests got a false success.
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

/// Checks that all successes get the same response and that the other racers are told to retry.
fn answers(probe: &mut Probe, rounds: &[Round], sent: &str) {
    let mut unusual = None;
    for Round { replies, .. } in rounds {
        let found = tally(replies);
        match answered(replies) {
            Answered::Alike => {}
            Answered::Unusually => unusual = Some(found),
            Answered::ByTwoSuccesses => {
                let found = format!("different answers of success: {found}");
                return probe.fail("race-answers", sent, &found);
            }
            Answered::Otherwise => return probe.fail("race-answers", sent, &found),
        }
    }
    if let Some(found) = unusual {
        return probe.fail_as(Severity::Minor, "race-answers", sent, &found);
    }
    let found = rounds.first().map(|round| tally(&round.replies)).unwrap_or_default();
    probe.pass("race-answers", sent, &found);
}

/// The answers of one race, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answered {
    /// The winner's answer, or 409.
    Alike,
    /// Safe, but clients that retry by themselves know 409.
    Unusually,
    /// Two different answers that say that it was done.
    ByTwoSuccesses,
    /// An answer that belongs to no race.
    Otherwise,
}

/// Compares the answers of one race. A 202 beside a final answer says that the request is being worked on, as a 409
/// does.
fn answered(replies: &[Reply]) -> Answered {
    let is_final = |reply: &&Reply| reply.is_success() && reply.status() != Some(202);
    let final_answer = replies.iter().find(is_final);
    let winner = final_answer.or_else(|| replies.iter().find(|reply| reply.is_success()));
    let of = |reply: &Reply| match reply.status() {
        _ if winner.is_some_and(|winner| winner.equals(reply)) => Answered::Alike,
        Some(409) => Answered::Alike,
        Some(202) if final_answer.is_some() => Answered::Alike,
        Some(423 | 425 | 429 | 503) => Answered::Unusually,
        Some(200..300) => Answered::ByTwoSuccesses,
        Some(_) | None => Answered::Otherwise,
    };
    replies.iter().map(of).max().unwrap_or(Answered::Alike)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::Answer;

    fn race(answers: &[(u16, &str)]) -> Answered {
        let reply = |(status, body): &(u16, &str)| Reply {
            result: Ok(Answer {
                status: *status,
                headers: Vec::new(),
                body: body.as_bytes().to_vec(),
            }),
            took: Duration::ZERO,
        };
        answered(&answers.iter().map(reply).collect::<Vec<_>>())
    }

    #[test]
    fn rivals_get_the_winners_answer_or_are_told_to_wait() {
        let won = (201, "a");
        for (rivals, expected) in [
            (&[won, won][..], Answered::Alike),
            (&[(409, ""), won], Answered::Alike),
            (&[(202, "a, pending"), won, (202, "a, pending")], Answered::Alike),
            (&[(202, "a"), (202, "a")], Answered::Alike),
            (&[(429, ""), won], Answered::Unusually),
            (&[(202, "a"), (202, "b")], Answered::ByTwoSuccesses),
            (&[won, (201, "b"), (429, "")], Answered::ByTwoSuccesses),
            (&[won, (500, "")], Answered::Otherwise),
        ] {
            assert_eq!(race(rivals), expected, "{rivals:?}");
        }
    }
}
