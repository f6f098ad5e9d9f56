//! Refusals that no handler can send, because no request came of what was read: as bytes of HTTP/1.1.

use firstwrite_core::{ProblemBase, Rejection, RejectionKind};

/// The answer to a head that did not arrive in time. hyper ends its connection, but says nothing.
pub(crate) fn too_slow(base: &ProblemBase) -> Vec<u8> {
    bytes(&Rejection::new(RejectionKind::RequestTimeout), base)
}

/// The problem document for a refusal of hyper's, which is a head without a body; `None` for anything else.
///
/// `is_huge`: whether the head that is refused [names a length](is_huge) that hyper cannot hold.
pub(crate) fn instead_of(head: &[u8], is_huge: bool, base: &ProblemBase) -> Option<Vec<u8>> {
    let lines = head.strip_suffix(b"\r\n\r\n")?.strip_prefix(b"HTTP/1.1 ")?;
    let mut lines = std::str::from_utf8(lines).ok()?.split("\r\n");
    let kind = match lines.next()?.split(' ').next()? {
        "400" => RejectionKind::RequestMalformed,
        "414" => RejectionKind::TargetTooLong,
        "431" if is_huge => RejectionKind::BodyTooLarge,
        "431" => RejectionKind::HeadTooLarge,
        _ => return None,
    };
    let is_hypers = |line: &str| {
        matches!(line, "connection: close" | "content-length: 0") || line.starts_with("date: ")
    };
    lines.all(is_hypers).then(|| bytes(&Rejection::new(kind), base))
}

/// Tells whether one of the two numbers stands there that fit into a length of 64 bits, and by which hyper
/// means something else: it refuses them as it refuses a head that is too large.
pub(crate) fn is_huge(head: &[u8]) -> bool {
    const NUMBERS: [&[u8; 20]; 2] = [b"18446744073709551614", b"18446744073709551615"];
    let (length, end) = (NUMBERS[0].len(), head.len());
    // Wherever such a number stands, one of its digits stands at one of these places.
    let mut places = (length - 1..end).step_by(length).filter(|at| head[*at].is_ascii_digit());
    places.any(|at| {
        let around = &head[at + 1 - length..end.min(at + length)];
        around.windows(length).any(|part| NUMBERS.iter().any(|number| part == *number))
    })
}

fn bytes(refusal: &Rejection, base: &ProblemBase) -> Vec<u8> {
    let (status, body) = (refusal.status(), refusal.to_json_at(base));
    let mut head = format!(
        "HTTP/1.1 {} {}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len(),
    );
    if refusal.is_retryable() {
        head.push_str("retry-after: 1\r\n");
    }
    head.push_str("\r\n");
    head.push_str(&body);
    head.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_refusal_is_replaced() {
        let instead = |head: &str| instead_of(head.as_bytes(), false, &ProblemBase::default());
        let bare = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\
                    connection: close\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n";
        let text = String::from_utf8(instead(bare).unwrap()).unwrap();
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
        assert!(text.contains("\"code\":\"head-too-large\""), "{text}");
        let huge = instead_of(bare.as_bytes(), true, &ProblemBase::default()).unwrap();
        assert!(huge.starts_with(b"HTTP/1.1 413 "), "{}", huge.escape_ascii());
        for other in [
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-mine: 1\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\nx",
            "HTTP/1.1 400 Bad Request\r\n",
        ] {
            assert_eq!(instead(other), None, "{other}");
        }
    }

    #[test]
    fn a_huge_number_is_found_wherever_it_stands() {
        for before in 0..50 {
            for after in [0, 1, 30] {
                let (before, after) = ("x".repeat(before), "\r".repeat(after));
                let head = |number: &str| format!("{before}{number}{after}").into_bytes();
                assert!(is_huge(&head("18446744073709551614")));
                assert!(is_huge(&head("18446744073709551615")));
                assert!(!is_huge(&head("18446744073709551613")));
            }
        }
        assert!(!is_huge(b"") && !is_huge(b"content-length: 1844674407370955161"));
    }
}
