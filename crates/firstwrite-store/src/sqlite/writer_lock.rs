//! The lock file next to a database: it keeps other writers out, and holds a note for the next opening.
//!
//! 1. The latest time recorded in the database, written after the commit that holds the same time. A
//!    database with an earlier time is not the one that was written to last: an older copy was restored, or
//!    its log is gone.
//! 2. The id of the database's life, and the id that its next life will have. Each opening for writing
//!    begins a life with a random id, so a database with another id was written to under another name, or
//!    is another store's. The lock has the next id on the disk before the database commits it, and takes it
//!    as its own afterwards: a crash at any point leaves the database with one of the two.
//! 3. The description of a loss, if there was one.

use std::fmt;
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
    /// Contents as they were when the lock was taken, or last written whole.
    pub(super) word: Word,
}

/// Contents of a lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The latest time that the file has seen.
    pub(super) seen: Option<Timestamp>,
    /// Missing in a lock that no writer has used.
    pub(super) lives: Option<Lives>,
    /// Description of what happened to the database while a process had it open.
    pub(super) loss: Option<String>,
}

/// Ids of the lives that a database may be in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lives {
    /// `None` before the first.
    own: Option<String>,
    /// The life that an opening was about to begin, if it did not get further.
    next: Option<String>,
}

/// Start of the line with the lives.
const LIVES: &str = "life ";
/// Stands for an id that is not there, as long as one.
const NO_LIFE: &str = "--------------------------------";
/// Position of the description of a loss: twenty digits and two ids, each line with its end.
const LOSS_AT: u64 = 21 + 71;
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
        let noted = self.write(LOSS_AT, loss.as_bytes()).and_then(|()| self.file.sync_all());
        if let Err(error) = noted {
            tracing::error!(%error, "the loss cannot be noted beside the file");
        }
    }

    /// Notes that the database, which is in life `life`, will be in life `next`. What the lock says of a
    /// loss, also by an id that is not the database's, stays until that is in the database.
    pub(super) fn announce_life(&mut self, life: Option<String>, next: &str) -> io::Result<()> {
        let own = match self.word.lives.take() {
            Some(lives) if !lives.have(life.as_deref()) => lives.own,
            Some(_) | None => life,
        };
        self.word.lives = Some(Lives { own, next: Some(next.to_owned()) });
        self.put()
    }

    /// Notes that the database is in life `life`, with `seen` as its last recorded time, and clears the
    /// note of a loss, which is now in the database.
    pub(super) fn begin_life(&mut self, life: String, seen: Timestamp) {
        let lives = Lives { own: Some(life), next: None };
        self.word = Word { seen: Some(seen), lives: Some(lives), loss: None };
        if let Err(error) = self.put() {
            tracing::warn!(%error, "the new life cannot be noted beside the file");
        }
    }

    /// Writes everything, and has it on the disk.
    fn put(&self) -> io::Result<()> {
        let text = self.word.to_string();
        self.write(0, text.as_bytes())?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_all()
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
    /// `seen` and whose last life was `life`, if there is one.
    pub(super) fn loss(&self, seen: Option<Timestamp>, life: Option<&str>) -> Option<String> {
        if let Some(loss) = &self.loss {
            return Some(format!("{loss} while a process had it open"));
        }
        let what = if self.seen > seen {
            "the file is older than what was committed last: a backup was put back, or its -wal is gone"
        } else if self.lives.as_ref().is_some_and(|lives| !lives.have(life)) {
            "this is not the file that was written last: a backup that was opened elsewhere meanwhile, or \
             another store's file, was put in its place"
        } else {
            return None;
        };
        Some(what.to_owned())
    }

    fn parse(text: &str) -> Self {
        // Zeros are what a power cut may leave of a first write.
        if text.trim_matches('\0').is_empty() {
            return Self::default();
        }
        let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
        let seen = match line.trim() {
            "" => None,
            millis => match millis.parse() {
                Ok(millis) => Some(Timestamp::from_millis(millis)),
                Err(_) => return Self::unreadable("it is not ours"),
            },
        };
        let lives =
            rest.split_once('\n').and_then(|(line, loss)| Some((Lives::parse(line)?, loss)));
        let (lives, loss) = lives.map_or((None, rest), |(lives, loss)| (Some(lives), loss));
        Self { seen, lives, loss: (!loss.is_empty()).then(|| loss.to_owned()) }
    }

    fn unreadable(why: &str) -> Self {
        let loss = Some(format!("the note in the lock cannot be read ({why})"));
        Self { loss, ..Self::default() }
    }
}

/// The contents as they are in the file.
impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, lives, loss } = self;
        match seen {
            Some(seen) => writeln!(f, "{:020}", seen.as_millis().max(0))?,
            None => writeln!(f, "{:20}", "")?,
        }
        if let Some(Lives { own, next }) = lives {
            let [own, next] = [own, next].map(|life| life.as_deref().unwrap_or(NO_LIFE));
            writeln!(f, "{LIVES}{own} {next}")?;
        }
        f.write_str(loss.as_deref().unwrap_or_default())
    }
}

impl Lives {
    fn have(&self, life: Option<&str>) -> bool {
        self.own.as_deref() == life || (life.is_some() && self.next.as_deref() == life)
    }

    fn parse(line: &str) -> Option<Self> {
        let (own, next) = line.strip_prefix(LIVES)?.split_once(' ')?;
        let [own, next] = [own, next].map(|life| (life != NO_LIFE).then(|| life.to_owned()));
        Some(Self { own, next })
    }
}

#[cfg(test)]
mod tests {
    use firstwrite_core::host_clock::SeenTime;

    use super::super::connect::{MissingFile, SqliteOptions};
    use super::super::store_clock;
    use super::super::{SqliteStore, schema};
    use super::*;

    #[test]
    fn a_lock_says_what_its_file_has_seen_and_what_happened_to_it() {
        let at = Timestamp::from_millis;
        assert_eq!(Word::parse(""), Word::default());
        assert_eq!(Word::parse(&"\0".repeat(92)), Word::default());
        let word = Word::parse("00000000000000001000\n");
        assert_eq!(word, Word { seen: Some(at(1000)), lives: None, loss: None });
        let loss = |word: &Word, millis| word.loss(Some(at(millis)), None);
        assert_eq!((loss(&word, 1000), loss(&word, 1001)), (None, None));
        assert!(loss(&word, 999).is_some() && word.loss(None, None).is_some());
        let lost = Word::parse("00000000000000001000\nshop.db was deleted");
        assert!(loss(&lost, 2000).is_some_and(|loss| loss.contains("deleted")));
        assert!(Word::parse("something else").loss.is_some());
    }

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let lives = |own: Option<char>, next: Option<char>| {
            let [own, next] =
                [own, next].map(|digit| digit.map(|digit| digit.to_string().repeat(32)));
            Some(Lives { own, next })
        };
        for seen in [None, Some(Timestamp::from_millis(1000))] {
            for lives in
                [lives(None, Some('a')), lives(Some('a'), Some('b')), lives(Some('b'), None)]
            {
                let word = Word { seen, lives, loss: None };
                assert_eq!(word.to_string().len() as u64, LOSS_AT);
                assert_eq!(Word::parse(&word.to_string()), word);
                let lost = Word { loss: Some("shop.db was deleted".to_owned()), ..word };
                assert_eq!(Word::parse(&lost.to_string()), lost);
            }
        }
    }

    /// Opens the file as a process that dies after so many steps of beginning a life.
    fn die_after(steps: usize, file: &Path) {
        let target = Target::for_writing(file, MissingFile::Refuse).unwrap();
        let mut lock = WriterLock::take(&target).unwrap();
        let (connection, _) = target.connect_writer(&SqliteOptions::default()).unwrap();
        let (life, next) =
            (schema::life(&connection).unwrap(), schema::new_life(&connection).unwrap());
        let at = Timestamp::from_millis(1000);
        let seen = store_clock::seen(&connection).unwrap().unwrap_or(SeenTime { at, wall: at });
        if steps > 0 {
            lock.announce_life(life, &next).unwrap();
        }
        if steps > 1 {
            schema::put_life(&connection, &next).unwrap();
            store_clock::put_seen(&connection, seen).unwrap();
        }
        if steps > 2 {
            lock.begin_life(next, seen.at);
        }
    }

    async fn losses(file: &Path) -> usize {
        let store = SqliteStore::open(file).unwrap();
        let losses = store.history_losses().await.unwrap().len();
        store.close().await;
        losses
    }

    #[tokio::test]
    async fn a_crash_while_a_life_begins_raises_no_doubt() {
        for (steps, again) in (0..4).flat_map(|steps| (0..4).map(move |again| (steps, again))) {
            for is_first in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                let file = folder.path().join("shop.db");
                SqliteStore::migrate(&file).unwrap();
                if !is_first {
                    assert_eq!(losses(&file).await, 0);
                }
                die_after(steps, &file);
                die_after(again, &file);
                for _ in 0..2 {
                    assert_eq!(losses(&file).await, 0, "{steps}, {again}, first: {is_first}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_crash_does_not_hide_that_the_file_is_another() {
        for steps in 0..2 {
            let folder = tempfile::tempdir().unwrap();
            let [file, other] = ["shop.db", "other.db"].map(|name| folder.path().join(name));
            for file in [&file, &other] {
                SqliteStore::migrate(file).unwrap();
                assert_eq!(losses(file).await, 0);
            }
            std::fs::rename(&other, &file).unwrap();
            die_after(steps, &file);
            assert_eq!(losses(&file).await, 1);
        }
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
