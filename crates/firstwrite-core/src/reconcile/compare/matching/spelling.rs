//! Keys of theirs: which of them are ours, and which could be one of ours that was written otherwise: escaped,
//! quoted, cut, in other letters, within other text.

use std::collections::{BTreeSet, HashSet};

use super::super::super::Ours;
use crate::outbox::{WIRE_KEY_BYTES_MAX, is_hexadecimal, wire_key};
use crate::{Key, RecordId, Tenant};

/// Digits of a record's id in a wire key.
const MARK_DIGITS: usize = 16;
/// A key that is cut to less, and not a beginning, names nothing.
const PIECE_BYTES_MIN: usize = 4;
/// Marks that are computed in one comparison, which takes a few seconds at most. Keys beyond are not known to be ours.
const MARKS_MAX: usize = 1_000_000;

/// The keys and records that our books have.
pub(super) struct OurKeys<'b> {
    keys: HashSet<&'b str>,
    ids: HashSet<String>,
    tenants: HashSet<&'b Tenant>,
    mark_count: usize,
}

impl<'b> OurKeys<'b> {
    pub(super) fn of(ours: &'b [Ours]) -> Self {
        Self {
            keys: ours.iter().map(|our| &*our.wire_key).collect(),
            ids: ours.iter().map(|our| our.record.to_string()).collect(),
            tenants: ours.iter().map(|our| &our.tenant).collect(),
            mark_count: 0,
        }
    }

    /// Returns true if this is exactly a key of ours. One whose message or record is not in our books, or no
    /// longer, is known by its mark, which depends on the tenant and on the rest of the key: a key that was mangled
    /// and kept its end has a mark that does not fit.
    pub(super) fn has(&mut self, key: &str) -> bool {
        if self.keys.contains(key) {
            return true;
        }
        let Some((front, mark)) = key.rsplit_once(':') else { return false };
        if self.ids.contains(front) {
            return true;
        }
        let Some((head, _)) = front.rsplit_once(':') else { return false };
        let Ok(head) = Key::new(head) else { return false };
        if !is_hexadecimal(mark, MARK_DIGITS) {
            return false;
        }
        self.mark_count = self.mark_count.saturating_add(self.tenants.len());
        self.mark_count <= MARKS_MAX
            && self.tenants.iter().any(|tenant| wire_key(front, RecordId::of(tenant, &head)) == key)
    }
}

/// Traces of our keys in keys and ids that are not known to be ours.
#[derive(Debug, Default)]
pub(super) struct Spellings {
    /// The marks of the entries asked about, and those of them that were found.
    wanted: HashSet<u64>,
    found: HashSet<u64>,
    /// The keys, without anything but letters and digits, and their lengths.
    reduced: HashSet<String>,
    lengths: BTreeSet<usize>,
}

impl Spellings {
    /// None yet, of these entries of ours.
    pub(super) fn of<'o>(ours: impl Iterator<Item = &'o Ours>) -> Self {
        Self { wanted: ours.map(|our| mark(our.record)).collect(), ..Self::default() }
    }

    pub(super) fn add_key(&mut self, key: &str) {
        self.add_id(key);
        let reduced = reduced(key);
        // A longer one is not a part of any of ours.
        if !reduced.is_empty() && reduced.len() <= WIRE_KEY_BYTES_MAX {
            self.lengths.insert(reduced.len());
            self.reduced.insert(reduced);
        }
    }

    /// Adds the id of an entry. Ids are often short numbers, so one that is a part of a key says nothing.
    pub(super) fn add_id(&mut self, id: &str) {
        for text in [id, &reduced(id)] {
            self.find_marks(text);
        }
    }

    fn find_marks(&mut self, text: &str) {
        let (mut digits, mut count) = (0_u64, 0_usize);
        for each in text.chars() {
            let Some(digit) = each.to_digit(16) else {
                count = 0;
                continue;
            };
            (digits, count) = ((digits << 4) | u64::from(digit), count + 1);
            if count >= MARK_DIGITS && self.wanted.contains(&digits) {
                self.found.insert(digits);
            }
        }
    }

    /// Returns true if one of these could be the key of `our`: it has its mark in it, or is a part of it.
    pub(super) fn has(&self, our: &Ours) -> bool {
        if self.found.contains(&mark(our.record)) {
            return true;
        }
        let whole = reduced(&our.wire_key);
        let is_piece = |length: &usize| {
            let Some(last) = whole.len().checked_sub(*length) else { return false };
            let last = if *length < PIECE_BYTES_MIN { 0 } else { last };
            (0..=last).any(|begin| self.reduced.contains(&whole[begin..begin + *length]))
        };
        self.lengths.iter().any(is_piece)
    }
}

/// The beginning of the record's id, which every wire key of it has.
fn mark(record: RecordId) -> u64 {
    let id = record.to_string();
    id.get(..MARK_DIGITS).and_then(|mark| u64::from_str_radix(mark, 16).ok()).unwrap_or_default()
}

/// A text in small letters, without anything but letters and digits, and without what escapes of HTML, URLs and JSON
/// put in the place of other characters.
fn reduced(text: &str) -> String {
    let mut reduced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = escape_length(rest).unwrap_or_else(|| {
            if first.is_ascii_alphanumeric() {
                reduced.push(first.to_ascii_lowercase());
            }
            first.len_utf8()
        });
        rest = rest.get(length..).unwrap_or_default();
    }
    reduced
}

/// Length of the escape that `text` begins with, if it does.
fn escape_length(text: &str) -> Option<usize> {
    const ENTITY_BYTES_MAX: usize = 10;
    let bytes = text.as_bytes();
    let are_digits = |range: std::ops::Range<usize>| {
        bytes.get(range).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match (bytes.first()?, bytes.get(1)) {
        (b'%', _) if are_digits(1..3) => Some(3),
        (b'\\', Some(b'u')) if are_digits(2..6) => Some(6),
        (b'\\', Some(b'x')) if are_digits(2..4) => Some(4),
        (b'\\', Some(b'b' | b'f' | b'n' | b'r' | b't')) => Some(2),
        (b'&', _) => {
            let end = bytes.iter().take(ENTITY_BYTES_MAX).position(|byte| *byte == b';')?;
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'#';
            (end > 1 && bytes[1..end].iter().all(is_name)).then_some(end + 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_leave_nothing_of_a_key() {
        for (text, expected) in [
            ("Shop&7:charge", "shop7charge"),
            ("shop&amp;7:charge", "shop7charge"),
            ("shop&#38;7%3Acharge", "shop7charge"),
            (r"shop\u00267\ncharge", "shop7charge"),
            (r#""shop\"7""#, "shop7"),
            ("shop+7 ü", "shop7"),
            ("100%", "100"),
            ("a&b;c", "ac"),
            ("a&;c", "ac"),
            ("a&nothing that ends", "anothingthatends"),
            (r"a\", "a"),
            ("%ü4", "4"),
            ("", ""),
        ] {
            assert_eq!(reduced(text), expected, "{text}");
        }
    }
}
