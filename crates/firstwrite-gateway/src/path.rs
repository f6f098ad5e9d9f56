//! Paths as other servers may read them.

use firstwrite_core::ProblemBase;
use firstwrite_core::codec::percent::decode_lenient;

/// Everything below it is the gateway's own.
const OWN: &[u8] = b"/.firstwrite/";
/// Here and below it the layer says what became of keys.
const STATUS: &str = "/.firstwrite/operations";

/// Tells whether a path is one of the gateway's own, however it is spelt. Nothing of these is passed on, and
/// none is written to a log: a key may stand in it.
pub(crate) fn is_own(path: &str) -> bool {
    decode_lenient(path).take(OWN.len()).eq(OWN.iter().copied())
}

/// Tells whether the layer answers at this path of the gateway's own.
pub(crate) fn is_answered(path: &str) -> bool {
    let status = path.strip_prefix(STATUS);
    status.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || path.starts_with(ProblemBase::SERVED)
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
    fn what_is_below_our_own_path_is_ours_however_it_is_spelt() {
        for path in ["/.firstwrite/", "/.firstwrite/a/k", "/%2Efirstwrite/a", "/.firstwrite%2fa"] {
            assert!(is_own(path), "{path}");
        }
        for path in ["/", "/.firstwrite", "/.firstwriter/", "/a/.firstwrite/", "/.FIRSTWRITE/a"] {
            assert!(!is_own(path), "{path}");
        }
        for (path, expected) in [
            ("/.firstwrite/operations/k", true),
            ("/.firstwrite/operations", true),
            ("/.firstwrite/operations/", true),
            ("/.firstwrite/operationsk", false),
            ("/%2efirstwrite/operations/k", false),
        ] {
            assert_eq!(is_answered(path), expected, "{path}");
        }
    }

    #[test]
    fn escaped_slashes_become_slashes() {
        assert_eq!(with_slashes("/a%2fb%2Fc"), Some("/a/b/c".to_owned()));
        assert_eq!((with_slashes("/a/b"), with_slashes("/%252f")), (None, None));
    }
}
