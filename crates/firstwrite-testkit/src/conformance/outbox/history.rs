//! The history of a message reads the same in every store, and a move under an old guard leaves no trace.

use firstwrite_core::outbox::{
    ClaimedMessage, Delivery, Ending, MessageNumber, MessageStory, Move, Received, Resolution,
    after_redrive, after_resolution, after_settlement, protocol,
};
use firstwrite_core::{Fence, Outcome};

use super::{
    Case, Cause, ClaimStatus, Duration, Failure, Harness, LEASE, MessageState, MessageView, Next,
    OUTBOX, Sent, Settlement, TestResult, again, arrived, case, claim_of, enqueue, expect,
    expect_equal, failed, message_to, outbox, receipt, request, sample, settled, settlement,
};

pub(super) const CASES: &[Case] = &[
    case!("outbox", OUTBOX, what_was_found_to_have_arrived_is_told_in_the_history),
    case!("outbox", OUTBOX, a_known_receipt_is_told_once),
    case!("outbox", OUTBOX, a_late_receipt_overrules_what_was_told_under_its_fence),
    case!("outbox", OUTBOX, the_end_without_a_delivery_is_told_in_the_history),
    case!("outbox", OUTBOX, a_problem_says_what_went_wrong_last),
    case!("outbox", OUTBOX, a_move_under_an_old_guard_changes_nothing),
];

/// A row of a history: its ending, status, text and the provider's id.
type Told<'a> = (&'a str, Option<u16>, &'a str, Option<&'a str>);

const AWAY: Told<'_> = ("retry", Some(503), "it was away", None);

fn took(id: &str) -> Told<'_> {
    ("delivered", Some(201), "in a case", Some(id))
}

fn found(id: &str) -> Told<'_> {
    ("delivered", None, "found to have arrived", Some(id))
}

/// Claims the one message of a destination.
async fn take(harness: &Harness, destination: &str) -> Result<ClaimedMessage, Failure> {
    let mut claimed = claim_of(harness, &[request(destination, 1)]).await?.messages;
    claimed.pop().ok_or_else(|| Failure::new("a message that is due is claimed"))
}

async fn put(harness: &Harness, destination: &str) -> Result<ClaimedMessage, Failure> {
    enqueue(harness, &[message_to(harness, destination, destination)]).await?;
    take(harness, destination).await
}

async fn story(harness: &Harness, number: MessageNumber) -> Result<MessageStory, Failure> {
    let store = harness.store();
    let story = outbox(&*store)?.message(number).await?;
    story.ok_or_else(|| Failure::new("the message is there"))
}

async fn expect_told(
    harness: &Harness,
    claimed_message: &ClaimedMessage,
    wanted: &[Told<'_>],
) -> TestResult {
    let story = story(harness, claimed_message.number).await?;
    let told: Vec<Told<'_>> = story
        .deliveries
        .iter()
        .map(|row| (&*row.ending, row.status, &*row.detail, row.provider_id.as_deref()))
        .collect();
    expect_equal(&claimed_message.destination, &told, &wanted.to_vec())?;
    let is_in_order = story.deliveries.is_sorted_by(|row, next| row.fence < next.fence);
    expect(is_in_order, "one row for each fence, in their order")?;
    let handed_over = wanted.iter().filter(|told| told.0 != "dropped").count();
    let counted = usize::try_from(story.message.delivery_count).ok();
    expect_equal("how often it was handed over", &counted, &Some(handed_over))
}

async fn receive(harness: &Harness, claimed_message: &ClaimedMessage, id: &str) -> TestResult {
    let received = Received {
        number: claimed_message.number,
        fence: claimed_message.fence,
        delivery: arrived(id),
    };
    let store = harness.store();
    protocol::settle(outbox(&*store)?, &[received], &[]).await?;
    Ok(())
}

async fn what_was_found_to_have_arrived_is_told_in_the_history(harness: Harness) -> TestResult {
    let claimed_message = put(&harness, "asked").await?;
    let lost = Delivery::new(Ending::Unknown, "no answer in time");
    let next = again(Duration::ZERO, Sent::Maybe);
    settled(&harness, settlement(&claimed_message, Some(lost), next)).await?;
    let claimed_message = take(&harness, "asked").await?;
    let next = Next::Delivered(receipt("pay_1"));
    settled(&harness, settlement(&claimed_message, None, next)).await?;
    let lost = ("unknown", None, "no answer in time", None);
    expect_told(&harness, &claimed_message, &[lost, found("pay_1")]).await
}

async fn a_known_receipt_is_told_once(harness: Harness) -> TestResult {
    let claimed_message = put(&harness, "known").await?;
    receive(&harness, &claimed_message, "pay_1").await?;
    harness.advance(LEASE).await;
    let claimed_message = take(&harness, "known").await?;
    let next = Next::Delivered(receipt("pay_1"));
    settled(&harness, settlement(&claimed_message, None, next)).await?;
    expect_told(&harness, &claimed_message, &[took("pay_1")]).await?;
    // A history ends with what became of the message, also where the receipt came late.
    let late = put(&harness, "late").await?;
    harness.advance(LEASE).await;
    let claimed_message = take(&harness, "late").await?;
    settled(&harness, failed(&claimed_message, again(Duration::ZERO, Sent::AsBefore))).await?;
    receive(&harness, &late, "pay_2").await?;
    let claimed_message = take(&harness, "late").await?;
    let next = Next::Delivered(receipt("pay_2"));
    settled(&harness, settlement(&claimed_message, None, next)).await?;
    expect_told(&harness, &claimed_message, &[took("pay_2"), AWAY, found("pay_2")]).await
}

async fn a_late_receipt_overrules_what_was_told_under_its_fence(harness: Harness) -> TestResult {
    let claimed_message = put(&harness, "overruled").await?;
    settled(&harness, failed(&claimed_message, again(Duration::ZERO, Sent::AsBefore))).await?;
    expect_told(&harness, &claimed_message, &[AWAY]).await?;
    receive(&harness, &claimed_message, "pay_1").await?;
    receive(&harness, &claimed_message, "pay_2").await?;
    expect_told(&harness, &claimed_message, &[took("pay_1")]).await?;
    let known = take(&harness, "overruled").await?.receipt;
    expect_equal("the receipt", &known, &Some(receipt("pay_1")))
}

async fn the_end_without_a_delivery_is_told_in_the_history(harness: Harness) -> TestResult {
    let claimed_message = put(&harness, "refusing").await?;
    settled(&harness, settlement(&claimed_message, None, Next::Refused)).await?;
    let refused = ("refused", None, "the destination will never take it", None);
    expect_told(&harness, &claimed_message, &[refused]).await?;
    let word = "asked the provider";
    let delivered = || Resolution::Delivered { receipt: receipt("pay_1"), answer: None };
    for (destination, resolution, told, state) in [
        ("arrived", delivered(), Some(("delivered", Some("pay_1"))), MessageState::Delivered),
        (
            "never",
            Resolution::Refused { answer: None },
            Some(("refused", None)),
            MessageState::Refused,
        ),
        ("dropped", Resolution::Dropped, Some(("dropped", None)), MessageState::Dropped),
        ("absent", Resolution::NotDelivered, None, MessageState::Waiting),
    ] {
        let claimed_message = put(&harness, destination).await?;
        settled(&harness, failed(&claimed_message, Next::Unknown("no word"))).await?;
        let store = harness.store();
        let (number, seen, by) =
            (claimed_message.number, claimed_message.fence, sample::audit(word));
        let held = protocol::resolve(outbox(&*store)?, number, seen, &resolution, &by).await?;
        expect_equal("resolved", &held, &ClaimStatus::Current)?;
        let last = told.map(|(ending, id)| (ending, None, word, id));
        let wanted: Vec<Told<'_>> = std::iter::once(AWAY).chain(last).collect();
        expect_told(&harness, &claimed_message, &wanted).await?;
        let story = story(&harness, number).await?;
        expect_equal("its state", &story.message.state, &state)?;
        let actions: Vec<&str> = story.audits.iter().map(|one| &*one.entry.action).collect();
        let wanted = format!("{} message {number}", by.action);
        expect_equal("its audit", &actions, &vec![&*wanted])?;
    }
    Ok(())
}

async fn a_problem_says_what_went_wrong_last(harness: Harness) -> TestResult {
    let shown = async |claimed_message: &ClaimedMessage| {
        let MessageView { status, problem, .. } =
            story(&harness, claimed_message.number).await?.message;
        Ok::<_, Failure>((status, problem))
    };
    let problem = |status, text: &str| (status, Some(text.to_owned()));
    let claimed_message = put(&harness, "exhausted").await?;
    settled(&harness, settlement(&claimed_message, None, Next::Dead(Cause::Exhausted))).await?;
    let wanted = problem(None, "its deliveries are exhausted");
    expect_equal("a dead letter", &shown(&claimed_message).await?, &wanted)?;
    let claimed_message = put(&harness, "silent").await?;
    settled(&harness, failed(&claimed_message, again(Duration::ZERO, Sent::Maybe))).await?;
    expect_equal("a retry", &shown(&claimed_message).await?, &problem(Some(503), "it was away"))?;
    let claimed_message = take(&harness, "silent").await?;
    let last = (claimed_message.status, claimed_message.problem.clone());
    expect_equal("a claimed message", &last, &problem(Some(503), "it was away"))?;
    settled(&harness, settlement(&claimed_message, None, Next::Unknown("no word"))).await?;
    let wanted = problem(Some(503), "no word: it was away");
    expect_equal("an unknown message", &shown(&claimed_message).await?, &wanted)
}

/// The moves that a late worker and operators with an old view of a message would make.
fn stale(late: &ClaimedMessage, seen: &MessageView, answer: &Outcome) -> Vec<Move> {
    let (number, old, by) = (late.number, Fence::first(77), sample::audit("too late"));
    let seen = MessageView { fence: old, ..seen.clone() };
    let answer = Some(answer.clone());
    let ends = [
        (Some(Delivery::new(Ending::Refused, "declined")), Next::Refused),
        (Some(Delivery::new(Ending::Unknown, "no answer")), Next::Unknown("no word")),
        (None, Next::Delivered(receipt("pay_1"))),
        (None, Next::Dead(Cause::Exhausted)),
    ];
    let settlement = |(delivery, next)| {
        after_settlement(&Settlement {
            claim: late.claim(),
            delivery,
            next,
            answer: answer.clone(),
        })
    };
    let words = [
        Resolution::Delivered { receipt: receipt("pay_1"), answer: answer.clone() },
        Resolution::Refused { answer: answer.clone() },
        Resolution::NotDelivered,
        Resolution::Dropped,
    ];
    let mut moves: Vec<Move> = ends.into_iter().map(settlement).collect();
    moves.extend(words.iter().map(|word| after_resolution(number, old, word, &by)));
    moves.push(after_redrive(&seen, seen.created_at, &by));
    moves
}

async fn a_move_under_an_old_guard_changes_nothing(harness: Harness) -> TestResult {
    let answer = sample::outcome(201, "paid");
    let ends = [
        ("sending", None),
        ("waiting", Some(again(Duration::ZERO, Sent::Maybe))),
        ("unknown", Some(Next::Unknown("no word"))),
        ("dead", Some(Next::Dead(Cause::Exhausted))),
        ("delivered", Some(Next::Delivered(receipt("pay_9")))),
    ];
    for (destination, next) in ends {
        let late = put(&harness, destination).await?;
        harness.advance(LEASE).await;
        let heir = take(&harness, destination).await?;
        if let Some(next) = next {
            settled(&harness, settlement(&heir, None, next)).await?;
        }
        let before = story(&harness, late.number).await?;
        expect_equal("its state", &before.message.state.as_str(), &destination)?;
        let store = harness.store();
        let moves = stale(&late, &before.message, &answer);
        let held = outbox(&*store)?.apply(&[], &moves).await?;
        expect_equal("none is taken", &held, &vec![ClaimStatus::Lost; moves.len()])?;
        let after = story(&harness, late.number).await?;
        expect_equal("the message", &after.message, &before.message)?;
        expect_equal("its history", &after.deliveries, &before.deliveries)?;
        expect_equal("its audit", &after.audits, &before.audits)?;
    }
    Ok(())
}
