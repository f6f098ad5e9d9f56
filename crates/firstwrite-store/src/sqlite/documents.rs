//! Documents in the same file.

use firstwrite_core::documents::{
    Document, DocumentChange, DocumentContent, DocumentName, DocumentStep, Documents, Expiry,
};
use firstwrite_core::encoding::as_i64;
use firstwrite_core::{StoreError, Timestamp, documents_methods};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, Params, Row, params, params_from_iter};

use super::SqliteStore;
use super::driver_error::Failure;
use super::readers::View;
use super::session::Session;
use crate::rows::document;

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

impl View {
    fn documents(&self, condition: &str, given: impl Params) -> Result<Vec<Document>, StoreError> {
        let sql = format!(
            "SELECT name, number, version, content, expires_at FROM firstwrite_documents
             WHERE kind = ?1 AND {condition}"
        );
        self.all(READING, &sql, given, |row| document(row))
    }
}

impl Documents for SqliteStore {
    documents_methods!(self;
        read(kind, names) => {
            let (kind, names) = (kind.to_owned(), names.to_vec());
            self.look(READING, move |view| {
                let get = |name: &DocumentName| {
                    let found = view.documents("name = ?2", params![kind, name.0]);
                    found.map(|mut documents| documents.pop())
                };
                names.iter().map(get).collect()
            })
        },
        put(kind, changes) => {
            let (kind, changes) = (kind.to_owned(), changes.to_vec());
            self.command(WRITING, move |session| {
                let written = changes.iter().map(|change| session.put_document(&kind, change));
                written.collect::<Result<_, _>>().map_err(Failure::batch(WRITING))
            })
        },
        scan(kind, scan) => {
            let kind = kind.to_owned();
            self.look("listing documents", move |view| {
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
                let documents = view.documents(&condition, params_from_iter(given))?;
                Ok(scan.page(documents, view.now()))
            })
        },
    );
}
