//! Turns a batch into statements: a few shared ones, or one for each command.
//!
//! A statement costs the server more than a row. But a shared statement does not tell which of its rows
//! were written, and a look-up after the commit comes too late: others may have changed those rows since.
//! So a shared statement that did not write all of its rows stops the pipeline before its commit, and the
//! batch is sent again with one statement per command.

use super::super::pipeline::{Pipeline, Value};
use super::super::rows::COMPLETED;
use super::{Command, Completion, NewRow, kept};

/// The way a batch is turned into statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mysql) enum Spelling {
    Together,
    OneByOne,
}

/// A statement of a pipeline, and the positions of its commands.
pub(super) struct Statement {
    pub(super) place: usize,
    pub(super) members: Vec<usize>,
}

/// Maximum number of rows in one statement: the server looks for each completion among all of them.
const ROWS_MAX: usize = 64;

/// Adds statements for all of `batch`.
pub(super) fn spell(
    pipeline: &mut Pipeline,
    batch: &[Command],
    spelling: Spelling,
) -> Vec<Statement> {
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
            let place = match all.as_slice() {
                [one] => one.add_to(pipeline),
                all => complete_all(pipeline, all),
            };
            stop_unless_all(pipeline, all.len());
            statements.push(Statement { place, members });
        }
    }
    statements
}

/// Has the server stop unless the last statement, if several share it, has written all of its rows.
fn stop_unless_all(pipeline: &mut Pipeline, count: usize) {
    if count > 1 {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        // One more than the largest number there is fails.
        pipeline.add("SELECT ~0 + (ROW_COUNT() <> ?)", &[Value::Int(count)]);
    }
}

/// Completes all of `completions`, which are of one kind.
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
    pipeline.write(" END WHERE state <> ? AND id IN (", &[Value::Int(COMPLETED)]);
    for (number, completion) in completions.iter().enumerate() {
        let id = Value::Bytes(completion.id.as_bytes());
        pipeline.write(if number > 0 { ", ?" } else { "?" }, &[id]);
    }
    pipeline.write(") AND fence = CASE id", &[]);
    for completion in completions {
        let fence = Value::Int(completion.fence.as_u64().cast_signed());
        pipeline.write(" WHEN ? THEN ?", &[Value::Bytes(completion.id.as_bytes()), fence]);
    }
    pipeline.write(" END", &[]);
    place
}

impl Completion {
    /// Returns the values that completions must have in common to share a statement.
    fn kind(&self) -> (bool, std::time::Duration, std::time::Duration) {
        (self.is_interim, self.retention.replay_for, self.retention.linger_for)
    }

    /// Adds the statement that completes the owner's record and no other.
    fn add_to(&self, pipeline: &mut Pipeline) -> usize {
        let [due_at, retained_until] = kept(self.is_interim, self.retention);
        pipeline.add(
            "UPDATE firstwrite_records SET state = ?, due_at = ?, retained_until = ?, outcome = ? \
             WHERE id = ? AND fence = ? AND state <> ?",
            &[
                Value::Int(COMPLETED),
                due_at,
                retained_until,
                Value::Bytes(&self.outcome),
                Value::Bytes(self.id.as_bytes()),
                Value::Int(self.fence.as_u64().cast_signed()),
                Value::Int(COMPLETED),
            ],
        )
    }
}
