//! Documents in PostgreSQL.

use firstwrite_core::documents::{
    Document, DocumentChange, DocumentContent, DocumentStep, Documents, Edition, Expiry, in_order,
};
use firstwrite_core::encoding::as_i64;
use firstwrite_core::{StoreError, documents_methods};
use futures_util::future::try_join_all;
use tokio_postgres::Row;

use super::PostgresStore;
use super::columns::At;
use super::driver_error::{DriverError, definite, failed_commit};
use super::link::{Link, PooledTransaction};
use super::rows::column;
use super::sql::statements;
use crate::rows::document;

const READING: &str = "reading documents";
const WRITING: &str = "writing documents";

statements! {
    /// Every statement about documents.
    pub(super) struct DocumentsSql() {
        read: select("d.name = ANY ($2)"), [TEXT, BYTEA_ARRAY];
        scan_any: scan("true"), [TEXT, INT8, INT8];
        scan_lasting: scan("d.expires_at IS NULL"), [TEXT, INT8, INT8];
        scan_expired: scan("d.expires_at <= firstwrite.now()"), [TEXT, INT8, INT8];
        add: "INSERT INTO firstwrite.documents (kind, name, version, expires_at, content)
              VALUES ($1, $2, 1, $3, $4) ON CONFLICT (kind, name) DO NOTHING RETURNING number",
            [TEXT, BYTEA, TIMESTAMPTZ, BYTEA];
        replace: "UPDATE firstwrite.documents SET version = version + 1, expires_at = $3, content = $4
                  WHERE number = $1 AND version = $2 RETURNING number",
            [INT8, INT8, TIMESTAMPTZ, BYTEA];
        remove: "DELETE FROM firstwrite.documents WHERE number = $1 AND version = $2 RETURNING number",
            [INT8, INT8];
    }
}

fn select(condition: &str) -> String {
    format!(
        "SELECT d.name, d.number, d.version, d.content, d.expires_at
         FROM firstwrite.documents d WHERE d.kind = $1 AND {condition}"
    )
}

fn scan(condition: &str) -> String {
    select(&format!("d.number > $2 AND {condition} ORDER BY d.number LIMIT $3"))
}

fn documents(rows: &[Row]) -> Result<Vec<Document>, StoreError> {
    rows.iter().map(document).collect()
}

/// Makes one change in the transaction that is open.
async fn put(
    link: Link<'_>,
    kind: &str,
    change: &DocumentChange,
) -> Result<Option<i64>, DriverError> {
    let sql = &link.sql().documents;
    let rows = match &change.step {
        DocumentStep::Add(DocumentContent { bytes, expires_at }) => {
            let (name, expires_at) = (&change.name.0[..], expires_at.map(At::Instant));
            link.query(&sql.add, &[&kind, &name, &expires_at, bytes]).await?
        }
        DocumentStep::Replace(Edition { number, version }, content) => {
            let expires_at = content.expires_at.map(At::Instant);
            link.query(&sql.replace, &[number, version, &expires_at, &content.bytes]).await?
        }
        DocumentStep::Remove(Edition { number, version }) => {
            link.query(&sql.remove, &[number, version]).await?
        }
    };
    Ok(rows.first().map(|row| column(row, 0)).transpose()?)
}

impl Documents for PostgresStore {
    documents_methods!(self;
        read(kind, names) => async move {
            let wanted: Vec<&[u8]> = names.iter().map(|name| &name.0[..]).collect();
            let read = &self.shared().sql.documents.read;
            let rows = self.shared().read_alone(READING, read, &[&kind, &wanted]).await?;
            Ok(in_order(names, &documents(&rows)?))
        },
        // Sends all changes without waiting for each answer: they do not depend on each other.
        put(kind, changes) => async move {
            self.writes(WRITING)?;
            let held = PooledTransaction::take(self.shared(), WRITING).await?;
            let link = held.link();
            let sql = &link.sql().documents;
            for statement in [&sql.add, &sql.replace, &sql.remove] {
                link.prepare(statement).await.map_err(definite(WRITING))?;
            }
            let begin = &link.shared.server.begins().rare;
            link.tell(begin).await.map_err(definite(WRITING))?;
            let written = try_join_all(changes.iter().map(|change| put(link, kind, change))).await;
            let written = written.map_err(definite(WRITING))?;
            link.commit().await.map_err(failed_commit(WRITING))?;
            held.settle();
            Ok(written)
        },
        scan(kind, scan) => async move {
            let sql = &self.shared().sql.documents;
            let statement = match scan.which {
                Expiry::Any => &sql.scan_any,
                Expiry::Never => &sql.scan_lasting,
                Expiry::Past => &sql.scan_expired,
            };
            let rows_max = as_i64(scan.rows_max());
            let read = async |link: &Link<'_>, now| {
                let rows = link.query(statement, &[&kind, &scan.after, &rows_max]).await?;
                Ok(scan.page(documents(&rows)?, now))
            };
            self.shared().snapshot(READING, read).await
        },
    );
}
