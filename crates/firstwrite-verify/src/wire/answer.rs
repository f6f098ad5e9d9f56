//! An answer, and how it is told from the bytes.

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case, in the order of arrival.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// An answer without its body, and how long its head was.
pub(super) type Head = (Answer, usize);

/// Framing of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    Chunked,
    /// The connection ends with it.
    UntilClose,
}

/// More than any sane answer has.
const HEADERS_MAX: usize = 128;

impl Answer {
    /// Reads a head, if all of it is there: the answer without its body, and how long the head was.
    pub(super) fn parse_head(bytes: &[u8]) -> Result<Option<Head>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("no HTTP/1.1 answer: {error}")),
        };
        let headers = response
            .headers
            .iter()
            .map(|header| {
                let value = String::from_utf8_lossy(header.value).into_owned();
                (header.name.to_ascii_lowercase(), value)
            })
            .collect();
        let status = response.code.unwrap_or_default();
        Ok(Some((Self { status, headers, body: Vec::new() }, length)))
    }

    pub(super) fn framing(&self, is_head: bool) -> Result<Framing, String> {
        if is_head || self.status < 200 || matches!(self.status, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        let codings: Vec<&str> = self.all("transfer-encoding").collect();
        match codings[..] {
            [] => {}
            [coding] if coding.eq_ignore_ascii_case("chunked") => return Ok(Framing::Chunked),
            _ => return Err(format!("the answer is coded as `{}`", codings.join(", "))),
        }
        let mut lengths = self.all("content-length");
        let Some(length) = lengths.next() else { return Ok(Framing::UntilClose) };
        // A plus sign is no digit, and two lengths are two ends.
        let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
        match length.parse() {
            Ok(count) if is_number && lengths.all(|other| other == length) => {
                Ok(Framing::Length(count))
            }
            Ok(_) | Err(_) => Err(format!("the answer's length is `{length}`, or another as well")),
        }
    }

    /// The first line of a name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every line of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A refusal that blames the request, or says to come back.
    pub(crate) fn is_refusal(&self) -> bool {
        (400..500).contains(&self.status)
    }

    pub(crate) fn is_failure(&self) -> bool {
        self.status >= 500
    }

    /// Returns true if its headers mark it as a replay.
    pub(crate) fn is_marked(&self) -> bool {
        ["idempotent-replayed", "idempotency-replayed"]
            .iter()
            .any(|name| self.header(name).is_some_and(|value| value.eq_ignore_ascii_case("true")))
    }

    /// Returns true if a client that compares status and body sees the same response.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.status == other.status && self.body == other.body
    }
}
