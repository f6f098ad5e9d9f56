//! The user's body in other words: another request, or the same one spelled otherwise.

use serde_json::Value;

/// The body as JSON, and the place whose value makes it another request.
#[derive(Clone, Debug)]
pub(crate) struct Json {
    value: Value,
    /// A JSON pointer to a number, a text or a truth value.
    place: String,
}

/// A way to serialize a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    Plain,
    /// Members backwards, on every level.
    Reordered,
    /// A member, a line.
    Spaced,
}

/// The first integer that a float does not hold, and what the float makes of it.
pub(crate) const BIG: [&str; 2] = ["9007199254740993", "9007199254740992"];

/// Stands for a text that JSON values cannot hold, until they are written.
const HOLE: &str = "firstwrite-verify-hole";
const EXTRA_MEMBER: &str = "firstwrite_verify";

impl Json {
    /// Reads the body; `place` is the user's choice of what to vary.
    pub(crate) fn parse(body: &[u8], place: Option<&str>) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the body is no JSON: {error}"))?;
        let place = match place {
            Some(place) => place.to_owned(),
            None => {
                first_place(&value, "").ok_or("the body holds no value that could be varied")?
            }
        };
        let found = value.pointer(&place);
        if found.and_then(varied).is_none() {
            return Err(format!(
                "there is no number, text or truth value at `{place}` of the body"
            ));
        }
        Ok(Self { value, place })
    }

    /// Another request: the number is one larger, the text one letter longer.
    pub(crate) fn other(&self) -> Vec<u8> {
        self.with(|found| *found = varied(found).unwrap_or(Value::Null)).into_bytes()
    }

    pub(crate) fn spelled(&self, spelling: Spelling) -> Vec<u8> {
        let mut text = String::new();
        write(&self.value, spelling, &mut text);
        text.into_bytes()
    }

    /// Two orders of members; with a member of the checker's own where there is but one.
    pub(crate) fn reordered(&self) -> [Vec<u8>; 2] {
        let mut wide = self.clone();
        if let Some(members) = wide.value.as_object_mut().filter(|members| members.len() == 1) {
            members.insert(EXTRA_MEMBER.to_owned(), Value::from(0));
        }
        [wide.spelled(Spelling::Plain), wide.spelled(Spelling::Reordered)]
    }

    /// The same number written in two ways, if the varied value is a whole number.
    pub(crate) fn number_spelled(&self) -> Option<[Vec<u8>; 2]> {
        let number = self.value.pointer(&self.place)?.as_i64()?;
        Some([number.to_string(), format!("{number}.0")].map(|text| self.with_raw(&text)))
    }

    /// A body in which a top-level member stands twice, with two values: readers that let the last win
    /// take it for the plain one.
    pub(crate) fn duplicated(&self) -> Option<Vec<u8>> {
        let plain = String::from_utf8(self.spelled(Spelling::Plain)).ok()?;
        let name = self.place.strip_prefix('/')?.split('/').next()?;
        let name = name.replace("~1", "/").replace("~0", "~");
        let member = self.value.as_object()?.get(&name)?;
        let other = varied(member).unwrap_or(Value::Null);
        let rest = plain.strip_prefix('{')?;
        Some(format!("{{{}:{other},{rest}", Value::from(name)).into_bytes())
    }

    /// Two requests that differ only in an integer that floats merge: in a member of the checker's own,
    /// or in the varied one.
    pub(crate) fn big_numbers(&self) -> Vec<[Vec<u8>; 2]> {
        let mut pairs = Vec::new();
        if self.value.is_object() {
            let mut extended = self.clone();
            if let Some(members) = extended.value.as_object_mut() {
                members.insert(EXTRA_MEMBER.to_owned(), Value::from(0));
            }
            extended.place = format!("/{EXTRA_MEMBER}");
            pairs.push(BIG.map(|big| extended.with_raw(big)));
        }
        if self.value.pointer(&self.place).is_some_and(Value::is_number) {
            pairs.push(BIG.map(|big| self.with_raw(big)));
        }
        pairs
    }

    fn with_raw(&self, raw: &str) -> Vec<u8> {
        let text = self.with(|found| *found = Value::from(HOLE));
        text.replacen(&format!("\"{HOLE}\""), raw, 1).into_bytes()
    }

    fn with(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut value = self.value.clone();
        if let Some(found) = value.pointer_mut(&self.place) {
            change(found);
        }
        value.to_string()
    }
}

/// A value of the same kind that is another one.
fn varied(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(value) => Some(Value::from(!value)),
        Value::Number(number) => Some(match number.as_i64() {
            Some(whole) => Value::from(whole.checked_add(1).unwrap_or(whole - 1)),
            None => Value::from(number.as_f64()? + 1.0),
        }),
        Value::String(text) => Some(Value::from(format!("{text}x"))),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Numbers first: APIs check texts more often than amounts.
fn first_place(value: &Value, at: &str) -> Option<String> {
    let mut places = Vec::new();
    collect(value, at, &mut places);
    let number = places.iter().find(|(_, is_number)| *is_number);
    number.or_else(|| places.first()).map(|(place, _)| place.clone())
}

fn collect(value: &Value, at: &str, places: &mut Vec<(String, bool)>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(member, &format!("{at}/{name}"), places);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{at}/{index}"), places);
            }
        }
        Value::Number(_) => places.push((at.to_owned(), true)),
        Value::String(_) | Value::Bool(_) => places.push((at.to_owned(), false)),
        Value::Null => {}
    }
}

fn write(value: &Value, spelling: Spelling, text: &mut String) {
    let gap = if spelling == Spelling::Spaced { "\n  " } else { "" };
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if spelling == Spelling::Reordered {
                members.reverse();
            }
            text.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                for part in [comma, gap, &Value::from(name.as_str()).to_string(), ":", gap] {
                    text.push_str(part);
                }
                write(member, spelling, text);
            }
            text.push_str(gap);
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { gap } else { "," });
                write(item, spelling, text);
            }
            text.push_str(gap);
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(body: &str, place: Option<&str>) -> Json {
        Json::parse(body.as_bytes(), place).unwrap()
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_first_number_is_varied_unless_the_user_names_a_place() {
        let body = r#"{"a":"x","b":{"c":[true,5]}}"#;
        assert_eq!(text(json(body, None).other()), r#"{"a":"x","b":{"c":[true,6]}}"#);
        assert_eq!(text(json(body, Some("/a")).other()), r#"{"a":"xx","b":{"c":[true,5]}}"#);
        assert_eq!(text(json(body, Some("/b/c/0")).other()), r#"{"a":"x","b":{"c":[false,5]}}"#);
    }

    #[test]
    fn spellings_mean_the_same() {
        let json = json(r#"{"a":1,"b":[2,{"c":3,"d":4}]}"#, None);
        assert_eq!(text(json.spelled(Spelling::Reordered)), r#"{"b":[2,{"d":4,"c":3}],"a":1}"#);
        for spelling in [Spelling::Plain, Spelling::Reordered, Spelling::Spaced] {
            let read: Value = serde_json::from_slice(&json.spelled(spelling)).unwrap();
            assert_eq!(read, json.value, "{spelling:?}");
        }
        assert!(text(json.spelled(Spelling::Spaced)).contains('\n'));
        let [plain, pointed] = json.number_spelled().unwrap().map(text);
        assert_eq!(plain, r#"{"a":1,"b":[2,{"c":3,"d":4}]}"#);
        assert_eq!(pointed, r#"{"a":1.0,"b":[2,{"c":3,"d":4}]}"#);
    }

    #[test]
    fn traps_are_set() {
        let json = json(r#"{"amount":1,"to":"x"}"#, None);
        assert_eq!(text(json.duplicated().unwrap()), r#"{"amount":2,"amount":1,"to":"x"}"#);
        let pairs = json.big_numbers();
        assert_eq!(
            text(pairs[0][0].clone()),
            r#"{"amount":1,"firstwrite_verify":9007199254740993,"to":"x"}"#
        );
        assert_eq!(text(pairs[1][1].clone()), r#"{"amount":9007199254740992,"to":"x"}"#);
    }

    #[test]
    fn what_cannot_be_varied_is_said() {
        for (body, place, word) in [
            ("x", None, "no JSON"),
            ("{}", None, "no value that could be varied"),
            (r#"{"a":null}"#, None, "no value"),
            (r#"{"a":1}"#, Some("/b"), "`/b`"),
            (r#"{"a":[1]}"#, Some("/a"), "`/a`"),
        ] {
            let error = Json::parse(body.as_bytes(), place).unwrap_err();
            assert!(error.contains(word), "{body}: {error}");
        }
    }
}
