//! Every refusal has a page that explains it, and every page a refusal.

use super::Finding;
use super::files::Tree;
use super::rust_text::RustText;

const SOURCE: &str = "crates/firstwrite-core/src/rejection/kind.rs";
const ENUM: &str = "enum RejectionKind";
const FOLDER: &str = "docs/problems/";
/// The list of pages is itself no page.
const INDEX: &str = "README";

const REASON: &str = "a problem's `type` is a link, and people follow it when something is wrong";

pub(super) fn pages(tree: &Tree) -> Vec<Finding> {
    let Some(rust) = tree.file(SOURCE).and_then(|file| file.rust.as_ref()) else {
        return vec![Finding::new(SOURCE, 0, format!("define `{ENUM}` here"), REASON)];
    };
    let variants = variants(rust);
    if variants.is_empty() {
        return vec![Finding::new(SOURCE, 0, format!("define `{ENUM}` here"), REASON)];
    }
    let mut findings = Vec::new();
    for (line, variant) in &variants {
        let page = format!("{FOLDER}{}.md", kebab(variant));
        if !tree.has(&page) {
            let advice = format!("write {page} for `{variant}`");
            findings.push(Finding::new(SOURCE, *line, advice, REASON));
        }
    }
    for file in tree.markdown() {
        let Some(name) = file.path.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".md"))
        else {
            continue;
        };
        if name != INDEX && !variants.iter().any(|(_, variant)| kebab(variant) == name) {
            let advice = format!("delete the page, or name it after a variant of `{ENUM}`");
            findings.push(Finding::new(&file.path, 0, advice, REASON));
        }
    }
    findings
}

/// Variants of the enum, with their lines.
fn variants(rust: &RustText) -> Vec<(usize, String)> {
    let is_start = |line: &&String| {
        let after = line.split_once(ENUM).map(|(_, after)| after);
        after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let Some(start) = rust.code.iter().position(|line| is_start(&line)) else { return Vec::new() };
    let (mut variants, mut depth, mut word) = (Vec::new(), 0_i32, String::new());
    // A name directly inside the braces is a variant, unless it is part of an attribute or a value.
    let mut is_variant_next = false;
    for (at, line) in rust.code.iter().enumerate().skip(start) {
        for c in line.chars().chain(['\n']) {
            if depth == 1 && is_variant_next && (c.is_alphanumeric() || c == '_') {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                variants.push((at + 1, std::mem::take(&mut word)));
                is_variant_next = false;
            }
            match c {
                '{' | '(' | '[' => {
                    depth += 1;
                    is_variant_next |= depth == 1;
                }
                '}' | ')' | ']' => depth -= 1,
                ',' if depth == 1 => is_variant_next = true,
                _ => {}
            }
            if depth == 0 && c == '}' {
                return variants;
            }
        }
    }
    variants
}

/// `KeyReused` → `key-reused`
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.extend(c.to_lowercase());
    }
    kebab
}

#[cfg(test)]
mod tests {
    use super::*;

    const REJECTION: &str = "\
//! Refusals.
#[non_exhaustive]
#[derive(Clone)]
pub enum RejectionKind {
    /// No key, and not `Other` either.
    KeyMissing,
    #[doc(alias = \"x\")]
    KeyReused { pointers: Vec<String>, },
    RateLimited(u32, u64), StoreUnavailable = 7,
}
enum Other { Unrelated }
";

    fn tree(pages: &[&str]) -> Tree {
        let mut files = vec![(SOURCE, REJECTION)];
        files.extend(pages.iter().map(|page| (*page, "")));
        Tree::of(&files)
    }

    const PAGES: [&str; 5] = [
        "docs/problems/README.md",
        "docs/problems/key-missing.md",
        "docs/problems/key-reused.md",
        "docs/problems/rate-limited.md",
        "docs/problems/store-unavailable.md",
    ];

    #[test]
    fn variants_are_read() {
        let names: Vec<_> = variants(&RustText::of(REJECTION)).into_iter().collect();
        let expected =
            [(6, "KeyMissing"), (8, "KeyReused"), (9, "RateLimited"), (9, "StoreUnavailable")];
        assert_eq!(names, expected.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn a_page_for_each_is_good() {
        assert_eq!(pages(&tree(&PAGES)), []);
    }

    #[test]
    fn missing_and_orphaned_pages_are_found() {
        let missing = pages(&tree(&PAGES[..4]));
        assert_eq!((missing.len(), missing[0].line), (1, 9));
        let orphaned = pages(&tree(&[&PAGES[..], &["docs/problems/KeyMissing.md"]].concat()));
        assert_eq!(orphaned[0].file, "docs/problems/KeyMissing.md");
        assert_eq!(pages(&Tree::of(&[])).len(), 1);
    }
}
