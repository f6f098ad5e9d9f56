//! Batches reservations and completions of many callers into one transaction.
//!
//! They share a commit, and statements where possible; none depends on another. The number of rows that a
//! statement wrote tells its result.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::encoding::{as_i64, encode_fingerprint, encode_outcome, retention_numbers};
use firstwrite_core::{
    Draft, DraftState, Fence, Found, Inserted, RecordId, Retention, StoreError, Timestamp,
};

use super::history_loss;
use super::pipeline::{Answer, NOW, Pipeline, SendError, Value};
use super::pool::PooledConnection;
use super::rows::{self, COMPLETED, RESERVED, record_columns};
use crate::dispatcher::{self, Command as _, Reply};
use crate::rows::Columns as _;

/// One caller's write, with the channel for its result.
pub(super) enum Command {
    Insert {
        row: NewRow,
        reply: Reply<Inserted>,
    },
    /// Answered with the time, or with none if the owner's record was not there, or is completed already.
    Complete {
        completion: Completion,
        reply: Reply<Option<Timestamp>>,
    },
}

/// A record to be inserted.
pub(super) struct NewRow {
    id: RecordId,
    draft: Arc<Draft>,
    fingerprint: Vec<u8>,
    outcome: Option<Vec<u8>>,
}

/// An owner's outcome.
pub(super) struct Completion {
    pub(super) id: RecordId,
    pub(super) fence: Fence,
    pub(super) outcome: Vec<u8>,
    pub(super) is_interim: bool,
    pub(super) retention: Retention,
}

/// Number of statements that a batch is turned into: a few shared ones, or one for each command.
///
/// A statement costs the server more than a row. But a shared statement does not tell which of its rows
/// were written, and a look-up after the commit comes too late: others may have changed those rows since.
/// So a shared statement that did not write all of its rows stops the pipeline before its commit, and the
/// batch is sent again with one statement per command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    Together,
    OneByOne,
}

/// A statement of a pipeline, and the positions of its commands.
struct Statement {
    place: usize,
    members: Vec<usize>,
}

pub(super) const INSERTING: &str = "inserting a record";
pub(super) const COMPLETING: &str = "completing a record";

const COLUMNS: &str = "(id, tenant, `key`, operation, on_lost_answer, fingerprint_version, \
     fingerprint_form, fingerprint, fence, created_at, state, due_at, retained_until, \
     replay_for, linger_for, refuses_spent, outcome)";

/// Maximum length of an operation: for people, and long enough for any route.
const OPERATION_BYTES_MAX: usize = 1000;

impl dispatcher::Command for Command {
    fn id(&self) -> RecordId {
        match self {
            Self::Insert { row, .. } => row.id,
            Self::Complete { completion, .. } => completion.id,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Insert { row, .. } => row.outcome.as_ref().map_or(0, Vec::len),
            Self::Complete { completion, .. } => completion.outcome.len(),
        }
    }

    fn refuse(self, error: impl FnOnce(&'static str) -> StoreError) {
        // A caller who has gone away needs no answer.
        match self {
            Self::Insert { reply, .. } => drop(reply.send(Err(error(INSERTING)))),
            Self::Complete { reply, .. } => drop(reply.send(Err(error(COMPLETING)))),
        }
    }
}

impl NewRow {
    pub(super) fn new(draft: &Draft) -> Self {
        let outcome = match &draft.state {
            DraftState::Reserved { .. } => None,
            DraftState::Completed { outcome, .. } => Some(encode_outcome(outcome)),
        };
        let fingerprint = encode_fingerprint(&draft.fingerprint);
        Self { id: draft.id, draft: Arc::new(draft.clone()), fingerprint, outcome }
    }

    /// Adds the statement that inserts `rows`, and fails where a record exists.
    pub(super) fn insert(pipeline: &mut Pipeline, rows: &[&Self]) -> usize {
        let at = pipeline.add("INSERT INTO firstwrite_records ", &[]);
        pipeline.write(COLUMNS, &[]);
        for (number, row) in rows.iter().enumerate() {
            pipeline.write(if number > 0 { ", " } else { " VALUES " }, &[]);
            pipeline.write("(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", &row.values());
        }
        at
    }

    /// Adds the statement that writes `rows`, except where a record exists.
    pub(super) fn insert_or_nothing(pipeline: &mut Pipeline, rows: &[&Self]) -> usize {
        let at = Self::insert(pipeline, rows);
        pipeline.write(" ON DUPLICATE KEY UPDATE fence = firstwrite_records.fence", &[]);
        at
    }

    /// In the order of `COLUMNS`.
    pub(super) fn values(&self) -> [Value<'_>; 17] {
        let Self { draft, fingerprint, outcome, .. } = self;
        let (state, [due_at, retained_until]) = match &draft.state {
            DraftState::Reserved { lease_for, .. } => {
                (RESERVED, [Value::After(*lease_for), Value::Null])
            }
            DraftState::Completed { outcome } => {
                (COMPLETED, kept(outcome.is_interim, draft.retention))
            }
        };
        let [replay_for, linger_for, refuses_spent] = retention_numbers(draft.retention);
        [
            Value::Bytes(self.id.as_bytes()),
            Value::Text(draft.tenant.as_str()),
            Value::Text(draft.key.as_str()),
            Value::Text(shortened(&draft.operation)),
            Value::Int(draft.on_lost_answer.to_number().into()),
            Value::Int(draft.fingerprint.version().into()),
            Value::Int(draft.fingerprint.form().as_byte().into()),
            Value::Bytes(fingerprint),
            Value::Int(draft.fence.as_u64().cast_signed()),
            created(&draft.state),
            Value::Int(state),
            due_at,
            retained_until,
            span(replay_for),
            span(linger_for),
            Value::Int(refuses_spent),
            outcome.as_deref().map_or(Value::Null, Value::Bytes),
        ]
    }
}

/// Returns the time of a new record: now, or earlier by the age of the record that it copies.
fn created(state: &DraftState) -> Value<'static> {
    match state.asked_ago() {
        Duration::ZERO => Value::Sql(NOW),
        ago => Value::Before(ago),
    }
}

/// Returns the deadlines of an outcome: until when it is kept, and until when it is replayed. An interim
/// one is kept until it is replaced.
pub(super) fn kept(is_interim: bool, retention: Retention) -> [Value<'static>; 2] {
    let Retention { replay_for, linger_for, .. } = retention;
    if is_interim {
        return [Value::Int(i64::MAX); 2];
    }
    [Value::After(replay_for.saturating_add(linger_for)), Value::After(replay_for)]
}

/// Bounds milliseconds so that the sum of two and an instant is still a number.
fn span(millis: i64) -> Value<'static> {
    Value::Int(millis.min(i64::MAX / 4))
}

/// Maximum number of rows in one statement: the server looks for each completion among all of them.
const ROWS_MAX: usize = 64;

/// Adds statements for all of `batch`.
fn spell(pipeline: &mut Pipeline, batch: &[Command], spelling: Spelling) -> Vec<Statement> {
    let rows_max = match spelling {
        Spelling::Together => ROWS_MAX,
        Spelling::OneByOne => 1,
    };
    let (mut rows, mut completions) = (Vec::new(), Vec::new());
    for (member, command) in batch.iter().enumerate() {
        match command {
            Command::Insert { row, .. } => rows.push((member, row)),
            Command::Complete { completion, .. } => completions.push((member, completion)),
        }
    }
    // Those of one policy end at the same time.
    completions.sort_by_key(|(_, completion)| completion.kind());
    let mut statements = Vec::new();
    for chunk in rows.chunks(rows_max) {
        let (members, rows): (Vec<usize>, Vec<&NewRow>) = chunk.iter().copied().unzip();
        let place = NewRow::insert_or_nothing(pipeline, &rows);
        stop_unless_all(pipeline, rows.len());
        statements.push(Statement { place, members });
    }
    for alike in completions.chunk_by(|(_, one), (_, other)| one.kind() == other.kind()) {
        for chunk in alike.chunks(rows_max) {
            let (members, all): (Vec<usize>, Vec<&Completion>) = chunk.iter().copied().unzip();
            let place = complete_all(pipeline, &all);
            stop_unless_all(pipeline, all.len());
            statements.push(Statement { place, members });
        }
    }
    statements
}

/// Makes the server stop unless the last statement, if several share it, has written all of its rows.
fn stop_unless_all(pipeline: &mut Pipeline, count: usize) {
    if count > 1 {
        let count = as_i64(count);
        // One more than the largest number there is fails.
        pipeline.add("SELECT ~0 + (ROW_COUNT() <> ?)", &[Value::Int(count)]);
    }
}

/// Completes the owners' records of all `completions`, which are of one kind, and no others.
fn complete_all(pipeline: &mut Pipeline, completions: &[&Completion]) -> usize {
    let Completion { is_interim, retention, .. } = *completions[0];
    let [due_at, retained_until] = kept(is_interim, retention);
    // By itself the server may prefer the index of states.
    let place = pipeline.add(
        "UPDATE firstwrite_records FORCE INDEX (PRIMARY) SET state = ?, due_at = ?, \
         retained_until = ?, outcome = CASE id",
        &[Value::Int(COMPLETED), due_at, retained_until],
    );
    for completion in completions {
        let values = [Value::Bytes(completion.id.as_bytes()), Value::Bytes(&completion.outcome)];
        pipeline.write(" WHEN ? THEN ?", &values);
    }
    pipeline.write(" END WHERE state <> ? AND id IN ", &[Value::Int(COMPLETED)]);
    pipeline.write_list(completions.iter().map(|one| Value::Bytes(one.id.as_bytes())));
    pipeline.write(" AND fence = CASE id", &[]);
    for completion in completions {
        let fence = Value::Int(completion.fence.as_u64().cast_signed());
        pipeline.write(" WHEN ? THEN ?", &[Value::Bytes(completion.id.as_bytes()), fence]);
    }
    pipeline.write(" END", &[]);
    place
}

impl Completion {
    /// Returns the values that completions must have in common to share a statement.
    fn kind(&self) -> (bool, Duration, Duration) {
        (self.is_interim, self.retention.replay_for, self.retention.linger_for)
    }
}

/// Commands that a pipeline wrote, and the time of writing.
pub(super) struct Committed {
    now: Timestamp,
    /// For each command, true if it wrote something.
    written: Vec<bool>,
}

/// Sends all of `batch`, which are for different records in the order of their ids, in one transaction.
pub(super) async fn send(
    pooled: &mut PooledConnection,
    batch: &[Command],
    spelling: Spelling,
) -> Result<Committed, SendError> {
    let mut pipeline = Pipeline::transaction();
    // Asked for first: nothing stands between what is written and its commit.
    if batch.iter().any(|command| matches!(command, Command::Insert { .. })) {
        pipeline.add(history_loss::STOP_IF_HISTORY_LOST, &[]);
        pooled.slot().stop_unless_whole(&mut pipeline);
    }
    let counted = pooled.slot().count(&mut pipeline);
    let statements = spell(&mut pipeline, batch, spelling);
    pipeline.commit();
    firstwrite_core::crash_point!("mysql-batch-before-pipeline");
    let answers = pooled.send(&pipeline).await?;
    firstwrite_core::crash_point!("mysql-batch-after-pipeline");
    let now = pooled.slot().acknowledged(&answers[counted])?;
    let mut written = vec![false; batch.len()];
    for Statement { place, members } in statements {
        // One that several share has written all of its rows, or there is no answer.
        let has_written = answers[place].affected > 0;
        for member in members {
            written[member] = has_written;
        }
    }
    Ok(Committed { now, written })
}

/// Answers every command whose statement wrote something, and the completions that wrote nothing; returns
/// the inserts that met an existing record.
pub(super) fn answer(batch: Vec<Command>, committed: Committed) -> Vec<Command> {
    let Committed { now, written } = committed;
    let mut left = Vec::new();
    for (command, is_written) in batch.into_iter().zip(written) {
        match (command, is_written) {
            (Command::Insert { reply, .. }, true) => drop(reply.send(Ok(Inserted::Done(now)))),
            (Command::Complete { reply, .. }, is_written) => {
                drop(reply.send(Ok(is_written.then_some(now))));
            }
            (command @ Command::Insert { .. }, false) => left.push(command),
        }
    }
    left
}

/// Looks up the records that the inserts in `left` met, and answers them; returns those that no longer meet
/// one.
pub(super) async fn answer_met(pooled: &mut PooledConnection, left: Vec<Command>) -> Vec<Command> {
    let mut pipeline = Pipeline::reading();
    for command in &left {
        let sql =
            concat!("SELECT ", record_columns!(), " FROM firstwrite_records r WHERE r.id = ?");
        pipeline.add(sql, &[Value::Bytes(command.id().as_bytes())]);
    }
    let answers = match pooled.send(&pipeline).await {
        Ok(answers) => answers,
        Err(error) => {
            for command in left {
                command.refuse(|doing| error.error(doing));
            }
            return Vec::new();
        }
    };
    let mut again = Vec::new();
    for (command, answer) in left.into_iter().zip(answers.into_iter().skip(1)) {
        match (record_in(&answer), command) {
            (Ok(Some(found)), Command::Insert { reply, .. }) => {
                drop(reply.send(Ok(Inserted::Stands(Box::new(found)))));
            }
            (Ok(_), command) => again.push(command),
            (Err(error), command) => command.refuse(|_| error),
        }
    }
    again
}

/// Answers the inserts of a batch while history is missing: existing records are returned, other inserts
/// are refused. Returns the completions.
pub(super) async fn answer_without_history(
    pooled: &mut PooledConnection,
    batch: Vec<Command>,
) -> Vec<Command> {
    let is_insert = |command: &Command| matches!(command, Command::Insert { .. });
    let (inserts, completions) = batch.into_iter().partition(is_insert);
    for unknown in answer_met(pooled, inserts).await {
        unknown.refuse(history_loss::refuse);
    }
    completions
}

/// Decodes the record in an answer to a look-up by id.
pub(super) fn record_in(answer: &Answer) -> Result<Option<Found>, StoreError> {
    answer.rows.first().map(rows::found).transpose()
}

/// Decodes the time in an answer that holds nothing else.
pub(super) fn time_in(answer: &Answer) -> Result<Timestamp, StoreError> {
    answer.row("the clock says nothing")?.instant(0)
}

fn shortened(operation: &str) -> &str {
    &operation[..operation.floor_char_boundary(OPERATION_BYTES_MAX)]
}
