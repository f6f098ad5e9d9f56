//! Fuzz targets for input from the network, as functions of bytes: see `fuzz/`. They panic where a rule does
//! not hold.

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};

use crate::head;
use crate::tenants::fuzzing::{jwks, jws};

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[("head", head), ("jws", jws), ("jwks", jwks)];

/// The head of a request: a line with a method and a target, then headers.
fn head(bytes: &[u8]) {
    let Some(request) = read(bytes) else { return };
    let judged = head::check(&request).is_ok();
    assert_eq!(head::check(&request).is_ok(), judged, "judged twice");
}

fn read(bytes: &[u8]) -> Option<Parts> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let mut words = first.splitn(2, |byte| *byte == b' ');
    let (method, target) = (words.next()?, words.next()?);
    let mut request = Request::builder().method(method).uri(target).body(()).ok()?;
    for line in lines {
        let mut words = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (words.next()?, words.next()?);
        let name = HeaderName::from_bytes(name).ok()?;
        request.headers_mut().append(name, HeaderValue::from_bytes(value.trim_ascii()).ok()?);
    }
    Some(request.into_parts().0)
}
