//! `cargo xtask tidy --report`: the size of the house in figures, to be compared before and after a change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::files::{File, Tree};
use super::rust_text::RustText;

/// First words of a doc comment that leave out its subject.
const HEADLESS: [&str; 8] = ["What", "How", "Whether", "Where", "Who", "Whoever", "Why", "When"];

/// Subjects that name no actor.
const NOBODY: [&str; 8] = [
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "whoever",
    "nobody's",
    "somebody's",
    "anybody's",
];

/// The traits of a store, and the files that declare them.
const TRAITS: [(&str, &str); 3] = [
    ("Store", "crates/firstwrite-core/src/store.rs"),
    ("Outbox", "crates/firstwrite-core/src/outbox.rs"),
    ("Documents", "crates/firstwrite-core/src/documents.rs"),
];

/// Decisions that a store must not take.
const DECISIONS: [&str; 2] = ["Next::", "Resolution::"];

/// The walks that ARCHITECTURE.md describes, by their headings.
const WALKS: [(&str, &str); 2] =
    [("## The path of one request", "a request"), ("## The path of one message", "a message")];

/// Files that a walk crosses, by the table that names them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Walk {
    files: usize,
    /// Names to which no file belongs.
    missing: Vec<String>,
}

/// Source of one crate.
#[derive(Debug, Default, PartialEq, Eq)]
struct Size {
    files: usize,
    lines: usize,
    longest: usize,
    first_lines: usize,
    headless: usize,
    without_actor: usize,
}

/// Returns the report as text.
pub(super) fn report(tree: &Tree) -> String {
    let mut text = String::new();
    let mut line = |told: String| writeln!(text, "{told}").expect("writing to a string");
    line(format!(
        "{:<22} {:>6} {:>8} {:>8} {:>11} {:>9} {:>14}",
        "crate (src)", "files", "lines", "longest", "first lines", "headless", "without actor"
    ));
    let mut all = Size::default();
    for (name, size) in sizes(tree) {
        line(row(&name, &size));
        all.add(&size);
    }
    line(row("all", &all));
    line(String::new());
    let methods = TRAITS.map(|(name, path)| {
        tree.file(path).map_or(0, |file| method_count(file.rust.as_ref(), name))
    });
    for ((name, _), count) in TRAITS.iter().zip(methods) {
        line(format!("methods of the trait {name}: {count}"));
    }
    line(format!("methods of the three traits: {}", methods.iter().sum::<usize>()));
    let store =
        tree.rust().filter(|(file, _)| file.path.starts_with("crates/firstwrite-store/src"));
    let decided = store.flat_map(|(_, rust)| &rust.code);
    let decided = decided.filter(|code| DECISIONS.iter().any(|word| code.contains(word))).count();
    line(format!("lines with {} in firstwrite-store/src: {decided}", DECISIONS.join(" or ")));
    let mut longest = 0;
    for (heading, subject) in WALKS {
        let walk = walk(tree, heading);
        longest = longest.max(walk.files);
        line(format!("files on the walk of {subject}: {}", walk.files));
        for name in walk.missing {
            line(format!("  not there: {name}"));
        }
    }
    line(format!("longest walk: {longest}"));
    text
}

/// Counts the files that a table of ARCHITECTURE.md names, each once.
fn walk(tree: &Tree, heading: &str) -> Walk {
    let mut walk = Walk::default();
    let Some(file) = tree.file("ARCHITECTURE.md") else { return walk };
    let section = file.text.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let mut seen = BTreeSet::new();
    for row in section.filter(|line| line.starts_with("| ")) {
        // Every other piece stands between two backticks.
        for name in row.split('`').skip(1).step_by(2).filter(|name| is_rust(name)) {
            let name = name.trim_start_matches("../");
            let end = format!("/{name}");
            if !tree.rust().any(|(file, _)| file.path.ends_with(&end)) {
                walk.missing.push(name.to_owned());
            }
            walk.files += usize::from(seen.insert(name));
        }
    }
    walk
}

fn is_rust(name: &str) -> bool {
    std::path::Path::new(name).extension().is_some_and(|kind| kind == "rs")
}

fn row(name: &str, size: &Size) -> String {
    let Size { files, lines, longest, first_lines, headless, without_actor } = size;
    format!(
        "{name:<22} {files:>6} {lines:>8} {longest:>8} {first_lines:>11} {headless:>9} {without_actor:>14}"
    )
}

fn sizes(tree: &Tree) -> BTreeMap<String, Size> {
    let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
    for (file, rust) in tree.rust().filter(|(file, _)| file.is_source()) {
        let Some((room, _)) = file.path.split_once("/src/") else { continue };
        let name = room.trim_start_matches("crates/").to_owned();
        sizes.entry(name).or_default().add(&Size::of(file, rust));
    }
    sizes
}

impl Size {
    fn of(file: &File, rust: &RustText) -> Self {
        let lines = file.text.lines().count();
        let mut size = Self { files: 1, lines, longest: lines, ..Self::default() };
        let mut before = None;
        for (at, comment) in &rust.comments {
            let words = comment.to_ascii_lowercase();
            let mut words = words.split(|each: char| !each.is_alphanumeric() && each != '\'');
            size.without_actor += usize::from(words.any(|word| NOBODY.contains(&word)));
            let doc = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
            if let Some(doc) = doc {
                // The first line of a comment alone: the rest goes on in its sentence.
                if before.is_none_or(|before| before + 1 != *at) {
                    let first = doc.split_whitespace().next().unwrap_or_default();
                    size.first_lines += 1;
                    size.headless += usize::from(HEADLESS.contains(&first));
                }
                before = Some(*at);
            }
        }
        size
    }

    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.lines += other.lines;
        self.longest = self.longest.max(other.longest);
        self.first_lines += other.first_lines;
        self.headless += other.headless;
        self.without_actor += other.without_actor;
    }
}

/// Counts the methods that the trait `name` declares.
fn method_count(rust: Option<&RustText>, name: &str) -> usize {
    let Some(rust) = rust else { return 0 };
    let begins = |line: &&String| line.starts_with(&format!("pub trait {name}"));
    let declared = rust.code.iter().skip_while(|line| !begins(line));
    let body = declared.take_while(|line| *line != "}");
    body.filter(|line| line.starts_with("    fn ") || line.starts_with("    async fn ")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_counted_by_its_source() {
        let tree = Tree::of(&[
            (
                "crates/a/src/lib.rs",
                "//! What it is.\n//! Where it goes on.\n\n/// Counts.\n/// How it goes on.\nfn a() {}\n",
            ),
            ("crates/a/tests/it.rs", "//! What is tested.\n"),
            (
                "crates/a/src/b.rs",
                "//! Rules.\n// Nobody counts; \"What\" does.\nconst B: &str = \"/// What\";\n",
            ),
        ]);
        let size = &sizes(&tree)["a"];
        assert_eq!(
            *size,
            Size { files: 2, lines: 9, longest: 6, first_lines: 3, headless: 1, without_actor: 1 }
        );
    }

    #[test]
    fn a_walk_is_counted_from_its_table() {
        let text = "## The path of one request\n\nSee `c.rs`.\n\n| step | files |\n| --- | --- |\n\
                    | a | core `a.rs`, `judge`, `sub/b.rs` |\n| b | `../a.rs`, `gone.rs` |\n\n\
                    ## More\n\n| `d.rs` |\n";
        let source = "//! A file.\n";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", text),
            ("crates/a/src/a.rs", source),
            ("crates/a/src/sub/b.rs", source),
        ]);
        let walk = walk(&tree, WALKS[0].0);
        assert_eq!(walk, Walk { files: 3, missing: vec!["gone.rs".to_owned()] });
    }

    #[test]
    fn methods_are_those_of_the_trait_alone() {
        let text = "pub trait Store: Send {\n    fn a(&self);\n    async fn b(&self) {\n        fn inner() {}\n    }\n}\n\
                    impl S {\n    fn c() {}\n}\n";
        assert_eq!(method_count(Some(&RustText::of(text)), "Store"), 2);
        assert_eq!(method_count(Some(&RustText::of(text)), "Outbox"), 0);
    }
}
