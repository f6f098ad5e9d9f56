//! Documents in the same table. Each change is a write of its own: a call that breaks off has made some.
//!
//! A document stands under its number, so that documents are listed in order; an item under its name points
//! to it.

use firstwrite_core::documents::{
    Document, DocumentChange, DocumentContent, DocumentName, DocumentPage, DocumentStep, Documents,
    Edition, Expiry, in_order,
};
use firstwrite_core::{StoreError, documents_methods};

use super::DynamoStore;
use super::driver_error::corrupt;
use super::items::{ID, Item, blob, bytes, instant, integer, key, number, optional, set};
use super::partition::Partition;
use super::write::{self, Step, Terms};

const READING: &str = "reading documents";
const WRITING: &str = "writing documents";

const NAME: &str = "name";
const NUMBER: &str = "number";
const VERSION: &str = "version";
const CONTENT: &str = "content";
const EXPIRES_AT: &str = "expires_at";

/// Returns the partition of all documents of a kind: one is enough for what people read.
fn all(kind: &str) -> String {
    format!("documents#{kind}")
}

fn key_of(kind: &str, number: i64) -> Item {
    key(all(kind), &number.max(0).to_be_bytes())
}

/// The item that points from a name to a number.
fn pointer(kind: &str, name: &DocumentName) -> Item {
    key(format!("document names#{kind}"), &name.0)
}

fn document(item: &Item) -> Result<Document, StoreError> {
    let name = blob(item, NAME)?.try_into().map(DocumentName);
    let number = blob(item, ID)?.try_into().map(i64::from_be_bytes);
    let number = number.map_err(|_length| corrupt("a document's number has 8 bytes"))?;
    Ok(Document {
        name: name.map_err(|_length| corrupt("a document's name has 32 bytes"))?,
        edition: Edition { number, version: integer(item, VERSION)? },
        content: DocumentContent {
            bytes: blob(item, CONTENT)?.to_vec(),
            expires_at: optional(item, EXPIRES_AT, instant)?,
        },
    })
}

impl DynamoStore {
    /// Returns the steps of a change, and the number of its document.
    fn document_steps(&self, kind: &str, change: &DocumentChange) -> (i64, Vec<Step>) {
        let link = self.link();
        let pointer = pointer(kind, &change.name);
        let mut terms = Terms::default();
        match &change.step {
            // A number that another process has given out at the same moment is as good as a name that is
            // taken: the writer reads again.
            DocumentStep::Add(DocumentContent { bytes: content, expires_at }) => {
                let given = self.inner.delivering.numbers.next(link.now());
                let (mut pointer, mut item) = (pointer, key_of(kind, given));
                set(&mut pointer, [(NUMBER, number(given))]);
                set(&mut item, [(NAME, bytes(&change.name.0)), (VERSION, number(1))]);
                set(&mut item, [(CONTENT, bytes(content))]);
                set(&mut item, expires_at.map(|at| (EXPIRES_AT, number(at.as_millis()))));
                (given, [pointer, item].map(|item| Step::put_new(link, item)).into())
            }
            DocumentStep::Replace(was, DocumentContent { bytes: content, expires_at }) => {
                let condition = terms.is(VERSION, "=", number(was.version));
                let version = terms.is(VERSION, "=", number(was.version + 1));
                let content = terms.is(CONTENT, "=", bytes(content));
                let expiry = match expires_at {
                    Some(at) => format!(", {}", terms.is(EXPIRES_AT, "=", number(at.as_millis()))),
                    None => format!(" REMOVE {}", terms.name(EXPIRES_AT)),
                };
                let change = format!("SET {version}, {content}{expiry}");
                let key = key_of(kind, was.number);
                (was.number, vec![Step::update(link, key, change, condition, &terms)])
            }
            DocumentStep::Remove(was) => {
                let condition = terms.is(VERSION, "=", number(was.version));
                let document = Step::delete(link, key_of(kind, was.number), condition, &terms);
                (was.number, vec![document, Step::remove(link, pointer)])
            }
        }
    }
}

impl Documents for DynamoStore {
    documents_methods!(self;
        read(kind, names) => async move {
            let link = self.link();
            let pointers: Vec<Item> = names.iter().map(|name| pointer(kind, name)).collect();
            let pointers = link.items_at(&pointers, READING).await?;
            let keys = pointers.iter().map(|item| Ok(key_of(kind, integer(item, NUMBER)?)));
            let keys: Vec<Item> = keys.collect::<Result<_, StoreError>>()?;
            let items = link.items_at(&keys, READING).await?;
            let found = items.iter().map(document).collect::<Result<Vec<_>, _>>()?;
            Ok(in_order(names, &found))
        },
        put(kind, changes) => async move {
            let link = self.link();
            link.writable(WRITING)?;
            let mut written = Vec::with_capacity(changes.len());
            for change in changes {
                let (number, steps) = self.document_steps(kind, change);
                let end = write::send_all(link, steps, WRITING).await?;
                written.push(end.is_done().then_some(number));
            }
            Ok(written)
        },
        scan(kind, scan) => async move {
            let (link, now) = (self.link(), self.link().now());
            let after = (scan.after >= 0).then(|| scan.after.to_be_bytes().to_vec());
            let asked =
                Partition { after, limit: Some(scan.rows_max()), ..Partition::of(all(kind)) };
            let filter = |terms: &mut Terms| match scan.which {
                Expiry::Any => None,
                Expiry::Never => Some(format!("attribute_not_exists({})", terms.name(EXPIRES_AT))),
                Expiry::Past => Some(terms.is(EXPIRES_AT, "<=", number(now.as_millis()))),
            };
            let answer = asked.ask(link, "listing documents", filter).await?;
            let documents = answer.items.iter().map(document).collect::<Result<_, _>>()?;
            let next = answer.ended_at.and_then(|at| at.try_into().ok().map(i64::from_be_bytes));
            Ok(DocumentPage { documents, next, now })
        },
    );
}
