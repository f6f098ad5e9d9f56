//! Notices that a file of the store was deleted, moved or replaced while it is open, or that the name it was
//! opened by leads elsewhere (a symbolic link).
//!
//! The system goes on writing to a file that no name leads to any more, and all of those writes are gone
//! when the process ends. So the names are compared with the opened files before every batch, and once in a
//! while without one: four or five directory look-ups, besides a flush to the disk.
//!
//! Only names are checked. Opening the main file once more would be harmful: closing it again frees every
//! lock that this process has on it.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::connect::Target;

/// The files of a store as they were when it was opened.
#[derive(Debug)]
pub(super) struct FileWatch {
    files: Vec<(PathBuf, Identity)>,
}

/// Identity of the file that a path leads to: device and inode.
type Identity = (u64, u64);

/// The log holds what was committed last, its index is how connections share it, and the lock keeps
/// other processes from writing.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-lock"];

impl FileWatch {
    /// Remembers the files of `target`, which is open.
    pub(super) fn new(target: &Target) -> Self {
        let mut files = Vec::with_capacity(2 + BESIDE.len());
        let beside = BESIDE.iter().map(|suffix| target.beside(suffix));
        for path in std::iter::once(target.path.clone()).chain(beside) {
            match fs::metadata(&path) {
                Ok(metadata) => files.push((path, identity(&metadata))),
                Err(error) => {
                    tracing::debug!(file = %path.display(), %error, "a file is not watched");
                }
            }
        }
        // The next process opens what this one leads to by then.
        if target.given != target.path
            && let Some((_, opened)) = files.first().filter(|(path, _)| *path == target.path)
        {
            files.push((target.given.clone(), *opened));
        }
        Self { files }
    }

    /// Describes what happened to the first file found deleted or replaced, if any.
    pub(super) fn loss(&self) -> Option<String> {
        self.files.iter().find_map(|(path, opened)| {
            let happened = compare(path, *opened)?;
            Some(format!("{} was {happened}", path.display()))
        })
    }
}

fn compare(path: &Path, opened: Identity) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(metadata) if identity(&metadata) == opened => None,
        Ok(_) => Some("replaced by another file"),
        Err(error) if error.kind() == ErrorKind::NotFound => Some("deleted or moved"),
        // A failure to check says nothing about the written data.
        Err(error) => {
            tracing::debug!(file = %path.display(), %error, "a file cannot be looked at");
            None
        }
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;

    (metadata.dev(), metadata.ino())
}

/// Other systems do not let a file go that is open.
#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> Identity {
    (0, 0)
}
