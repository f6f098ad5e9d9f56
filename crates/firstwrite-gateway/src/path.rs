//! Paths as other servers may read them.

use firstwrite_core::ProblemBase;
use firstwrite_core::codec::percent::decode_lenient;

/// Everything below it is the gateway's own.
const OWN: &[u8] = b"/.firstwrite/";
/// Below it the layer says what became of keys.
const STATUS: &str = "/.firstwrite/operations/";

/// Tells whether a path is one of the gateway's own, however it is spelt. Nothing of these is passed on, and
/// none is written to a log: a key may stand in it.
pub(crate) fn is_own(path: &str) -> bool {
    decode_lenient(path).take(OWN.len()).eq(OWN.iter().copied())
}

/// Tells whether the layer answers at this path of the gateway's own.
pub(crate) fn is_answered(path: &str) -> bool {
    path.starts_with(STATUS) || path.starts_with(ProblemBase::SERVED)
}

/// Tells whether some servers take a path for another one: a segment that is one or two dots, also with a
/// parameter behind it, a backslash, or a control character. Escapes count as what they stand for.
pub(crate) fn is_misread(path: &str) -> bool {
    // How many dots the segment consists of so far; none once it has anything else.
    let mut dots = Some(0);
    for byte in decode_lenient(path) {
        match byte {
            b'\\' => return true,
            byte if byte.is_ascii_control() => return true,
            b'/' | b';' if matches!(dots, Some(1 | 2)) => return true,
            b'/' => dots = Some(0),
            b'.' => dots = dots.map(|count: usize| count + 1),
            _ => dots = None,
        }
    }
    matches!(dots, Some(1 | 2))
}

/// The path with a slash for each escaped one, if there is any.
pub(crate) fn with_slashes(path: &str) -> Option<String> {
    let has_escaped = path.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"%2f"));
    has_escaped.then(|| path.replace("%2f", "/").replace("%2F", "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_dots_backslashes_and_control_characters_are_misread() {
        for path in [
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/%2e",
            "/.%2E/a",
            "/..;/a",
            "/.;a=b",
            "/a%2f..",
            "/a\\b",
            "/a%5cb",
            "/%00",
            "/a%0a",
            "/%7f",
            "/a%2f%2e%2e%2fb",
            "..",
            "/a/..%3bb",
        ] {
            assert!(is_misread(path), "{path}");
        }
        for path in [
            "/",
            "*",
            "/a",
            "/a/",
            "//a",
            "/.a",
            "/a.",
            "/...",
            "/a..",
            "/..a/b",
            "/;..",
            "/a;../b",
            "/%",
            "/%2",
            "/%zz",
            "/%252e",
            "/a%20b",
            "/caf%c3%a9",
            "/.well-known/x",
        ] {
            assert!(!is_misread(path), "{path}");
        }
    }

    #[test]
    fn what_is_below_our_own_path_is_ours_however_it_is_spelt() {
        for path in ["/.firstwrite/", "/.firstwrite/a/k", "/%2Efirstwrite/a", "/.firstwrite%2fa"] {
            assert!(is_own(path), "{path}");
        }
        for path in ["/", "/.firstwrite", "/.firstwriter/", "/a/.firstwrite/", "/.FIRSTWRITE/a"] {
            assert!(!is_own(path), "{path}");
        }
        assert!(
            is_answered("/.firstwrite/operations/k") && !is_answered("/%2efirstwrite/operations/k")
        );
    }

    #[test]
    fn escaped_slashes_become_slashes() {
        assert_eq!(with_slashes("/a%2fb%2Fc"), Some("/a/b/c".to_owned()));
        assert_eq!((with_slashes("/a/b"), with_slashes("/%252f")), (None, None));
    }
}
