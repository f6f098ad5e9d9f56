//! `cargo xtask tidy`: the habits of this repository, checked.
//!
//! Each rule is one function from the files (or from cargo's view of them) to findings. A finding says where,
//! what to do, and why.

mod files;
mod habits;
mod manifests;
mod named_tests;
mod papers;
mod problems;
pub(crate) mod public_api;
mod report;
mod rooms;
mod rust_text;
pub(crate) mod settings;
mod shape;
mod sql;

use std::path::Path;

use anyhow::bail;
use firstwrite_chaos::args::Args;
use firstwrite_chaos::workspace::Workspace;

use crate::crates::{self, Package};
use crate::steps::Counts;
use files::Tree;

pub(crate) const HELP: &str = "\
Reads all files of the repository and prints what breaks a habit: file and line, what to do, and why.
Warnings do not fail the task.

  --report   prints the size of the house instead: files, lines and first lines of comments by crate, the
             methods of the store's traits, decisions that stand in stores, and the files on the walks of a
             request and of a message";

/// Something to be changed.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    /// Counted from one; zero when it is about the whole file.
    line: usize,
    /// Change to make.
    advice: String,
    /// Reason for the rule.
    reason: &'static str,
    is_warning: bool,
}

/// The repository as cargo sees it.
struct Repository<'a> {
    root: &'a Path,
    packages: Vec<Package>,
}

/// A habit and its check.
struct Rule {
    name: &'static str,
    check: fn(&Tree, &Repository<'_>) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule { name: "modules say what they are", check: |tree, _| shape::module_docs(tree) },
    Rule { name: "file names say something", check: |tree, _| shape::file_names(tree) },
    Rule { name: "files are short", check: |tree, _| shape::file_lengths(tree) },
    Rule {
        name: "the table of rooms is true",
        check: |tree, repository| rooms::table(tree, &repository.packages),
    },
    Rule { name: "walls hold", check: |_, repository| rooms::walls(&repository.packages) },
    Rule { name: "every refusal has a page", check: |tree, _| problems::pages(tree) },
    Rule { name: "SQL lives in the store", check: |tree, _| sql::in_its_room(tree) },
    Rule { name: "no test is ignored", check: |tree, _| habits::ignored_tests(tree) },
    Rule { name: "no test sleeps", check: |tree, _| habits::sleeping_tests(tree) },
    Rule { name: "a TODO is a sentence", check: |tree, _| habits::todo_sentences(tree) },
    Rule {
        name: "a lint is switched off with a reason",
        check: |tree, _| habits::bare_allows(tree),
    },
    Rule {
        name: "no path of one machine",
        check: |tree, repository| habits::machine_paths(tree, repository.root),
    },
    Rule { name: "the changelog is open", check: |tree, _| papers::changelog(tree) },
    Rule { name: "decisions have numbers of their own", check: |tree, _| papers::decisions(tree) },
    Rule { name: "links lead somewhere", check: |tree, _| papers::links(tree) },
    Rule { name: "tests that are named exist", check: |tree, _| named_tests::exist(tree) },
    Rule { name: "the reference of settings is true", check: |tree, _| settings::check(tree) },
    Rule { name: "the public API is the listed one", check: |tree, _| public_api::check(tree) },
    Rule {
        name: "manifests are sorted",
        check: |tree, repository| manifests::sorted(tree, &repository.packages),
    },
    Rule {
        name: "versions stand in one place",
        check: |tree, repository| manifests::versions(tree, &repository.packages),
    },
];

impl Finding {
    fn new(file: &str, line: usize, advice: impl Into<String>, reason: &'static str) -> Self {
        let (file, advice) = (file.to_owned(), advice.into());
        Self { file, line, advice, reason, is_warning: false }
    }

    fn print(&self) {
        let kind = if self.is_warning { "warning: " } else { "" };
        let line = if self.line > 0 { format!(":{}", self.line) } else { String::new() };
        println!("{}{line}: {kind}{} ({})", self.file, self.advice, self.reason);
    }
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let reports = args.flag("--report");
    args.finish()?;
    if reports {
        print!("{}", report::report(&Tree::read(&workspace.root)?));
        return Ok(());
    }
    let counts = count(workspace)?;
    println!("{} rules hold, {} do not", counts.passed, counts.failed);
    match counts.failed {
        0 => Ok(()),
        _ => bail!("not tidy; the lines above say what to do"),
    }
}

/// Prints all findings; counts the rules that hold and those that do not.
pub(crate) fn count(workspace: &Workspace) -> anyhow::Result<Counts> {
    let tree = Tree::read(&workspace.root)?;
    let repository = Repository { root: &workspace.root, packages: crates::load(workspace)? };
    let mut counts = Counts::default();
    for rule in RULES {
        let findings = (rule.check)(&tree, &repository);
        if findings.iter().all(|finding| finding.is_warning) {
            counts.add(Counts::PASSED);
        } else {
            counts.add(Counts::FAILED);
            println!("-- {}:", rule.name);
        }
        findings.iter().for_each(Finding::print);
    }
    Ok(counts)
}
