//! Rules about files as such: how they begin, what they are called, how long they are.

use super::Finding;
use super::files::Tree;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helpers", "misc", "manager", "types"];

const LINES_MAX: usize = 800;
const LINES_MANY: usize = 500;

/// Files that may be longer, each with its reason. There is none yet.
const LONG_FILES: &[(&str, &str)] = &[];

/// Every source file begins by saying what it is.
pub(super) fn module_docs(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|(file, _)| file.is_source() && !file.text.starts_with("//!"))
        .map(|(file, _)| {
            Finding::new(
                &file.path,
                1,
                "start the file with `//!` and one sentence on what lives here",
                "a reader decides by it whether to read on",
            )
        })
        .collect()
}

/// No file is called by a name under which anything could be put.
pub(super) fn file_names(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|(file, _)| {
            let mut parts = file.path.split('/').map(|part| part.trim_end_matches(".rs"));
            parts.any(|part| EMPTY_NAMES.contains(&part))
        })
        .map(|(file, _)| {
            Finding::new(
                &file.path,
                0,
                "name the file after its subject, or move its parts to theirs",
                "under such a name anything can be put, and will be",
            )
        })
        .collect()
}

/// Finds files that are too long to be read to their end. Tests at the end do not count.
pub(super) fn file_lengths(tree: &Tree) -> Vec<Finding> {
    const REASON: &str = "one file, one subject; a long one has several";
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let lines = rust.tests_from().map_or(rust.code.len(), |line| line - 1);
        if LONG_FILES.iter().any(|(path, _)| *path == file.path) || lines <= LINES_MANY {
            continue;
        }
        let advice = format!("split the file: {lines} lines before its tests, at most {LINES_MAX}");
        let mut finding = Finding::new(&file.path, lines, advice, REASON);
        finding.is_warning = lines <= LINES_MAX;
        findings.push(finding);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_a_word_about_itself_is_found() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! Says it.\n"),
            ("crates/a/src/b.rs", "// not a module doc\nfn x() {}\n"),
            ("crates/a/tests/it/main.rs", "fn x() {}\n"),
        ]);
        let findings = module_docs(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].file, "crates/a/src/b.rs");
    }

    #[test]
    fn a_name_that_says_nothing_is_found() {
        let tree = Tree::of(&[
            ("crates/a/src/utils.rs", ""),
            ("crates/a/tests/common/clock.rs", ""),
            ("crates/a/src/utility_bill.rs", ""),
        ]);
        assert_eq!(file_names(&tree).len(), 2);
    }

    #[test]
    fn a_long_file_is_found_and_a_rather_long_one_warned_of() {
        let long = "fn x() {}\n".repeat(801);
        let rather = "fn x() {}\n".repeat(501);
        let tested = format!("fn y() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let tree = Tree::of(&[("src/a.rs", &long), ("src/b.rs", &rather), ("src/c.rs", &tested)]);
        let findings = file_lengths(&tree);
        assert_eq!(findings.len(), 2);
        assert!(!findings[0].is_warning && findings[1].is_warning);
    }
}
