//! JSON pointers (RFC 6901), as rules name the fields of a body.

use std::fmt;
use std::str::FromStr;

/// A place in a JSON document, such as `/items/0/price`.
///
/// The empty pointer is the whole document. A step that reads as an index matches the element of an
/// array as well as a member of that name; `-`, the place after the last element, matches nothing
/// in an array.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pointer {
    text: Box<str>,
    steps: Box<[Step]>,
}

/// Reason why a text is not a JSON pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointerError {
    /// It is not empty and does not begin with a slash.
    NoSlash,
    /// A tilde that is not followed by `0` or `1`.
    BadEscape,
}

/// One step of a pointer, decoded.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) name: Box<str>,
    /// The element it names in an array, if it can.
    pub(super) index: Option<usize>,
}

impl Pointer {
    /// Reads a pointer as RFC 6901 writes it: `~0` for a tilde and `~1` for a slash in a name.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        let mut steps = Vec::new();
        if !text.is_empty() {
            let names = text.strip_prefix('/').ok_or(PointerError::NoSlash)?;
            for name in names.split('/') {
                steps.push(Step::parse(name)?);
            }
        }
        Ok(Self { text: text.into(), steps: steps.into() })
    }

    /// The pointer as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl Step {
    fn parse(escaped: &str) -> Result<Self, PointerError> {
        let mut name = String::with_capacity(escaped.len());
        let mut characters = escaped.chars();
        while let Some(character) = characters.next() {
            name.push(match character {
                '~' => match characters.next() {
                    Some('0') => '~',
                    Some('1') => '/',
                    _ => return Err(PointerError::BadEscape),
                },
                _ => character,
            });
        }
        // `01` and `+1` are names: an index has one spelling only.
        let is_index = name == "0"
            || (name.starts_with(|first: char| matches!(first, '1'..='9'))
                && name.bytes().all(|byte| byte.is_ascii_digit()));
        let index = if is_index { name.parse().ok() } else { None };
        Ok(Self { name: name.into(), index })
    }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Self, PointerError> {
        Self::parse(text)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pointer({:?})", self.text)
    }
}

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a JSON pointer is empty or begins with a slash",
            Self::BadEscape => "in a JSON pointer a tilde is followed by 0 or 1",
        })
    }
}

impl std::error::Error for PointerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_read_step_by_step() {
        for (text, names) in [
            ("", &[][..]),
            ("/", &[""]),
            ("/a", &["a"]),
            ("/a/b", &["a", "b"]),
            ("/a//b/", &["a", "", "b", ""]),
            ("/a~1b/m~0n", &["a/b", "m~n"]),
            ("/~01", &["~1"]),
            ("/0/é/ \"\\", &["0", "é", " \"\\"]),
        ] {
            let pointer = Pointer::parse(text).unwrap();
            let found: Vec<_> = pointer.steps().iter().map(|step| &*step.name).collect();
            assert_eq!(found, names, "{text}");
            assert_eq!(pointer.to_string(), text);
        }
    }

    #[test]
    fn an_index_has_one_spelling() {
        for (text, index) in [
            ("/0", Some(0)),
            ("/7", Some(7)),
            ("/120", Some(120)),
            ("/00", None),
            ("/01", None),
            ("/-1", None),
            ("/+1", None),
            ("/-", None),
            ("/1e1", None),
            ("/", None),
            ("/99999999999999999999", None),
        ] {
            assert_eq!(Pointer::parse(text).unwrap().steps()[0].index, index, "{text}");
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for (text, error) in [
            ("a", PointerError::NoSlash),
            ("#/a", PointerError::NoSlash),
            (" /a", PointerError::NoSlash),
            ("/~", PointerError::BadEscape),
            ("/a~", PointerError::BadEscape),
            ("/a~2", PointerError::BadEscape),
            ("/~/0", PointerError::BadEscape),
        ] {
            assert_eq!(Pointer::parse(text), Err(error), "{text}");
        }
    }
}
