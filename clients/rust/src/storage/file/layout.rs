//! Names and first lines of the files.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::{StorageErrorKind, Stored};

const ENDING: &str = ".intent";
const BESIDE: &str = ".tmp";
/// So much of a name is readable in that of its file.
const READABLE_MAX: usize = 60;

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    /// The version of this layout.
    firstwrite_intent: u32,
    name: String,
    revision: u64,
    bytes: usize,
}

/// The part of it that every version has.
#[derive(Debug, Deserialize)]
struct Version {
    firstwrite_intent: u32,
}

const VERSION: u32 = 1;

/// The name of an intent's file: what people can read of it, and a digest, since names hold anything.
pub(super) fn file_name(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let readable = name.chars().map(|c| if is_plain(c) { c } else { '-' });
    let mut file: String = readable.take(READABLE_MAX).collect();
    file.push('-');
    for byte in &Sha256::digest(name.as_bytes())[..16] {
        file.extend(format!("{byte:02x}").chars());
    }
    file + ENDING
}

pub(super) fn beside(file: &str) -> String {
    format!("{file}{BESIDE}")
}

pub(super) fn is_entry(file: &str) -> bool {
    file.ends_with(ENDING)
}

pub(super) fn is_beside(file: &str) -> bool {
    file.strip_suffix(BESIDE).is_some_and(is_entry)
}

pub(super) fn head(entry: &Stored) -> String {
    let head = Head {
        firstwrite_intent: VERSION,
        name: entry.name.clone(),
        revision: entry.revision,
        bytes: entry.document.len(),
    };
    serde_json::to_string(&head).expect("texts and numbers can be written as JSON") + "\n"
}

/// Reads a whole file; says what is wrong with one that cannot be read.
pub(super) fn read(bytes: Vec<u8>) -> Result<Stored, StorageErrorKind> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(StorageErrorKind::Damaged)?;
    let Version { firstwrite_intent } = parse(&bytes[..end])?;
    if firstwrite_intent != VERSION {
        return Err(StorageErrorKind::Unsupported);
    }
    let Head { name, revision, bytes: length, .. } = parse(&bytes[..end])?;
    let document = Bytes::from(bytes).slice(end + 1..);
    if document.len() != length {
        return Err(StorageErrorKind::Damaged);
    }
    Ok(Stored { name, revision, document })
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, StorageErrorKind> {
    serde_json::from_slice(line).ok().ok_or(StorageErrorKind::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_file_of_its_own_that_a_file_system_takes() {
        let names = ["a/b", "a-b", "a b", "..", "", "größe", &"x".repeat(255), &"x".repeat(254)];
        let mut files: Vec<String> = names.iter().map(|name| file_name(name)).collect();
        for file in &files {
            assert!(file.len() < 128 && file.is_ascii() && !file.contains('/'), "{file}");
            assert!(is_entry(file) && !is_beside(file) && is_beside(&beside(file)));
        }
        files.sort();
        files.dedup();
        assert_eq!(files.len(), names.len());
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_nothing_else_is() {
        let entry = Stored { name: "a\"b".to_owned(), revision: 7, document: Bytes::from("x\ny") };
        let whole = [head(&entry).as_bytes(), &entry.document].concat();
        assert_eq!(read(whole.clone()), Ok(entry));
        for length in 0..whole.len() {
            assert_eq!(read(whole[..length].to_vec()), Err(StorageErrorKind::Damaged), "{length}");
        }
        let later = b"{\"firstwrite_intent\":2}\n".to_vec();
        assert_eq!(read(later), Err(StorageErrorKind::Unsupported));
    }
}
