//! Documents change only as their writers saw them, and are read in order.

use std::time::Duration;

use firstwrite_core::Store;
use firstwrite_core::documents::{
    CHANGES_MAX, Document, DocumentChange, DocumentContent, DocumentName, DocumentScan,
    DocumentStep, Documents, Edition, Expiry,
};

use super::{Case, Failure, Harness, OUTBOX, TestResult, case, expect, expect_equal};

pub(super) const CASES: &[Case] = &[
    case!("documents", OUTBOX, a_document_changes_only_as_its_writer_saw_it),
    case!("documents", OUTBOX, a_number_is_not_given_twice),
    case!("documents", OUTBOX, documents_are_scanned_by_kind_and_expiry_in_order),
    case!("documents", OUTBOX, many_documents_are_written_and_read_at_once),
];

fn documents(store: &dyn Store) -> Result<&dyn Documents, Failure> {
    store.documents().ok_or_else(|| Failure::new("a store that keeps messages keeps documents"))
}

fn content(text: &str) -> DocumentContent {
    DocumentContent { bytes: text.as_bytes().to_vec(), expires_at: None }
}

async fn put(
    documents: &dyn Documents,
    name: &str,
    step: DocumentStep,
) -> Result<Option<i64>, Failure> {
    let change = DocumentChange { name: DocumentName::of(&[name]), step };
    let mut written = documents.put("case", &[change]).await?;
    written.pop().ok_or_else(|| Failure::new("each change has an answer"))
}

async fn get(documents: &dyn Documents, name: &str) -> Result<Option<Document>, Failure> {
    let mut found = documents.read("case", &[DocumentName::of(&[name])]).await?;
    found.pop().ok_or_else(|| Failure::new("each name has an answer"))
}

async fn a_document_changes_only_as_its_writer_saw_it(harness: Harness) -> TestResult {
    let store = harness.store();
    let documents = documents(&*store)?;
    let Some(number) = put(documents, "a", DocumentStep::Add(content("one"))).await? else {
        return Err(Failure::new("a document is added where there is none"));
    };
    let first = Edition { number, version: 1 };
    let second = Edition { number, version: 2 };
    let again = put(documents, "a", DocumentStep::Add(content("other"))).await?;
    expect_equal("added where one is", &again, &None)?;
    let written = put(documents, "a", DocumentStep::Replace(first, content("two"))).await?;
    expect_equal("replaced as it was seen", &written, &Some(number))?;
    let late = put(documents, "a", DocumentStep::Replace(first, content("late"))).await?;
    expect_equal("replaced by a writer who saw an older version", &late, &None)?;
    let removed = put(documents, "a", DocumentStep::Remove(first)).await?;
    expect_equal("removed by a writer who saw an older version", &removed, &None)?;
    let document = get(documents, "a").await?;
    let stands = document.map(|document| (document.edition, document.content));
    expect_equal("what stands", &stands, &Some((second, content("two"))))?;
    let removed = put(documents, "a", DocumentStep::Remove(second)).await?;
    expect_equal("removed as it was seen", &removed, &Some(number))?;
    let gone = put(documents, "a", DocumentStep::Replace(second, content("three"))).await?;
    expect_equal("replaced where none is", &gone, &None)?;
    expect_equal("nothing stands", &get(documents, "a").await?, &None)
}

async fn a_number_is_not_given_twice(harness: Harness) -> TestResult {
    let store = harness.store();
    let documents = documents(&*store)?;
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let number = put(documents, "a", DocumentStep::Add(content("one"))).await?;
        let number = number.ok_or_else(|| Failure::new("a document is added where none is"))?;
        let edition = Edition { number, version: 1 };
        let old = numbers.last().map(|number| Edition { number: *number, version: 1 });
        if let Some(old) = old {
            let late = put(documents, "a", DocumentStep::Remove(old)).await?;
            expect_equal("a change of the document that was removed", &late, &None)?;
        }
        put(documents, "a", DocumentStep::Remove(edition)).await?;
        numbers.push(number);
    }
    expect(numbers.is_sorted_by(|before, after| before < after), "numbers grow")
}

async fn documents_are_scanned_by_kind_and_expiry_in_order(harness: Harness) -> TestResult {
    let store = harness.store();
    let documents = documents(&*store)?;
    let now = store.now().await?;
    let second = Duration::from_secs(1);
    let until = |expires_at| DocumentContent { expires_at, ..content("x") };
    let (past, future) = (until(Some(now)), until(Some(now.plus(second))));
    let mut numbers = Vec::new();
    for (name, content) in [("a", content("x")), ("b", past), ("c", future), ("d", content("y"))] {
        let number = put(documents, name, DocumentStep::Add(content)).await?;
        numbers.push(number.ok_or_else(|| Failure::new("a document is added where none is"))?);
    }
    let other =
        DocumentChange { name: DocumentName::of(&["a"]), step: DocumentStep::Add(content("z")) };
    expect(documents.put("other", &[other]).await? != [None], "each kind has its own names")?;
    for (which, wanted) in
        [(Expiry::Any, vec![0, 1, 2, 3]), (Expiry::Never, vec![0, 3]), (Expiry::Past, vec![1])]
    {
        let wanted: Vec<i64> = wanted.into_iter().map(|place: usize| numbers[place]).collect();
        for limit in [1, 2, 10] {
            let (mut scan, mut read) = (DocumentScan { which, after: i64::MIN, limit }, Vec::new());
            for _ in 0..10 {
                let page = documents.scan("case", scan).await?;
                expect(page.documents.len() <= limit, "a page is no longer than asked")?;
                expect_equal("the store's clock", &page.now, &now)?;
                read.extend(page.documents.iter().map(|document| document.edition.number));
                let Some(next) = page.next else { break };
                scan.after = next;
            }
            expect_equal(&format!("{which:?}, {limit} at a time"), &read, &wanted)?;
        }
    }
    harness.advance(second).await;
    let expired = DocumentScan { which: Expiry::Past, after: numbers[1], limit: 10 };
    let page = documents.scan("case", expired).await?;
    let read: Vec<_> = page.documents.iter().map(|document| document.edition.number).collect();
    expect_equal("expired meanwhile", &read, &vec![numbers[2]])
}

async fn many_documents_are_written_and_read_at_once(harness: Harness) -> TestResult {
    let store = harness.store();
    let documents = documents(&*store)?;
    let names: Vec<_> =
        (0..CHANGES_MAX).map(|name| DocumentName::of(&[&name.to_string()])).collect();
    let add = |name: &DocumentName| {
        let step = DocumentStep::Add(content(&"x".repeat(usize::from(name.0[0]))));
        DocumentChange { name: *name, step }
    };
    // One of them stands already, and does not keep the others from being written.
    documents.put("case", &[add(&names[7])]).await?;
    let changes: Vec<DocumentChange> = names.iter().map(add).collect();
    let written = documents.put("case", &changes).await?;
    let refused: Vec<usize> =
        (0..written.len()).filter(|place| written[*place].is_none()).collect();
    expect_equal("what stood already", &refused, &vec![7])?;
    let mut asked = names.clone();
    asked.reverse();
    asked.push(DocumentName::of(&["nowhere"]));
    asked.remove(0);
    let found = documents.read("case", &asked).await?;
    let found: Vec<_> = found.into_iter().map(|document| document.map(|it| it.name)).collect();
    let mut wanted: Vec<_> = asked.into_iter().map(Some).collect();
    wanted.pop();
    wanted.push(None);
    expect_equal("in the order of the names", &found, &wanted)
}
