//! A request as it is going to be written: every byte is the checker's own choice, wrong ones included.

use http::Method;

/// A request. Header values are bytes, since some checks send what no header may hold.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    /// Names of headers whose values the user gave: they may be secrets.
    hidden: Vec<String>,
}

/// As much of a value as a person reads in a line.
const SHOWN_MAX: usize = 160;

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: Vec::new(),
            hidden: Vec::new(),
        }
    }

    /// A header of the user's: its value is sent and never shown.
    pub(crate) fn given(mut self, (name, value): &(String, String)) -> Self {
        self.hidden.push(name.to_ascii_lowercase());
        self.header(name, value.as_bytes())
    }

    /// Puts a header in the place of all of its name.
    pub(crate) fn header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).also(name, value)
    }

    /// Adds a line, also where one of its name stands.
    pub(crate) fn also(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Another path, with its query.
    pub(crate) fn path(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    pub(crate) fn path_now(&self) -> &str {
        &self.path
    }

    pub(crate) fn method_now(&self) -> &Method {
        &self.method
    }

    pub(crate) fn body_now(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    /// Request line and headers, with the length of the body.
    pub(crate) fn head(&self, authority: &str) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        if !self.has("host") {
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            head.extend_from_slice(format!("Host: {host}\r\n").as_bytes());
        }
        for (name, value) in &self.headers {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        }
        if !self.body.is_empty() || self.method != Method::GET {
            head.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        head
    }

    /// All of it.
    pub(crate) fn bytes(&self, authority: &str) -> Vec<u8> {
        let mut bytes = self.head(authority);
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Returns a one-line summary of the request, without the headers that the user gave.
    pub(crate) fn summary(&self) -> String {
        let mut parts = vec![format!("{} {}", self.method, self.path)];
        for (name, value) in &self.headers {
            let is_hidden = self.hidden.contains(&name.to_ascii_lowercase());
            let is_plain = name.eq_ignore_ascii_case("content-type");
            if !is_hidden && !is_plain {
                parts.push(format!("{name}: {}", shown(value)));
            }
        }
        if !self.body.is_empty() {
            parts.push(format!("body {}", shown(&self.body)));
        }
        parts.join(", ")
    }
}

/// The beginning of some bytes, so that a person can read them.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let (start, rest) = bytes.split_at(bytes.len().min(SHOWN_MAX));
    let mut text = String::new();
    for chunk in start.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() {
                text.extend(letter.escape_default());
            } else {
                text.push(letter);
            }
        }
        // As it was sent, or came.
        text.extend(chunk.invalid().iter().flat_map(|byte| byte.escape_ascii()).map(char::from));
    }
    if rest.is_empty() { text } else { format!("{text}… ({} bytes)", bytes.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call::new(Method::POST, "/orders")
            .given(&("Authorization".to_owned(), "Bearer secret".to_owned()))
            .header("Idempotency-Key", "\"a\"")
            .body("{}")
    }

    #[test]
    fn a_request_is_what_was_asked_for() {
        let bytes = call().bytes("me:pw@127.0.0.1:80");
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "POST /orders HTTP/1.1\r\nHost: 127.0.0.1:80\r\nAuthorization: Bearer secret\r\n\
             Idempotency-Key: \"a\"\r\nContent-Length: 2\r\n\r\n{}"
        );
        let twice = call().also("Idempotency-Key", b"\x01").head("h");
        assert!(String::from_utf8(twice).unwrap().contains("\"a\"\r\nIdempotency-Key: \x01\r\n"));
    }

    #[test]
    fn a_summary_holds_no_secret_and_no_control_character() {
        assert_eq!(call().summary(), "POST /orders, Idempotency-Key: \"a\", body {}");
        let odd = call().header("Idempotency-Key", b"a\x01\x1b[2J\xff");
        assert_eq!(odd.summary(), "POST /orders, Idempotency-Key: a\\u{1}\\u{1b}[2J\\xff, body {}");
        assert_eq!(shown(&[b'x'; 300]), format!("{}… (300 bytes)", "x".repeat(160)));
    }
}
