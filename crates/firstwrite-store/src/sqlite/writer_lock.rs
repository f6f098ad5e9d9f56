//! The lock file next to a database: it keeps other writers out, and holds a note for the next opening.
//!
//! Its first line is the latest time recorded in the database, written after the commit that holds the same
//! time. A database with an earlier time is not the one that was written to last: an older copy was
//! restored, or its log is gone. The lines after it describe a loss, if there was one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use firstwrite_core::Timestamp;

use super::connect::{Target, private};
use crate::OpenError;

/// Held as long as the writer lives; the system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct WriterLock {
    file: File,
    /// Contents left by the previous process.
    pub(super) word: Word,
}

/// Contents of a lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The latest time that the file has seen.
    pub(super) seen: Option<Timestamp>,
    /// Description of what happened to the database while a process had it open.
    pub(super) loss: Option<String>,
}

/// Twenty digits and the end of the line.
const SEEN_BYTES: u64 = 21;
/// Read limit, larger than any lock file.
const BYTES_MAX: u64 = 4096;

impl WriterLock {
    /// Makes this process the only writer of `target`.
    pub(super) fn take(target: &Target) -> Result<Self, OpenError> {
        let name = &target.name;
        let path = target.beside("-lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let file = private(&mut options).open(path);
        let file = file.map_err(|error| {
            OpenError::new(format!("the lock beside {name} cannot be made; check its folder"))
                .caused_by(error)
        })?;
        match file.try_lock() {
            Ok(()) => Ok(Self { word: Word::read(&file), file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::new(format!(
                "another firstwrite process is writing to {name}; stop it, or use a read-only command"
            ))),
            Err(TryLockError::Error(error)) => {
                Err(OpenError::new(format!("{name} cannot be locked; put it on a local disk"))
                    .caused_by(error))
            }
        }
    }

    /// Keeps the time that the file has seen, which is committed. Not flushed: a power cut may take it back,
    /// and an older time only means that less is noticed.
    pub(super) fn note_seen(&self, seen: Timestamp) {
        let line = format!("{:020}\n", seen.as_millis().max(0));
        if let Err(error) = self.write(0, line.as_bytes()) {
            tracing::debug!(%error, "the time is not written beside the file");
        }
    }

    /// Notes in the lock file what happened to the database.
    pub(super) fn note_loss(&self, loss: &str) {
        let noted = self.write(SEEN_BYTES, loss.as_bytes()).and_then(|()| self.file.sync_all());
        if let Err(error) = noted {
            tracing::error!(%error, "the loss cannot be noted beside the file");
        }
    }

    /// Clears the note, which is now in the database, whose last recorded time is `seen`.
    pub(super) fn forget(&mut self, seen: Timestamp) {
        self.word = Word::default();
        if let Err(error) = self.file.set_len(0) {
            tracing::warn!(%error, "a note of a loss cannot be taken off");
        }
        self.note_seen(seen);
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }
}

/// Unlocks explicitly: closing the file alone leaves it locked while a child process that is being started
/// still has a copy of the descriptor, and the next opening would be refused.
impl Drop for WriterLock {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the lock ends with its file");
        }
    }
}

impl Word {
    /// Reads the contents of a lock file.
    pub(super) fn read(lock: &File) -> Self {
        let mut text = String::new();
        match lock.take(BYTES_MAX).read_to_string(&mut text) {
            Ok(_) => Self::parse(&text),
            Err(error) => Self::unreadable(&error.to_string()),
        }
    }

    /// Reads the lock file at `path`; empty if there is none.
    pub(super) fn at(path: &Path) -> Self {
        File::open(path).map_or_else(|_absent| Self::default(), |lock| Self::read(&lock))
    }

    /// Returns the reason to believe that history is missing from a file whose last recorded time is
    /// `seen`, if there is one.
    pub(super) fn loss(&self, seen: Option<Timestamp>) -> Option<String> {
        if let Some(loss) = &self.loss {
            return Some(format!("{loss} while a process had it open"));
        }
        let is_older = self.seen > seen;
        is_older.then(|| {
            "the file is older than what was committed last: a backup was put back, or its -wal is gone"
                .to_owned()
        })
    }

    fn parse(text: &str) -> Self {
        if text.is_empty() {
            return Self::default();
        }
        // Zeros: the note of a loss in a lock file without a recorded time.
        let (line, loss) = text.split_once('\n').unwrap_or((text, ""));
        match line.trim_matches('\0').parse() {
            Ok(millis) => Self {
                seen: Some(Timestamp::from_millis(millis)),
                loss: (!loss.is_empty()).then(|| loss.to_owned()),
            },
            Err(_) => Self::unreadable("it is not ours"),
        }
    }

    fn unreadable(why: &str) -> Self {
        Self { seen: None, loss: Some(format!("the note in the lock cannot be read ({why})")) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::connect::MissingFile;
    use super::*;

    #[test]
    fn a_lock_says_what_its_file_has_seen_and_what_happened_to_it() {
        let at = Timestamp::from_millis;
        assert_eq!(Word::parse(""), Word::default());
        let word = Word::parse("00000000000000001000\n");
        assert_eq!(word, Word { seen: Some(at(1000)), loss: None });
        assert_eq!((word.loss(Some(at(1000))), word.loss(Some(at(1001)))), (None, None));
        assert!(word.loss(Some(at(999))).is_some() && word.loss(None).is_some());
        let lost = Word::parse("00000000000000001000\nshop.db was deleted");
        assert!(lost.loss(Some(at(2000))).is_some_and(|loss| loss.contains("deleted")));
        assert!(Word::parse("something else").loss.is_some());
    }

    #[test]
    fn a_lock_ends_with_its_writer_though_a_starting_process_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db");
        let target = Target::for_writing(&file, MissingFile::Create).unwrap();
        let lock = WriterLock::take(&target).unwrap();
        // Between fork and exec, a child process has every file of its parent open.
        let inherited = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(WriterLock::take(&target).is_ok());
        drop(inherited);
    }
}
