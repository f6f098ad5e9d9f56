//! Requests and answers of HTTP/1.1: heads read with `httparse`, answers written by hand.

/// Header lines of a request; more are refused.
const HEADERS_MAX: usize = 64;

/// The start line and the headers of a request.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) is_last: bool,
    pub(super) framing: Framing,
    headers: Vec<(String, Vec<u8>)>,
}

/// Where the body ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    Length(usize),
    Chunked,
}

/// What a piece of input is, as far as it goes.
pub(super) enum Parsed {
    /// A head, and how many bytes of it.
    Head(Head, usize),
    Partial,
    /// A character in a header that may not be in one.
    BadCharacter,
    Bad(&'static str),
}

/// An answer, or what is kept of one.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// Names of headers that are for this connection alone.
    pub(super) hop_by_hop: Vec<&'static str>,
    /// The connection ends with it.
    pub(super) is_last: bool,
    /// The body that came with the request is left where it was, which no server should do.
    pub(super) leaves_body: bool,
}

impl Head {
    pub(super) fn parse(bytes: &[u8]) -> Parsed {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Parsed::Partial,
            Err(httparse::Error::HeaderValue) => return Parsed::BadCharacter,
            Err(httparse::Error::TooManyHeaders) => return Parsed::Bad("too many headers"),
            Err(_) => return Parsed::Bad("no HTTP/1.1"),
        };
        let headers = request.headers.iter().map(|line| (line.name.to_owned(), line.value.into()));
        let target = request.path.unwrap_or_default();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (target.to_owned(), None),
        };
        let mut head = Self {
            method: request.method.unwrap_or_default().to_owned(),
            path,
            query,
            is_last: request.version != Some(1),
            framing: Framing::Length(0),
            headers: headers.collect(),
        };
        head.is_last |= head.says("connection", "close");
        match head.framing() {
            Some(framing) => head.framing = framing,
            None => return Parsed::Bad("no telling where the body ends"),
        }
        Parsed::Head(head, length)
    }

    /// All values of a header, in their order.
    pub(super) fn all(&self, name: &str) -> Vec<&[u8]> {
        let lines = self.headers.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_slice()).collect()
    }

    /// The only value of a header, as text.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        match self.all(name).as_slice() {
            [value] => std::str::from_utf8(value).ok(),
            _ => None,
        }
    }

    /// Whether a word stands in a header that is a list of words.
    pub(super) fn says(&self, name: &str, word: &str) -> bool {
        let values = self.all(name).into_iter().filter_map(|value| std::str::from_utf8(value).ok());
        let mut words = values.flat_map(|value| value.split(','));
        words.any(|own| own.trim().eq_ignore_ascii_case(word))
    }

    /// Nothing if there are two ways to read it.
    fn framing(&self) -> Option<Framing> {
        let (lengths, codings) = (self.all("content-length"), self.all("transfer-encoding"));
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Some(Framing::Length(0)),
            ([], [coding]) => coding.eq_ignore_ascii_case(b"chunked").then_some(Framing::Chunked),
            ([length], []) if length.iter().all(u8::is_ascii_digit) => {
                std::str::from_utf8(length).ok()?.parse().ok().map(Framing::Length)
            }
            _ => None,
        }
    }
}

impl Answer {
    pub(super) fn json(status: u16, body: String) -> Self {
        Self {
            status,
            headers: vec![("Content-Type", "application/json".to_owned())],
            body: body.into_bytes(),
            hop_by_hop: Vec::new(),
            is_last: false,
            leaves_body: false,
        }
    }

    /// A refusal, which says why.
    pub(super) fn problem(status: u16, code: &str) -> Self {
        let title = code.replace('-', " ");
        let body = serde_json::json!({"type": "about:blank", "title": title, "status": status, "code": code});
        let answer = Self::json(status, body.to_string()).without("Content-Type");
        answer.with("Content-Type", "application/problem+json")
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds a header that is for this connection alone.
    pub(super) fn with_hop(mut self, name: &'static str, value: &str) -> Self {
        self.hop_by_hop.push(name);
        self.with(name, value)
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self
    }

    pub(super) fn last(mut self) -> Self {
        self.is_last = true;
        self
    }

    /// The same for another connection.
    pub(super) fn without_hop_by_hop(mut self) -> Self {
        for name in std::mem::take(&mut self.hop_by_hop) {
            self = self.without(name);
        }
        self
    }

    /// As it goes over the wire in answer to this method.
    pub(super) fn bytes(&self, method: &str) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        let mut connection = if self.is_last { vec!["close"] } else { Vec::new() };
        if !self.hop_by_hop.is_empty() {
            connection.extend((!self.is_last).then_some("keep-alive"));
            connection.extend(&self.hop_by_hop);
        }
        if !connection.is_empty() {
            head.extend(["Connection: ", &connection.join(", "), "\r\n"]);
        }
        head.extend(["Content-Length: ", &self.body.len().to_string(), "\r\n\r\n"]);
        let mut bytes = head.into_bytes();
        if method != "HEAD" {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        _ => "Service Unavailable",
    }
}
