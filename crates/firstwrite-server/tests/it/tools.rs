//! Programs of others that some tests need.

use std::path::PathBuf;

/// Where the environment says that something is installed. What is not installed is left out, unless everything
/// is required.
pub(crate) fn installed(variable: &str) -> Option<PathBuf> {
    if let Some(place) = std::env::var_os(variable) {
        return Some(PathBuf::from(place));
    }
    let required = std::env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
    assert!(!required, "all is required, and {variable} is not set");
    None
}
