//! A provider's account as a reconciliation meets it: whole, or wrong in one of the ways that accounts are
//! wrong. A test serves the text and holds the ledger, which is the truth.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each account is wrong in one thing, and right in all others"
)]

use std::fmt::Write as _;
use std::time::Duration;

use firstwrite_core::Timestamp;

/// Something that stands in the provider's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The provider's id.
    pub id: String,
    /// The key it was asked for under.
    pub key: String,
    /// In minor units.
    pub amount: u64,
    /// The provider's time.
    pub at: Timestamp,
    /// Status of the payment.
    pub status: Status,
}

/// The status of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was made.
    Paid,
    /// It was declined, and had no effect.
    Failed,
    /// It will be made or declined.
    Pending,
}

/// An account over a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Account {
    /// Everything, as it is.
    Whole,
    /// The list that the token of another merchant opens.
    OtherMerchant,
    /// A list without entries.
    Empty,
    /// The first page of a list that says `has_more` and has no cursor.
    FirstPageOnly,
    /// A copy of twelve hours ago.
    OldExport,
    /// Amounts in major units, and no keys.
    OtherUnits,
    /// The newest first, by offset, with an entry more before each page.
    ShiftingPages,
    /// Every page begins with the last entry of the page before.
    DuplicatedPages,
    /// Entries are reported up to [`Account::LAG`] after they were made.
    LateEntries,
    /// The provider's own number instead of the key.
    ForeignKeys,
    /// Keys are cut after [`Account::KEY_CHARACTERS`].
    CutKeys,
    /// Keys in small letters.
    SmallKeys,
    /// Times of a place five hours west, written as if they were UTC.
    WesternTimes,
    /// Times of a place eight hours east, written as if they were UTC.
    EasternTimes,
    /// The window is read as if it were of a place five hours west: it begins and ends later.
    WesternWindow,
    /// The window is read as if it were of a place eight hours east: it begins and ends earlier.
    EasternWindow,
    /// Some entries have no key, and stand net of a fee.
    NetAmounts,
    /// Some entries are dated a year ahead.
    FutureTimes,
    /// By amount, two to a page; the last page fails, and says so in a list without entries.
    FailingPage,
    /// The same; the page before the last has the cursor of a last one, and `has_more`.
    CutWithHasMore,
    /// The same; the page before the last has the cursor of a last one, and the number of all entries.
    CutWithTotal,
    /// Some entries stand under the key of an older one, of another amount.
    MisfiledKeys,
    /// Some entries have the id of an older one, as where a number of an order or a batch is taken for the id.
    SharedIds,
}

/// A question for a page.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Start of the window.
    pub from: Timestamp,
    /// End of the window.
    pub until: Timestamp,
    /// The cursor, if it is not the first page.
    pub cursor: Option<&'a str>,
    /// Time of the question.
    pub now: Timestamp,
}

const WEST: Duration = Duration::from_hours(5);
const EAST: Duration = Duration::from_hours(8);
const YEAR: Duration = Duration::from_hours(365 * 24);
const FEE: u64 = 15;
const PAGE_ENTRIES: usize = 5;

impl Account {
    /// Every account.
    pub const ALL: [Self; 23] = [
        Self::Whole,
        Self::OtherMerchant,
        Self::Empty,
        Self::FirstPageOnly,
        Self::OldExport,
        Self::OtherUnits,
        Self::ShiftingPages,
        Self::DuplicatedPages,
        Self::LateEntries,
        Self::ForeignKeys,
        Self::CutKeys,
        Self::SmallKeys,
        Self::WesternTimes,
        Self::EasternTimes,
        Self::WesternWindow,
        Self::EasternWindow,
        Self::NetAmounts,
        Self::FutureTimes,
        Self::FailingPage,
        Self::CutWithHasMore,
        Self::CutWithTotal,
        Self::MisfiledKeys,
        Self::SharedIds,
    ];
    /// Longest delay before an entry is reported.
    pub const LAG: Duration = Duration::from_mins(55);
    /// Number of characters that cut keys keep.
    pub const KEY_CHARACTERS: usize = 36;

    /// A page as JSON: `data`, and where the next page is.
    pub fn page(self, ledger: &[Entry], asked: &Asked<'_>) -> String {
        let is_in = |entry: &&Entry| {
            let at = match self {
                Self::WesternWindow => entry.at.minus(WEST),
                Self::EasternWindow => entry.at.plus(EAST),
                _ => entry.at,
            };
            asked.from <= at && at < asked.until
        };
        let mut entries = self.entries(ledger, asked.now);
        let loses_last =
            matches!(self, Self::FailingPage | Self::CutWithHasMore | Self::CutWithTotal);
        if loses_last {
            entries.sort_by_key(|entry| entry.amount);
        }
        let page_entries = if loses_last { 2 } else { PAGE_ENTRIES };
        let mut rows: Vec<String> =
            entries.iter().filter(is_in).map(|entry| self.item(entry)).collect();
        let offset: usize = asked.cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let mut begin = offset;
        if self == Self::ShiftingPages {
            rows.reverse();
        }
        if matches!(self, Self::ShiftingPages | Self::DuplicatedPages) {
            begin = offset.saturating_sub(1);
        }
        let end = (offset + page_entries).min(rows.len());
        let data = rows.get(begin.min(end)..end).unwrap_or_default().join(",");
        let has_more = end < rows.len();
        let total = rows.len();
        let is_cut = has_more && total <= end + page_entries;
        match (self, has_more) {
            (Self::FailingPage, false) if offset > 0 => {
                r#"{"data":[],"error":"upstream timeout"}"#.to_owned()
            }
            (Self::CutWithHasMore, _) if is_cut => {
                format!(r#"{{"data":[{data}],"next":null,"has_more":true}}"#)
            }
            (Self::CutWithTotal, _) if is_cut => {
                format!(r#"{{"data":[{data}],"next":null,"total_count":{total}}}"#)
            }
            (Self::FirstPageOnly, _) => format!(r#"{{"data":[{data}],"has_more":{has_more}}}"#),
            (_, true) => format!(r#"{{"data":[{data}],"next":"{end}"}}"#),
            (_, false) => format!(r#"{{"data":[{data}],"next":null}}"#),
        }
    }

    /// Everything as CSV.
    pub fn csv(self, ledger: &[Entry], now: Timestamp) -> String {
        let mut text = "id,key,amount,at,status\n".to_owned();
        for entry in self.entries(ledger, now) {
            let [id, key, amount, at, status] = self.fields(&entry);
            writeln!(text, "{id},{key},{amount},{at},{status}").expect("a string takes any text");
        }
        text
    }

    /// The entries that the account has, the oldest first.
    fn entries(self, ledger: &[Entry], now: Timestamp) -> Vec<Entry> {
        let known_until = match self {
            Self::OldExport => now.minus(Duration::from_hours(12)),
            _ => now,
        };
        // Which entries are late depends on nothing but themselves.
        let lag = |entry: &Entry| match self {
            Self::LateEntries if entry.amount.is_multiple_of(2) => Self::LAG,
            _ => Duration::ZERO,
        };
        let mut entries: Vec<Entry> = ledger
            .iter()
            .filter(|entry| self != Self::Empty && entry.at.plus(lag(entry)) <= known_until)
            .cloned()
            .collect();
        if self == Self::OtherMerchant {
            for (number, entry) in entries.iter_mut().enumerate() {
                entry.id = format!("their_{number}");
                entry.key = format!("their-{number}:charge:fedcba9876543210");
            }
        }
        entries.sort_by(|one, other| (one.at, &one.id).cmp(&(other.at, &other.id)));
        if let Self::MisfiledKeys | Self::SharedIds = self
            && let Some(other) =
                entries.iter().find(|entry| !is_wrong(entry) && entry.status == Status::Paid)
        {
            let (id, key) = (other.id.clone(), other.key.clone());
            for entry in entries.iter_mut().filter(|entry| is_wrong(entry)) {
                if self == Self::SharedIds {
                    entry.id.clone_from(&id);
                } else {
                    entry.key.clone_from(&key);
                }
            }
        }
        entries
    }

    fn item(self, entry: &Entry) -> String {
        let [id, key, amount, at, status] = self.fields(entry);
        let key = if key.is_empty() { "null".to_owned() } else { format!("\"{key}\"") };
        format!(r#"{{"id":"{id}","key":{key},"amount":{amount},"at":{at},"status":"{status}"}}"#)
    }

    /// Id, key, amount, time and status as the account writes them.
    fn fields(self, entry: &Entry) -> [String; 5] {
        let is_wrong = is_wrong(entry);
        let key = match self {
            Self::OtherUnits => String::new(),
            Self::NetAmounts if is_wrong => String::new(),
            Self::ForeignKeys => format!("no-{}", entry.id),
            Self::CutKeys => entry.key.chars().take(Self::KEY_CHARACTERS).collect(),
            Self::SmallKeys => entry.key.to_ascii_lowercase(),
            _ => entry.key.clone(),
        };
        let amount = match self {
            Self::OtherUnits => format!("{}.{:02}", entry.amount / 100, entry.amount % 100),
            Self::NetAmounts if is_wrong => (entry.amount - FEE).to_string(),
            _ => entry.amount.to_string(),
        };
        let at = match self {
            Self::WesternTimes => entry.at.minus(WEST),
            Self::EasternTimes => entry.at.plus(EAST),
            Self::FutureTimes if is_wrong => entry.at.plus(YEAR),
            _ => entry.at,
        };
        let status = match entry.status {
            Status::Paid => "paid",
            Status::Failed => "failed",
            Status::Pending => "pending",
        };
        [entry.id.clone(), key, amount, at.as_millis().to_string(), status.to_owned()]
    }
}

/// Selects the entries that are wrong where some are. It depends on nothing but themselves.
fn is_wrong(entry: &Entry) -> bool {
    entry.amount.is_multiple_of(500)
}
