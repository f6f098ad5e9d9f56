//! A request on its way to become an intent.

mod sorted_json;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Uri};
use serde::Serialize;

use crate::BoxError;
use crate::client::Client;
use crate::entry::{Place, Request};
use crate::error::Error;
use crate::intent::Intent;

/// Longest name of an intent: as long as a key may be, and as a file system's names.
const NAME_BYTES_MAX: usize = 255;
/// Bounds a request's own headers; the entry is read at every attempt.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Headers that are no part of a request: of its credentials, of one connection, and the key's own.
const REFUSED: [HeaderName; 15] = [
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("api-key"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("x-api-key"),
];

/// An intent that is not opened yet. What is wrong with its request is said by [`open`](Self::open).
#[derive(Debug)]
#[must_use = "nothing is written or sent before `open`"]
pub struct Draft {
    client: Client,
    name: String,
    method: Method,
    url: Result<Uri, Trouble>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble(&'static str, BoxError);

impl Draft {
    pub(crate) fn new(client: Client, name: String) -> Self {
        let url = Err(Trouble("it has no URL", "call `request` or `post_json`".into()));
        let (method, headers, body) = (Method::POST, Vec::new(), Bytes::new());
        Self { client, name, method, url, headers, body, trouble: None }
    }

    /// A POST of JSON, whose members are written in sorted order: the same value is the same request.
    pub fn post_json(self, url: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.request(Method::POST, url).json(value)
    }

    /// Sets method and URL.
    pub fn request(mut self, method: Method, url: &str) -> Self {
        self.method = method;
        self.url = url.parse().map_err(|error| Trouble("the URL cannot be read", Box::new(error)));
        self
    }

    /// Sets a body of JSON, with its `Content-Type`.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Self {
        match sorted_json::write(value) {
            Ok(body) => self.body(body, "application/json"),
            Err(error) => self.with_trouble("the body cannot be written as JSON", error),
        }
    }

    /// Sets the body and its `Content-Type`.
    pub fn body(mut self, body: impl Into<Bytes>, content_type: &str) -> Self {
        self.body = body.into();
        self.header(header::CONTENT_TYPE.as_str(), content_type)
    }

    /// Sets a header that is written down with the request and sent with it. One whose name begins with `content-`
    /// makes the request another one; others may differ when the intent is opened again. Credentials are refused: see
    /// [`Builder::credentials`](crate::Builder::credentials).
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (name, value) = match (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            (Ok(name), Ok(value)) => (name, value),
            (Err(error), _) => return self.with_trouble("a header's name is malformed", error),
            (_, Err(error)) => return self.with_trouble("a header's value is malformed", error),
        };
        if REFUSED.contains(&name) || name == self.client.core().settings.key_header {
            let why = format!("`{name}` is no part of a request that is kept");
            return self.with_trouble("a header cannot be set", why);
        }
        self.headers.retain(|(own, _)| *own != name);
        self.headers.push((name, value));
        self
    }

    /// Opens the intent: writes it down with its key, and returns when that is durable. An intent of this name that
    /// stands with the same request is returned as it stands; with another request it is an
    /// [`IntentConflict`](Error::IntentConflict).
    pub async fn open(self) -> Result<Intent, Error> {
        let (client, name, request) = self.finish()?;
        client.core().open(&name, request, None).await.map(|entry| Intent::new(client, entry))
    }

    /// Opens the intent anew, with this request and a new key. Allowed where no attempt was begun, and after a refusal
    /// by which a new key is safe; else an error, and nothing changes. One that stands in a lane of the queue takes
    /// the last place in it, and is applied there before it is sent. Where the hook `rollback` of its refusal has not
    /// run yet, it is [`InLane`](Error::InLane): [`Queue::supersede`](crate::Queue::supersede) runs it first.
    pub async fn supersede(self) -> Result<Intent, Error> {
        let (client, name, request) = self.finish()?;
        client.core().supersede(&name, request).await.map(|entry| Intent::new(client, entry))
    }

    /// The same as [`open`](Self::open), at a place of a queue.
    pub(crate) async fn open_at(self, place: Place) -> Result<Intent, Error> {
        let (client, name, request) = self.finish()?;
        let entry = client.core().open(&name, request, Some(place)).await?;
        Ok(Intent::new(client, entry))
    }

    fn with_trouble(mut self, problem: &'static str, source: impl Into<BoxError>) -> Self {
        self.trouble.get_or_insert(Trouble(problem, source.into()));
        self
    }

    pub(crate) fn finish(self) -> Result<(Client, String, Request), Error> {
        let Self { client, name, method, url, mut headers, body, trouble } = self;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Error::Name { bytes: name.len() });
        }
        let fail =
            |problem: String, source| Error::Request { intent: name.clone(), problem, source };
        if let Some(Trouble(problem, source)) = trouble {
            return Err(fail(problem.to_owned(), Some(source)));
        }
        let url = url.map_err(|Trouble(problem, source)| fail(problem.to_owned(), Some(source)))?;
        if let Some(problem) = wrong_with(&url) {
            return Err(fail(problem.to_owned(), None));
        }
        let body_bytes_max = client.core().settings.body_bytes_max;
        if body.len() > body_bytes_max {
            let length = body.len();
            let problem =
                format!("its body has {length} bytes; at most {body_bytes_max} are allowed");
            return Err(fail(problem, None));
        }
        let length: usize =
            headers.iter().map(|(own, value)| own.as_str().len() + value.len()).sum();
        if length > HEADER_BYTES_MAX {
            let problem =
                format!("its headers have {length} bytes; at most {HEADER_BYTES_MAX} are allowed");
            return Err(fail(problem, None));
        }
        headers.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        Ok((client, name, Request { method, url, headers, body }))
    }
}

fn wrong_with(url: &Uri) -> Option<&'static str> {
    let authority = url.authority().map(http::uri::Authority::as_str);
    match (url.scheme_str(), authority) {
        (Some("http" | "https"), Some(authority)) if authority.contains('@') => {
            Some("its URL holds credentials, which are given by a provider of credentials")
        }
        (Some("http" | "https"), Some(_)) => None,
        _ => Some("its URL is not a whole one that begins with http:// or https://"),
    }
}
