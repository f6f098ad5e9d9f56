//! Destinations that are left alone or paused give nothing, and come back one message at a time.

use firstwrite_core::outbox::{DestinationView, Switch, protocol};
use firstwrite_core::{AuditEntry, RecordId};

use super::{
    Case, Cause, Duration, Failure, Harness, LEASE, MessageQuery, Next, OUTBOX, Sent, TestResult,
    again, case, claim, claim_of, claim_one, delivered, enqueue, expect, expect_equal, failed,
    message, message_to, now, outbox, refused, request, sample, settled,
};

pub(super) const CASES: &[Case] = &[
    case!("outbox", OUTBOX, a_destination_left_alone_gives_nothing_until_its_trial),
    case!("outbox", OUTBOX, one_worker_makes_the_trial),
    case!("outbox", OUTBOX, a_trial_without_a_message_is_still_to_come),
    case!("outbox", OUTBOX, a_paused_destination_gives_nothing_until_it_is_resumed),
    case!("outbox", OUTBOX, a_healthy_destination_is_as_before_when_it_is_resumed),
    case!("outbox", OUTBOX, pauses_and_resumes_are_audited),
    case!("outbox", OUTBOX, counts_follow_what_happens),
];

async fn switch(harness: &Harness, switch: Switch) -> TestResult {
    let store = harness.store();
    protocol::switch(outbox(&*store)?, "provider", &switch).await?;
    Ok(())
}

fn open() -> Switch {
    Switch::Open { open_for: Duration::from_secs(30), cause: "it was away".to_owned() }
}

async fn provider(harness: &Harness) -> Result<DestinationView, Failure> {
    let store = harness.store();
    let all = outbox(&*store)?.destinations().await?;
    let found = all.into_iter().find(|view| view.name == "provider");
    found.ok_or_else(|| Failure::new("a destination with messages is shown"))
}

async fn a_destination_left_alone_gives_nothing_until_its_trial(harness: Harness) -> TestResult {
    enqueue(&harness, &["1", "2", "3"].map(|key| message(&harness, key))).await?;
    enqueue(&harness, &[message_to(&harness, "m", "mailer")]).await?;
    switch(&harness, open()).await?;
    harness.advance(sample::just_before(Duration::from_secs(30))).await;
    let claimed = claim_of(&harness, &[request("provider", 9), request("mailer", 9)]).await?;
    expect_equal("only what goes elsewhere", &claimed.messages.len(), &1)?;
    expect_equal("the closed one", &claimed.closed, &vec!["provider".to_owned()])?;
    harness.advance(sample::TICK).await;
    let messages = claim(&harness, 9).await?;
    let trials: Vec<bool> =
        messages.iter().map(|claimed_message| claimed_message.is_trial).collect();
    expect_equal("one message goes to see", &trials, &vec![true])?;
    switch(&harness, Switch::Closed).await?;
    let rest = claim(&harness, 9).await?;
    expect(
        rest.len() == 2 && !rest.iter().any(|claimed_message| claimed_message.is_trial),
        "then the others",
    )
}

async fn one_worker_makes_the_trial(harness: Harness) -> TestResult {
    enqueue(&harness, &["1", "2", "3"].map(|key| message(&harness, key))).await?;
    switch(&harness, open()).await?;
    switch(&harness, open()).await?;
    expect_equal("in a row", &provider(&harness).await?.opening_count, &2)?;
    harness.advance(Duration::from_secs(30)).await;
    let trials = (0..4).map(|_| {
        let harness = harness.clone();
        tokio::spawn(async move { claim(&harness, 9).await })
    });
    let mut count = 0;
    for trial in trials.collect::<Vec<_>>() {
        count += trial.await.map_err(Failure::panicked)??.len();
    }
    expect_equal("one message goes to see", &count, &1)?;
    harness.advance(sample::just_before(LEASE)).await;
    expect(claim(&harness, 9).await?.is_empty(), "nothing while the trial may be under way")?;
    harness.advance(sample::TICK).await;
    expect_equal("then the next trial", &claim(&harness, 9).await?.len(), &1)
}

async fn a_trial_without_a_message_is_still_to_come(harness: Harness) -> TestResult {
    switch(&harness, open()).await?;
    harness.advance(Duration::from_secs(30)).await;
    expect(claim(&harness, 9).await?.is_empty(), "there is no message")?;
    enqueue(&harness, &["1", "2"].map(|key| message(&harness, key))).await?;
    let messages = claim(&harness, 9).await?;
    expect(messages.len() == 1 && messages[0].is_trial, "the first one that comes goes to see")
}

async fn a_paused_destination_gives_nothing_until_it_is_resumed(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let store = harness.store();
    protocol::pause(outbox(&*store)?, "provider", &sample::audit("an incident")).await?;
    harness.advance(Duration::from_hours(24)).await;
    let claimed = claim_of(&harness, &[request("provider", 9)]).await?;
    expect(claimed.messages.is_empty(), "nothing is claimed")?;
    expect_equal("the closed one", &claimed.closed, &vec!["provider".to_owned()])?;
    let paused = provider(&harness).await?.paused;
    let reason = paused.map(|paused| paused.entry.reason);
    expect_equal("why", &reason, &Some("an incident".to_owned()))?;
    switch(&harness, open()).await?;
    protocol::resume(outbox(&*store)?, "provider", &sample::audit("it is over")).await?;
    expect_equal("a trial at once", &claim_one(&harness).await?.is_trial, &true)
}

async fn a_healthy_destination_is_as_before_when_it_is_resumed(harness: Harness) -> TestResult {
    enqueue(&harness, &["1", "2", "3"].map(|key| message(&harness, key))).await?;
    let store = harness.store();
    protocol::pause(outbox(&*store)?, "provider", &sample::audit("an incident")).await?;
    protocol::resume(outbox(&*store)?, "provider", &sample::audit("it is over")).await?;
    let messages = claim(&harness, 9).await?;
    let all_at_once =
        messages.len() == 3 && messages.iter().all(|claimed_message| !claimed_message.is_trial);
    expect(all_at_once, "all of them at once, and none as a trial")
}

async fn pauses_and_resumes_are_audited(harness: Harness) -> TestResult {
    enqueue(&harness, &[message(&harness, "k")]).await?;
    let store = harness.store();
    let by =
        |action: &str, reason| AuditEntry { action: action.to_owned(), ..sample::audit(reason) };
    protocol::pause(outbox(&*store)?, "provider", &by("pause", "an incident")).await?;
    let began_at = now(&harness).await?;
    switch(&harness, open()).await?;
    harness.advance(Duration::from_mins(5)).await;
    protocol::resume(outbox(&*store)?, "provider", &by("resume", "it is over")).await?;
    let ended_at = now(&harness).await?;
    let audits = store.audits(RecordId::of_destination("provider")).await?;
    let told: Vec<_> = audits.iter().map(|one| (one.at, one.entry.clone())).collect();
    let wanted =
        vec![(began_at, by("pause", "an incident")), (ended_at, by("resume", "it is over"))];
    expect_equal("who did what, when and why", &told, &wanted)?;
    protocol::resume(outbox(&*store)?, "unheard", &by("resume", "by mistake")).await?;
    let known = outbox(&*store)?.destinations().await?;
    expect(known.iter().all(|view| view.name != "unheard"), "what is not known stays unknown")?;
    let none = store.audits(RecordId::of_destination("unheard")).await?;
    expect(none.is_empty(), "and has no audit")
}

async fn counts_follow_what_happens(harness: Harness) -> TestResult {
    let keys = ["1", "2", "3", "4", "5", "6", "7"];
    enqueue(&harness, &keys.map(|key| message(&harness, key))).await?;
    let counts = async |expected: &str, wanted: [i64; 4]| {
        // A store may take a message in only when it is next looked for.
        claim_of(&harness, &[]).await?;
        let view = provider(&harness).await?;
        let found = [view.open_count, view.unknown_count, view.dead_count, view.delivered_count];
        expect_equal(expected, &found, &wanted)
    };
    counts("all wait", [7, 0, 0, 0]).await?;
    let messages = claim(&harness, 6).await?;
    counts("claimed ones are open", [7, 0, 0, 0]).await?;
    settled(&harness, delivered(&messages[0], "pay_1")).await?;
    settled(&harness, delivered(&messages[1], "pay_2")).await?;
    settled(&harness, failed(&messages[2], Next::Unknown("nobody knows"))).await?;
    settled(&harness, failed(&messages[3], Next::Dead(Cause::Refused))).await?;
    settled(&harness, failed(&messages[4], again(Duration::ZERO, Sent::No))).await?;
    settled(&harness, refused(&messages[5])).await?;
    counts("each where it belongs", [2, 1, 1, 2]).await?;
    let store = harness.store();
    outbox(&*store)?.upkeep(Duration::from_hours(24), 100).await?;
    counts("folding changes nothing", [2, 1, 1, 2]).await?;
    let entry = sample::audit("mended");
    protocol::redrive(outbox(&*store)?, &MessageQuery::default(), 9, &entry).await?;
    counts("a dead letter is open again", [3, 1, 0, 2]).await
}
