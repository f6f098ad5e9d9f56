//! The ledger: a file of JSON lines, one for each thing that happened, only ever added to.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::book::{Book, Question};
use crate::error::{ErrorKind, ProviderError};
use crate::payment::Payment;

/// Many times the longest that is written.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// A ledger as it was read, the own or another process's.
#[derive(Debug)]
pub struct Ledger {
    book: Book,
    /// Length of the complete lines.
    bytes: u64,
    /// Bytes after them: the beginning of a line whose end was never written.
    torn_bytes: u64,
}

/// The file, open for appending under an exclusive lock.
#[derive(Debug)]
pub(crate) struct LedgerFile(File);

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A payment that was asked for.
    Made(Made),
    /// The webhook of a payment was taken.
    Told { id: String },
    /// Planted: a second one under the same key.
    Duplicate(Payment),
    /// Planted: a payment without a call for it.
    Foreign(Payment),
    /// Planted: no longer reported.
    Removed { id: String },
    /// Planted: reported with another amount.
    Amount { id: String, amount: u64 },
}

/// A payment that was asked for, and whether a webhook is owed for it: one line, so that a crash leaves both or
/// neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    #[serde(flatten)]
    pub(crate) payment: Payment,
    #[serde(default)]
    pub(crate) owes_webhook: bool,
}

impl Ledger {
    /// Reads the ledger at `path`, which may be in use: a line that is just being written does not
    /// count yet.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ProviderError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| cannot("open", path).with_source(error))?;
        Self::read_file(&file, path)
    }

    /// Every payment that was made, duplicates and foreign ones included, in the order of making and
    /// as it was made: the truth, whatever is reported.
    pub fn payments(&self) -> Vec<Payment> {
        self.book.effects()
    }

    /// Every payment that is reported, as it is reported, oldest first.
    pub fn reported(&self) -> Vec<Payment> {
        self.book.list(&Question::default(), usize::MAX).0
    }

    /// Returns the number of bytes at the end that do not count, because their line was never finished.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    pub(crate) fn into_book(self) -> Book {
        self.book
    }

    fn read_file(file: &File, path: &Path) -> Result<Self, ProviderError> {
        let mut ledger = Self { book: Book::default(), bytes: 0, torn_bytes: 0 };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let bytes = (&mut reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
                .map_err(|error| cannot("read", path).with_source(error))?
                as u64;
            let corrupt = |detail: &str| {
                let detail = format!("{}, line {number}: {detail}", path.display());
                ProviderError::new(ErrorKind::Corrupt, detail)
            };
            if line.last() != Some(&b'\n') {
                if bytes == LINE_BYTES_MAX {
                    return Err(corrupt("longer than any line of a ledger"));
                }
                ledger.torn_bytes = bytes;
                break;
            }
            let entry = serde_json::from_slice(&line)
                .map_err(|error| corrupt("no entry of a ledger").with_source(error))?;
            ledger.book.apply(entry).map_err(corrupt)?;
            ledger.bytes += bytes;
        }
        Ok(ledger)
    }
}

impl LedgerFile {
    /// Opens the ledger at `path`, or begins one. A torn line at its end is cut off.
    pub(crate) fn open(path: &Path) -> Result<(Self, Ledger), ProviderError> {
        let failed =
            |doing: &'static str| move |error: io::Error| cannot(doing, path).with_source(error);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        // The file holds payments: keep it private, whatever the umask says.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let detail = format!("another provider uses {}", path.display());
                return Err(ProviderError::new(ErrorKind::InUse, detail));
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        let ledger = Ledger::read_file(&file, path)?;
        if ledger.torn_bytes > 0 {
            tracing::warn!(
                bytes = ledger.torn_bytes,
                "the ledger ends in the middle of a line, which is dropped: it never counted"
            );
            file.set_len(ledger.bytes).map_err(failed("mend"))?;
        }
        file.sync_all().map_err(failed("sync"))?;
        // The file's own name has to outlast a crash as well.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))
            .and_then(|folder| folder.sync_all())
            .map_err(failed("sync the folder of"))?;
        Ok((Self(file), ledger))
    }

    /// Adds whole lines; they are on the disk when this returns.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.write_all(lines)?;
        self.0.sync_data()
    }

    /// Adds whole lines that the end of the machine may take back.
    pub(crate) fn append_unsynced(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.write_all(lines)
    }
}

impl Entry {
    /// Its line, at the end of `lines`.
    pub(crate) fn write(&self, lines: &mut Vec<u8>) -> io::Result<()> {
        serde_json::to_writer(&mut *lines, self)?;
        lines.push(b'\n');
        Ok(())
    }
}

fn cannot(doing: &str, path: &Path) -> ProviderError {
    ProviderError::new(ErrorKind::Ledger, format!("cannot {doing} the ledger {}", path.display()))
}
