//! Messages are claimed by one worker at a time, and settled once.

mod history;
mod history_loss;
mod operating;
mod order;
mod trials;
mod written;

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::outbox::{
    Cause, ClaimRequest, ClaimStatus, Claimed, ClaimedMessage, Delivery, Ending, MessageQuery,
    MessageState, MessageView, Next, Outbox, Receipt, Received, Sent, Settlement, protocol,
};
use firstwrite_core::{Message, Store, Timestamp};

use super::{Case, Failure, Harness, OUTBOX, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) fn cases() -> Vec<Case> {
    let of_loss = history_loss::CASES;
    [CASES, history::CASES, of_loss, operating::CASES, order::CASES, trials::CASES, written::CASES]
        .concat()
}

const CASES: &[Case] = &[
    case!("outbox", OUTBOX, a_claimed_message_is_what_was_enqueued),
    case!("outbox", OUTBOX, what_is_claimed_is_not_claimed_again_while_its_lease_holds),
    case!("outbox", OUTBOX, a_claim_takes_no_more_than_is_wanted_and_only_for_whom),
    case!("outbox", OUTBOX, many_workers_at_once_claim_each_message_once),
    case!("outbox", OUTBOX, a_delayed_message_is_not_claimed_before_its_time),
    case!("outbox", OUTBOX, a_lapsed_claim_may_have_been_sent),
    case!("outbox", OUTBOX, a_claim_given_back_was_not_sent),
    case!("outbox", OUTBOX, a_late_worker_is_refused_by_its_fence),
    case!("outbox", OUTBOX, a_settlement_that_is_repeated_changes_nothing),
    case!("outbox", OUTBOX, a_delivered_message_is_never_claimed_again),
    case!("outbox", OUTBOX, a_receipt_outlives_the_claim_it_was_made_under),
    case!("outbox", OUTBOX, a_receipt_of_a_late_worker_is_kept),
    case!("outbox", OUTBOX, a_retry_counts_and_comes_back_after_its_pause),
    case!("outbox", OUTBOX, an_unknown_or_dead_message_is_not_claimed),
    case!("outbox", OUTBOX, settling_is_all_or_nothing_for_each_and_keeps_the_order),
    case!("outbox", OUTBOX, delivered_messages_are_deleted_after_their_time_and_no_others),
];

/// Longer than any case advances the clock without meaning it.
const LEASE: Duration = Duration::from_mins(1);

fn request(destination: &str, count_max: usize) -> ClaimRequest {
    ClaimRequest { destination: destination.to_owned(), count_max, lease_for: LEASE }
}

fn message(harness: &Harness, key: &str) -> Message {
    message_to(harness, key, "provider")
}

fn message_to(harness: &Harness, key: &str, destination: &str) -> Message {
    let payload = Bytes::from(format!("payload of {key}"));
    Message::new(harness.tenant(), &sample::key(key), "step", destination, payload)
        .expect("sample messages are within their limits")
}

/// The outbox of the store under test: a case that needs one runs only where there is one.
fn outbox(store: &dyn Store) -> Result<&dyn Outbox, Failure> {
    store.outbox().ok_or_else(|| Failure::new("a store that claims an outbox has one"))
}

async fn enqueue(harness: &Harness, messages: &[Message]) -> TestResult {
    let store = harness.store();
    for message in messages {
        outbox(&*store)?.enqueue(message).await?;
    }
    Ok(())
}

async fn claim(harness: &Harness, count_max: usize) -> Result<Vec<ClaimedMessage>, Failure> {
    Ok(claim_of(harness, &[request("provider", count_max)]).await?.messages)
}

async fn claim_of(harness: &Harness, requests: &[ClaimRequest]) -> Result<Claimed, Failure> {
    let store = harness.store();
    Ok(outbox(&*store)?.claim(requests, fastrand::u64(..)).await?)
}

/// Claims exactly one message.
async fn claim_one(harness: &Harness) -> Result<ClaimedMessage, Failure> {
    let mut claimed_messages = claim(harness, 1).await?;
    claimed_messages.pop().ok_or_else(|| Failure::new("a message that is due is claimed"))
}

fn settlement(
    claimed_message: &ClaimedMessage,
    delivery: Option<Delivery>,
    next: Next,
) -> Settlement {
    Settlement { claim: claimed_message.claim(), delivery, next, answer: None }
}

fn arrived(id: &str) -> Delivery {
    Delivery::new(Ending::Delivered(receipt(id)), "in a case").with_status(201)
}

fn receipt(id: &str) -> Receipt {
    Receipt { provider_id: Some(id.to_owned()) }
}

fn delivered(claimed_message: &ClaimedMessage, id: &str) -> Settlement {
    settlement(claimed_message, Some(arrived(id)), Next::Delivered(receipt(id)))
}

fn failed(claimed_message: &ClaimedMessage, next: Next) -> Settlement {
    let delivery = Delivery::new(Ending::Retry, "it was away").with_status(503);
    settlement(claimed_message, Some(delivery), next)
}

fn refused(claimed_message: &ClaimedMessage) -> Settlement {
    let delivery = Delivery::new(Ending::Refused, "declined").with_status(402);
    settlement(claimed_message, Some(delivery), Next::Refused)
}

fn again(pause: Duration, sent: Sent) -> Next {
    Next::Waiting { pause, counts: true, sent }
}

async fn settle(
    harness: &Harness,
    settlements: &[Settlement],
) -> Result<Vec<ClaimStatus>, Failure> {
    let store = harness.store();
    Ok(protocol::settle(outbox(&*store)?, &[], settlements).await?)
}

async fn settled(harness: &Harness, settlement: Settlement) -> TestResult {
    expect_equal(
        "the claim held",
        &settle(harness, &[settlement]).await?,
        &vec![ClaimStatus::Current],
    )
}

async fn views(harness: &Harness, query: MessageQuery) -> Result<Vec<MessageView>, Failure> {
    let store = harness.store();
    let query = MessageQuery { limit: MessageQuery::LIMIT_MAX, ..query };
    Ok(protocol::messages(outbox(&*store)?, &query).await?.messages)
}

async fn state_of(harness: &Harness, key: &str) -> Result<MessageState, Failure> {
    let query =
        MessageQuery { derived_key: Some(format!("{key}:step")), ..MessageQuery::default() };
    match views(harness, query).await?.as_slice() {
        [view] => Ok(view.state),
        views => Err(Failure::new(&format!("one message under {key}, not {}", views.len()))),
    }
}

async fn now(harness: &Harness) -> Result<Timestamp, Failure> {
    Ok(harness.store().now().await?)
}

async fn a_claimed_message_is_what_was_enqueued(harness: Harness) -> TestResult {
    let message = message(&harness, "k").content_type("text/plain");
    enqueue(&harness, std::slice::from_ref(&message)).await?;
    let claimed_message = claim_one(&harness).await?;
    expect_equal("the tenant", &&claimed_message.tenant, &message.tenant())?;
    expect_equal("the record", &claimed_message.record, &message.record())?;
    expect_equal("the derived key", &claimed_message.derived_key.as_str(), &"k:step")?;
    expect_equal("the destination", &claimed_message.destination.as_str(), &"provider")?;
    expect_equal("the content type", &claimed_message.content_type.as_str(), &"text/plain")?;
    expect_equal("the payload", &&claimed_message.payload, &message.payload())?;
    expect_equal("when it was written", &claimed_message.created_at, &now(&harness).await?)?;
    let history = (
        claimed_message.delivery_count,
        claimed_message.lapse_count,
        claimed_message.maybe_sent_at,
    );
    expect_equal("no history", &history, &(0, 0, None))?;
    expect(
        claimed_message.receipt.is_none() && !claimed_message.is_trial,
        "neither a receipt nor a trial",
    )
}

async fn what_is_claimed_is_not_claimed_again_while_its_lease_holds(
    harness: Harness,
) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let first = claim_one(&harness).await?;
    harness.advance(sample::just_before(LEASE)).await;
    expect(claim(&harness, 9).await?.is_empty(), "nothing is left to be claimed")?;
    harness.advance(sample::TICK).await;
    let second = claim_one(&harness).await?;
    expect_equal("the same message", &second.number, &first.number)?;
    expect(second.fence > first.fence, "the fence grows")
}

async fn a_claim_takes_no_more_than_is_wanted_and_only_for_whom(harness: Harness) -> TestResult {
    let messages: Vec<Message> = (0..10).map(|n| message(&harness, &format!("k{n}"))).collect();
    enqueue(&harness, &messages).await?;
    enqueue(&harness, &[message_to(&harness, "other", "mailer")]).await?;
    let claimed = claim_of(&harness, &[request("provider", 3), request("nobody", 5)]).await?;
    let keys: Vec<&str> = claimed.messages.iter().map(|p| p.derived_key.as_str()).collect();
    expect_equal("the oldest first", &keys, &vec!["k0:step", "k1:step", "k2:step"])?;
    expect(claim(&harness, 0).await?.is_empty(), "nothing for whoever requests none")?;
    let rest =
        claim_of(&harness, &[request("mailer", 5), request("provider", 100)]).await?.messages;
    let mailed =
        rest.iter().filter(|claimed_message| claimed_message.destination == "mailer").count();
    expect_equal("one to the mailer, and the rest", &(mailed, rest.len()), &(1, 8))
}

async fn many_workers_at_once_claim_each_message_once(harness: Harness) -> TestResult {
    let messages: Vec<Message> = (0..60).map(|n| message(&harness, &format!("k{n}"))).collect();
    enqueue(&harness, &messages).await?;
    let claims = (0..6).map(|_| {
        let harness = harness.clone();
        tokio::spawn(async move {
            let mut numbers = Vec::new();
            for _ in 0..4 {
                numbers.extend(
                    claim(&harness, 5).await?.iter().map(|claimed_message| claimed_message.number),
                );
            }
            Ok::<_, Failure>(numbers)
        })
    });
    let mut numbers = Vec::new();
    for claimed in claims.collect::<Vec<_>>() {
        numbers.extend(claimed.await.map_err(Failure::panicked)??);
    }
    // A claim may come back empty while another one is running; the remaining messages can be claimed
    // afterwards.
    numbers
        .extend(claim(&harness, 100).await?.iter().map(|claimed_message| claimed_message.number));
    let claimed = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    expect_equal("each message once", &(claimed, numbers.len()), &(60, 60))
}

async fn a_delayed_message_is_not_claimed_before_its_time(harness: Harness) -> TestResult {
    let delay = Duration::from_mins(10);
    enqueue(&harness, &[message(&harness, "k").delayed_by(delay)]).await?;
    expect(claim(&harness, 9).await?.is_empty(), "not at once")?;
    harness.advance(sample::just_before(delay)).await;
    expect(claim(&harness, 9).await?.is_empty(), "not before its time")?;
    harness.advance(sample::TICK).await;
    claim_one(&harness).await.map(drop)
}

async fn a_lapsed_claim_may_have_been_sent(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let claimed_at = now(&harness).await?;
    claim_one(&harness).await?;
    for lapse_count in 1..=3 {
        harness.advance(LEASE).await;
        let claimed_message = claim_one(&harness).await?;
        expect_equal("since the first claim", &claimed_message.maybe_sent_at, &Some(claimed_at))?;
        let counts = (claimed_message.lapse_count, claimed_message.delivery_count);
        expect_equal("a lapse and no delivery", &counts, &(lapse_count, 0))?;
    }
    Ok(())
}

async fn a_claim_given_back_was_not_sent(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let claimed_message = claim_one(&harness).await?;
    let next = Next::Waiting { pause: Duration::ZERO, counts: false, sent: Sent::AsBefore };
    settled(&harness, settlement(&claimed_message, None, next)).await?;
    let claimed_message = claim_one(&harness).await?;
    let history = (
        claimed_message.delivery_count,
        claimed_message.lapse_count,
        claimed_message.maybe_sent_at,
    );
    expect_equal("no history", &history, &(0, 0, None))
}

async fn a_late_worker_is_refused_by_its_fence(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let late = claim_one(&harness).await?;
    harness.advance(LEASE).await;
    let heir = claim_one(&harness).await?;
    let arrived = Next::Delivered(receipt("pay_0"));
    let nexts =
        [again(Duration::ZERO, Sent::No), Next::Dead(Cause::Refused), Next::Refused, arrived];
    for next in nexts {
        let held = settle(&harness, &[failed(&late, next)]).await?;
        expect_equal("a late worker", &held, &vec![ClaimStatus::Lost])?;
    }
    expect_equal("the heir's claim", &state_of(&harness, "k").await?, &MessageState::Sending)?;
    settled(&harness, delivered(&heir, "pay_1")).await
}

async fn a_settlement_that_is_repeated_changes_nothing(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let claimed_message = claim_one(&harness).await?;
    let retry = failed(&claimed_message, again(Duration::ZERO, Sent::No));
    settled(&harness, retry.clone()).await?;
    expect_equal("a second time", &settle(&harness, &[retry]).await?, &vec![ClaimStatus::Lost])?;
    for next in [Next::Delivered(receipt("pay_1")), Next::Refused, Next::Dead(Cause::Refused)] {
        let held = settle(&harness, &[settlement(&claimed_message, None, next)]).await?;
        expect_equal("another word under the same claim", &held, &vec![ClaimStatus::Lost])?;
    }
    expect_equal("counted once", &claim_one(&harness).await?.delivery_count, &1)
}

async fn a_delivered_message_is_never_claimed_again(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let claimed_message = claim_one(&harness).await?;
    settled(&harness, delivered(&claimed_message, "pay_1")).await?;
    expect_equal(
        "a second time",
        &settle(&harness, &[delivered(&claimed_message, "pay_2")]).await?,
        &vec![ClaimStatus::Lost],
    )?;
    for _ in 0..3 {
        expect(claim(&harness, 9).await?.is_empty(), "nothing is left to be claimed")?;
        harness.advance(LEASE).await;
    }
    let all = views(&harness, MessageQuery::default()).await?;
    let receipts: Vec<_> = all.iter().map(|view| (view.state, view.receipt.clone())).collect();
    let wanted = vec![(MessageState::Delivered, Some(receipt("pay_1")))];
    expect_equal("the first receipt stands", &receipts, &wanted)
}

async fn a_receipt_outlives_the_claim_it_was_made_under(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let claimed_message = claim_one(&harness).await?;
    let received = Received {
        number: claimed_message.number,
        fence: claimed_message.fence,
        delivery: arrived("pay_1"),
    };
    let store = harness.store();
    protocol::settle(outbox(&*store)?, &[received], &[]).await?;
    harness.advance(LEASE).await;
    let claimed_message = claim_one(&harness).await?;
    expect_equal("the receipt", &claimed_message.receipt, &Some(receipt("pay_1")))
}

async fn a_receipt_of_a_late_worker_is_kept(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let late = claim_one(&harness).await?;
    harness.advance(LEASE).await;
    claim_one(&harness).await?;
    let received = Received { number: late.number, fence: late.fence, delivery: arrived("pay_1") };
    let store = harness.store();
    protocol::settle(outbox(&*store)?, &[received], &[]).await?;
    harness.advance(LEASE).await;
    let claimed_message = claim_one(&harness).await?;
    expect_equal("the receipt", &claimed_message.receipt, &Some(receipt("pay_1")))
}

async fn a_retry_counts_and_comes_back_after_its_pause(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let pause = Duration::from_secs(5);
    let claimed_at = now(&harness).await?;
    for (round, (sent, doubt)) in [
        (Sent::AsBefore, None),
        (Sent::Maybe, Some(())),
        (Sent::AsBefore, Some(())),
        (Sent::No, None),
    ]
    .into_iter()
    .enumerate()
    {
        let claimed_message = claim_one(&harness).await?;
        settled(&harness, failed(&claimed_message, again(pause, sent))).await?;
        harness.advance(sample::just_before(pause)).await;
        expect(claim(&harness, 9).await?.is_empty(), "not before its pause is over")?;
        harness.advance(sample::TICK).await;
        let claimed_message = claim_one(&harness).await?;
        let round = u32::try_from(round).expect("four rounds");
        expect_equal("deliveries that count", &claimed_message.delivery_count, &(round + 1))?;
        expect_equal("whether it may be there", &claimed_message.maybe_sent_at.map(drop), &doubt)?;
        expect(
            claimed_message.maybe_sent_at.is_none_or(|at| at > claimed_at),
            "since the second claim",
        )?;
        let give_back =
            Next::Waiting { pause: Duration::ZERO, counts: false, sent: Sent::AsBefore };
        settled(&harness, settlement(&claimed_message, None, give_back)).await?;
    }
    Ok(())
}

async fn an_unknown_or_dead_message_is_not_claimed(harness: Harness) -> TestResult {
    let ends = [("u", Next::Unknown("nobody knows")), ("d", Next::Dead(Cause::Exhausted))];
    for (key, next) in ends {
        enqueue(&harness, &[message(&harness, key)]).await?;
        let claimed_message = claim_one(&harness).await?;
        settled(&harness, failed(&claimed_message, next)).await?;
    }
    harness.advance(Duration::from_hours(24)).await;
    expect(claim(&harness, 9).await?.is_empty(), "neither comes back by itself")?;
    expect_equal("one", &state_of(&harness, "u").await?, &MessageState::Unknown)?;
    expect_equal("the other", &state_of(&harness, "d").await?, &MessageState::Dead)?;
    let all = views(&harness, MessageQuery::default()).await?;
    let told = all.iter().all(|view| {
        view.status == Some(503) && view.problem.as_ref().is_some_and(|p| p.contains("it was away"))
    });
    expect(told, "what went wrong is shown")
}

async fn settling_is_all_or_nothing_for_each_and_keeps_the_order(harness: Harness) -> TestResult {
    let messages: Vec<Message> = (0..5).map(|n| message(&harness, &format!("k{n}"))).collect();
    enqueue(&harness, &messages).await?;
    let claimed_messages = claim(&harness, 5).await?;
    settled(&harness, delivered(&claimed_messages[1], "pay_1")).await?;
    let settlements: Vec<Settlement> = claimed_messages
        .iter()
        .rev()
        .map(|claimed_message| delivered(claimed_message, "pay_2"))
        .collect();
    let held = settle(&harness, &settlements).await?;
    let wanted = vec![
        ClaimStatus::Current,
        ClaimStatus::Current,
        ClaimStatus::Current,
        ClaimStatus::Lost,
        ClaimStatus::Current,
    ];
    expect_equal("an answer for each, in order", &held, &wanted)
}

async fn delivered_messages_are_deleted_after_their_time_and_no_others(
    harness: Harness,
) -> TestResult {
    let messages: Vec<Message> = (0..4).map(|n| message(&harness, &format!("k{n}"))).collect();
    enqueue(&harness, &messages).await?;
    let claimed_messages = claim(&harness, 4).await?;
    settled(&harness, delivered(&claimed_messages[0], "pay_0")).await?;
    settled(&harness, delivered(&claimed_messages[1], "pay_1")).await?;
    let dead = Next::Dead(Cause::Refused);
    settled(&harness, Settlement { next: dead, ..refused(&claimed_messages[2]) }).await?;
    enqueue(&harness, &[message_to(&harness, "far", "nobody")]).await?;
    let kept_for = Duration::from_hours(24);
    let store = harness.store();
    harness.advance(sample::just_before(kept_for)).await;
    expect_equal("too early", &outbox(&*store)?.upkeep(kept_for, 100).await?, &0)?;
    harness.advance(sample::TICK).await;
    expect_equal("one at a time", &outbox(&*store)?.upkeep(kept_for, 1).await?, &1)?;
    expect_equal("the other", &outbox(&*store)?.upkeep(kept_for, 100).await?, &1)?;
    expect_equal("no more", &outbox(&*store)?.upkeep(kept_for, 100).await?, &0)?;
    let left = views(&harness, MessageQuery::default()).await?;
    expect_equal("what was not delivered", &left.len(), &3)
}
