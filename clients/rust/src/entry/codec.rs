//! Entries as bytes, with a version and a digest: what a disk spoils is noticed.
//!
//! A document is a line (`firstwrite-intent 1 DIGEST`), a line of JSON, the request's body and the answer's body. The
//! digest covers all behind the first line. Types here are those of the bytes and of nothing else.

mod ends;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Entry, Place, Request, Spelling};
use crate::end::End;
use crate::key::Key;
use crate::rules::{Dialect, Timestamp};
use crate::seal::Seal;
use crate::storage::Stored;
use crate::{BoxError, Error};
use ends::{EndText, end_of, end_text};

const MAGIC: &str = "firstwrite-intent 1 ";

/// Reason for which a document cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// The digest does not fit, or something is missing.
    Damaged(BoxError),
    /// A later version wrote it.
    Later,
    /// A body does not open.
    Sealed(BoxError),
}

#[derive(Serialize, Deserialize)]
struct Document {
    name: String,
    revision: u64,
    key: String,
    opened_at: i64,
    attempts: u32,
    doubt: bool,
    first_attempt_at: Option<i64>,
    resumed_at: Option<i64>,
    latest_at: Option<i64>,
    spelling: Option<SpellingText>,
    not_before: Option<i64>,
    waits_for_ms: u64,
    expires_at: Option<i64>,
    #[serde(default)]
    shows_status: bool,
    place: Option<PlaceText>,
    request: RequestText,
    end: Option<EndText>,
    /// Bodies are behind the document as the application's `seal` made them.
    sealed: bool,
}

#[derive(Serialize, Deserialize)]
struct PlaceText {
    lane: String,
    number: u64,
    applied: bool,
    settled: bool,
}

#[derive(Serialize, Deserialize)]
struct SpellingText {
    dialect: DialectWord,
    header: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DialectWord {
    #[serde(rename = "draft-07")]
    Draft07,
    Stripe,
    Generic,
}

#[derive(Serialize, Deserialize)]
struct RequestText {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body_bytes: usize,
}

/// Writes an entry.
pub(crate) fn encode(entry: &Entry, seal: Option<&dyn Seal>) -> Result<Stored, Error> {
    let sealed = |body: &Bytes| match seal {
        Some(seal) => seal.seal(&entry.name, body).map(Bytes::from).map_err(Error::Seal),
        None => Ok(body.clone()),
    };
    let request_body = sealed(&entry.request.body)?;
    let answer = entry.end.as_ref().and_then(End::answer);
    let answer_body = answer.and_then(|answer| answer.body.as_ref()).map(sealed).transpose()?;
    let document = Document {
        name: entry.name.clone(),
        revision: entry.revision,
        key: entry.key.as_str().to_owned(),
        opened_at: entry.opened_at.to_millis(),
        attempts: entry.attempts,
        doubt: entry.doubt,
        first_attempt_at: entry.first_attempt_at.map(Timestamp::to_millis),
        resumed_at: entry.resumed_at.map(Timestamp::to_millis),
        latest_at: entry.latest_at.map(Timestamp::to_millis),
        spelling: entry.spelling.as_ref().map(spelling_text),
        not_before: entry.not_before.map(Timestamp::to_millis),
        waits_for_ms: u64::try_from(entry.waits_for.as_millis()).unwrap_or(u64::MAX),
        expires_at: entry.expires_at.map(Timestamp::to_millis),
        shows_status: entry.shows_status,
        place: entry.place.as_ref().map(place_text),
        request: RequestText {
            method: entry.request.method.to_string(),
            url: entry.request.url.to_string(),
            headers: entry.request.headers.iter().map(|(name, value)| text(name, value)).collect(),
            body_bytes: request_body.len(),
        },
        end: entry.end.as_ref().map(|end| end_text(end, answer_body.as_ref().map(Bytes::len))),
        sealed: seal.is_some(),
    };
    let json = serde_json::to_vec(&document).expect("texts and numbers can be written as JSON");
    let answer_body = answer_body.unwrap_or_default();
    let mut rest = BytesMut::with_capacity(json.len() + request_body.len() + answer_body.len() + 1);
    rest.put_slice(&json);
    rest.put_u8(b'\n');
    rest.put_slice(&request_body);
    rest.put_slice(&answer_body);
    let first = format!("{MAGIC}{}\n", digest(&rest));
    let document = Bytes::from([first.as_bytes(), &rest].concat());
    Ok(Stored { name: entry.name.clone(), revision: entry.revision, document })
}

/// Reads an entry.
pub(crate) fn decode(stored: &Stored, seal: Option<&dyn Seal>) -> Result<Entry, Unreadable> {
    let (first, rest) = line(&stored.document).ok_or_else(|| damaged("it has no first line"))?;
    let Some(kept) = first.strip_prefix(MAGIC.as_bytes()) else {
        let is_later = first.starts_with(b"firstwrite-intent ");
        return Err(if is_later { Unreadable::Later } else { damaged("it is no entry") });
    };
    if kept != digest(&rest).as_bytes() {
        return Err(damaged("its digest does not fit"));
    }
    let (json, bodies) = line(&rest).ok_or_else(|| damaged("it has no second line"))?;
    let document: Document =
        serde_json::from_slice(&json).map_err(|error| Unreadable::Damaged(error.into()))?;
    if document.name != stored.name || document.revision != stored.revision {
        return Err(damaged("it is another entry's"));
    }
    match (document.sealed, seal) {
        (true, None) => {
            Err(Unreadable::Sealed("its bodies are sealed, and this client has no `seal`".into()))
        }
        (true, Some(seal)) => read(document, &bodies, Some(seal)),
        // Written before the application began to seal.
        (false, _) => read(document, &bodies, None),
    }
}

/// The lane of an entry that cannot be read, where so much of it can.
pub(crate) fn lane_of(stored: &Stored) -> Option<String> {
    #[derive(Deserialize)]
    struct Remains {
        place: Option<Lane>,
    }
    #[derive(Deserialize)]
    struct Lane {
        lane: String,
    }
    let (_, rest) = line(&stored.document)?;
    let (json, _) = line(&rest)?;
    serde_json::from_slice::<Remains>(&json).ok()?.place.map(|place| place.lane)
}

fn read(document: Document, bodies: &Bytes, seal: Option<&dyn Seal>) -> Result<Entry, Unreadable> {
    let open = |body: Bytes| match seal {
        Some(seal) => seal.open(&document.name, &body).map(Bytes::from).map_err(Unreadable::Sealed),
        None => Ok(body),
    };
    let length = document.request.body_bytes;
    let kept = document.end.as_ref().and_then(|end| end.answer.as_ref()?.body_bytes);
    if length.checked_add(kept.unwrap_or(0)) != Some(bodies.len()) {
        return Err(damaged("a body is missing"));
    }
    let request_body = open(bodies.slice(..length))?;
    let answer_body = kept.map(|_| open(bodies.slice(length..))).transpose()?;
    entry_of(document, request_body, answer_body).ok_or_else(|| damaged("a member makes no sense"))
}

fn entry_of(document: Document, body: Bytes, answer_body: Option<Bytes>) -> Option<Entry> {
    let Document { request, end, place, .. } = document;
    let headers = request.headers.into_iter().map(header).collect::<Option<Vec<_>>>()?;
    Some(Entry {
        name: document.name,
        revision: document.revision,
        key: Key::from_kept(document.key)?,
        request: Request {
            method: request.method.parse().ok()?,
            url: request.url.parse().ok()?,
            headers,
            body,
        },
        opened_at: Timestamp::from_millis(document.opened_at),
        attempts: document.attempts,
        doubt: document.doubt,
        first_attempt_at: document.first_attempt_at.map(Timestamp::from_millis),
        resumed_at: document.resumed_at.map(Timestamp::from_millis),
        latest_at: document.latest_at.map(Timestamp::from_millis),
        spelling: match document.spelling {
            Some(spelling) => Some(spelling_of(&spelling)?),
            None => None,
        },
        not_before: document.not_before.map(Timestamp::from_millis),
        waits_for: Duration::from_millis(document.waits_for_ms),
        expires_at: document.expires_at.map(Timestamp::from_millis),
        shows_status: document.shows_status,
        end: match end {
            Some(end) => Some(end_of(end, answer_body)?),
            None => None,
        },
        place: place.map(|place| Place {
            lane: place.lane,
            number: place.number,
            is_applied: place.applied,
            is_settled: place.settled,
        }),
    })
}

fn place_text(place: &Place) -> PlaceText {
    PlaceText {
        lane: place.lane.clone(),
        number: place.number,
        applied: place.is_applied,
        settled: place.is_settled,
    }
}

fn spelling_text(spelling: &Spelling) -> SpellingText {
    let dialect = match spelling.dialect {
        Dialect::Draft07 => DialectWord::Draft07,
        Dialect::Stripe => DialectWord::Stripe,
        Dialect::Generic => DialectWord::Generic,
    };
    SpellingText { dialect, header: spelling.header.to_string() }
}

fn spelling_of(text: &SpellingText) -> Option<Spelling> {
    let dialect = match text.dialect {
        DialectWord::Draft07 => Dialect::Draft07,
        DialectWord::Stripe => Dialect::Stripe,
        DialectWord::Generic => Dialect::Generic,
    };
    Some(Spelling { dialect, header: text.header.parse().ok()? })
}

/// A header as text. A value may hold any byte above the controls, so each byte is one character.
fn text(name: &HeaderName, value: &HeaderValue) -> (String, String) {
    (name.as_str().to_owned(), value.as_bytes().iter().copied().map(char::from).collect())
}

fn header((name, value): (String, String)) -> Option<(HeaderName, HeaderValue)> {
    let bytes: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(c).ok()).collect();
    Some((name.parse().ok()?, HeaderValue::from_bytes(&bytes?).ok()?))
}

fn damaged(why: &'static str) -> Unreadable {
    Unreadable::Damaged(why.into())
}

/// The first line, and what is behind it.
fn line(bytes: &Bytes) -> Option<(Bytes, Bytes)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes.slice(..end), bytes.slice(end + 1..)))
}

fn digest(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
