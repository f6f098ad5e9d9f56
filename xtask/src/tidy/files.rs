//! The files of the repository, read once; or made up, in the tests of the rules.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use super::rust_text::RustText;

/// Folders that hold nothing written by a person.
const SKIPPED: &[&str] = &["target", "node_modules", ".git", ".venv", "__pycache__"];
/// Larger files are data.
const FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// All files, by path from the root with forward slashes.
pub(super) struct Tree {
    /// The ones that are text.
    pub(super) files: Vec<File>,
    /// Files and folders, also those that are not text.
    paths: BTreeSet<String>,
}

/// One text file.
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
    /// For Rust files: code, strings and comments apart.
    pub(super) rust: Option<RustText>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self { files: Vec::new(), paths: BTreeSet::new() };
        tree.read_folder(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree that exists only in a test.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self { files: Vec::new(), paths: BTreeSet::new() };
        for (path, text) in files {
            for (at, _) in path.match_indices('/') {
                tree.paths.insert(path[..at].to_owned());
            }
            tree.paths.insert((*path).to_owned());
            tree.files.push(File::new((*path).to_owned(), (*text).to_owned()));
        }
        tree
    }

    pub(super) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// All Rust files with their parts.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&File, &RustText)> {
        self.files.iter().filter_map(|file| file.rust.as_ref().map(|rust| (file, rust)))
    }

    pub(super) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.has_extension("md"))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> anyhow::Result<()> {
        let cannot = || format!("cannot read {}", folder.display());
        for entry in std::fs::read_dir(folder).with_context(cannot)? {
            let entry = entry.with_context(cannot)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().with_context(cannot)?;
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            self.paths.insert(path.clone());
            if kind.is_dir() {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file()
                && entry.metadata().with_context(cannot)?.len() <= FILE_BYTES_MAX
            {
                let bytes = std::fs::read(entry.path()).with_context(cannot)?;
                if let Ok(text) = String::from_utf8(bytes) {
                    self.files.push(File::new(path, text));
                }
            }
        }
        Ok(())
    }
}

impl File {
    fn new(path: String, text: String) -> Self {
        let mut file = Self { path, text, rust: None };
        if file.has_extension("rs") {
            file.rust = Some(RustText::of(&file.text));
        }
        file
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    pub(super) fn has_extension(&self, end: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|own| own == end)
    }

    /// Below a `src` folder: the code of a crate, as opposed to its tests, benches and examples.
    pub(super) fn is_source(&self) -> bool {
        self.path.starts_with("src/") || self.path.contains("/src/")
    }

    /// A file that holds nothing but tests.
    pub(super) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.name() == "tests.rs"
    }
}
