//! Our own books: the messages and requests that a source can have something of.

use std::collections::HashSet;
use std::time::Duration;

use firstwrite_core::outbox::{
    Answers, MESSAGES_KEPT_FOR, MessageState, Outbox, Written, WrittenQuery, is_wire_key, protocol,
    wire_key,
};
use firstwrite_core::reconcile::{Amount, Ours, Standing, Subject, Theirs, Window};
use firstwrite_core::{
    Fence, OnLostAnswer, Pointer, Query, Record, RecordId, State, Store, StoreError, Timestamp,
};
use serde_json::value::RawValue;

use super::raw_json::text_at;
use super::settings::{MessageScope, RecordScope, Settings};

/// Entries read from our books.
#[derive(Default)]
pub(super) struct Books {
    pub(super) ours: Vec<Ours>,
    /// For each of them, the data needed to settle it.
    pub(super) handles: Vec<Handle>,
    /// True if everything was read that could be a counterpart.
    pub(super) is_complete: bool,
    /// Maximum time by which an effect can be older than its record.
    pub(super) sent_before_max: Duration,
}

/// Data needed to settle an entry.
pub(super) enum Handle {
    /// A message: the fence it was seen with, and its final answers if it is not settled yet.
    Message(Fence, Option<Box<Answers>>),
    /// An uncertain record.
    Record(Box<Record>),
    /// A record that needs no settling.
    Settled,
}

/// Reads what can be the counterpart of an entry in `window`, or of one of `theirs`.
pub(super) async fn read(
    store: &dyn Store,
    settings: &Settings,
    window: Window,
    theirs: &[Theirs],
    progress: &mut (dyn FnMut(usize) + Send),
) -> Result<Books, StoreError> {
    let mut books = Books { is_complete: true, ..Books::default() };
    if let (Some(scope), Some(outbox)) = (&settings.messages, store.outbox()) {
        let back = settings.rules.grace.saturating_add(settings.limits.read_back);
        let from = before(window.from, back);
        let until = window.until.plus(settings.rules.grace);
        let mut reader = Reader { settings, scope, outbox, books: &mut books, progress };
        reader.messages(from, until, None).await?;
        // Messages that waited longer than that, if the source has something of them.
        let mut wanted = keys(theirs);
        for our in &reader.books.ours {
            wanted.remove(our.wire_key.as_str());
        }
        if let Some(records) = &settings.records {
            let step = format!(":{}:", records.step);
            wanted.retain(|key| !key.contains(&step));
        }
        if !wanted.is_empty() {
            reader.messages(Timestamp::EPOCH, from, Some(&wanted)).await?;
        }
    }
    if let Some(scope) = &settings.records {
        records(store, settings, scope, window, &mut books).await?;
        progress(books.ours.len());
    }
    Ok(books)
}

/// Returns the time at which the oldest entry in doubt was asked for.
pub(super) async fn oldest_in_doubt(
    store: &dyn Store,
    settings: &Settings,
) -> Result<Option<Timestamp>, StoreError> {
    let mut oldest = None;
    if let (Some(scope), Some(outbox)) = (&settings.messages, store.outbox()) {
        let query = firstwrite_core::outbox::MessageQuery {
            destination: Some(scope.destination.clone()),
            state: Some(MessageState::Unknown),
            tenant: settings.tenant.clone(),
            limit: 1,
            ..firstwrite_core::outbox::MessageQuery::default()
        };
        oldest = protocol::messages(outbox, &query)
            .await?
            .messages
            .first()
            .map(|message| message.created_at);
    }
    if let Some(scope) = &settings.records {
        let uncertain = Some(firstwrite_core::StateKind::Uncertain);
        each_record(store, settings, uncertain, |record| {
            if scope.is_of(record) {
                oldest = oldest.into_iter().chain([record.created_at]).min();
            }
            true
        })
        .await?;
    }
    Ok(oldest)
}

/// Returns the destination of the scope if the store has no message to it. Its name may be mistyped, and then a
/// comparison that finds nothing in doubt says nothing.
pub(super) async fn unknown_destination<'s>(
    store: &dyn Store,
    settings: &'s Settings,
    books: &Books,
) -> Result<Option<&'s str>, StoreError> {
    let (Some(scope), Some(outbox)) = (&settings.messages, store.outbox()) else { return Ok(None) };
    if books.ours.iter().any(|our| matches!(our.subject, Subject::Message(_))) {
        return Ok(None);
    }
    let query = firstwrite_core::outbox::MessageQuery {
        destination: Some(scope.destination.clone()),
        limit: 1,
        ..firstwrite_core::outbox::MessageQuery::default()
    };
    let is_unknown = protocol::messages(outbox, &query).await?.messages.is_empty();
    Ok(is_unknown.then_some(&scope.destination))
}

fn keys(theirs: &[Theirs]) -> HashSet<&str> {
    theirs.iter().filter_map(|their| their.key.as_deref()).filter(|key| is_wire_key(key)).collect()
}

/// Reads messages into books.
struct Reader<'a> {
    settings: &'a Settings,
    scope: &'a MessageScope,
    outbox: &'a dyn Outbox,
    books: &'a mut Books,
    progress: &'a mut (dyn FnMut(usize) + Send),
}

impl Reader<'_> {
    /// Reads those written between two times; with `wanted`, only those with these wire keys.
    async fn messages(
        &mut self,
        from: Timestamp,
        until: Timestamp,
        wanted: Option<&HashSet<&str>>,
    ) -> Result<(), StoreError> {
        let destination = self.scope.destination.clone();
        let limit = WrittenQuery::LIMIT_MAX;
        let mut query = WrittenQuery { destination, from, until, after: None, limit };
        loop {
            let page = protocol::written(self.outbox, &query).await?;
            for written in page.messages {
                let key = wire_key(&written.view.derived_key, written.view.record);
                if self.is_meant(&written) && wanted.is_none_or(|wanted| wanted.contains(&*key)) {
                    self.add(written, key).await?;
                }
            }
            (self.progress)(self.books.ours.len());
            query.after = page.next;
            if query.after.is_none() {
                return Ok(());
            }
            if self.books.ours.len() >= self.settings.limits.entries_max {
                self.books.is_complete = false;
                return Ok(());
            }
        }
    }

    fn is_meant(&self, written: &Written) -> bool {
        let step = written.view.derived_key.rsplit(':').next().unwrap_or_default();
        let steps = &self.scope.steps;
        (steps.is_empty() || steps.iter().any(|each| each == step))
            && self.settings.tenant.as_ref().is_none_or(|tenant| written.view.tenant == *tenant)
    }

    async fn add(&mut self, written: Written, wire_key: String) -> Result<(), StoreError> {
        let Written { view, content } = written;
        let was_refused = view.state == MessageState::Dead && {
            let story = self.outbox.message(view.number).await?;
            let last = story.as_ref().and_then(|story| story.deliveries.last());
            last.is_some_and(|last| last.ending == "refused")
        };
        let standing = Standing::of_message(view.state, was_refused);
        let is_settled = matches!(standing, Standing::Arrived | Standing::Closed);
        let payload: Option<&RawValue> = serde_json::from_slice(&content.payload).ok();
        let at = |pointer: &Option<Pointer>| {
            let text = text_at(payload?, pointer.as_ref()).ok()??;
            (!text.is_empty()).then(|| text.into_owned())
        };
        let amount = at(&self.scope.amount).and_then(|text| Amount::parse(&text).ok());
        self.books
            .handles
            .push(Handle::Message(view.fence, content.answers.filter(|_| !is_settled)));
        self.books.ours.push(Ours {
            subject: Subject::Message(view.number),
            record: view.record,
            tenant: view.tenant,
            wire_key,
            provider_id: view.receipt.and_then(|receipt| receipt.provider_id),
            amount,
            currency: at(&self.scope.currency),
            at: view.created_at,
            until: view.handled_at.unwrap_or(view.created_at).max(view.created_at),
            standing,
        });
        Ok(())
    }
}

/// Reads requests of the scope that are uncertain, whenever they were made, and the others of the window.
async fn records(
    store: &dyn Store,
    settings: &Settings,
    scope: &RecordScope,
    window: Window,
    books: &mut Books,
) -> Result<(), StoreError> {
    let from = before(window.from, settings.rules.grace.saturating_add(scope.attempt_max));
    let Books { ours, handles, is_complete, sent_before_max } = books;
    each_record(store, settings, None, |record| {
        let is_uncertain = matches!(record.state, State::Uncertain { .. });
        if !scope.is_of(record) || is_free(record) || (record.created_at < from && !is_uncertain) {
            return true;
        }
        if ours.len() >= settings.limits.entries_max {
            *is_complete = false;
            return false;
        }
        let sent_before = sent_before(record, scope);
        *sent_before_max = sent_before.max(*sent_before_max);
        let derived_key = format!("{}:{}", record.key.as_str(), scope.step);
        ours.push(Ours {
            subject: Subject::Record(record.id),
            record: record.id,
            tenant: record.tenant.clone(),
            wire_key: wire_key(&derived_key, record.id),
            provider_id: None,
            amount: None,
            currency: None,
            at: before(record.created_at, sent_before),
            until: sent_until(record, scope),
            standing: standing(record),
        });
        let uncertain = || Handle::Record(Box::new(record.clone()));
        handles.push(if is_uncertain { uncertain() } else { Handle::Settled });
        true
    })
    .await
}

/// Returns the maximum time by which the request of `record` can have been sent before the record was written.
///
/// Where a lost answer frees the key, a retry finds under a new record what an earlier attempt did. That
/// attempt is at most one retention older: clients retry within it. A record that was moved from another store has
/// what was left of its retention, and its age.
fn sent_before(record: &Record, scope: &RecordScope) -> Duration {
    let replay_for = record.retention.replay_for;
    match (record.on_lost_answer, &record.state) {
        (OnLostAnswer::Uncertain | OnLostAnswer::Ask(_), _) => Duration::ZERO,
        (OnLostAnswer::Resend, State::Completed { retained_until, .. }) => {
            let whole = retained_until.since(record.created_at);
            whole.min(scope.retention.replay_for).max(replay_for)
        }
        (OnLostAnswer::Resend, State::Reserved(_) | State::Uncertain { .. }) => replay_for,
    }
}

/// Returns true if only a note of a release stands: the key is free.
fn is_free(record: &Record) -> bool {
    matches!(&record.state, State::Completed { outcome, .. } if outcome.is_release_note())
}

/// Returns the last time at which the request of `record` may have been sent: an attempt that was given up may
/// have sent it until then, and after a history loss records are given up anew.
fn sent_until(record: &Record, scope: &RecordScope) -> Timestamp {
    let by_age = record.created_at.plus(scope.attempt_max);
    match &record.state {
        State::Uncertain { since } => by_age.max(*since),
        State::Reserved(_) | State::Completed { .. } => by_age,
    }
}

/// Returns the standing of a request.
fn standing(record: &Record) -> Standing {
    match &record.state {
        State::Uncertain { .. } => Standing::InDoubt,
        State::Reserved(_) => Standing::Sending,
        State::Completed { outcome, .. } if outcome.status.as_u16() < 400 => Standing::Arrived,
        State::Completed { .. } => Standing::Closed,
    }
}

/// Shows every record to `look` until it has seen enough.
async fn each_record(
    store: &dyn Store,
    settings: &Settings,
    state: Option<firstwrite_core::StateKind>,
    mut look: impl FnMut(&Record) -> bool,
) -> Result<(), StoreError> {
    let mut after: Option<RecordId> = None;
    loop {
        let tenant = settings.tenant.clone();
        let page = store
            .list(&Query { tenant, state: state.map(Into::into), after, limit: Query::LIMIT_MAX })
            .await?;
        if !page.records.iter().all(&mut look) || page.next.is_none() {
            return Ok(());
        }
        after = page.next;
    }
}

impl RecordScope {
    fn is_of(&self, record: &Record) -> bool {
        self.operations.iter().any(|operation| **operation == *record.operation)
    }

    /// Returns true if `key` has the form of a wire key of the scope's step.
    fn is_key(&self, key: &str) -> bool {
        let step = format!(":{}:", self.step);
        is_wire_key(key) && (key.contains(&step) || key.ends_with(step.trim_end_matches(':')))
    }
}

impl Settings {
    /// Returns true if the message or record that asked for `their` may be gone: ended messages are kept for
    /// [`MESSAGES_KEPT_FOR`], and records for their retention.
    pub(super) fn has_forgotten(&self, their: &Theirs, now: Timestamp) -> bool {
        let is_of =
            |scope: &&RecordScope| their.key.as_deref().is_some_and(|key| scope.is_key(key));
        let kept_for = match (self.records.as_ref().filter(is_of), &self.messages) {
            (Some(scope), _) => scope.retention.replay_for,
            (None, Some(_)) => MESSAGES_KEPT_FOR,
            (None, None) => return false,
        };
        // A message is asked for before the provider dates its payment, and its clock may differ.
        their.at.plus(kept_for) <= now.plus(self.rules.tolerance)
    }
}

/// Returns the time that is earlier by this much.
pub(super) fn before(at: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_sub(by).max(0))
}
