//! Rule about the tests that documents name: each exists.

use std::collections::BTreeSet;

use super::Finding;
use super::files::{File, Tree};

/// A name with so many underscores is that of a test, or of a setting or metric.
const UNDERSCORES_MIN: usize = 3;
/// The page that names tests: there, a name that is no function is a test that was renamed or removed.
const TESTING: &str = "docs/testing.md";
/// Metrics' names are put together in the code.
const METRIC: &str = "firstwrite_";

/// Finds long names in back quotes that stand nowhere in the sources, and in docs/testing.md those that are no
/// function's.
pub(super) fn exist(tree: &Tree) -> Vec<Finding> {
    const REASON: &str = "a promise whose test is gone looks like one that is tested";
    let code = tree.rust().flat_map(|(_, rust)| &rust.code);
    let functions: BTreeSet<&str> = code.filter_map(|line| function(line)).collect();
    let sources = || tree.files.iter().filter(|file| !file.has_extension("md"));
    let mut findings = Vec::new();
    let is_page = |file: &&File| file.path.starts_with("docs/");
    for file in tree.markdown().filter(is_page) {
        for (at, line) in super::papers::prose(&file.text) {
            for name in names(line).filter(|name| !functions.contains(name)) {
                let is_setting = file.path != TESTING && sources().any(|file| has_word(file, name));
                if !is_setting {
                    let advice = format!("name a test that exists: there is no `fn {name}`");
                    findings.push(Finding::new(&file.path, at, advice, REASON));
                }
            }
        }
    }
    findings
}

/// The long names in back quotes of a line, each without the path before it.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let last = quoted.map(|quoted| quoted.rsplit("::").next().unwrap_or(quoted));
    last.filter(|name| {
        name.matches('_').count() >= UNDERSCORES_MIN
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && !name.starts_with(METRIC)
    })
}

/// The function that a line of code declares.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_word = before.is_empty() || before.ends_with(' ');
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
    is_word.then_some(&after[..end])
}

fn has_word(file: &File, name: &str) -> bool {
    file.text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_gone_is_found_where_a_document_names_it() {
        let code = "//! Tests.\n#[test]\nfn it_is_kept_for_good() {}\nasync fn it_is_asked_for_once() {}\n\
                    let name = \"it_was_once_a_test\";\n";
        let page = "`it_is_kept_for_good`, `rows::it_is_asked_for_once`, `kept_keys_max`\n\
                    `it_was_once_a_test`\n`rows::it_never_was_a_test`\n```\n`it_is_fenced_in_here`\n```\n";
        let other = "`it_was_once_a_test`, `firstwrite_made_of_parts_total`, `a_b_c_d = 1`\n\
                     `it_never_was_a_test`\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", code),
            ("docs/testing.md", page),
            ("docs/other.md", other),
            ("CHANGELOG.md", "`it_never_was_a_test`\n"),
        ]);
        let found: Vec<_> =
            exist(&tree).into_iter().map(|finding| (finding.file, finding.line)).collect();
        let at = |file: &str, line| (file.to_owned(), line);
        assert_eq!(
            found,
            [at("docs/testing.md", 2), at("docs/testing.md", 3), at("docs/other.md", 2)]
        );
    }
}
