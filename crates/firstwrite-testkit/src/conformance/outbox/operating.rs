//! Cases about operators' queries and actions, and about interim answers that become final.

use firstwrite_core::outbox::{Answers, MessageNumber, Resolution, protocol};
use firstwrite_core::{Fence, Outcome, Policy, State};

use super::{
    Case, Cause, ClaimStatus, Duration, Failure, Harness, LEASE, Message, MessageQuery,
    MessageState, MessageView, Next, OUTBOX, Sent, Settlement, TestResult, Timestamp, again, case,
    claim, claim_one, delivered, enqueue, expect, expect_equal, failed, message, now, outbox,
    receipt, refused, sample, settled, state_of, views,
};
use crate::{Ending as ScriptEnding, Script};

pub(super) const CASES: &[Case] = &[
    case!("outbox", OUTBOX, dead_letters_are_redriven_under_their_old_key),
    case!("outbox", OUTBOX, redriving_takes_only_dead_letters_that_match_and_no_more_than_asked),
    case!("outbox", OUTBOX, a_message_is_resolved_once_and_only_as_it_was_seen),
    case!("outbox", OUTBOX, a_message_that_is_being_sent_is_not_resolved),
    case!("outbox", OUTBOX, what_waits_for_its_predecessor_waits_whatever_is_said_of_it),
    case!("outbox", OUTBOX, a_message_tells_its_story),
    case!("outbox", OUTBOX, a_message_says_how_often_it_was_handed_over),
    case!("outbox", OUTBOX, the_messages_of_a_record_are_found_by_it),
    case!("outbox", OUTBOX, messages_are_listed_in_pages_and_by_what_they_are),
    case!("outbox", OUTBOX, an_interim_answer_is_replaced_once),
    case!("outbox", OUTBOX, an_interim_answer_stands_until_it_is_replaced),
    case!("outbox", OUTBOX, what_a_client_was_told_never_to_happen_is_not_put_back),
    case!("outbox", OUTBOX, a_client_can_be_told_on_somebodys_word_that_it_never_will_happen),
];

async fn bury(harness: &Harness, keys: &[&str]) -> TestResult {
    for key in keys {
        enqueue(harness, &[message(harness, key)]).await?;
        let claimed_message = claim_one(harness).await?;
        settled(harness, failed(&claimed_message, Next::Dead(Cause::Exhausted))).await?;
    }
    Ok(())
}

async fn redrive(harness: &Harness, query: MessageQuery, limit: usize) -> Result<usize, Failure> {
    let store = harness.store();
    Ok(protocol::redrive(outbox(&*store)?, &query, limit, &sample::audit("mended")).await?)
}

async fn only(harness: &Harness) -> Result<MessageView, Failure> {
    let mut all = views(harness, MessageQuery::default()).await?;
    all.pop().ok_or_else(|| Failure::new("a message is there"))
}

async fn resolve(
    harness: &Harness,
    seen: &MessageView,
    to: Resolution,
) -> Result<ClaimStatus, Failure> {
    let store = harness.store();
    let entry = sample::audit("asked the provider");
    Ok(protocol::resolve(outbox(&*store)?, seen.number, seen.fence, &to, &entry).await?)
}

fn found(id: &str, answer: Option<Outcome>) -> Resolution {
    Resolution::Delivered { receipt: receipt(id), answer }
}

async fn dead_letters_are_redriven_under_their_old_key(harness: Harness) -> TestResult {
    bury(&harness, &["k"]).await?;
    expect_equal("one", &redrive(&harness, MessageQuery::default(), 9).await?, &1)?;
    let claimed_message = claim_one(&harness).await?;
    expect_equal("the same key", &claimed_message.derived_key.as_str(), &"k:step")?;
    expect_equal("counted from the beginning", &claimed_message.delivery_count, &0)?;
    let audits = harness.store().audits(claimed_message.record).await?;
    let actions: Vec<&str> = audits.iter().map(|audit| audit.entry.action.as_str()).collect();
    expect_equal(
        "who did it",
        &actions,
        &vec![&*format!("redrive message {}", claimed_message.number)],
    )
}

async fn redriving_takes_only_dead_letters_that_match_and_no_more_than_asked(
    harness: Harness,
) -> TestResult {
    bury(&harness, &["1", "2", "3"]).await?;
    enqueue(&harness, &[message(&harness, "u")]).await?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, failed(&claimed_message, Next::Unknown("nobody knows"))).await?;
    let of = |problem: &str| MessageQuery {
        problem: Some(problem.to_owned()),
        ..MessageQuery::default()
    };
    let elsewhere =
        MessageQuery { destination: Some("mailer".to_owned()), ..MessageQuery::default() };
    let unknown = MessageQuery { state: Some(MessageState::Unknown), ..MessageQuery::default() };
    expect_equal("another state", &redrive(&harness, unknown, 9).await?, &0)?;
    expect_equal("another problem", &redrive(&harness, of("on fire"), 9).await?, &0)?;
    expect_equal("another destination", &redrive(&harness, elsewhere, 9).await?, &0)?;
    expect_equal("by status, two", &redrive(&harness, of("503"), 2).await?, &2)?;
    expect_equal("by detail, the rest", &redrive(&harness, of("was away"), 9).await?, &1)?;
    expect_equal("what is unknown stays", &state_of(&harness, "u").await?, &MessageState::Unknown)
}

async fn a_message_is_resolved_once_and_only_as_it_was_seen(harness: Harness) -> TestResult {
    for (key, resolution, state) in [
        ("a", found("pay_1", None), MessageState::Delivered),
        ("b", Resolution::Dropped, MessageState::Dropped),
        ("r", Resolution::Refused { answer: None }, MessageState::Refused),
        ("c", Resolution::NotDelivered, MessageState::Waiting),
    ] {
        enqueue(&harness, &[message(&harness, key)]).await?;
        let claimed_message = claim_one(&harness).await?;
        settled(&harness, failed(&claimed_message, Next::Unknown("nobody knows"))).await?;
        let seen = only(&harness).await?;
        let stale = MessageView { fence: Fence::first(77), ..seen.clone() };
        let held = resolve(&harness, &stale, resolution.clone()).await?;
        expect_equal("seen otherwise", &held, &ClaimStatus::Lost)?;
        expect_equal(
            "done",
            &resolve(&harness, &seen, resolution.clone()).await?,
            &ClaimStatus::Current,
        )?;
        let held = resolve(&harness, &seen, resolution).await?;
        expect_equal("a second time", &held, &ClaimStatus::Lost)?;
        expect_equal("what became of it", &state_of(&harness, key).await?, &state)?;
        let audits = harness.store().audits(seen.record).await?;
        expect_equal("one audit entry", &audits.len(), &1)?;
    }
    let claimed_message = claim_one(&harness).await?;
    let fresh = (claimed_message.derived_key.as_str(), claimed_message.maybe_sent_at);
    expect_equal("what did not arrive is as if never sent", &fresh, &("c:step", None))?;
    expect(claim(&harness, 9).await?.is_empty(), "and is the only one")
}

async fn a_message_that_is_being_sent_is_not_resolved(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    claim_one(&harness).await?;
    let seen = only(&harness).await?;
    expect_equal(
        "a live claim",
        &resolve(&harness, &seen, Resolution::Dropped).await?,
        &ClaimStatus::Lost,
    )?;
    harness.advance(LEASE).await;
    let held = resolve(&harness, &seen, Resolution::Dropped).await?;
    expect_equal("once it ran out", &held, &ClaimStatus::Current)
}

async fn what_waits_for_its_predecessor_waits_whatever_is_said_of_it(
    harness: Harness,
) -> TestResult {
    enqueue(&harness, &["1", "2"].map(|key| message(&harness, key).ordered_by("card"))).await?;
    let first = claim_one(&harness).await?;
    settled(&harness, failed(&first, Next::Unknown("nobody knows"))).await?;
    let second = only(&harness).await?;
    let held = resolve(&harness, &second, Resolution::NotDelivered).await?;
    expect_equal("which nobody doubted", &held, &ClaimStatus::Current)?;
    expect(claim(&harness, 9).await?.is_empty(), "it keeps its place")
}

async fn a_message_tells_its_story(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, failed(&claimed_message, again(Duration::ZERO, Sent::No))).await?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, delivered(&claimed_message, "pay_1")).await?;
    let store = harness.store();
    let Some(story) = outbox(&*store)?.message(claimed_message.number).await? else {
        return Err(Failure::new("the message is there"));
    };
    let told: Vec<_> = story
        .deliveries
        .iter()
        .map(|past| (past.ending.as_str(), past.status, past.provider_id.as_deref()))
        .collect();
    let wanted = vec![("retry", Some(503), None), ("delivered", Some(201), Some("pay_1"))];
    expect_equal("its deliveries", &told, &wanted)?;
    expect_equal("its length", &story.message.payload_bytes, &"payload of k".len())?;
    let nobody = outbox(&*store)?.message(MessageNumber(i64::MAX)).await?;
    expect(nobody.is_none(), "no message, no story")
}

async fn a_message_says_how_often_it_was_handed_over(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    expect_equal("not at all", &only(&harness).await?.delivery_count, &0)?;
    // One that does not count against the destination's number of deliveries is one all the same.
    let uncounted = Next::Waiting { pause: Duration::ZERO, counts: false, sent: Sent::No };
    for next in [uncounted, again(Duration::ZERO, Sent::No), Next::Dead(Cause::Refused)] {
        let claimed_message = claim_one(&harness).await?;
        settled(&harness, failed(&claimed_message, next)).await?;
    }
    expect_equal("of a dead letter", &only(&harness).await?.delivery_count, &3)?;
    expect_equal("put back", &redrive(&harness, MessageQuery::default(), 9).await?, &1)?;
    expect_equal("and still", &only(&harness).await?.delivery_count, &3)?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, delivered(&claimed_message, "pay_1")).await?;
    let seen = only(&harness).await?;
    expect_equal("in the end", &seen.delivery_count, &4)?;
    let story = outbox(&*harness.store())?.message(seen.number).await?;
    expect_equal("as its story tells", &story.map(|story| story.deliveries.len()), &Some(4))
}

async fn the_messages_of_a_record_are_found_by_it(harness: Harness) -> TestResult {
    let record = harness.request("k").id;
    enqueue(&harness, &[message(&harness, "k"), message(&harness, "other")]).await?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, delivered(&claimed_message, "pay_1")).await?;
    let other = harness.request("other").id;
    for (record, wanted) in [(record, vec!["k:step"]), (other, vec!["other:step"])] {
        let found = protocol::messages_of(outbox(&*harness.store())?, record).await?;
        let keys: Vec<&str> = found.iter().map(|view| view.derived_key.as_str()).collect();
        expect_equal("its own alone, delivered or not", &keys, &wanted)?;
    }
    let nothing = harness.request("nothing").id;
    let none = protocol::messages_of(outbox(&*harness.store())?, nothing).await?;
    expect(none.is_empty(), "no record, no messages")
}

async fn messages_are_listed_in_pages_and_by_what_they_are(harness: Harness) -> TestResult {
    let keys: Vec<String> = (0..7).map(|n| format!("k{n}")).collect();
    let messages: Vec<Message> = keys.iter().map(|key| message(&harness, key)).collect();
    enqueue(&harness, &messages).await?;
    let claimed_messages = claim(&harness, 2).await?;
    settled(&harness, delivered(&claimed_messages[0], "pay_1")).await?;
    let store = harness.store();
    let (mut after, mut listed) = (None, Vec::new());
    loop {
        let query = MessageQuery { after, limit: 3, ..MessageQuery::default() };
        let page = protocol::messages(outbox(&*store)?, &query).await?;
        expect(page.messages.len() <= 3, "no more than asked for")?;
        listed.extend(page.messages.into_iter().map(|view| view.derived_key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let wanted: Vec<String> = keys.iter().map(|key| format!("{key}:step")).collect();
    expect_equal("each once, the oldest first", &listed, &wanted)?;
    for (state, wanted) in [
        (MessageState::Waiting, 5),
        (MessageState::Sending, 1),
        (MessageState::Delivered, 1),
        (MessageState::Dead, 0),
    ] {
        let query = MessageQuery { state: Some(state), ..MessageQuery::default() };
        expect_equal(state.as_str(), &views(&harness, query.clone()).await?.len(), &wanted)?;
        let counted = protocol::count(outbox(&*store)?, &query).await?;
        expect_equal("the preview", &(counted.count, counted.is_more), &(wanted, false))?;
    }
    let other = MessageQuery { tenant: Some(harness.other_tenant()), ..MessageQuery::default() };
    expect(views(&harness, other).await?.is_empty(), "nothing of another tenant")
}

/// A handler that answers 202 for now, and leaves the rest to its message.
async fn accept(harness: &Harness, key: &str) -> TestResult {
    let answers = Answers {
        delivered: sample::outcome(201, "paid as {provider_id}"),
        refused: sample::outcome(402, "declined"),
    };
    let mut script = Script::new(harness.request(key), ScriptEnding::Interim(202));
    script.messages.push(message(harness, key).answering(answers));
    harness.subject().transact(script).await?;
    Ok(())
}

async fn outcome_of(harness: &Harness, key: &str) -> Result<(Outcome, Timestamp), Failure> {
    match harness.record(harness.request(key).id).await?.state {
        State::Completed { outcome, retained_until, .. } => Ok((outcome, retained_until)),
        State::Reserved(_) | State::Uncertain { .. } => Err(Failure::new("a completed record")),
    }
}

async fn an_interim_answer_is_replaced_once(harness: Harness) -> TestResult {
    accept(&harness, "k").await?;
    let (interim, _) = outcome_of(&harness, "k").await?;
    expect_equal("for now", &(interim.status.as_u16(), interim.is_interim), &(202, true))?;
    let claimed_message = claim_one(&harness).await?;
    let Some(answers) = claimed_message.answers.clone() else {
        return Err(Failure::new("the message carries its answers"));
    };
    harness.advance(Duration::from_secs(20)).await;
    let answer = answers.when_delivered(&receipt("pay_1"));
    let settlement =
        Settlement { answer: Some(answer.clone()), ..delivered(&claimed_message, "pay_1") };
    settled(&harness, settlement.clone()).await?;
    let (first, retained_until) = outcome_of(&harness, "k").await?;
    expect_equal("in the end", &first, &sample::outcome(201, "paid as pay_1"))?;
    let wanted = now(&harness).await?.plus(Policy::default().retention);
    expect_equal("kept from then on", &retained_until, &wanted)?;
    // A second message of the same record comes too late to say anything.
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let second = claim_one(&harness).await?;
    let other = Some(sample::outcome(201, "paid twice"));
    settled(&harness, Settlement { answer: other, ..delivered(&second, "pay_2") }).await?;
    expect_equal("it never changes again", &outcome_of(&harness, "k").await?.0, &first)
}

async fn an_interim_answer_stands_until_it_is_replaced(harness: Harness) -> TestResult {
    accept(&harness, "k").await?;
    harness.advance(Policy::default().retention * 3).await;
    harness.store().reap(100).await?;
    let (interim, _) = outcome_of(&harness, "k").await?;
    expect_equal("still", &interim.status.as_u16(), &202)?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, failed(&claimed_message, Next::Unknown("nobody knows"))).await?;
    let seen = only(&harness).await?;
    let answer = Some(sample::outcome(201, "paid as pay_9"));
    expect_equal(
        "found",
        &resolve(&harness, &seen, found("pay_9", answer)).await?,
        &ClaimStatus::Current,
    )?;
    let (last, _) = outcome_of(&harness, "k").await?;
    expect_equal("in the end", &last, &sample::outcome(201, "paid as pay_9"))
}

async fn what_a_client_was_told_never_to_happen_is_not_put_back(harness: Harness) -> TestResult {
    accept(&harness, "k").await?;
    let ordered = ["1", "2"].map(|key| message(&harness, key).ordered_by("card"));
    enqueue(&harness, &ordered).await?;
    for claimed_message in claim(&harness, 9).await? {
        let answer = claimed_message.answers.as_ref().map(|answers| answers.when_refused());
        settled(&harness, Settlement { answer, ..refused(&claimed_message) }).await?;
    }
    let told = outcome_of(&harness, "k").await?.0;
    expect_equal("the client is told", &told, &sample::outcome(402, "declined"))?;
    let state = state_of(&harness, "k").await?;
    expect_equal("that is its end", &state, &MessageState::Refused)?;
    let query = MessageQuery { state: Some(MessageState::Refused), ..MessageQuery::default() };
    expect_equal("two are listed", &views(&harness, query.clone()).await?.len(), &2)?;
    expect_equal("none can be put back", &redrive(&harness, query, 9).await?, &0)?;
    expect_equal("by any name", &redrive(&harness, MessageQuery::default(), 9).await?, &0)?;
    for seen in views(&harness, MessageQuery::default()).await? {
        let open = seen.derived_key == "2:step";
        let held = resolve(&harness, &seen, Resolution::NotDelivered).await?;
        let wanted = if open { ClaimStatus::Current } else { ClaimStatus::Lost };
        expect_equal("nor on anybody's word", &held, &wanted)?;
    }
    let next = claim_one(&harness).await?;
    expect_equal("a successor goes on", &next.derived_key.as_str(), &"2:step")?;
    harness.advance(Duration::from_hours(25)).await;
    let store = harness.store();
    let deleted = outbox(&*store)?.upkeep(Duration::from_hours(24), 9).await?;
    expect_equal("in the end they are deleted", &deleted, &2)
}

async fn a_client_can_be_told_on_somebodys_word_that_it_never_will_happen(
    harness: Harness,
) -> TestResult {
    accept(&harness, "k").await?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, failed(&claimed_message, Next::Unknown("nobody knows"))).await?;
    let seen = only(&harness).await?;
    let answer = Some(sample::outcome(402, "declined"));
    let held = resolve(&harness, &seen, Resolution::Refused { answer }).await?;
    expect_equal("done", &held, &ClaimStatus::Current)?;
    let told = outcome_of(&harness, "k").await?.0;
    expect_equal("the client is told", &told, &sample::outcome(402, "declined"))?;
    expect(claim(&harness, 9).await?.is_empty(), "it is not sent")
}
