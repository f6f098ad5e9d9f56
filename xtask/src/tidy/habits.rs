//! Rules about single lines: of code, of comments, of any text.

use std::path::{Component, Path};

use super::Finding;
use super::files::Tree;

/// Finds ignored tests: a test that does not run proves nothing.
pub(super) fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    const REASON: &str = "a test that never runs rots, and looks like one that passes";
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for (at, _) in rust.code.iter().enumerate().filter(|(_, line)| line.contains("#[ignore")) {
            let advice = "make the test run always, or delete it";
            findings.push(Finding::new(&file.path, at + 1, advice, REASON));
        }
        for (line, text) in &rust.comments {
            let fence = text.split_once("```").map(|(_, language)| language);
            if fence.is_some_and(|language| language.split(',').any(|word| word.trim() == "ignore"))
            {
                let advice = "make the example compile (`no_run` if it cannot run), or `text`";
                findings.push(Finding::new(&file.path, *line, advice, REASON));
            }
        }
    }
    findings
}

/// Tests drive a clock; they do not wait for one.
pub(super) fn sleeping_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let from = if file.is_test() { Some(1) } else { rust.tests_from() };
        let Some(from) = from else { continue };
        for (at, line) in rust.code.iter().enumerate().skip(from - 1) {
            if calls(line, "sleep") {
                findings.push(Finding::new(
                    &file.path,
                    at + 1,
                    "drive a clock, call the loop's `_once`, or wait for the event itself",
                    "a sleep is too short on a loaded machine and too long on every other",
                ));
            }
        }
    }
    findings
}

/// Returns true if the line has `name(` as a call of its own, not as the end of a longer name.
fn calls(line: &str, name: &str) -> bool {
    line.match_indices(&format!("{name}("))
        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Finds TODOs that do not say in a sentence what is to be done, for a reader without the context.
pub(super) fn todo_sentences(tree: &Tree) -> Vec<Finding> {
    const WORDS_MIN: usize = 4;
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for (line, text) in &rust.comments {
            let Some(mark) = ["TODO", "FIXME", "XXX"].into_iter().find(|mark| text.contains(mark))
            else {
                continue;
            };
            let words =
                text.split_once(mark).map_or(0, |(_, after)| after.split_whitespace().count());
            if words < WORDS_MIN {
                findings.push(Finding::new(
                    &file.path,
                    *line,
                    format!("say after {mark} in a sentence what is to be done"),
                    "in a month nobody knows what was meant",
                ));
            }
        }
    }
    findings
}

/// Lints are expected, with a reason; an expectation that is no longer needed makes itself known.
pub(super) fn bare_allows(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for (at, line) in rust.code.iter().enumerate() {
            if !line.contains("#[allow(") && !line.contains("#![allow(") {
                continue;
            }
            // The attribute may go on over several lines, up to its closing bracket.
            let attribute = rust.code[at..].iter().take_while({
                let mut is_open = true;
                move |line| std::mem::replace(&mut is_open, !line.contains(")]"))
            });
            if !attribute.into_iter().any(|line| line.contains("reason =")) {
                findings.push(Finding::new(
                    &file.path,
                    at + 1,
                    "write `#[expect(lint, reason = \"...\")]`",
                    "an expectation says why, and complains when it is no longer needed",
                ));
            }
        }
    }
    findings
}

/// No file speaks of a folder that exists on one machine only.
pub(super) fn machine_paths(tree: &Tree, root: &Path) -> Vec<Finding> {
    let mut folders: Vec<String> = ["home", "root", "Users"].map(|name| format!("/{name}/")).into();
    folders.extend(checkout_folder(root));
    let mut findings = Vec::new();
    for file in &tree.files {
        for (at, line) in file.text.lines().enumerate() {
            if let Some(folder) = folders.iter().find(|folder| mentions(line, folder)) {
                findings.push(Finding::new(
                    &file.path,
                    at + 1,
                    format!(
                        "replace the path below {folder} by one from the root of the repository"
                    ),
                    "it exists on one machine only",
                ));
            }
        }
    }
    findings
}

/// The uppermost folder of this checkout, unless every machine has it.
fn checkout_folder(root: &Path) -> Option<String> {
    const EVERYWHERE: [&str; 9] =
        ["builds", "data", "etc", "mnt", "opt", "srv", "tmp", "usr", "var"];
    let mut names = root.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            None
        }
    });
    let (first, _) = (names.next()?, names.next()?);
    (!EVERYWHERE.contains(&first)).then(|| format!("/{first}/"))
}

/// Returns true if the line has a path that begins with `folder`; the middle of another path does not count.
fn mentions(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~/}>*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    fn in_file(path: &str, text: &str, rule: fn(&Tree) -> Vec<Finding>) -> Vec<usize> {
        lines(&rule(&Tree::of(&[(path, text)])))
    }

    #[test]
    fn ignored_tests_and_examples_are_found() {
        let text = "/// ```ignore\n/// x\n/// ```\n#[test]\n#[ignore = \"slow\"]\nfn a() { b(\"#[ignore]\") }\n/// ```no_run\n";
        assert_eq!(in_file("src/a.rs", text, ignored_tests), [5, 1]);
    }

    #[test]
    fn sleeping_is_found_in_tests_only() {
        let code = "fn a() { sleep(1); }\n#[cfg(test)]\nmod tests {\n    fn b() { thread::sleep(1); no_sleep(1); }\n}\n";
        assert_eq!(in_file("src/a.rs", code, sleeping_tests), [4]);
        assert_eq!(in_file("crates/a/tests/it/b.rs", "fn a() { sleep(1); }", sleeping_tests), [1]);
        assert_eq!(in_file("src/a/tests.rs", "fn a() { sleep(1); }", sleeping_tests), [1]);
    }

    #[test]
    fn a_todo_without_a_sentence_is_found() {
        let text = "// TODO\n// TODO: fix this\n// TODO: take the limit from the policy.\n// FIXME later\n";
        assert_eq!(in_file("src/a.rs", text, todo_sentences), [1, 2, 4]);
    }

    #[test]
    fn a_lint_switched_off_without_reason_is_found() {
        let text = "#![allow(dead_code)]\n#[allow(\n    unused,\n    reason = \"x\"\n)]\nfn a() {}\n#[expect(unused, reason = \"y\")]\n#[allow(unused)]\n";
        assert_eq!(in_file("src/a.rs", text, bare_allows), [1, 8]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let text =
            "see /HOME/ann/x\nhttps://example.org/HOME/x\n`/checkout/a`\n../HOME/b\n/etc/passwd\n";
        let tree = Tree::of(&[("README.md", &text.replace("HOME", "home"))]);
        assert_eq!(lines(&machine_paths(&tree, Path::new("/checkout/repo"))), [1, 3]);
        assert_eq!(lines(&machine_paths(&tree, Path::new("/etc/repo"))), [1]);
    }
}
