//! JSON as it was written: numbers are taken by their text, never through a float.

use std::borrow::Cow;
use std::collections::BTreeMap;

use firstwrite_core::Pointer;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A member's name, borrowed where nothing in it is escaped.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'j>(#[serde(borrow)] Cow<'j, str>);

/// The value that `pointer` leads to, as it was written.
pub(super) fn value_at<'j>(json: &'j RawValue, pointer: &Pointer) -> Option<&'j RawValue> {
    let mut value = json;
    let Some(names) = pointer.as_str().strip_prefix('/') else { return Some(value) };
    for name in names.split('/') {
        let name = name.replace("~1", "/").replace("~0", "~");
        value = match value.get().as_bytes().first()? {
            b'{' => {
                let members: BTreeMap<Name<'j>, &'j RawValue> =
                    serde_json::from_str(value.get()).ok()?;
                members.get(&Name(Cow::Owned(name))).copied()?
            }
            b'[' => {
                let is_index = name == "0" || !name.starts_with(['0', '+']);
                let index: usize = name.parse().ok().filter(|_| is_index)?;
                *elements(value)?.get(index)?
            }
            _ => return None,
        };
    }
    Some(value)
}

/// The elements of an array.
pub(super) fn elements(json: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(json.get()).ok()
}

/// A text or a number as text; an empty text for null.
pub(super) fn text(json: &RawValue) -> Option<Cow<'_, str>> {
    let written = json.get();
    match written.as_bytes().first()? {
        b'"' => serde_json::from_str::<Name<'_>>(written).ok().map(|Name(text)| text),
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(written)),
        b'n' => Some(Cow::Borrowed("")),
        _ => None,
    }
}

/// Returns the value at `pointer` in `json`, as text. `Err` if it is neither text nor number.
pub(super) fn text_at<'j>(
    json: &'j RawValue,
    pointer: Option<&Pointer>,
) -> Result<Option<Cow<'j, str>>, ()> {
    match pointer.and_then(|pointer| value_at(json, pointer)) {
        Some(value) => text(value).map(Some).ok_or(()),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(json: &str, pointer: &str) -> Option<String> {
        let json: &RawValue = serde_json::from_str(json).unwrap();
        let value = value_at(json, &pointer.parse().unwrap())?;
        text(value).map(Cow::into_owned)
    }

    #[test]
    fn numbers_are_taken_as_they_were_written() {
        for number in ["12.10", "0.1000000000000000055", "9007199254740993", "1e400", "-5"] {
            assert_eq!(at(&format!("{{\"a\":{number}}}"), "/a").as_deref(), Some(number));
        }
    }

    #[test]
    fn pointers_lead_through_objects_and_arrays() {
        let json =
            r#" { "a": { "b/c": [1, {"m~n": "x"}] }, "\u0061b": "y", "n": null, "t": true } "#;
        for (pointer, found) in [
            ("/a/b~1c/0", Some("1")),
            ("/a/b~1c/1/m~0n", Some("x")),
            ("/ab", Some("y")),
            ("/n", Some("")),
            ("/t", None),
            ("/a", None),
            ("/a/b~1c/01", None),
            ("/a/b~1c/2", None),
            ("/a/b~1c/-", None),
            ("/ab/c", None),
            ("/none", None),
        ] {
            assert_eq!(at(json, pointer).as_deref(), found, "{pointer}");
        }
    }
}
