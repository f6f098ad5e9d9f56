//! Documents in the same database.

use firstwrite_core::documents::{
    DocumentChange, DocumentContent, DocumentStep, Documents, Expiry, in_order,
};
use firstwrite_core::encoding::as_i64;
use firstwrite_core::{Timestamp, documents_methods};

use super::MysqlStore;
use super::batch::time_in;
use super::pipeline::{NOW, Pipeline, SendError, Value};
use super::pool::{PooledConnection, take};
use crate::rows::{Columns as _, document};

const READING: &str = "reading documents";
const WRITING: &str = "writing documents";

/// Makes all changes in one commit.
async fn put_once(
    session: &mut PooledConnection,
    kind: &str,
    changes: &[DocumentChange],
) -> Result<Vec<Option<i64>>, SendError> {
    let ask =
        |pipeline: &mut Pipeline| changes.iter().for_each(|change| ask(pipeline, kind, change));
    let (_, answers) = session.begin(ask).await?;
    let mut ending = Pipeline::new();
    ending.commit();
    session.send(&ending).await?;
    let numbers = answers.chunks(2).map(|answers| match answers {
        [written, number] if written.affected > 0 => {
            Ok(Some(number.row("a document has no number")?.integer(0)?))
        }
        _ => Ok(None),
    });
    numbers.collect()
}

/// Adds two statements: the change, and what number the document has if it was made.
fn ask(pipeline: &mut Pipeline, kind: &str, change: &DocumentChange) {
    let expires =
        |content: &DocumentContent| Value::from(content.expires_at.map(Timestamp::as_millis));
    let was = match &change.step {
        DocumentStep::Add(content) => {
            let (name, bytes) = (Value::Bytes(&change.name.0), Value::Bytes(&content.bytes));
            pipeline.add(
                "INSERT INTO firstwrite_documents (kind, name, version, expires_at, content) \
                 VALUES (?, ?, 1, ?, ?) \
                 ON DUPLICATE KEY UPDATE version = firstwrite_documents.version",
                &[Value::Text(kind), name, expires(content), bytes],
            );
            pipeline.add("SELECT LAST_INSERT_ID()", &[]);
            return;
        }
        DocumentStep::Replace(was, content) => {
            pipeline.add(
                "UPDATE firstwrite_documents SET version = version + 1, expires_at = ?, content = ?",
                &[expires(content), Value::Bytes(&content.bytes)],
            );
            was
        }
        DocumentStep::Remove(was) => {
            pipeline.add("DELETE FROM firstwrite_documents", &[]);
            was
        }
    };
    let (number, version) = (Value::Int(was.number), Value::Int(was.version));
    pipeline.write(" WHERE number = ? AND version = ?", &[number, version]);
    pipeline.add("SELECT ?", &[number]);
}

/// Adds a look at documents of a kind.
fn select(pipeline: &mut Pipeline, kind: &str) -> usize {
    let sql = "SELECT name, number, version, content, expires_at FROM firstwrite_documents \
               WHERE kind = ?";
    pipeline.add(sql, &[Value::Text(kind)])
}

impl Documents for MysqlStore {
    documents_methods!(self;
        read(kind, names) => async move {
            let mut pipeline = Pipeline::new();
            select(&mut pipeline, kind);
            pipeline.write(" AND name IN ", &[]);
            let wanted = names.iter().map(|name| Value::Bytes(&name.0));
            pipeline.write_list([Value::Null].into_iter().chain(wanted));
            let answers = self.pool().send(READING, &pipeline).await?;
            let found = answers[0].rows.iter().map(document).collect::<Result<Vec<_>, _>>()?;
            Ok(in_order(names, &found))
        },
        put(kind, changes) => async move {
            self.writes(WRITING)?;
            take!(self.pool(), WRITING, |session| put_once(&mut session, kind, changes))
        },
        scan(kind, scan) => async move {
            let mut pipeline = Pipeline::reading();
            let time = pipeline.add("SELECT @firstwrite_now", &[]);
            let place = select(&mut pipeline, kind);
            match scan.which {
                Expiry::Any => {}
                Expiry::Never => pipeline.write(" AND expires_at IS NULL", &[]),
                Expiry::Past => pipeline.write(" AND expires_at <= ?", &[Value::Sql(NOW)]),
            }
            let bounds = [Value::Int(scan.after), Value::Int(as_i64(scan.rows_max()))];
            pipeline.write(" AND number > ? ORDER BY number LIMIT ?", &bounds);
            let answers = self.pool().send(READING, &pipeline).await?;
            let documents = answers[place].rows.iter().map(document);
            let documents = documents.collect::<Result<_, _>>()?;
            Ok(scan.page(documents, time_in(&answers[time])?))
        },
    );
}
