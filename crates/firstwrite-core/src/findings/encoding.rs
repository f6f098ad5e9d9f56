//! The content of documents about findings: lines of `name=value` in a fixed order, which a person can read.
//!
//! The first line is the version of the form. A build that does not know it refuses to read the document, and
//! so never writes it back without what it does not understand.

use std::fmt::Display;
use std::iter::Peekable;
use std::str::{FromStr, Lines};

use super::rules::Entry;
use super::{Closed, Closing, Finding, FindingKind, FindingNumber, NewFinding, Run};
use crate::documents::Document;
use crate::outbox::MessageNumber;
use crate::{AuditEntry, Audited, RecordId, StoreError, StoreErrorKind, Timestamp};

const VERSION: &str = "1";

impl Entry {
    /// Writes everything but the number, which the store keeps.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { finding, audits, audits_dropped } = self;
        let Finding { found, closed, .. } = finding;
        let mut writer = Writer::new();
        writer.put("source", &finding.source);
        writer.put("kind", found.kind.as_str());
        writer.put("subject", &found.subject);
        writer.put("detail", &found.detail);
        writer.put_some("record", found.record);
        writer.put_some("message", found.message.map(|message| message.0));
        writer.put_some("provider_id", found.provider_id.as_ref());
        writer.put("first_seen", finding.first_seen.as_millis());
        writer.put("last_seen", finding.last_seen.as_millis());
        writer.put("reopened_count", finding.reopened_count);
        writer.put_some("owner", finding.owner.as_ref());
        if let Some(Closed { at, by, closing }) = closed {
            writer.put("closed_at", at.as_millis());
            writer.put("closed_by", by);
            writer.put("closing", closing.as_str());
            writer.put("resolution", closing.text());
        }
        writer.put("audits_dropped", audits_dropped);
        for Audited { at, entry } in audits {
            writer.put("audited_at", at.as_millis());
            writer.put("actor", &entry.actor);
            writer.put("action", &entry.action);
            writer.put("reason", &entry.reason);
        }
        writer.0.into_bytes()
    }

    pub(super) fn decode(document: &Document) -> Result<Self, StoreError> {
        let mut reader = Reader::new(document)?;
        let finding = Finding {
            number: FindingNumber(document.edition.number),
            source: reader.text("source")?,
            found: NewFinding {
                kind: FindingKind::from_word(&reader.text("kind")?).ok_or_else(unreadable)?,
                subject: reader.text("subject")?,
                detail: reader.text("detail")?,
                record: reader.record("record")?,
                message: reader.optional("message")?.map(MessageNumber),
                provider_id: reader.text_if_any("provider_id"),
            },
            first_seen: reader.instant("first_seen")?,
            last_seen: reader.instant("last_seen")?,
            reopened_count: reader.value("reopened_count")?,
            owner: reader.text_if_any("owner"),
            closed: reader.closed()?,
        };
        let audits_dropped = reader.value("audits_dropped")?;
        let mut audits = Vec::new();
        while let Some(at) = reader.optional("audited_at")? {
            let (actor, action) = (reader.text("actor")?, reader.text("action")?);
            let entry = AuditEntry { actor, action, reason: reader.text("reason")? };
            audits.push(Audited { at: Timestamp::from_millis(at), entry });
        }
        reader.end()?;
        Ok(Self { finding, audits, audits_dropped })
    }
}

impl Run {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.put("at", self.at.as_millis());
        writer.put("until", self.until.as_millis());
        writer.put("again_from", self.again_from.as_millis());
        writer.0.into_bytes()
    }

    pub(super) fn decode(document: &Document) -> Result<Self, StoreError> {
        let mut reader = Reader::new(document)?;
        let (at, until) = (reader.instant("at")?, reader.instant("until")?);
        let run = Self { at, until, again_from: reader.instant("again_from")? };
        reader.end()?;
        Ok(run)
    }
}

struct Writer(String);

impl Writer {
    fn new() -> Self {
        Self(format!("{VERSION}\n"))
    }

    fn put(&mut self, name: &str, value: impl Display) {
        // A carriage return would be lost with its line's end.
        let value =
            value.to_string().replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
        self.0.extend([name, "=", &value, "\n"]);
    }

    fn put_some(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }
}

struct Reader<'a>(Peekable<Lines<'a>>);

impl<'a> Reader<'a> {
    fn new(document: &'a Document) -> Result<Self, StoreError> {
        let text = str::from_utf8(&document.content.bytes).map_err(|_encoding| unreadable())?;
        let mut lines = text.lines();
        match lines.next() {
            Some(VERSION) => Ok(Self(lines.peekable())),
            _ => Err(unreadable()),
        }
    }

    /// Takes the next line if it has this name.
    fn text_if_any(&mut self, name: &str) -> Option<String> {
        let value = self.0.peek()?.strip_prefix(name)?.strip_prefix('=')?;
        self.0.next();
        let mut text = String::with_capacity(value.len());
        let mut letters = value.chars();
        while let Some(letter) = letters.next() {
            text.push(match letter {
                '\\' => match letters.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    other => other.unwrap_or('\\'),
                },
                letter => letter,
            });
        }
        Some(text)
    }

    fn text(&mut self, name: &str) -> Result<String, StoreError> {
        self.text_if_any(name).ok_or_else(unreadable)
    }

    fn optional<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, StoreError> {
        let text = self.text_if_any(name);
        text.map(|text| text.parse().map_err(|_form| unreadable())).transpose()
    }

    fn value<T: FromStr>(&mut self, name: &str) -> Result<T, StoreError> {
        self.optional(name)?.ok_or_else(unreadable)
    }

    fn instant(&mut self, name: &str) -> Result<Timestamp, StoreError> {
        self.value(name).map(Timestamp::from_millis)
    }

    fn record(&mut self, name: &str) -> Result<Option<RecordId>, StoreError> {
        let Some(digits) = self.text_if_any(name) else { return Ok(None) };
        let id = u128::from_str_radix(&digits, 16).map_err(|_digits| unreadable())?;
        Ok(Some(RecordId::from_bytes(id.to_be_bytes())))
    }

    fn closed(&mut self) -> Result<Option<Closed>, StoreError> {
        let Some(at) = self.optional("closed_at")? else { return Ok(None) };
        let by = self.text("closed_by")?;
        let closing = Closing::from_stored(&self.text("closing")?, self.text("resolution")?);
        let closing = closing.ok_or_else(unreadable)?;
        Ok(Some(Closed { at: Timestamp::from_millis(at), by, closing }))
    }

    /// Refuses lines that were not read.
    fn end(&mut self) -> Result<(), StoreError> {
        self.0.peek().map_or(Ok(()), |_| Err(unreadable()))
    }
}

fn unreadable() -> StoreError {
    StoreError::definite(StoreErrorKind::Corrupt, "reading a document about findings")
        .caused_by("it is damaged, or of a newer version of firstwrite")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{DocumentContent, DocumentName, Edition};

    fn document(bytes: Vec<u8>) -> Document {
        let content = DocumentContent { bytes, expires_at: None };
        let edition = Edition { number: 7, version: 1 };
        Document { name: DocumentName::of(&[]), edition, content }
    }

    fn entry(text: &str) -> Entry {
        let owned = || text.to_owned();
        let at = Timestamp::from_millis(5);
        let entry = AuditEntry { actor: owned(), action: owned(), reason: owned() };
        Entry {
            finding: Finding {
                number: FindingNumber(7),
                source: owned(),
                found: NewFinding {
                    kind: FindingKind::Differs,
                    subject: owned(),
                    detail: owned(),
                    record: Some(RecordId::from_bytes([0x0a; 16])),
                    message: Some(MessageNumber(i64::MAX)),
                    provider_id: Some(owned()),
                },
                first_seen: at,
                last_seen: at,
                reopened_count: 3,
                owner: Some(owned()),
                closed: Some(Closed { at, by: owned(), closing: Closing::Fixed(owned()) }),
            },
            audits: vec![Audited { at, entry: entry.clone() }, Audited { at, entry }],
            audits_dropped: 1,
        }
    }

    #[test]
    fn a_document_reads_as_it_was_written() {
        for text in ["", "plain", "a=b\nowner=me\r\n\\n\\", "ü\u{2028}\r", "\n\n"] {
            let written = entry(text);
            assert_eq!(Entry::decode(&document(written.encode())).unwrap(), written, "{text:?}");
        }
        let mut bare = entry("a");
        let found = &mut bare.finding.found;
        (found.record, found.message, found.provider_id) = (None, None, None);
        (bare.finding.owner, bare.finding.closed, bare.audits) = (None, None, Vec::new());
        assert_eq!(Entry::decode(&document(bare.encode())).unwrap(), bare);
        let at = Timestamp::from_millis;
        let run = Run { at: at(1), until: at(-2), again_from: at(3) };
        assert_eq!(Run::decode(&document(run.encode())).unwrap(), run);
    }

    #[test]
    fn the_form_is_pinned() {
        let mut entry = entry("a");
        entry.audits.truncate(1);
        let text = "1\nsource=a\nkind=differs\nsubject=a\ndetail=a\n\
            record=0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\nmessage=9223372036854775807\nprovider_id=a\n\
            first_seen=5\nlast_seen=5\nreopened_count=3\nowner=a\nclosed_at=5\nclosed_by=a\n\
            closing=fixed\nresolution=a\naudits_dropped=1\naudited_at=5\nactor=a\naction=a\nreason=a\n";
        assert_eq!(String::from_utf8(entry.encode()).unwrap(), text);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let bytes = entry("a").encode();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let newer = text.replacen('1', "2", 1);
        let longer = format!("{text}news=1\n");
        let half = text.replacen("detail=a\n", "", 1);
        for wrong in [newer, longer, half, String::new()] {
            assert!(Entry::decode(&document(wrong.into_bytes())).is_err());
        }
        assert!(Run::decode(&document(bytes)).is_err());
    }
}
