//! Names what differs between a request and the one its key was first used for.
//!
//! Runs only after a mismatch. The names come from the caller's own request; of the first request
//! nothing is known here but its part digests.

use std::fmt::Write;
use std::ops::ControlFlow;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::digests::{PartKey, PartName, each_part};
use super::fields::Place;
use super::form::Form;
use super::{FingerprintRules, PartDigests};

/// Maximum number of differing parts to name; keeps the problem document small.
pub(super) const NAMES_MAX: usize = 16;

/// Maximum length of a name, in case a client made one long on purpose.
const NAME_BYTES_MAX: usize = 128;

/// Name of the part that holds the service's host and port.
pub(crate) const AUTHORITY: &str = "authority";

/// Name that stands for all parts that the first request had and this one lacks.
pub(crate) const REMOVED: &str = "(removed)";

pub(super) fn differing(
    form: &Form,
    rules: &FingerprintRules,
    key: &PartKey,
    stored: &PartDigests,
) -> Vec<String> {
    if stored.count() == 0 {
        return Vec::new();
    }
    let mut is_explained = vec![false; stored.count()];
    let mut unknown = Vec::new();
    let mut unknown_at = Vec::new();
    let mut last_stored_at = None;
    let mut index = 0;
    let walk = each_part(form, rules, key, |part, digest| {
        if let Some(place) = stored.iter().position(|known| known == digest) {
            is_explained[place] = true;
            if place + 1 == stored.count() {
                last_stored_at = Some(index);
            }
        } else {
            if unknown.len() < NAMES_MAX {
                unknown.push(name(&part, rules));
            }
            unknown_at.push(index);
        }
        index += 1;
        // Past as many unknown parts as can be remembered, looking on changes no answer.
        if unknown_at.len() < PartDigests::COUNT_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    debug_assert_eq!(walk.is_break(), unknown_at.len() == PartDigests::COUNT_MAX);

    // A full set was cut off somewhere, and beyond that a part may be unknown and yet the same.
    let horizon = if stored.count() < PartDigests::COUNT_MAX {
        usize::MAX
    } else {
        last_stored_at.unwrap_or(PartDigests::COUNT_MAX)
    };
    let unknown_count = unknown_at.partition_point(|&at| at < horizon);
    unknown.truncate(unknown_count);
    // A changed part leaves one digest unexplained, a removed one leaves one too many.
    if is_explained.iter().filter(|&&is_explained| !is_explained).count() > unknown_count {
        unknown.push(REMOVED.to_owned());
    }
    unknown
}

fn name(part: &PartName<'_>, rules: &FingerprintRules) -> String {
    let name = match part {
        PartName::Head(0) => "method".to_owned(),
        PartName::Head(1) => AUTHORITY.to_owned(),
        PartName::Head(2) => "path".to_owned(),
        PartName::Head(3) => "query".to_owned(),
        PartName::Head(4) => format!("header:{CONTENT_TYPE}"),
        PartName::Head(5) => format!("header:{CONTENT_ENCODING}"),
        PartName::Head(section) => format!("header:{}", rules.headers[section - 6]),
        // The empty pointer is right for a document that is one scalar, but says nothing.
        PartName::Body | PartName::Leaf([]) => "body".to_owned(),
        PartName::Leaf(path) => pointer(path),
    };
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let end = name.floor_char_boundary(NAME_BYTES_MAX - '…'.len_utf8());
    format!("{}…", &name[..end])
}

fn pointer(path: &[Place<'_>]) -> String {
    let mut pointer = String::new();
    for place in path {
        pointer.push('/');
        match place {
            Place::Index(index) => {
                write!(pointer, "{index}").expect("a string takes any text");
            }
            Place::Name(name) => {
                // One byte past the limit is enough to see that it was passed.
                let name = &name[..name.len().min(NAME_BYTES_MAX + 1)];
                for character in String::from_utf8_lossy(name).chars() {
                    match character {
                        '~' => pointer.push_str("~0"),
                        '/' => pointer.push_str("~1"),
                        _ => pointer.push(character),
                    }
                }
            }
        }
        if pointer.len() > NAME_BYTES_MAX {
            break;
        }
    }
    pointer
}
