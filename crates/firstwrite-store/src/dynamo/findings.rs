//! Findings in the same table. Each is noted by itself: a run that breaks off has noted some, and finds them known
//! the next time.

mod items;

use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem};
use firstwrite_core::findings::{
    Closed, Closing, FINDINGS_KEPT_FOR, Finding, FindingNumber, FindingPage, FindingQuery,
    FindingStory, Findings, NOTED_MAX, NewFinding, Noted, Owner, Run,
};
use firstwrite_core::{AuditEntry, BoxFuture, StoreError, Timestamp};

use super::DynamoStore;
use super::audit;
use super::fault::unavailable;
use super::items::{SHARD, integer, number, text};
use super::link::Link;
use super::outbox::Numbers;
use super::partition::Partition;
use super::write::{self, Sent, Step, Terms, Transaction};
use items::{CLOSED_AT, DETAIL, LAST_SEEN, NUMBER, OWNER, REOPENED_COUNT};

const NOTING: &str = "noting findings";

/// How often a finding is looked at again that somebody else changed in between.
const TRIES_MAX: usize = 16;

/// Answers that a page is made of at most, each of up to a megabyte.
const ANSWERS_MAX: usize = 20;

async fn note(
    link: &Link,
    numbers: &Numbers,
    source: &str,
    found: &NewFinding,
    seen_at: Timestamp,
) -> Result<Noted, StoreError> {
    let same = items::key_of_same(source, found.kind, &found.subject);
    for _ in 0..TRIES_MAX {
        let known = match link.item_at(same.clone(), NOTING).await? {
            None => None,
            Some(pointer) => {
                let number = FindingNumber(integer(&pointer, NUMBER)?);
                link.item_at(items::key_of(number), NOTING).await?
            }
        };
        let noted = match known {
            None => {
                let given = FindingNumber(numbers.next(link.now()));
                let steps = add(link, given, source, found, seen_at);
                match write::transact(link, &steps, &write::new_token(), NOTING).await? {
                    Transaction::Done => Some(Noted::New(given)),
                    Transaction::Refused(..) => None,
                }
            }
            Some(item) => {
                let known = items::read(&item)?;
                let noted = known.seen_again(found, seen_at);
                let step = see_again(link, &known, noted, found, seen_at);
                match write::send(link, step, NOTING).await? {
                    Sent::Done => Some(noted),
                    Sent::Refused(_) => None,
                }
            }
        };
        if let Some(noted) = noted {
            return Ok(noted);
        }
    }
    Err(unavailable(NOTING, "many others note the same"))
}

/// A new finding, and what points to it.
fn add(
    link: &Link,
    given: FindingNumber,
    source: &str,
    found: &NewFinding,
    seen_at: Timestamp,
) -> Vec<TransactWriteItem> {
    let free = |terms: &mut Terms| format!("attribute_not_exists({})", terms.name(SHARD));
    let mut terms = Terms::default();
    let condition = free(&mut terms);
    let item = items::new(given, source, found, seen_at);
    let finding = Step::put(link, item, condition, &terms);
    let mut pointer = items::key_of_same(source, found.kind, &found.subject);
    pointer.insert(NUMBER.to_owned(), number(given.0));
    let mut terms = Terms::default();
    let condition = free(&mut terms);
    let pointer = Step::put(link, pointer, condition, &terms);
    vec![pointer.in_transaction(), finding.in_transaction()]
}

fn see_again(
    link: &Link,
    known: &Finding,
    noted: Noted,
    found: &NewFinding,
    seen_at: Timestamp,
) -> Step {
    let last_seen = (LAST_SEEN, Some(number(known.last_seen.max(seen_at).as_millis())));
    let mut written = vec![last_seen];
    if !matches!(noted, Noted::Closed(_)) {
        written.extend(items::seen(found));
        written.extend(items::closed(None));
        let is_reopened = i64::from(matches!(noted, Noted::Reopened(_)));
        let count = i64::from(known.reopened_count).saturating_add(is_reopened);
        written.push((REOPENED_COUNT, Some(number(count))));
    }
    let mut terms = Terms::default();
    // What was decided by, and what is counted from.
    let condition = [
        match &known.closed {
            Some(closed) => terms.is(CLOSED_AT, "=", number(closed.at.as_millis())),
            None => format!("attribute_not_exists({})", terms.name(CLOSED_AT)),
        },
        terms.is(DETAIL, "=", text(&*known.found.detail)),
        terms.is(LAST_SEEN, "=", number(known.last_seen.as_millis())),
        terms.is(REOPENED_COUNT, "=", number(known.reopened_count.into())),
    ];
    let change = change(&mut terms, written);
    let key = items::key_of(known.number);
    Step::update(link, key, change, condition.join(" AND "), &terms)
}

/// Writes these attributes, and removes those without a value.
fn change(terms: &mut Terms, written: Vec<(&'static str, Option<AttributeValue>)>) -> String {
    let (mut set, mut gone) = (Vec::new(), Vec::new());
    for (name, value) in written {
        match value {
            Some(value) => set.push(terms.is(name, "=", value)),
            None => gone.push(terms.name(name)),
        }
    }
    let set = (!set.is_empty()).then(|| format!("SET {}", set.join(", ")));
    let gone = (!gone.is_empty()).then(|| format!("REMOVE {}", gone.join(", ")));
    [set, gone].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Changes a finding with an audit entry. `false` if `condition` does not hold.
async fn act(
    link: &Link,
    finding: FindingNumber,
    written: Vec<(&'static str, Option<AttributeValue>)>,
    condition: impl FnOnce(&mut Terms) -> String,
    (by, now, doing): (&AuditEntry, Timestamp, &'static str),
) -> Result<bool, StoreError> {
    link.writable(doing)?;
    let mut terms = Terms::default();
    let condition = condition(&mut terms);
    let change = change(&mut terms, written);
    let step = Step::update(link, items::key_of(finding), change, condition, &terms);
    let (about, steps) = (audit::of_finding(finding), vec![step.in_transaction()]);
    match audit::send(link, &about, steps, by, (now, doing)).await? {
        Transaction::Done => Ok(true),
        Transaction::Refused(..) => Ok(false),
    }
}

async fn list(link: &Link, query: &FindingQuery) -> Result<FindingPage, StoreError> {
    let limit = query.limit.clamp(1, FindingQuery::LIMIT_MAX);
    let mut after = query.after.map(|after| after.0.max(0).to_be_bytes().to_vec());
    let (mut findings, mut is_more): (Vec<Finding>, bool) = (Vec::new(), false);
    for _ in 0..ANSWERS_MAX {
        let asked = Partition { after: after.take(), ..Partition::of(items::ALL) };
        let answer = asked.ask(link, "listing findings", |_| None).await?;
        for item in &answer.items {
            let finding = items::read(item)?;
            if query.matches(&finding) {
                findings.push(finding);
            }
        }
        after = answer.ended_at;
        is_more = findings.len() > limit;
        if is_more || after.is_none() {
            break;
        }
    }
    findings.truncate(limit);
    let looked_at = after.and_then(|after| after.try_into().ok().map(i64::from_be_bytes));
    let next = if is_more {
        findings.last().map(|finding| finding.number)
    } else {
        looked_at.map(FindingNumber)
    };
    Ok(FindingPage { findings, next, now: link.now() })
}

/// Forgets what was closed long ago.
async fn forget(link: &Link, doing: &'static str) -> Result<(), StoreError> {
    let kept = i64::try_from(FINDINGS_KEPT_FOR.as_millis()).unwrap_or(i64::MAX);
    let until = link.now().as_millis().saturating_sub(kept);
    let (mut after, mut forgotten) = (None, 0);
    for _ in 0..ANSWERS_MAX {
        let asked = Partition { after: after.take(), ..Partition::of(items::ALL) };
        let filter = |terms: &mut Terms| Some(terms.is(CLOSED_AT, "<=", number(until)));
        let answer = asked.ask(link, doing, filter).await?;
        for item in answer.items.iter().take(NOTED_MAX - forgotten) {
            let Finding { number: finding, source, found, .. } = items::read(item)?;
            let mut terms = Terms::default();
            let is_closed = terms.is(CLOSED_AT, "<=", number(until));
            let gone = Step::delete(link, items::key_of(finding), is_closed, &terms);
            let same = items::key_of_same(&source, found.kind, &found.subject);
            let steps = [gone, Step::remove(link, same)].map(Step::in_transaction);
            write::transact(link, &steps, &write::new_token(), doing).await?;
            forgotten += 1;
        }
        after = answer.ended_at;
        if after.is_none() || forgotten >= NOTED_MAX {
            break;
        }
    }
    Ok(())
}

impl Findings for DynamoStore {
    fn note<'a>(
        &'a self,
        source: &'a str,
        found: &'a [NewFinding],
        seen_at: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<Noted>, StoreError>> {
        Box::pin(async move {
            let link = self.link();
            link.writable(NOTING)?;
            let mut noted = Vec::with_capacity(found.len());
            // One after the other: two of them may be about the same thing.
            for found in found.iter().take(NOTED_MAX) {
                let found = found.clone().within_limits();
                let numbers = &self.inner.delivering.numbers;
                noted.push(note(link, numbers, source, &found, seen_at).await?);
            }
            Ok(noted)
        })
    }

    fn found<'a>(
        &'a self,
        query: &'a FindingQuery,
    ) -> BoxFuture<'a, Result<FindingPage, StoreError>> {
        Box::pin(list(self.link(), query))
    }

    fn finding(
        &self,
        number: FindingNumber,
    ) -> BoxFuture<'_, Result<Option<FindingStory>, StoreError>> {
        Box::pin(async move {
            let link = self.link();
            let item = link.item_at(items::key_of(number), "reading a finding").await?;
            let Some(item) = item else { return Ok(None) };
            let finding = items::read(&item)?;
            let audits = audit::list(link, &audit::of_finding(number)).await?;
            Ok(Some(FindingStory { finding, audits, now: link.now() }))
        })
    }

    fn assign<'a>(
        &'a self,
        number: FindingNumber,
        owner: Option<&'a Owner>,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let written = vec![(OWNER, owner.map(|owner| text(owner.as_str())))];
            let is_there = |terms: &mut Terms| format!("attribute_exists({})", terms.name(SHARD));
            let told = (by, self.link().now(), "assigning a finding");
            act(self.link(), number, written, is_there, told).await
        })
    }

    fn close<'a>(
        &'a self,
        number: FindingNumber,
        closing: &'a Closing,
        by: &'a AuditEntry,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let now = self.link().now();
            let closed = Closed { at: now, by: by.actor.clone(), closing: closing.clone() };
            let written = items::closed(Some(&closed)).into();
            let is_open = |terms: &mut Terms| {
                let [is_there, closed] = [SHARD, CLOSED_AT].map(|name| terms.name(name));
                format!("attribute_exists({is_there}) AND attribute_not_exists({closed})")
            };
            act(self.link(), number, written, is_open, (by, now, "closing a finding")).await
        })
    }

    fn last_run<'a>(&'a self, source: &'a str) -> BoxFuture<'a, Result<Option<Run>, StoreError>> {
        Box::pin(async move {
            let key = items::key_of_run(source);
            let item = self.link().item_at(key, "reading when a source was last compared").await?;
            item.as_ref().map(items::read_run).transpose()
        })
    }

    fn ran<'a>(&'a self, source: &'a str, run: &'a Run) -> BoxFuture<'a, Result<(), StoreError>> {
        const DOING: &str = "writing down that a source was compared";
        Box::pin(async move {
            let link = self.link();
            link.writable(DOING)?;
            let step = Step::place(link, items::run(source, run));
            write::send(link, step, DOING).await?;
            forget(link, DOING).await
        })
    }
}
