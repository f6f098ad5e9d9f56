//! JSON with sorted members, so that the same value is the same body after a restart.

use serde::Serialize;
use serde_json::{Error, Value};

/// Writes a value without blanks, the members of its objects in the order of their names.
pub(super) fn write(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, Error> {
    let value = serde_json::to_value(value)?;
    let mut out = Vec::new();
    append(&value, &mut out)?;
    Ok(out)
}

/// Not by the map of `serde_json`, which another crate's feature puts into the order of insertion.
fn append(value: &Value, out: &mut Vec<u8>) -> Result<(), Error> {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            out.push(b'{');
            for (at, (name, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                serde_json::to_writer(&mut *out, name)?;
                out.push(b':');
                append(value, out)?;
            }
            out.push(b'}');
        }
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                append(item, out)?;
            }
            out.push(b']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            serde_json::to_writer(out, value)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn members_are_sorted_at_every_depth_and_everything_else_stays() {
        let text = r#"{"z":[1,{"b":null,"a":"\"ü\n"}],"a":18446744073709551615,"B":1.5}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        let written = String::from_utf8(write(&value).unwrap()).unwrap();
        assert_eq!(written, r#"{"B":1.5,"a":18446744073709551615,"z":[1,{"a":"\"ü\n","b":null}]}"#);
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value);
    }

    #[test]
    fn a_map_without_an_order_is_written_alike_every_time() {
        let map: HashMap<String, u32> = (0..100).map(|n| (format!("k{n}"), n)).collect();
        let other: HashMap<String, u32> = (0..100).rev().map(|n| (format!("k{n}"), n)).collect();
        assert_eq!(write(&map).unwrap(), write(&other).unwrap());
    }
}
