//! Messages of a store that lost history may have been sent in what is missing.
//!
//! The loss itself is each store's own; these cases mark messages as the clearing of a loss does.

use firstwrite_core::outbox::{Answers, REST_AFTER_LOSS, Received, Resolution, protocol};
use firstwrite_core::{Outcome, State};

use super::{
    Case, Cause, ClaimStatus, ClaimedMessage, Duration, Failure, Harness, MessageQuery,
    MessageState, MessageView, Next, OUTBOX, Sent, Settlement, TestResult, Timestamp, again,
    arrived, case, claim, claim_one, delivered, enqueue, expect, expect_equal, failed, message,
    now, outbox, receipt, sample, settle, settled, views,
};
use crate::{Ending as ScriptEnding, Script};

pub(super) const CASES: &[Case] = &[
    case!("outbox", OUTBOX, what_a_lost_history_may_have_sent_is_doubted_since_it_was_written),
    case!("outbox", OUTBOX, a_lost_history_is_told_with_each_message),
    case!("outbox", OUTBOX, a_doubt_that_is_known_keeps_its_time),
    case!("outbox", OUTBOX, a_claim_cannot_settle_what_a_lost_history_may_have_sent),
    case!("outbox", OUTBOX, a_word_that_a_marked_message_arrived_is_taken_at_once),
    case!("outbox", OUTBOX, a_word_from_before_the_mark_is_not_taken),
    case!("outbox", OUTBOX, a_redriven_letter_rests_to_the_end),
    case!("outbox", OUTBOX, a_successor_rests_to_the_end),
    case!("outbox", OUTBOX, a_receipt_of_a_claim_outlives_a_lost_history),
    case!("outbox", OUTBOX, what_waits_for_people_waits_for_them_after_a_lost_history),
    case!("outbox", OUTBOX, an_order_is_kept_after_a_lost_history),
    case!("outbox", OUTBOX, an_interim_answer_stands_after_a_lost_history),
];

/// Marks every message, as the clearing of a history loss does.
async fn mark(harness: &Harness) -> Result<usize, Failure> {
    let store = harness.store();
    Ok(protocol::mark_maybe_sent(outbox(&*store)?, &sample::audit("compared"), async || {}).await?)
}

async fn view(harness: &Harness, key: &str) -> Result<MessageView, Failure> {
    let derived_key = Some(format!("{key}:step"));
    let mut found = views(harness, MessageQuery { derived_key, ..MessageQuery::default() }).await?;
    found.pop().ok_or_else(|| Failure::new("the message is there"))
}

/// What is known of whether a message was sent, and when somebody had it in hand last.
async fn doubt(
    harness: &Harness,
    key: &str,
) -> Result<(Option<Timestamp>, Option<Timestamp>), Failure> {
    let view = view(harness, key).await?;
    Ok((view.maybe_sent_at, view.handled_at))
}

async fn rest(harness: &Harness) {
    harness.advance(REST_AFTER_LOSS).await;
}

async fn what_a_lost_history_may_have_sent_is_doubted_since_it_was_written(
    harness: Harness,
) -> TestResult {
    enqueue(&harness, &[message(&harness, "arrived")]).await?;
    settled(&harness, delivered(&claim_one(&harness).await?, "pay_1")).await?;
    let written_at = now(&harness).await?;
    let later = message(&harness, "later").delayed_by(REST_AFTER_LOSS * 3);
    enqueue(&harness, &[message(&harness, "waits"), later]).await?;
    harness.advance(Duration::from_secs(9)).await;
    expect_equal("those that are not settled", &mark(&harness).await?, &2)?;
    let marked_at = now(&harness).await?;
    for key in ["waits", "later"] {
        let wanted = (Some(written_at), Some(marked_at));
        expect_equal("since it was written", &doubt(&harness, key).await?, &wanted)?;
    }
    expect_equal("it arrived", &view(&harness, "arrived").await?.state, &MessageState::Delivered)?;
    // What is written from now on was not in what is missing.
    enqueue(&harness, &[message(&harness, "new")]).await?;
    let new = claim(&harness, 9).await?;
    let seen: Vec<_> = new.iter().map(|one| (&*one.derived_key, one.maybe_sent_at)).collect();
    expect_equal("a new one is sent at once, the others rest", &seen, &vec![("new:step", None)])?;
    settled(&harness, delivered(&new[0], "pay_2")).await?;
    harness.advance(sample::just_before(REST_AFTER_LOSS)).await;
    expect(claim(&harness, 9).await?.is_empty(), "they rest to the end")?;
    harness.advance(sample::TICK).await;
    let claimed = claim_one(&harness).await?;
    let history = (claimed.maybe_sent_at, claimed.delivery_count, claimed.lapse_count);
    expect_equal("then in doubt", &history, &(Some(written_at), 0, 0))?;
    expect_equal("the same message", &&*claimed.derived_key, &"waits:step")?;
    expect(claim(&harness, 9).await?.is_empty(), "what is due later stays so")
}

async fn a_lost_history_is_told_with_each_message(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    mark(&harness).await?;
    let seen = view(&harness, "k").await?;
    let sentence = "the store lost history, and the message may have been sent in what is missing";
    expect_equal("in the list", &seen.problem.as_deref(), &Some(sentence))?;
    let audits = harness.store().audits(seen.record).await?;
    let told: Vec<_> = audits.iter().map(|one| (&*one.entry.action, &*one.entry.reason)).collect();
    let action = format!("mark as maybe sent message {}", seen.number);
    let reason = format!("{sentence}: compared");
    expect_equal("in the audit", &told, &vec![(&*action, &*reason)])?;
    // A second time nothing is worse.
    expect_equal("once more", &mark(&harness).await?, &1)?;
    expect_equal("still waiting", &view(&harness, "k").await?.state, &MessageState::Waiting)
}

async fn a_doubt_that_is_known_keeps_its_time(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    harness.advance(Duration::from_secs(5)).await;
    let sent_at = now(&harness).await?;
    settled(&harness, failed(&claim_one(&harness).await?, again(Duration::ZERO, Sent::Maybe)))
        .await?;
    harness.advance(Duration::from_secs(5)).await;
    expect_equal("marked", &mark(&harness).await?, &1)?;
    let handled_at = Some(now(&harness).await?);
    let wanted = (Some(sent_at), handled_at);
    expect_equal("since the first delivery", &doubt(&harness, "k").await?, &wanted)?;
    rest(&harness).await;
    let claimed = claim_one(&harness).await?;
    let history = (claimed.maybe_sent_at, claimed.delivery_count);
    expect_equal("its count stays", &history, &(Some(sent_at), 1))
}

async fn a_claim_cannot_settle_what_a_lost_history_may_have_sent(harness: Harness) -> TestResult {
    let written_at = now(&harness).await?;
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let held = claim_one(&harness).await?;
    expect_equal("marked", &mark(&harness).await?, &1)?;
    for next in [again(Duration::ZERO, Sent::No), Next::Dead(Cause::Refused)] {
        let status = settle(&harness, &[failed(&held, next)]).await?;
        expect_equal("the claim is over", &status, &vec![ClaimStatus::Lost])?;
    }
    let seen = view(&harness, "k").await?;
    let wanted = (MessageState::Waiting, Some(written_at));
    expect_equal("it waits, in doubt", &(seen.state, seen.maybe_sent_at), &wanted)?;
    // Longer than the claim's own lease.
    harness.advance(sample::just_before(REST_AFTER_LOSS)).await;
    expect(claim(&harness, 9).await?.is_empty(), "its delivery may be under way")?;
    // A store may look for claims that are not a worker's own once in a second.
    harness.advance(Duration::from_secs(1)).await;
    let claimed = claim_one(&harness).await?;
    let wanted = (held.number, Some(written_at));
    expect_equal("then it is taken", &(claimed.number, claimed.maybe_sent_at), &wanted)?;
    expect(claimed.fence > held.fence, "the fence grows")
}

async fn a_word_that_a_marked_message_arrived_is_taken_at_once(harness: Harness) -> TestResult {
    for (key, word, state) in [
        (
            "arrived",
            Resolution::Delivered { receipt: receipt("pay_1"), answer: None },
            MessageState::Delivered,
        ),
        ("dropped", Resolution::Dropped, MessageState::Dropped),
    ] {
        enqueue(&harness, &[message(&harness, key)]).await?;
        claim_one(&harness).await?;
        mark(&harness).await?;
        let seen = view(&harness, key).await?;
        let store = harness.store();
        let by = sample::audit("asked the provider");
        let taken =
            protocol::resolve(outbox(&*store)?, seen.number, seen.fence, &word, &by).await?;
        expect_equal("no claim is in the way", &taken, &ClaimStatus::Current)?;
        expect_equal("it has ended", &view(&harness, key).await?.state, &state)?;
    }
    Ok(())
}

async fn a_word_from_before_the_mark_is_not_taken(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let seen = view(&harness, "k").await?;
    mark(&harness).await?;
    let store = harness.store();
    let by = sample::audit("asked the provider");
    let taken = async |fence| {
        let word = Resolution::NotDelivered;
        protocol::resolve(outbox(&*store)?, seen.number, fence, &word, &by)
            .await
            .map_err(Failure::from)
    };
    expect_equal("what is missing was not seen", &taken(seen.fence).await?, &ClaimStatus::Lost)?;
    let seen = view(&harness, "k").await?;
    expect_equal("what is seen now", &taken(seen.fence).await?, &ClaimStatus::Current)
}

async fn a_redriven_letter_rests_to_the_end(harness: Harness) -> TestResult {
    let written_at = now(&harness).await?;
    enqueue(&harness, &[message(&harness, "k")]).await?;
    settled(&harness, failed(&claim_one(&harness).await?, Next::Dead(Cause::Exhausted))).await?;
    harness.advance(Duration::from_secs(9)).await;
    mark(&harness).await?;
    let passed = Duration::from_mins(1);
    harness.advance(passed).await;
    let store = harness.store();
    let by = sample::audit("mended");
    let redriven = protocol::redrive(outbox(&*store)?, &MessageQuery::default(), 9, &by).await?;
    expect_equal("it is put back", &redriven, &1)?;
    harness.advance(sample::just_before(REST_AFTER_LOSS.saturating_sub(passed))).await;
    expect(claim(&harness, 9).await?.is_empty(), "a delivery may be under way")?;
    harness.advance(sample::TICK).await;
    let claimed = claim_one(&harness).await?;
    expect_equal("then it is taken, in doubt", &claimed.maybe_sent_at, &Some(written_at))
}

async fn a_successor_rests_to_the_end(harness: Harness) -> TestResult {
    let written_at = now(&harness).await?;
    enqueue(&harness, &["1", "2"].map(|key| message(&harness, key).ordered_by("card"))).await?;
    // A claim puts the second one aside.
    let first = claim(&harness, 9).await?;
    expect_equal("one at a time", &first.len(), &1)?;
    mark(&harness).await?;
    let passed = Duration::from_mins(1);
    harness.advance(passed).await;
    let seen = view(&harness, "1").await?;
    let word = Resolution::Delivered { receipt: receipt("pay_1"), answer: None };
    let store = harness.store();
    let by = sample::audit("asked the provider");
    let taken = protocol::resolve(outbox(&*store)?, seen.number, seen.fence, &word, &by).await?;
    expect_equal("the first has arrived", &taken, &ClaimStatus::Current)?;
    harness.advance(sample::just_before(REST_AFTER_LOSS.saturating_sub(passed))).await;
    expect(claim(&harness, 9).await?.is_empty(), "a delivery of the second may be under way")?;
    harness.advance(sample::TICK).await;
    let claimed = claim_one(&harness).await?;
    let found = (&*claimed.derived_key, claimed.maybe_sent_at);
    expect_equal("then it is taken, in doubt", &found, &("2:step", Some(written_at)))
}

async fn a_receipt_of_a_claim_outlives_a_lost_history(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let held = claim_one(&harness).await?;
    mark(&harness).await?;
    let ClaimedMessage { number, fence, .. } = held;
    let received = Received { number, fence, delivery: arrived("pay_1") };
    let store = harness.store();
    protocol::settle(outbox(&*store)?, &[received], &[]).await?;
    rest(&harness).await;
    let claimed = claim_one(&harness).await?;
    expect_equal("it arrived", &claimed.receipt, &Some(receipt("pay_1")))
}

async fn what_waits_for_people_waits_for_them_after_a_lost_history(harness: Harness) -> TestResult {
    let written_at = now(&harness).await?;
    for (key, next) in
        [("dead", Next::Dead(Cause::Exhausted)), ("unknown", Next::Unknown("nobody knows"))]
    {
        enqueue(&harness, &[message(&harness, key)]).await?;
        settled(&harness, failed(&claim_one(&harness).await?, next)).await?;
    }
    enqueue(&harness, &[message(&harness, "waits")]).await?;
    let before = counts(&harness).await?;
    harness.advance(Duration::from_secs(9)).await;
    expect_equal("all three", &mark(&harness).await?, &3)?;
    expect_equal("no count changes", &counts(&harness).await?, &before)?;
    for (key, state, problem) in [
        ("dead", MessageState::Dead, "it was away"),
        ("unknown", MessageState::Unknown, "nobody knows: it was away"),
    ] {
        let seen = view(&harness, key).await?;
        let found = (seen.state, seen.maybe_sent_at, seen.problem.as_deref());
        expect_equal("as it was, in doubt", &found, &(state, Some(written_at), Some(problem)))?;
    }
    rest(&harness).await;
    let claimed = claim(&harness, 9).await?;
    let keys: Vec<&str> = claimed.iter().map(|one| &*one.derived_key).collect();
    expect_equal("only what waited", &keys, &vec!["waits:step"])?;
    let store = harness.store();
    let query = MessageQuery::default();
    let by = sample::audit("mended");
    let redriven = protocol::redrive(outbox(&*store)?, &query, 9, &by).await?;
    expect_equal("the dead letter is put back", &redriven, &1)?;
    let claimed = claim_one(&harness).await?;
    let wanted = ("dead:step", Some(written_at));
    expect_equal("with its doubt", &(&*claimed.derived_key, claimed.maybe_sent_at), &wanted)
}

/// Open, unknown and dead messages of the destination.
async fn counts(harness: &Harness) -> Result<(i64, i64, i64), Failure> {
    let store = harness.store();
    let all = outbox(&*store)?.destinations().await?;
    let found = all.into_iter().find(|found| found.name == "provider");
    let found = found.ok_or_else(|| Failure::new("the destination is known"))?;
    Ok((found.open_count, found.unknown_count, found.dead_count))
}

async fn an_order_is_kept_after_a_lost_history(harness: Harness) -> TestResult {
    let written_at = now(&harness).await?;
    enqueue(&harness, &["1", "2"].map(|key| message(&harness, key).ordered_by("card"))).await?;
    expect_equal("both", &mark(&harness).await?, &2)?;
    enqueue(&harness, &[message(&harness, "3").ordered_by("card")]).await?;
    expect(claim(&harness, 9).await?.is_empty(), "the first rests, and the others wait for it")?;
    rest(&harness).await;
    for (key, doubt) in
        [("1:step", Some(written_at)), ("2:step", Some(written_at)), ("3:step", None)]
    {
        let claimed = claim_one(&harness).await?;
        let found = (&*claimed.derived_key, claimed.maybe_sent_at);
        expect_equal("one after the other", &found, &(key, doubt))?;
        expect(claim(&harness, 9).await?.is_empty(), "not before it is settled")?;
        settled(&harness, delivered(&claimed, "pay")).await?;
    }
    Ok(())
}

async fn an_interim_answer_stands_after_a_lost_history(harness: Harness) -> TestResult {
    let answers = Answers {
        delivered: sample::outcome(201, "paid as {provider_id}"),
        refused: sample::outcome(402, "declined"),
    };
    let mut script = Script::new(harness.request("k"), ScriptEnding::Interim(202));
    script.messages.push(message(&harness, "k").answering(answers));
    harness.subject().transact(script).await?;
    expect_equal("marked", &mark(&harness).await?, &1)?;
    let told = |outcome: Outcome| (outcome.status.as_u16(), outcome.is_interim);
    let outcome =
        async |harness: &Harness| match harness.record(harness.request("k").id).await?.state {
            State::Completed { outcome, .. } => Ok(told(outcome)),
            State::Reserved(_) | State::Uncertain { .. } => Err(Failure::new("a completed record")),
        };
    expect_equal("the client still waits", &outcome(&harness).await?, &(202, true))?;
    rest(&harness).await;
    let claimed = claim_one(&harness).await?;
    let answers = claimed.answers.clone();
    let answers = answers.ok_or_else(|| Failure::new("the message carries its answers"))?;
    let answer = Some(answers.when_delivered(&receipt("pay_1")));
    settled(&harness, Settlement { answer, ..delivered(&claimed, "pay_1") }).await?;
    expect_equal("and is told", &outcome(&harness).await?, &(201, false))
}
