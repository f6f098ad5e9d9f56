//! Messages are read with what was to be delivered, for comparing.

use bytes::Bytes;
use firstwrite_core::outbox::{
    Among, Answers, MessageNumber, Resolution, Scan, Scanned, Written, WrittenQuery, protocol,
};

use super::{
    Case, Cause, Duration, Failure, Harness, Message, MessageState, Next, OUTBOX, Sent, TestResult,
    Timestamp, again, case, claim, claim_one, delivered, enqueue, expect, expect_equal, failed,
    message, message_to, now, outbox, sample, settled,
};

pub(super) const CASES: &[Case] = &[
    case!("outbox", OUTBOX, a_scan_is_bounded_and_finds_what_is_meant),
    case!("outbox", OUTBOX, a_written_message_is_read_whole),
    case!("outbox", OUTBOX, written_messages_are_read_by_time_and_destination),
    case!("outbox", OUTBOX, written_messages_are_read_in_pages_of_bounded_size),
    case!("outbox", OUTBOX, a_written_message_tells_when_it_was_last_handled),
];

fn all() -> WrittenQuery {
    WrittenQuery {
        destination: "provider".to_owned(),
        from: Timestamp::EPOCH,
        until: Timestamp::NEVER,
        after: None,
        limit: 100,
    }
}

/// Every page of `query`.
async fn written(harness: &Harness, query: WrittenQuery) -> Result<Vec<Written>, Failure> {
    let store = harness.store();
    let (mut messages, mut query) = (Vec::new(), query);
    for _ in 0..100 {
        let page = protocol::written(outbox(&*store)?, &query).await?;
        expect(page.messages.len() <= query.limit, "a page is no longer than asked")?;
        messages.extend(page.messages);
        query.after = page.next;
        if query.after.is_none() {
            return Ok(messages);
        }
    }
    Err(Failure::new("the pages come to an end"))
}

async fn keys(harness: &Harness, query: WrittenQuery) -> Result<Vec<String>, Failure> {
    let messages = written(harness, query).await?;
    Ok(messages.into_iter().map(|message| message.view.derived_key).collect())
}

async fn a_scan_is_bounded_and_finds_what_is_meant(harness: Harness) -> TestResult {
    enqueue(&harness, &["1", "2", "3"].map(|key| message(&harness, key))).await?;
    let claimed = claim(&harness, 3).await?;
    settled(&harness, delivered(&claimed[0], "pay_1")).await?;
    settled(&harness, failed(&claimed[1], Next::Unknown("nobody knows"))).await?;
    settled(&harness, failed(&claimed[2], Next::Dead(Cause::Exhausted))).await?;
    let mailed = message_to(&harness, "5", "mailer");
    enqueue(&harness, &[message(&harness, "4"), mailed.clone()]).await?;
    let store = harness.store();
    for (among, wanted) in [
        (Among::Everything, "1:step 2:step 3:step 4:step 5:step+"),
        (Among::Pending, "2:step 3:step 4:step 5:step+"),
        (Among::Unknown, "2:step"),
        (Among::Dead, "3:step"),
        (Among::Record(mailed.record()), "5:step+"),
        (Among::Key("1:step".to_owned()), "1:step"),
    ] {
        for limit in [1, 2, 9] {
            let contents_to = Some("mailer".to_owned());
            let mut scan = Scan { among: among.clone(), contents_to, after: None, limit };
            let mut found = Vec::new();
            for _ in 0..100 {
                let page = outbox(&*store)?.scan(&scan).await?;
                expect(page.messages.len() <= limit, "a scan is no longer than asked")?;
                found.extend(page.messages);
                scan.after = page.next;
                if scan.after.is_none() {
                    break;
                }
            }
            let shown = |one: &Scanned| {
                let content = if one.content.is_some() { "+" } else { "" };
                format!("{}{content}", one.view.derived_key)
            };
            let found: Vec<String> = found.iter().map(shown).collect();
            expect_equal(&format!("{among:?}"), &found.join(" "), &wanted.to_owned())?;
        }
    }
    Ok(())
}

async fn a_written_message_is_read_whole(harness: Harness) -> TestResult {
    let answers = Answers {
        delivered: sample::outcome(201, "paid as {provider_id}"),
        refused: sample::outcome(402, "no"),
    };
    let plain = message(&harness, "plain");
    let payload = Bytes::from_static(b"\x00\xff'");
    let answering =
        Message::new(harness.tenant(), &sample::key("answering"), "step", "provider", payload)
            .expect("sample messages are within their limits")
            .content_type("application/octet-stream")
            .ordered_by("account 1")
            .answering(answers);
    enqueue(&harness, &[plain.clone(), answering.clone()]).await?;
    let read = written(&harness, all()).await?;
    expect_equal("both", &read.len(), &2)?;
    for (read, wanted) in read.iter().zip([plain, answering]) {
        expect_equal("payload", &read.content.payload, wanted.payload())?;
        expect_equal("content type", &read.content.content_type.as_str(), &wanted.payload_type())?;
        expect_equal("answers", &read.content.answers.as_deref(), &wanted.answers())?;
        expect_equal("record", &read.view.record, &wanted.record())?;
        expect_equal("tenant", &read.view.tenant, wanted.tenant())?;
        expect_equal("key", &read.view.derived_key.as_str(), &wanted.derived_key())?;
        expect_equal("order", &read.view.ordering_key.as_deref(), &wanted.ordering_key())?;
        expect_equal("state", &read.view.state, &MessageState::Waiting)?;
        expect_equal("written", &read.view.created_at, &now(&harness).await?)?;
        expect_equal("length", &read.view.payload_bytes, &wanted.payload().len())?;
    }
    Ok(())
}

async fn written_messages_are_read_by_time_and_destination(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "1"), message_to(&harness, "1", "mailer")]).await?;
    harness.advance(Duration::from_secs(10)).await;
    let from = now(&harness).await?;
    enqueue(&harness, &[message(&harness, "2")]).await?;
    harness.advance(Duration::from_secs(10)).await;
    let until = now(&harness).await?;
    enqueue(&harness, &[message(&harness, "3"), message(&harness, "2")]).await?;
    let check = async |expected: &str, query: WrittenQuery, wanted: &[&str]| {
        let wanted = wanted.iter().map(|key| format!("{key}:step")).collect();
        expect_equal(expected, &keys(&harness, query).await?, &wanted)
    };
    check("to one destination", all(), &["1", "2", "3", "2"]).await?;
    check("from a time on", WrittenQuery { from, ..all() }, &["2", "3", "2"]).await?;
    check("before a time", WrittenQuery { until, ..all() }, &["1", "2"]).await?;
    check("between two", WrittenQuery { from, until, ..all() }, &["2"]).await?;
    let mailer = WrittenQuery { destination: "mailer".to_owned(), ..all() };
    check("to the other", mailer, &["1"]).await
}

async fn written_messages_are_read_in_pages_of_bounded_size(harness: Harness) -> TestResult {
    let mut wanted = Vec::new();
    for number in 0..7 {
        enqueue(&harness, &[message(&harness, &number.to_string())]).await?;
        wanted.push(format!("{number}:step"));
    }
    for limit in [1, 3, 7, 8] {
        expect_equal(
            "each once",
            &keys(&harness, WrittenQuery { limit, ..all() }).await?,
            &wanted,
        )?;
    }
    let after = MessageNumber(i64::MAX);
    let none = written(&harness, WrittenQuery { after: Some(after), ..all() }).await?;
    expect(none.is_empty(), "behind the last there is none")?;
    // More than a page carries, though fewer than it may have.
    let large = Bytes::from(vec![b'x'; Message::PAYLOAD_BYTES_MAX]);
    for number in 0..20 {
        let key = sample::key(&format!("large-{number}"));
        let message = Message::new(harness.tenant(), &key, "step", "files", large.clone());
        enqueue(&harness, &[message.expect("a payload of the largest size")]).await?;
    }
    let files = WrittenQuery { destination: "files".to_owned(), ..all() };
    let store = harness.store();
    let page = protocol::written(outbox(&*store)?, &files).await?;
    let bytes: usize = page.messages.iter().map(|message| message.content.payload.len()).sum();
    let bytes_max = WrittenQuery::PAGE_BYTES_MAX + Message::PAYLOAD_BYTES_MAX;
    expect(bytes <= bytes_max && page.next.is_some(), "a page ends before it is too large")?;
    expect_equal("all of them", &keys(&harness, files).await?.len(), &20)
}

async fn a_written_message_tells_when_it_was_last_handled(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let only = async || -> Result<Written, Failure> {
        let mut read = written(&harness, all()).await?;
        read.pop().ok_or_else(|| Failure::new("the message is there"))
    };
    expect_equal("never claimed", &only().await?.view.handled_at, &None)?;
    harness.advance(Duration::from_secs(10)).await;
    let claimed_at = Some(now(&harness).await?);
    let claimed_message = claim_one(&harness).await?;
    expect_equal("claimed", &only().await?.view.handled_at, &claimed_at)?;
    harness.advance(Duration::from_secs(10)).await;
    settled(&harness, failed(&claimed_message, again(Duration::ZERO, Sent::Maybe))).await?;
    expect_equal("given back", &only().await?.view.handled_at, &claimed_at)?;
    let claimed_at = Some(now(&harness).await?);
    let claimed_message = claim_one(&harness).await?;
    harness.advance(Duration::from_secs(10)).await;
    settled(&harness, failed(&claimed_message, Next::Unknown("nobody knows"))).await?;
    let unknown = only().await?;
    expect_equal("unknown", &unknown.view.handled_at, &claimed_at)?;
    expect_equal("its state", &unknown.view.state, &MessageState::Unknown)?;
    let store = harness.store();
    let by = sample::audit("asked");
    let back = Resolution::NotDelivered;
    let seen = unknown.view.fence;
    protocol::resolve(outbox(&*store)?, claimed_message.number, seen, &back, &by).await?;
    let claimed_message = claim_one(&harness).await?;
    harness.advance(Duration::from_secs(10)).await;
    settled(&harness, delivered(&claimed_message, "pay_1")).await?;
    let arrived = only().await?;
    expect_equal("settled", &arrived.view.handled_at, &Some(now(&harness).await?))?;
    let id = arrived.view.receipt.and_then(|receipt| receipt.provider_id);
    expect_equal("what it is called", &id.as_deref(), &Some("pay_1"))
}
