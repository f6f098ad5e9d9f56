//! Entries as plain files in a folder, one for each intent.
//!
//! A file is written beside its place, made durable, and renamed into it; then the folder is made durable. A lock file
//! lets one process at a time look and write; the kernel frees it when its process dies. What a crash leaves beside
//! its place is deleted when the folder is opened.

mod layout;

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::private::{private, sync_folder};
use super::thread::StorageThread;
use super::{Inserted, Page, Storage, StorageError, StorageErrorKind, Stored};
use crate::BoxFuture;

/// Entries in a folder. Several processes may use one folder on a local file system.
#[derive(Debug)]
pub struct FileStorage {
    thread: StorageThread<Folder>,
}

/// A folder of entries, with the steps on it.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    lock: File,
    /// The time for which the lock is waited for.
    patience: Duration,
}

/// The lock, until it is dropped.
struct Held<'a>(&'a File);

const LOCK: &str = "lock";
/// A step takes a few milliseconds; whoever holds the lock for so long does not go on.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
const PAGE: usize = 100;

impl FileStorage {
    /// Opens a folder, and makes it where it is missing.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let folder = Folder::open(folder.into(), LOCK_WAIT_MAX)?;
        Ok(Self { thread: StorageThread::start(folder)? })
    }
}

impl Storage for FileStorage {
    fn get<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, StorageError>> {
        let name = name.to_owned();
        self.thread.call(move |folder| folder.get(&name))
    }

    fn insert(
        &self,
        entry: Stored,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Inserted, StorageError>> {
        self.thread.call(move |folder| folder.insert(&entry, entries_max))
    }

    fn replace(&self, revision: u64, entry: Stored) -> BoxFuture<'_, Result<bool, StorageError>> {
        self.thread.call(move |folder| folder.replace(revision, &entry))
    }

    fn remove<'a>(
        &'a self,
        name: &'a str,
        revision: u64,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        let name = name.to_owned();
        self.thread.call(move |folder| folder.remove(&name, revision))
    }

    fn list(&self, after: Option<String>) -> BoxFuture<'_, Result<Page, StorageError>> {
        self.thread.call(move |folder| folder.list(after.as_deref()))
    }
}

impl Folder {
    fn open(path: PathBuf, patience: Duration) -> Result<Self, StorageError> {
        let opened = make_durable_folder(&path)
            .and_then(|()| private().create(true).append(true).open(path.join(LOCK)));
        let lock =
            opened.map_err(|error| unavailable(format!("opening {}", path.display()), error))?;
        let folder = Self { path, lock, patience };
        {
            let _held = folder.hold()?;
            folder.clear().map_err(|error| folder.unavailable("clearing the folder", error))?;
        }
        Ok(folder)
    }

    /// Waits for the lock.
    fn hold(&self) -> Result<Held<'_>, StorageError> {
        let mut waited = Duration::ZERO;
        loop {
            match self.lock.try_lock() {
                Ok(()) => return Ok(Held(&self.lock)),
                Err(TryLockError::WouldBlock) if waited < self.patience => {
                    super::pause();
                    waited += super::PAUSE;
                }
                Err(TryLockError::WouldBlock) => {
                    let doing = format!("locking {}", self.path.join(LOCK).display());
                    return Err(StorageError::new(StorageErrorKind::Busy, doing, None));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(self.unavailable("locking the folder", error));
                }
            }
        }
    }

    /// Deletes what a crash left behind: nobody else writes while the lock is held.
    fn clear(&self) -> io::Result<()> {
        for name in self.names(layout::is_beside)? {
            fs::remove_file(self.path.join(name))?;
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Result<Option<Stored>, StorageError> {
        // A rename is one step, so a file can be read without the lock.
        self.read(name)
    }

    fn insert(&self, entry: &Stored, entries_max: usize) -> Result<Inserted, StorageError> {
        let _held = self.hold()?;
        if let Some(stands) = self.read(&entry.name)? {
            return Ok(Inserted::Stands(stands));
        }
        let names = self.names(layout::is_entry);
        let count = names.map_err(|error| self.unavailable("listing the folder", error))?.len();
        if count >= entries_max {
            return Ok(Inserted::Full);
        }
        self.write(entry)?;
        Ok(Inserted::Yes)
    }

    fn replace(&self, revision: u64, entry: &Stored) -> Result<bool, StorageError> {
        let _held = self.hold()?;
        let stood = self.read(&entry.name)?.is_some_and(|own| own.revision == revision);
        if stood {
            self.write(entry)?;
        }
        Ok(stood)
    }

    fn remove(&self, name: &str, revision: u64) -> Result<bool, StorageError> {
        let _held = self.hold()?;
        let stood = self.read(name)?.is_some_and(|own| own.revision == revision);
        if stood {
            let removed = fs::remove_file(self.path.join(layout::file_name(name)));
            removed.and_then(|()| sync_folder(&self.path)).map_err(|error| {
                self.unavailable(&format!("deleting the intent {name:?}"), error)
            })?;
        }
        Ok(stood)
    }

    fn list(&self, after: Option<&str>) -> Result<Page, StorageError> {
        let names = self.names(layout::is_entry);
        let mut names = names.map_err(|error| self.unavailable("listing the folder", error))?;
        names.sort_unstable();
        let from = names.partition_point(|name| after.is_some_and(|after| name.as_str() <= after));
        let page: Vec<&String> = names[from..].iter().take(PAGE).collect();
        let next = (from + page.len() < names.len()).then(|| page.last().map(|&last| last.clone()));
        // One that was acknowledged since the listing is no longer there.
        let entries =
            page.iter().filter_map(|name| self.read_file(name, None).transpose()).collect();
        Ok(Page { entries, next: next.flatten() })
    }

    fn read(&self, name: &str) -> Result<Option<Stored>, StorageError> {
        self.read_file(&layout::file_name(name), Some(name))
    }

    fn read_file(&self, file: &str, name: Option<&str>) -> Result<Option<Stored>, StorageError> {
        let path = self.path.join(file);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|mut open| open.read_to_end(&mut bytes)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(unavailable(format!("reading {}", path.display()), error));
            }
            Ok(_) => {}
        }
        let doing = || format!("reading {}", path.display());
        match layout::read(bytes) {
            Ok(stored) if name.is_none_or(|name| stored.name == name) => Ok(Some(stored)),
            Ok(_) => Err(StorageError::new(StorageErrorKind::Damaged, doing(), None)),
            Err(kind) => Err(StorageError::new(kind, doing(), None)),
        }
    }

    /// Writes an entry into its place; the lock is held.
    fn write(&self, entry: &Stored) -> Result<(), StorageError> {
        let file = layout::file_name(&entry.name);
        let (beside, place) = (self.path.join(layout::beside(&file)), self.path.join(&file));
        let written = write_file(&beside, entry)
            .and_then(|()| fs::rename(&beside, &place))
            .and_then(|()| sync_folder(&self.path));
        written.map_err(|error| {
            // A full disk is fuller with it; the entry before is in its place.
            drop(fs::remove_file(&beside));
            self.unavailable(&format!("writing the intent {:?}", entry.name), error)
        })
    }

    fn names(&self, is_meant: fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for file in fs::read_dir(&self.path)? {
            if let Ok(name) = file?.file_name().into_string()
                && is_meant(&name)
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn unavailable(&self, doing: &str, error: io::Error) -> StorageError {
        unavailable(format!("{doing} in {}", self.path.display()), error)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // The kernel frees it at the end of the process at the latest.
        drop(self.0.unlock());
    }
}

fn unavailable(doing: String, error: io::Error) -> StorageError {
    StorageError::new(StorageErrorKind::Unavailable, doing, Some(error.into()))
}

fn write_file(path: &Path, entry: &Stored) -> io::Result<()> {
    let mut file = private().write(true).create(true).truncate(true).open(path)?;
    file.write_all(layout::head(entry).as_bytes())?;
    file.write_all(&entry.document)?;
    file.sync_all()
}

/// Makes a folder, readable for its owner alone, with those it lies in; each is durable in the one above.
fn make_durable_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make_durable_folder(above)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    sync_folder(above.unwrap_or(Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_let_go_is_an_error_that_says_so() {
        let place = tempfile::tempdir().unwrap();
        let open = || Folder::open(place.path().to_owned(), Duration::from_millis(20));
        let (one, other) = (open().unwrap(), open().unwrap());
        let held = one.hold().unwrap();
        for error in [other.remove("a", 1).unwrap_err(), open().unwrap_err()] {
            assert_eq!(error.kind(), StorageErrorKind::Busy);
            let told = error.to_string();
            let expected =
                format!("locking {}/lock: another process holds", place.path().display());
            assert!(told.starts_with(&expected), "{told}");
        }
        // Looking needs no lock: a file is whole at any moment.
        assert_eq!(other.get("a").unwrap(), None);
        drop(held);
        other.remove("a", 1).unwrap();
    }
}
