//! Encodes a key for a column: a blob of 16 bytes for a canonical UUID, text otherwise.

use firstwrite_core::Key;
use firstwrite_core::encoding::{Unreadable, pack_uuid, unpack_uuid};
use rusqlite::types::{Value, ValueRef};

pub(super) fn encode_key(key: &Key) -> Value {
    match pack_uuid(key.as_str()) {
        Some(bytes) => Value::Blob(bytes.to_vec()),
        None => Value::Text(key.as_str().to_owned()),
    }
}

pub(super) fn decode_key(value: ValueRef<'_>) -> Result<Key, Unreadable> {
    let unreadable = Unreadable("a key is neither 16 bytes nor visible text");
    match value {
        ValueRef::Blob(bytes) => {
            let bytes: [u8; 16] = bytes.try_into().map_err(|_wrong_length| unreadable)?;
            Key::new(&unpack_uuid(bytes)).map_err(|_impossible| unreadable)
        }
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text).map_err(|_not_text| unreadable)?;
            Key::new(text).map_err(|_not_a_key| unreadable)
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Err(unreadable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_uuids_are_packed_and_every_key_comes_back() {
        for (text, packed) in [
            ("8e03978e-40d5-43e8-bc93-6894a57f9324", true),
            ("00000000-0000-0000-0000-000000000000", true),
            ("8E03978e-40d5-43e8-bc93-6894a57f9324", false),
            ("8e03978e-40d5-43e8-bc93-6894a57f932g", false),
            ("8e03978e040d5-43e8-bc93-6894a57f9324", false),
            ("8e03978e-40d5-43e8-bc93-6894a57f932-", false),
            ("8e03978e40d543e8bc936894a57f9324", false),
            ("order-1", false),
            ("a-sixteen-byte-k", false),
        ] {
            let key = Key::new(text).unwrap();
            let value = encode_key(&key);
            assert_eq!(matches!(value, Value::Blob(_)), packed, "{text}");
            assert_eq!(decode_key((&value).into()), Ok(key));
        }
    }

    #[test]
    fn what_cannot_be_a_key_is_refused() {
        for value in [
            Value::Null,
            Value::Integer(7),
            Value::Real(0.5),
            Value::Blob(vec![0; 15]),
            Value::Blob(vec![0; 17]),
            Value::Text(String::new()),
            Value::Text("a b".to_owned()),
        ] {
            assert!(decode_key((&value).into()).is_err(), "{value:?}");
        }
        assert!(decode_key(ValueRef::Text(b"\xff")).is_err());
    }
}
