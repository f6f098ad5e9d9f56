//! Messages under one ordering key leave one after the other.

use super::{
    Case, Duration, Failure, Harness, Message, MessageQuery, Next, OUTBOX, Sent, TestResult, again,
    case, claim, claim_of, claim_one, delivered, enqueue, expect, expect_equal, failed, message,
    message_to, request, settled, views,
};

pub(super) const CASES: &[Case] = &[
    case!("outbox", OUTBOX, messages_under_one_ordering_key_leave_one_by_one),
    case!("outbox", OUTBOX, what_is_not_delivered_holds_its_successors),
    case!("outbox", OUTBOX, orders_of_two_destinations_do_not_meet),
];

fn ordered(harness: &Harness, key: &str, order: &str) -> Message {
    message(harness, key).ordered_by(order)
}

async fn keys(harness: &Harness) -> Result<Vec<String>, Failure> {
    Ok(claim(harness, 9)
        .await?
        .into_iter()
        .map(|claimed_message| claimed_message.derived_key)
        .collect())
}

async fn messages_under_one_ordering_key_leave_one_by_one(harness: Harness) -> TestResult {
    let messages = [("a1", "a"), ("b1", "b"), ("a2", "a"), ("a3", "a"), ("b2", "b")];
    enqueue(&harness, &messages.map(|(key, order)| ordered(&harness, key, order))).await?;
    enqueue(&harness, &[message(&harness, "free")]).await?;
    let mut left = Vec::new();
    loop {
        let claimed_messages = claim(&harness, 9).await?;
        if claimed_messages.is_empty() {
            break;
        }
        left.push(
            claimed_messages
                .iter()
                .map(|claimed_message| claimed_message.derived_key.clone())
                .collect::<Vec<_>>(),
        );
        for claimed_message in &claimed_messages {
            settled(&harness, delivered(claimed_message, "pay")).await?;
        }
    }
    for keys in &mut left {
        keys.sort();
    }
    let wanted =
        [vec!["a1:step", "b1:step", "free:step"], vec!["a2:step", "b2:step"], vec!["a3:step"]]
            .map(|keys| keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
    expect_equal("the heads, then their successors", &left, &wanted.to_vec())
}

async fn what_is_not_delivered_holds_its_successors(harness: Harness) -> TestResult {
    enqueue(&harness, &["1", "2"].map(|key| ordered(&harness, key, "a"))).await?;
    let head = claim_one(&harness).await?;
    expect(keys(&harness).await?.is_empty(), "not while the first is being sent")?;
    settled(&harness, failed(&head, again(Duration::from_secs(9), Sent::AsBefore))).await?;
    expect(keys(&harness).await?.is_empty(), "not while the first waits")?;
    harness.advance(Duration::from_secs(9)).await;
    let head = claim_one(&harness).await?;
    expect_equal("the first again", &head.derived_key.as_str(), &"1:step")?;
    settled(&harness, failed(&head, Next::Unknown("nobody knows"))).await?;
    expect(keys(&harness).await?.is_empty(), "not while the first is unknown")?;
    let second = views(&harness, MessageQuery::default()).await?;
    expect_equal("it is not due", &second.last().and_then(|view| view.due_at), &None)
}

async fn orders_of_two_destinations_do_not_meet(harness: Harness) -> TestResult {
    let messages = ["provider", "mailer"].map(|to| message_to(&harness, to, to).ordered_by("same"));
    enqueue(&harness, &messages).await?;
    let claimed = claim_of(&harness, &[request("provider", 9), request("mailer", 9)]).await?;
    expect_equal("one each", &claimed.messages.len(), &2)
}
