//! Address of the problem pages, with which the `type` of every problem document begins.

use std::fmt;
use std::sync::Arc;

/// The address below which every problem code has its page.
///
/// The default, `/.firstwrite/problems/`, is relative to the API, where the layer and the gateway serve the
/// pages themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemBase(Arc<str>);

/// A base that no `type` can begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProblemBaseError;

impl ProblemBase {
    /// The path below which the layer serves the pages.
    pub const SERVED: &str = "/.firstwrite/problems/";

    /// An absolute `http` or `https` address, or a path; a code follows its last slash.
    pub fn new(base: &str) -> Result<Self, ProblemBaseError> {
        let is_address = ["https://", "http://", "/"].iter().any(|start| base.starts_with(start));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}?#".contains(&byte);
        if !is_address || base.starts_with("//") || !base.bytes().all(is_plain) {
            return Err(ProblemBaseError);
        }
        Ok(Self(Arc::from(format!("{}/", base.trim_end_matches('/')))))
    }

    /// The `type` of a problem of this code.
    pub(super) fn type_of(&self, code: &str) -> String {
        format!("{}{code}", self.0)
    }
}

impl Default for ProblemBase {
    fn default() -> Self {
        Self(Arc::from(Self::SERVED))
    }
}

impl fmt::Display for ProblemBaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a base of problem types is an address such as https://api.example/problems/, or a path, \
             without a query",
        )
    }
}

impl std::error::Error for ProblemBaseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_an_address_or_a_path_and_ends_in_one_slash() {
        for (base, expected) in [
            ("https://api.example/problems", "https://api.example/problems/x"),
            ("https://api.example/problems//", "https://api.example/problems/x"),
            ("/errors/", "/errors/x"),
        ] {
            assert_eq!(ProblemBase::new(base).unwrap().type_of("x"), expected);
        }
        for wrong in ["", "problems", "ftp://a/", "//a/", "/a b", "/a\"", "https://a/?b=", "/é"] {
            assert_eq!(ProblemBase::new(wrong), Err(ProblemBaseError), "{wrong}");
        }
        assert_eq!(ProblemBase::default().type_of("x"), "/.firstwrite/problems/x");
    }
}
