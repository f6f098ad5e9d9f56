//! A provider's account as a file of CSV.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use csv::{ReaderBuilder, StringRecord, Trim};
use firstwrite_core::outbox::is_wire_key;
use firstwrite_core::reconcile::{Theirs, Window};
use firstwrite_core::{BoxFuture, Timestamp};

use super::books::before;
use super::entry::{Made, Reading, Texts, TimeForm};
use super::{Export, Flaw, Source, SourceError, SourcePage};

/// An export as CSV with a line of names first (RFC 4180).
///
/// It is read anew for each run, on a thread of its own. A row that cannot be understood is reported with
/// its line, and makes the account incomplete: then nothing is taken to be absent. A row has at most 1 MiB, and an
/// export ends with a line end: one without it may be cut off within a field.
/// An export reaches to its newest row that matches, unless [`until`](Self::until) states more.
///
/// ```
/// use firstwrite::reconcile::{CsvColumns, CsvExport, Made};
///
/// let columns = CsvColumns {
///     key: Some("idempotency_key".to_owned()),
///     amount: Some("amount".to_owned()),
///     currency: Some("currency".to_owned()),
///     ..CsvColumns::new(
///         "id",
///         "created_at",
///         Made::by_status("status".to_owned(), &["paid"], &["failed", "declined"]),
///     )
/// };
/// let export = CsvExport::file("payments.csv", columns);
/// # let _ = export;
/// ```
#[derive(Clone)]
#[must_use = "an export is read by a run"]
pub struct CsvExport {
    open: Arc<Open>,
    /// Names the file, if the export is one.
    path: Option<PathBuf>,
    columns: CsvColumns,
    delimiter: u8,
    reading: Reading,
    bytes_max: u64,
    until: Option<Timestamp>,
}

/// The names of the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvColumns {
    /// The provider's id.
    pub id: String,
    /// The key it was made under.
    pub key: Option<String>,
    /// The amount.
    pub amount: Option<String>,
    /// The currency.
    pub currency: Option<String>,
    /// The time.
    pub at: String,
    /// Selects the rows that were made.
    pub made: Made<String>,
}

type Open = dyn Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync;

/// An export may date its rows in another time zone: rows so far before the window are read too.
const ZONES: Duration = Duration::from_hours(24);

/// Maximum number of flaws kept; more would tell nothing new.
const FLAWS_MAX: usize = 1000;

/// No row of an export is nearly as long. A longer one is another kind of file, or a quote that is not closed.
const ROW_BYTES_MAX: usize = 1024 * 1024;
const ROW_TOO_LONG: &str = "it is longer than 1048576 bytes; the rest was not read";

impl CsvColumns {
    /// Names the columns that every export must have, and tells which of its rows were made.
    pub fn new(id: &str, at: &str, made: Made<String>) -> Self {
        let (id, at) = (id.to_owned(), at.to_owned());
        Self { id, key: None, amount: None, currency: None, at, made }
    }
}

impl CsvExport {
    /// A million rows or two. A larger export is cut off there, and incomplete.
    pub const BYTES_MAX_DEFAULT: u64 = 256 * 1024 * 1024;

    /// The export in a file; a pipe or a device is refused.
    pub fn file(path: impl Into<PathBuf>, columns: CsvColumns) -> Self {
        let path = path.into();
        let named = Some(path.clone());
        let open = move || open_file(&path).map(|file| Box::new(file) as Box<dyn Read + Send>);
        Self { path: named, ..Self::reader(open, columns) }
    }

    /// The export that `open` opens, anew for each run.
    pub fn reader(
        open: impl Fn() -> io::Result<Box<dyn Read + Send>> + Send + Sync + 'static,
        columns: CsvColumns,
    ) -> Self {
        Self {
            open: Arc::new(open),
            path: None,
            columns,
            delimiter: b',',
            reading: Reading::default(),
            bytes_max: Self::BYTES_MAX_DEFAULT,
            until: None,
        }
    }

    /// Sets the character between fields; a comma unless set.
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = delimiter;
        self
    }

    /// Sets the form of times; RFC 3339 unless set.
    pub fn times(mut self, form: TimeForm) -> Self {
        self.reading.time = form;
        self
    }

    /// Multiplies amounts by a power of ten: 2 where the export has euros and messages have cents. 0
    /// unless set.
    pub fn amount_power(mut self, power: i32) -> Self {
        self.reading.amount_power = power;
        self
    }

    /// States when the export was made: it has everything until then. Its newest match is its end unless
    /// set.
    pub fn until(mut self, until: Timestamp) -> Self {
        self.until = Some(until);
        self
    }

    /// Sets the maximum number of bytes read of an export; 256 MiB unless set.
    pub fn bytes_max(mut self, bytes: u64) -> Self {
        self.bytes_max = bytes;
        self
    }

    pub(super) fn read(&self, window: Window) -> Result<SourcePage, SourceError> {
        let unopened = |error| SourceError::new("the export cannot be opened").caused_by(error);
        // One byte more tells whether it was cut off.
        let bytes = (self.open)().map_err(unopened)?.take(self.bytes_max.saturating_add(1));
        let mut bytes = Rows::new(bytes, self.delimiter);
        let mut reader =
            ReaderBuilder::new().delimiter(self.delimiter).trim(Trim::All).from_reader(&mut bytes);
        let unread = |error| SourceError::new("the export has no head").caused_by(error);
        let head = reader.headers().map_err(unread)?.clone();
        let places = Places::new(self, &head)?;
        // Rows after the window are given too: one that is dated in the future must be seen.
        let from = before(window.from, ZONES);
        let mut page = SourcePage::default();
        let mut row = StringRecord::new();
        loop {
            let line = reader.position().line();
            let place = || format!("line {line}");
            match reader.read_record(&mut row) {
                Ok(false) => break,
                Ok(true) => match self.entry(&places, &row) {
                    // A date may be wrong, and a key of ours counts whatever the date.
                    Ok(Some(mut entry))
                        if from <= entry.at || entry.key.as_deref().is_some_and(is_wire_key) =>
                    {
                        entry.raw = as_json(&head, &row);
                        page.entries.push(entry);
                    }
                    Ok(_) => {}
                    Err(problem) => page.flaws.push(Flaw::new(place(), problem)),
                },
                Err(error) => {
                    let is_over = matches!(error.kind(), csv::ErrorKind::Io(_));
                    page.flaws.push(Flaw::new(place(), problem_of(&error)));
                    if is_over {
                        break;
                    }
                }
            }
            if page.flaws.len() >= FLAWS_MAX {
                page.flaws.push(Flaw::new(place(), "too many flaws; the rest was not read"));
                break;
            }
        }
        drop(reader);
        if bytes.has_odd_quotes {
            let detail = "a quote in it is not closed, so it may hide rows";
            page.flaws.push(Flaw::new("the export", detail));
        }
        if bytes.byte_count > 0 && page.flaws.is_empty() {
            let detail =
                "it does not end with a line end, as if it were cut off; add one if it is whole";
            page.flaws.push(Flaw::new("the export", detail));
        }
        if bytes.bytes.limit() == 0 {
            let detail = format!("longer than {} bytes; the rest was not read", self.bytes_max);
            page.flaws.push(Flaw::new("the export", detail));
        }
        Ok(page)
    }

    /// The entry of a row; none if it was not made.
    fn entry(&self, places: &Places, row: &StringRecord) -> Result<Option<Theirs>, &'static str> {
        if row.iter().any(|field| field.contains(['\n', '\r'])) {
            return Err("a field goes over several lines, as if a quote were not closed");
        }
        let field = |place: Option<usize>| place.and_then(|place| row.get(place));
        let is_made = self.columns.made.is_made(field(places.status));
        let Some(is_made) = is_made else { return Ok(None) };
        let texts = Texts {
            id: row.get(places.id),
            key: field(places.key),
            amount: field(places.amount),
            currency: field(places.currency),
            at: row.get(places.at),
            is_made,
        };
        self.reading.entry(texts, Bytes::new()).map(Some)
    }
}

/// Opens a file. A pipe or a device would be waited for, perhaps for ever.
fn open_file(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

/// Follows the rows of an export while they are read, so that none is kept in memory that has no end.
struct Rows<R> {
    bytes: R,
    delimiter: u8,
    place: Place,
    /// The line in which the row begins, how many lines it has so far, and how many bytes.
    line: u64,
    line_count: u64,
    byte_count: usize,
    /// True if the number of quotes is odd: one is not closed.
    has_odd_quotes: bool,
}

/// A place in a row.
#[derive(Clone, Copy)]
enum Place {
    FieldStart,
    Unquoted,
    Quoted,
    /// Behind a quote in a quoted field: its end, or the first of two that stand for one.
    Quote,
}

impl<R> Rows<R> {
    fn new(bytes: R, delimiter: u8) -> Self {
        Self {
            bytes,
            delimiter,
            place: Place::FieldStart,
            line: 1,
            line_count: 0,
            byte_count: 0,
            has_odd_quotes: false,
        }
    }

    fn follow(&mut self, byte: u8) {
        self.has_odd_quotes ^= byte == b'"';
        self.line_count += u64::from(byte == b'\n');
        self.byte_count += 1;
        self.place = match (self.place, byte) {
            (Place::Quoted, b'"') => Place::Quote,
            (Place::FieldStart | Place::Quote, b'"') | (Place::Quoted, _) => Place::Quoted,
            (_, b'\n' | b'\r') => {
                self.line += std::mem::take(&mut self.line_count);
                self.byte_count = 0;
                Place::FieldStart
            }
            (_, byte) if byte == self.delimiter => Place::FieldStart,
            _ => Place::Unquoted,
        };
    }
}

impl<R: Read> Read for Rows<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.bytes.read(into)?;
        for byte in &into[..length] {
            self.follow(*byte);
            if self.byte_count > ROW_BYTES_MAX {
                let problem = format!("line {}: {ROW_TOO_LONG}", self.line);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
            }
        }
        Ok(length)
    }
}

/// Positions of the columns.
struct Places {
    id: usize,
    key: Option<usize>,
    amount: Option<usize>,
    currency: Option<usize>,
    at: usize,
    status: Option<usize>,
}

impl Places {
    fn new(export: &CsvExport, head: &StringRecord) -> Result<Self, SourceError> {
        let find = |name: &str| {
            // Spreadsheets begin files with a mark of their encoding.
            let is_it = |each: &str| each.trim_start_matches('\u{feff}') == name;
            let mut places = head.iter().enumerate().filter(|(_, each)| is_it(each));
            let what = match (places.next(), places.next()) {
                (Some((place, _)), None) => return Ok(place),
                (Some(_), Some(_)) => "more than one column",
                (None, _) => "no column",
            };
            Err(SourceError::new(format!("the export has {what} `{name}`")))
        };
        let columns = &export.columns;
        let optional = |name: &Option<String>| name.as_deref().map(find).transpose();
        Ok(Self {
            id: find(&columns.id)?,
            key: optional(&columns.key)?,
            amount: optional(&columns.amount)?,
            currency: optional(&columns.currency)?,
            at: find(&columns.at)?,
            status: match &columns.made {
                Made::All => None,
                Made::ByStatus { status, .. } => Some(find(status)?),
            },
        })
    }
}

/// Returns the problem, without the content of the row.
fn problem_of(error: &csv::Error) -> &'static str {
    use csv::ErrorKind::{Io, UnequalLengths, Utf8};
    let kind = error.kind();
    if matches!(kind, Io(error) if error.kind() == io::ErrorKind::FileTooLarge) {
        ROW_TOO_LONG
    } else if matches!(kind, Io(_)) {
        "it cannot be read; the rest was not read"
    } else if matches!(kind, Utf8 { .. }) {
        "it is not UTF-8"
    } else if matches!(kind, UnequalLengths { .. }) {
        "it has more or fewer fields than the head"
    } else {
        "it is no row of CSV"
    }
}

fn as_json(head: &StringRecord, row: &StringRecord) -> Bytes {
    let members = head.iter().zip(row.iter());
    let members: serde_json::Map<String, serde_json::Value> =
        members.map(|(name, value)| (name.to_owned(), value.into())).collect();
    Bytes::from(serde_json::Value::Object(members).to_string())
}

impl Source for CsvExport {
    fn pull<'a>(
        &'a self,
        window: Window,
        _cursor: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SourcePage, SourceError>> {
        let export = self.clone();
        Box::pin(async move {
            let reading = tokio::task::spawn_blocking(move || export.read(window));
            reading.await.unwrap_or_else(|error| {
                Err(SourceError::new("reading the export broke off").caused_by(error))
            })
        })
    }

    fn as_export(&self) -> Option<Export> {
        Some(Export { until: self.until })
    }
}

impl fmt::Debug for CsvExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CsvExport")
            .field("path", &self.path)
            .field("columns", &self.columns)
            .field("delimiter", &self.delimiter)
            .field("reading", &self.reading)
            .field("bytes_max", &self.bytes_max)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
