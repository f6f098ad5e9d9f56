//! Rules about the documents: changelog, decisions, links.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::files::{File, Tree};

/// Changes are written down when they are made.
pub(super) fn changelog(tree: &Tree) -> Vec<Finding> {
    const FILE: &str = "CHANGELOG.md";
    let is_open = tree
        .file(FILE)
        .is_some_and(|file| file.text.lines().any(|line| line.trim_end() == "## Unreleased"));
    if is_open {
        return Vec::new();
    }
    let reason = "a change is written down with the change, not at release time";
    vec![Finding::new(FILE, 0, "add the heading `## Unreleased`", reason)]
}

/// Decisions are called by their numbers.
pub(super) fn decisions(tree: &Tree) -> Vec<Finding> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in tree.markdown() {
        let Some(name) = file.path.strip_prefix("docs/adr/").filter(|name| *name != "README.md")
        else {
            continue;
        };
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            let advice = "call the file NNNN-title.md";
            findings.push(Finding::new(&file.path, 0, advice, "decisions are cited by number"));
        } else if let Some(other) = seen.insert(number, name) {
            let advice = format!("take the next free number; {other} has this one");
            findings.push(Finding::new(&file.path, 0, advice, "decisions are cited by number"));
        }
    }
    findings
}

/// A link between documents leads to a file, and to a heading in it.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    const REASON: &str = "a reader follows it and stands before nothing";
    let mut findings = Vec::new();
    for file in tree.markdown() {
        for (line, target) in targets(&file.text) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let Some(path) = resolve(&file.path, path) else {
                let advice = format!("make the link `{target}` relative to this document");
                findings.push(Finding::new(&file.path, line, advice, REASON));
                continue;
            };
            if !tree.has(&path) {
                let advice = format!("mend the link `{target}`: there is no {path}");
                findings.push(Finding::new(&file.path, line, advice, REASON));
            } else if !anchor.is_empty()
                && let Some(other) = tree.file(&path).filter(|other| other.has_extension("md"))
                && !has_anchor(other, anchor)
            {
                let advice = format!("mend the link `{target}`: {path} has no such heading");
                findings.push(Finding::new(&file.path, line, advice, REASON));
            }
        }
    }
    findings
}

/// The lines of a document outside fenced blocks.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((at + 1, line))
    })
}

/// Returns the targets of a document's links that stay in the repository, each with its line.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    for (at, line) in prose(text) {
        let line = without_code(line);
        let inline = line.match_indices("](").filter_map(|(start, _)| {
            let rest = &line[start + 2..];
            rest.split_once(')').map(|(target, _)| target)
        });
        let reference = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, target)| target);
        for target in inline.chain(reference) {
            // A title may follow the address.
            let target = target.split_whitespace().next().unwrap_or_default();
            let target = target.trim_start_matches('<').trim_end_matches('>');
            let leaves = target.contains("://") || target.starts_with("mailto:");
            if !leaves && !target.is_empty() {
                targets.push((at, target.to_owned()));
            }
        }
    }
    targets
}

/// The line with what stands in backticks left out.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    // A backtick without a partner quotes nothing.
    if parts.len().is_multiple_of(2) {
        return line.to_owned();
    }
    parts.into_iter().step_by(2).collect::<Vec<_>>().join("``")
}

/// A path from the root; `None` if it starts at the root of a site or leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    if target.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn has_anchor(file: &File, anchor: &str) -> bool {
    let mut seen = BTreeSet::new();
    for (_, line) in prose(&file.text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let plain = slug(title.trim());
        // Headings of the same text are told apart by a number.
        let numbered = (0..).map(|n| if n == 0 { plain.clone() } else { format!("{plain}-{n}") });
        let own = numbered.into_iter().find(|name| !seen.contains(name));
        seen.extend(own);
    }
    let by_hand = ["id", "name"].map(|word| format!("{word}=\"{anchor}\""));
    seen.contains(anchor) || by_hand.iter().any(|mark| file.text.contains(mark))
}

/// A heading as it is written in a link to it.
fn slug(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changelog_without_an_open_section_is_found() {
        assert_eq!(changelog(&Tree::of(&[("CHANGELOG.md", "# Changes\n\n## Unreleased\n")])), []);
        assert_eq!(changelog(&Tree::of(&[("CHANGELOG.md", "## 0.1.0\n")])).len(), 1);
        assert_eq!(changelog(&Tree::of(&[])).len(), 1);
    }

    #[test]
    fn a_number_taken_twice_is_found() {
        let tree = Tree::of(&[
            ("docs/adr/README.md", ""),
            ("docs/adr/0001-layout.md", ""),
            ("docs/adr/0001-other.md", ""),
            ("docs/adr/2-short.md", ""),
        ]);
        let files: Vec<_> = decisions(&tree).into_iter().map(|finding| finding.file).collect();
        assert_eq!(files, ["docs/adr/0001-other.md", "docs/adr/2-short.md"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "\
[good](docs/a.md) [site](https://example.org/x.md) `[code](nowhere.md)`
[bad](docs/b.md) ![picture](docs/p.svg \"title\")
[top](#the-top-of-it) [nowhere](#bottom)
[there](docs/a.md#words--states-1) [not there](docs/a.md#other)
[absolute](/docs/a.md) [folder](docs/)
```
[fenced](nowhere.md)
```
[ref]: docs/c.md
# The `top` of it
";
        let other = "[up](../README.md)\n## Words & states\n## Words & states\n";
        let tree = Tree::of(&[("README.md", text), ("docs/a.md", other), ("docs/p.svg", "")]);
        let lines: Vec<_> = links(&tree).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 9]);
    }
}
