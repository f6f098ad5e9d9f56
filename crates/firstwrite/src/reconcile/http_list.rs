//! A provider's account as a list by HTTP, page by page.

mod settings;

use std::fmt;

use bytes::Bytes;
use firstwrite_core::codec::percent;
use firstwrite_core::reconcile::{Theirs, Window};
use firstwrite_core::{BoxFuture, Pointer};
use http::{HeaderMap, Uri};
use serde_json::value::RawValue;

use super::entry::{Made, Reading, Texts};
use super::raw_json::{elements, text_at, value_at};
use super::{Flaw, Source, SourceError, SourcePage};
use crate::carrier::http::getting::{Getter, NotGot};
use crate::probe::list_end::{ListAnswer, Position};
use crate::strict_json;

pub use settings::{HttpItems, HttpList, Paging};

/// A list that is asked for page by page. Made by [`HttpList::build`].
///
/// An item that cannot be understood is reported, and makes the account incomplete: then nothing is taken
/// to be absent.
pub struct HttpListSource {
    getter: Getter,
    template: String,
    items: HttpItems,
    paging: Paging,
    harmless: Vec<Pointer>,
    reading: Reading,
}

/// A cursor is a place, not a document.
const CURSOR_BYTES_MAX: usize = 4096;

impl HttpListSource {
    async fn page(&self, window: Window, cursor: Option<&str>) -> Result<SourcePage, SourceError> {
        let url = self.url(window, cursor)?;
        let (headers, body) = self.getter.get(url).await.map_err(|not_got| {
            let NotGot { detail, is_transient, retry_after } = not_got;
            let error = if is_transient {
                SourceError::transient(detail)
            } else {
                SourceError::new(detail)
            };
            error.retry_after(retry_after)
        })?;
        self.read(&headers, &body)
    }

    /// Reads a page, wherever its bytes came from.
    pub fn read(&self, headers: &HeaderMap, body: &Bytes) -> Result<SourcePage, SourceError> {
        // The cause is not kept: it may quote the body.
        let json = serde_json::from_slice::<&RawValue>(body).ok();
        let Some((json, document)) = json.zip(strict_json::parse(body)) else {
            return Err(SourceError::transient("its answer is not JSON without repeated names"));
        };
        let list = &self.items.list;
        let Some(items) = value_at(json, list).and_then(elements) else {
            let detail = format!("its answer has no array at {:?}", list.as_str());
            return Err(SourceError::new(detail));
        };
        let mut page = SourcePage::default();
        for (index, item) in items.iter().enumerate() {
            match self.entry(item) {
                Ok(Some(entry)) => page.entries.push(entry),
                Ok(None) => {}
                Err(problem) => page.flaws.push(Flaw::new(format!("item {index}"), problem)),
            }
        }
        page.passed_over = items.len() - page.entries.len();
        page.next = self.next(json, items.last().copied())?;
        if let Some(detail) = self.unclear_end(json) {
            page.flaws.push(Flaw::new("the page", detail));
        }
        let position = if page.next.is_some() { Position::Middle } else { Position::End };
        let (document, paging, harmless) = (&document, self.paging.place(), &self.harmless[..]);
        match (ListAnswer { headers, document, list, paging, harmless }).check(position) {
            Ok(stated) => page.stated = stated,
            Err(what) => page.flaws.push(Flaw::new("the page", format!("it {what}"))),
        }
        Ok(page)
    }

    fn url(&self, window: Window, cursor: Option<&str>) -> Result<Uri, SourceError> {
        let url = match cursor {
            Some(cursor) => self.template.replace("{cursor}", &percent::encode(cursor)),
            None => settings::without_cursor(&self.template),
        };
        let url = [("{from}", window.from), ("{until}", window.until)]
            .iter()
            .fold(url, |url, (place, at)| {
                url.replace(place, &percent::encode(&self.reading.time.write(*at)))
            });
        url.parse().map_err(|error| SourceError::new("the page has no URL").caused_by(error))
    }

    /// Returns the reason why a page does not show whether there are more. An API that pages in another way than
    /// was declared must not pass for a list of one page, nor one that failed for an empty page.
    fn unclear_end(&self, json: &RawValue) -> Option<&'static str> {
        let value = value_at(json, self.paging.place()?).map(RawValue::get);
        match (&self.paging, value) {
            (_, None) | (Paging::LastId { .. }, Some("null")) => {
                Some("it does not say whether there are more")
            }
            (Paging::Next(_), Some("\"\"")) => {
                Some("it has an empty cursor, which is not declared to end the list")
            }
            (_, Some(_)) => None,
        }
    }

    /// The entry of an item; none if it had no effect.
    fn entry(&self, item: &RawValue) -> Result<Option<Theirs>, &'static str> {
        let text = |pointer: Option<&Pointer>| {
            text_at(item, pointer).map_err(|()| "it has something else where a text should be")
        };
        let HttpItems { id, key, amount, currency, at, made, .. } = &self.items;
        let status = match made {
            Made::All => None,
            Made::ByStatus { status, .. } => text(Some(status))?,
        };
        let Some(is_made) = made.is_made(status.as_deref()) else { return Ok(None) };
        let (id, at) = (text(Some(id))?, text(Some(at))?);
        let (key, amount, currency) =
            (text(key.as_ref())?, text(amount.as_ref())?, text(currency.as_ref())?);
        let texts = Texts {
            id: id.as_deref(),
            key: key.as_deref(),
            amount: amount.as_deref(),
            currency: currency.as_deref(),
            at: at.as_deref(),
            is_made,
        };
        // A copy: an entry that is kept must not keep its page.
        let raw = Bytes::copy_from_slice(item.get().as_bytes());
        self.reading.entry(texts, raw).map(Some)
    }

    fn next(
        &self,
        json: &RawValue,
        last: Option<&RawValue>,
    ) -> Result<Option<String>, SourceError> {
        let unclear = || SourceError::new("its answer does not say where the next page is");
        let cursor = match &self.paging {
            Paging::SinglePage => return Ok(None),
            Paging::Next(pointer) | Paging::NextOrEmpty(pointer) => {
                text_at(json, Some(pointer)).map_err(|()| unclear())?
            }
            Paging::LastId { more } => match value_at(json, more).map(RawValue::get) {
                Some("true") => {
                    let id = last.map(|last| text_at(last, Some(&self.items.id)));
                    let id = id.and_then(Result::ok).flatten().filter(|id| !id.is_empty());
                    Some(id.ok_or_else(unclear)?)
                }
                Some("false" | "null") | None => None,
                Some(_) => return Err(unclear()),
            },
        };
        match cursor.filter(|cursor| !cursor.is_empty()) {
            Some(cursor) if cursor.len() > CURSOR_BYTES_MAX => Err(unclear()),
            cursor => Ok(cursor.map(std::borrow::Cow::into_owned)),
        }
    }
}

impl Source for HttpListSource {
    fn pull<'a>(
        &'a self,
        window: Window,
        cursor: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SourcePage, SourceError>> {
        Box::pin(self.page(window, cursor))
    }
}

impl fmt::Debug for HttpListSource {
    /// Without the URL, which may have a secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpListSource")
            .field("getter", &self.getter)
            .field("items", &self.items)
            .field("paging", &self.paging)
            .field("harmless", &self.harmless)
            .field("reading", &self.reading)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
