//! Documents in the same file.

use firstwrite_core::documents::{
    Document, DocumentChange, DocumentContent, DocumentName, DocumentPage, DocumentScan,
    DocumentStep, Documents, Edition, Expiry, FoundDocuments, WrittenDocuments,
};
use firstwrite_core::encoding::as_i64;
use firstwrite_core::{BoxFuture, StoreError, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, Row, params, params_from_iter};

use super::SqliteStore;
use super::driver_error::{Failure, corrupt, definite};
use super::rows::{blob, integer};
use super::session::Session;

const WRITING: &str = "writing documents";
const READING: &str = "reading documents";

impl Session {
    fn put_document(&self, kind: &str, change: &DocumentChange) -> rusqlite::Result<Option<i64>> {
        let prepare = |sql| self.connection.prepare_cached(sql);
        let number = |row: &Row<'_>| row.get(0);
        let written = match &change.step {
            DocumentStep::Add(DocumentContent { bytes, expires_at }) => prepare(
                "INSERT INTO firstwrite_documents (kind, name, version, expires_at, content)
                 VALUES (?1, ?2, 1, ?3, ?4) ON CONFLICT (kind, name) DO NOTHING RETURNING number",
            )?
            .query_row(params![kind, change.name.0, expires_at.map(Timestamp::as_millis), bytes], number),
            DocumentStep::Replace(was, DocumentContent { bytes, expires_at }) => prepare(
                "UPDATE firstwrite_documents SET version = version + 1, expires_at = ?3, content = ?4
                 WHERE number = ?1 AND version = ?2 RETURNING number",
            )?
            .query_row(
                params![was.number, was.version, expires_at.map(Timestamp::as_millis), bytes],
                number,
            ),
            DocumentStep::Remove(was) => prepare(
                "DELETE FROM firstwrite_documents WHERE number = ?1 AND version = ?2
                 RETURNING number",
            )?
            .query_row([was.number, was.version], number),
        };
        written.optional()
    }
}

fn read(
    connection: &Connection,
    condition: &str,
    given: impl Params,
) -> Result<Vec<Document>, StoreError> {
    let failed = definite(READING);
    let sql = format!(
        "SELECT name, number, version, content, expires_at FROM firstwrite_documents
         WHERE kind = ?1 AND {condition}"
    );
    let mut select = connection.prepare_cached(&sql).map_err(&failed)?;
    let mut rows = select.query(given).map_err(&failed)?;
    let mut documents = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        documents.push(document(row)?);
    }
    Ok(documents)
}

fn document(row: &Row<'_>) -> Result<Document, StoreError> {
    let name = blob(row, 0)?.try_into().map(DocumentName);
    let expires_at: Option<i64> = row.get(4).map_err(definite(READING))?;
    let expires_at = expires_at.map(Timestamp::from_millis);
    Ok(Document {
        name: name.map_err(|_length| corrupt("a document's name has 32 bytes"))?,
        edition: Edition { number: integer(row, 1)?, version: integer(row, 2)? },
        content: DocumentContent { bytes: blob(row, 3)?.to_vec(), expires_at },
    })
}

impl Documents for SqliteStore {
    fn read<'a>(
        &'a self,
        kind: &'a str,
        names: &'a [DocumentName],
    ) -> BoxFuture<'a, Result<FoundDocuments, StoreError>> {
        let (kind, names) = (kind.to_owned(), names.to_vec());
        Box::pin(self.look(READING, move |view| {
            let get = |name: &DocumentName| {
                let found = read(&view.connection, "name = ?2", params![kind, name.0]);
                found.map(|mut documents| documents.pop())
            };
            names.iter().map(get).collect()
        }))
    }

    fn put<'a>(
        &'a self,
        kind: &'a str,
        changes: &'a [DocumentChange],
    ) -> BoxFuture<'a, Result<WrittenDocuments, StoreError>> {
        let (kind, changes) = (kind.to_owned(), changes.to_vec());
        Box::pin(self.command(WRITING, move |session| {
            let written = changes.iter().map(|change| session.put_document(&kind, change));
            written.collect::<Result<_, _>>().map_err(Failure::batch(WRITING))
        }))
    }

    fn scan<'a>(
        &'a self,
        kind: &'a str,
        scan: DocumentScan,
    ) -> BoxFuture<'a, Result<DocumentPage, StoreError>> {
        let kind = kind.to_owned();
        Box::pin(self.look("listing documents", move |view| {
            let rows_max = as_i64(scan.rows_max());
            let mut given: Vec<Value> = vec![kind.into(), scan.after.into(), rows_max.into()];
            let which = match scan.which {
                Expiry::Any => "true",
                Expiry::Never => "expires_at IS NULL",
                Expiry::Past => {
                    given.push(view.clock.counted_now().as_millis().into());
                    "expires_at <= ?4"
                }
            };
            let condition = format!("number > ?2 AND {which} ORDER BY number LIMIT ?3");
            let documents = read(&view.connection, &condition, params_from_iter(given))?;
            Ok(scan.page(documents, view.now()))
        }))
    }
}
