//! Findings are noted once, belong to an owner, and are closed until they come back.

use std::time::Duration;

use firstwrite_core::findings::{
    Closing, FINDINGS_KEPT_FOR, Finding, FindingKind, FindingNumber, FindingQuery, FindingStory,
    Findings, NewFinding, Noted, Owner, Run,
};
use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::{RecordId, Store, Timestamp};

use super::{Case, Failure, Harness, OUTBOX, TestResult, case, expect, expect_equal};
use crate::sample;

pub(super) const CASES: &[Case] = &[
    case!("findings", OUTBOX, a_finding_is_what_was_noted),
    case!("findings", OUTBOX, the_same_discrepancy_is_one_finding),
    case!("findings", OUTBOX, many_runs_at_once_note_one_finding),
    case!("findings", OUTBOX, a_finding_that_was_fixed_is_open_again_when_it_comes_back),
    case!("findings", OUTBOX, a_finding_that_was_accepted_stays_closed_unless_it_changes),
    case!("findings", OUTBOX, what_was_seen_before_the_closing_opens_nothing),
    case!("findings", OUTBOX, a_finding_is_closed_once),
    case!("findings", OUTBOX, a_finding_belongs_to_whom_it_was_given),
    case!("findings", OUTBOX, findings_are_listed_in_pages_and_by_what_they_are),
    case!("findings", OUTBOX, findings_closed_long_ago_are_forgotten_and_no_others),
    case!("findings", OUTBOX, the_last_run_of_each_source_is_remembered),
    case!("findings", OUTBOX, changes_made_at_the_same_time_are_all_kept),
];

fn findings(store: &dyn Store) -> Result<Findings<'_>, Failure> {
    Findings::of(store).ok_or_else(|| Failure::new("a store that keeps messages keeps findings"))
}

fn found(kind: FindingKind, subject: &str) -> NewFinding {
    NewFinding {
        kind,
        subject: subject.to_owned(),
        detail: "seen in a case".to_owned(),
        record: None,
        message: None,
        provider_id: None,
    }
}

fn duplicate(subject: &str) -> NewFinding {
    found(FindingKind::Duplicate, subject)
}

async fn now(harness: &Harness) -> Result<Timestamp, Failure> {
    Ok(harness.store().now().await?)
}

/// Notes at the store's present time.
async fn note(harness: &Harness, found: &NewFinding) -> Result<Noted, Failure> {
    let store = harness.store();
    let seen_at = now(harness).await?;
    let mut noted =
        findings(&*store)?.note("provider", std::slice::from_ref(found), seen_at).await?;
    noted.pop().ok_or_else(|| Failure::new("something becomes of each"))
}

async fn close(
    harness: &Harness,
    number: FindingNumber,
    closing: &Closing,
) -> Result<bool, Failure> {
    let store = harness.store();
    Ok(findings(&*store)?.close(number, closing, &sample::audit("looked into")).await?)
}

fn fixed() -> Closing {
    Closing::fixed("refunded by hand").expect("a sample is within its limits")
}

async fn story(harness: &Harness, number: FindingNumber) -> Result<FindingStory, Failure> {
    let store = harness.store();
    let story = findings(&*store)?.get(number).await?;
    story.ok_or_else(|| Failure::new("a finding that was noted is there"))
}

async fn list(harness: &Harness, query: FindingQuery) -> Result<Vec<Finding>, Failure> {
    let store = harness.store();
    let query = FindingQuery { limit: 100, ..query };
    Ok(findings(&*store)?.list(&query).await?.findings)
}

fn number_of(noted: Noted) -> FindingNumber {
    match noted {
        Noted::New(number)
        | Noted::Known(number)
        | Noted::Reopened(number)
        | Noted::Closed(number) => number,
    }
}

async fn a_finding_is_what_was_noted(harness: Harness) -> TestResult {
    let seen_at = now(&harness).await?;
    for kind in FindingKind::ALL {
        let noted = NewFinding {
            detail: "amount: 5 here, 6 there, 'ü' \u{fffd}".to_owned(),
            record: Some(RecordId::from_bytes([0xfe; 16])),
            message: Some(MessageNumber(i64::MAX)),
            provider_id: Some("pay_1".to_owned()),
            ..found(kind, "message 7")
        };
        let number = number_of(note(&harness, &noted).await?);
        let wanted = Finding {
            number,
            source: "provider".to_owned(),
            found: noted,
            first_seen: seen_at,
            last_seen: seen_at,
            reopened_count: 0,
            owner: None,
            closed: None,
        };
        let told = story(&harness, number).await?;
        expect_equal("what was noted", &told.finding, &wanted)?;
        expect(told.audits.is_empty(), "nobody has done anything to it")?;
    }
    let bare = number_of(note(&harness, &duplicate("bare")).await?);
    expect_equal("nothing but", &story(&harness, bare).await?.finding.found, &duplicate("bare"))?;
    let store = harness.store();
    let nobody = findings(&*store)?.get(FindingNumber(i64::MAX)).await?;
    expect(nobody.is_none(), "no finding, no story")
}

async fn the_same_discrepancy_is_one_finding(harness: Harness) -> TestResult {
    let first_seen = now(&harness).await?;
    let number = number_of(note(&harness, &duplicate("message 1")).await?);
    harness.advance(Duration::from_hours(24)).await;
    let changed = NewFinding { detail: "now three".to_owned(), ..duplicate("message 1") };
    expect_equal("seen again", &note(&harness, &changed).await?, &Noted::Known(number))?;
    let finding = story(&harness, number).await?.finding;
    expect_equal("first seen", &finding.first_seen, &first_seen)?;
    expect_equal("last seen", &finding.last_seen, &now(&harness).await?)?;
    expect_equal("what was seen last", &finding.found.detail.as_str(), &"now three")?;
    // Another kind, another subject, another source.
    let store = harness.store();
    let seen_at = now(&harness).await?;
    let others = [found(FindingKind::Differs, "message 1"), duplicate("message 2")];
    let noted = findings(&*store)?.note("provider", &others, seen_at).await?;
    let elsewhere = findings(&*store)?.note("mailer", &[duplicate("message 1")], seen_at).await?;
    let are_new = noted.iter().chain(&elsewhere).all(|noted| matches!(noted, Noted::New(_)));
    expect(are_new && noted.len() == 2, "each of them is another finding")?;
    let twice = [duplicate("message 3"), duplicate("message 4"), duplicate("message 3")];
    let noted = findings(&*store)?.note("provider", &twice, seen_at).await?;
    let again = noted.first().map(|first| Noted::Known(number_of(*first)));
    expect_equal("twice in one run", &noted.get(2).copied(), &again)?;
    expect_equal("all", &list(&harness, FindingQuery::default()).await?.len(), &6)
}

async fn many_runs_at_once_note_one_finding(harness: Harness) -> TestResult {
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let harness = harness.clone();
        runs.spawn(async move { note(&harness, &duplicate("message 1")).await });
    }
    let mut new_count = 0;
    while let Some(noted) = runs.join_next().await {
        let noted = noted.map_err(Failure::panicked)??;
        new_count += usize::from(matches!(noted, Noted::New(_)));
    }
    expect_equal("one of them found it", &new_count, &1)?;
    expect_equal("one finding", &list(&harness, FindingQuery::default()).await?.len(), &1)
}

async fn a_finding_that_was_fixed_is_open_again_when_it_comes_back(harness: Harness) -> TestResult {
    let number = number_of(note(&harness, &duplicate("message 1")).await?);
    expect(close(&harness, number, &fixed()).await?, "an open finding is closed")?;
    let finding = story(&harness, number).await?.finding;
    let Some(closed) = finding.closed else { return Err(Failure::new("it is closed")) };
    expect_equal("how", &closed.closing, &fixed())?;
    expect_equal("by whom", &closed.by, &sample::audit("").actor)?;
    harness.advance(Duration::from_secs(1)).await;
    let noted = note(&harness, &duplicate("message 1")).await?;
    expect_equal("back", &noted, &Noted::Reopened(number))?;
    let finding = story(&harness, number).await?.finding;
    let back = (finding.closed.is_none(), finding.reopened_count);
    expect_equal("open, for the second time", &back, &(true, 1))?;
    expect(close(&harness, number, &fixed()).await?, "and can be closed again")
}

async fn a_finding_that_was_accepted_stays_closed_unless_it_changes(
    harness: Harness,
) -> TestResult {
    let number = number_of(note(&harness, &duplicate("message 1")).await?);
    let accepted = Closing::accepted("agreed with the provider").expect("within its limits");
    expect(close(&harness, number, &accepted).await?, "an open finding is closed")?;
    harness.advance(Duration::from_secs(1)).await;
    let noted = note(&harness, &duplicate("message 1")).await?;
    expect_equal("the same again", &noted, &Noted::Closed(number))?;
    let finding = story(&harness, number).await?.finding;
    expect_equal("how", &finding.closed.map(|closed| closed.closing), &Some(accepted))?;
    expect_equal("when it was seen", &finding.last_seen, &now(&harness).await?)?;
    let changed = NewFinding { detail: "now three".to_owned(), ..duplicate("message 1") };
    expect_equal("changed", &note(&harness, &changed).await?, &Noted::Reopened(number))
}

async fn what_was_seen_before_the_closing_opens_nothing(harness: Harness) -> TestResult {
    let number = number_of(note(&harness, &duplicate("message 1")).await?);
    let seen_at = now(&harness).await?;
    harness.advance(Duration::from_secs(1)).await;
    close(&harness, number, &fixed()).await?;
    harness.advance(Duration::from_secs(1)).await;
    let store = harness.store();
    let noted = findings(&*store)?.note("provider", &[duplicate("message 1")], seen_at).await?;
    expect_equal("a run that began before", &noted, &vec![Noted::Closed(number)])?;
    expect(story(&harness, number).await?.finding.closed.is_some(), "it stays closed")
}

async fn a_finding_is_closed_once(harness: Harness) -> TestResult {
    let number = number_of(note(&harness, &duplicate("message 1")).await?);
    expect(close(&harness, number, &fixed()).await?, "an open finding is closed")?;
    expect(!close(&harness, number, &fixed()).await?, "a closed one is not")?;
    expect(
        !close(&harness, FindingNumber(i64::MAX), &fixed()).await?,
        "nor one that is not there",
    )?;
    let audits = story(&harness, number).await?.audits;
    let told: Vec<_> = audits.iter().map(|audited| &audited.entry).collect();
    expect_equal("one audit entry", &told, &vec![&sample::audit("looked into")])
}

async fn a_finding_belongs_to_whom_it_was_given(harness: Harness) -> TestResult {
    let number = number_of(note(&harness, &duplicate("message 1")).await?);
    let other = number_of(note(&harness, &duplicate("message 2")).await?);
    let store = harness.store();
    let findings = findings(&*store)?;
    let owner = Owner::new("billing").expect("a sample is within its limits");
    let by = sample::audit("theirs");
    expect(findings.assign(number, Some(&owner), &by).await?, "a finding can be given")?;
    let owner_of = async |number| story(&harness, number).await.map(|told| told.finding.owner);
    expect_equal("whose", &owner_of(number).await?, &Some("billing".to_owned()))?;
    expect_equal("and no other", &owner_of(other).await?, &None)?;
    harness.advance(Duration::from_secs(1)).await;
    note(&harness, &duplicate("message 1")).await?;
    expect_equal("still", &owner_of(number).await?, &Some("billing".to_owned()))?;
    expect(findings.assign(number, None, &by).await?, "and be taken away")?;
    expect_equal("nobody's", &owner_of(number).await?, &None)?;
    expect_equal("two audit entries", &story(&harness, number).await?.audits.len(), &2)?;
    let nobody = findings.assign(FindingNumber(i64::MAX), None, &by).await?;
    expect(!nobody, "one that is not there cannot be given")
}

async fn findings_are_listed_in_pages_and_by_what_they_are(harness: Harness) -> TestResult {
    let mut numbers = Vec::new();
    for subject in 0..5 {
        let subject = format!("message {subject}");
        numbers.push(number_of(note(&harness, &duplicate(&subject)).await?));
    }
    let differs = found(FindingKind::Differs, "message 0");
    let differs = number_of(note(&harness, &differs).await?);
    let store = harness.store();
    let findings = findings(&*store)?;
    let seen_at = now(&harness).await?;
    let elsewhere = findings.note("mailer", &[duplicate("message 0")], seen_at).await?;
    let elsewhere: Vec<_> = elsewhere.into_iter().map(number_of).collect();
    close(&harness, numbers[1], &fixed()).await?;
    let numbers_of = async |query: FindingQuery| -> Result<Vec<FindingNumber>, Failure> {
        Ok(list(&harness, query).await?.iter().map(|finding| finding.number).collect())
    };
    let all = FindingQuery::default();
    let of_kind = FindingQuery { kind: Some(FindingKind::Differs), ..all.clone() };
    expect_equal("of a kind", &numbers_of(of_kind).await?, &vec![differs])?;
    let of_source = FindingQuery { source: Some("mailer".to_owned()), ..all.clone() };
    expect_equal("of a source", &numbers_of(of_source).await?, &elsewhere)?;
    let closed = FindingQuery { is_open: Some(false), ..all.clone() };
    expect_equal("closed", &numbers_of(closed).await?, &vec![numbers[1]])?;
    let open = FindingQuery {
        source: Some("provider".to_owned()),
        kind: Some(FindingKind::Duplicate),
        is_open: Some(true),
        ..all
    };
    let wanted = vec![numbers[0], numbers[2], numbers[3], numbers[4]];
    expect_equal("all of it", &numbers_of(open.clone()).await?, &wanted)?;
    let (mut paged, mut after) = (Vec::new(), None);
    for _ in 0..10 {
        let query = FindingQuery { after, limit: 3, ..open.clone() };
        let page = findings.list(&query).await?;
        expect(page.findings.len() <= 3, "a page is no longer than asked")?;
        paged.extend(page.findings.iter().map(|finding| finding.number));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    expect_equal("page by page", &paged, &wanted)
}

async fn findings_closed_long_ago_are_forgotten_and_no_others(harness: Harness) -> TestResult {
    let old = number_of(note(&harness, &duplicate("old")).await?);
    let open = number_of(note(&harness, &duplicate("open")).await?);
    let recent = number_of(note(&harness, &duplicate("recent")).await?);
    close(&harness, old, &fixed()).await?;
    harness.advance(FINDINGS_KEPT_FOR / 2).await;
    close(&harness, recent, &fixed()).await?;
    harness.advance(FINDINGS_KEPT_FOR / 2).await;
    let store = harness.store();
    let at = now(&harness).await?;
    findings(&*store)?.ran("provider", at, &Run { at, until: at, again_from: at }).await?;
    let left = list(&harness, FindingQuery::default()).await?;
    let left: Vec<_> = left.iter().map(|finding| finding.number).collect();
    expect_equal("what is left", &left, &vec![open, recent])
}

async fn the_last_run_of_each_source_is_remembered(harness: Harness) -> TestResult {
    let store = harness.store();
    let findings = findings(&*store)?;
    expect_equal("never ran", &findings.last_run("provider").await?, &None)?;
    let run = |at: i64| Run {
        at: Timestamp::from_millis(at),
        until: Timestamp::from_millis(at + 1),
        again_from: Timestamp::from_millis(at + 2),
    };
    let start = Timestamp::EPOCH;
    findings.ran("provider", start, &run(10)).await?;
    findings.ran("mailer", start, &run(20)).await?;
    findings.ran("provider", start, &run(30)).await?;
    expect_equal("the last", &findings.last_run("provider").await?, &Some(run(30)))?;
    expect_equal("of each", &findings.last_run("mailer").await?, &Some(run(20)))?;
    findings.ran("provider", start, &run(15)).await?;
    findings.ran("provider", Timestamp::from_millis(33), &run(40)).await?;
    let last = findings.last_run("provider").await?;
    expect_equal("neither an older time nor a gap", &last, &Some(run(30)))
}

/// Runs and people change one finding at the same time: each of them sees what the others did.
async fn changes_made_at_the_same_time_are_all_kept(harness: Harness) -> TestResult {
    let number = number_of(note(&harness, &duplicate("message 1")).await?);
    close(&harness, number, &fixed()).await?;
    harness.advance(Duration::from_secs(1)).await;
    let mut tasks = tokio::task::JoinSet::new();
    for person in 0..6 {
        let (noting, assigning) = (harness.clone(), harness.clone());
        tasks.spawn(async move { note(&noting, &duplicate("message 1")).await.map(drop) });
        tasks.spawn(async move {
            let store = assigning.store();
            let by = sample::audit(&format!("person {person}"));
            let is_there = findings(&*store)?.assign(number, None, &by).await?;
            expect(is_there, "a finding can be given while runs note it")
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(Failure::panicked)??;
    }
    let story = story(&harness, number).await?;
    let finding = story.finding;
    let state = (finding.closed.is_none(), finding.reopened_count);
    expect_equal("open again, once", &state, &(true, 1))?;
    let mut told: Vec<_> = story.audits.into_iter().map(|audited| audited.entry.reason).collect();
    told.sort();
    let wanted: Vec<_> = (0..6).map(|person| format!("person {person}")).collect();
    let (closing, given) = (told.first().cloned(), told.split_off(1));
    expect_equal("the closing", &closing, &Some("looked into".to_owned()))?;
    expect_equal("everybody's change", &given, &wanted)
}
