//! Wire keys: what a destination knows a message by, or the call of a handler.

use crate::{Key, Message, MessageError, RecordId};

/// Longest key that most destinations accept; also our own limit for clients.
pub(crate) const WIRE_KEY_BYTES_MAX: usize = 255;

/// The key that goes over the wire: the derived key and a mark of whose it is.
///
/// Tenants choose their keys apart from each other, and often alike (`order-1`), but may share one
/// account at the destination. Without the mark the second tenant's payment would be taken for
/// a repetition of the first's. A key that would be too long is given by the record's id.
pub fn wire_key(derived_key: &str, record: RecordId) -> String {
    let id = record.to_string();
    let mark = id.get(..16).unwrap_or(&id);
    let key = format!("{derived_key}:{mark}");
    if key.len() <= WIRE_KEY_BYTES_MAX {
        return key;
    }
    let step = derived_key.rsplit(':').next().unwrap_or_default();
    format!("{id}:{step}")
}

/// Returns the [wire key](wire_key) of one step of a request, for handlers that call a destination
/// themselves instead of writing a message. With it, the destination recognises a repetition, and a
/// reconciliation finds what the handler did even if it is unknown how the handler ended. `record` is the
/// record under `key`.
pub fn wire_key_of(record: RecordId, key: &Key, step: &str) -> Result<String, MessageError> {
    if !Message::is_name(step) {
        return Err(MessageError::step());
    }
    Ok(wire_key(&format!("{}:{step}", key.as_str()), record))
}

/// Returns true if `text` has the form of a wire key. Anything else was not sent by this system.
pub fn is_wire_key(text: &str) -> bool {
    let Some((front, back)) = text.rsplit_once(':') else { return false };
    let is_derived_key = |text: &str| {
        text.rsplit_once(':').is_some_and(|(key, step)| !key.is_empty() && Message::is_name(step))
    };
    (is_hexadecimal(back, 16) && is_derived_key(front))
        || (is_hexadecimal(front, 32) && Message::is_name(back))
}

/// Returns true if `text` is a number of this many hexadecimal digits, as ids are written.
pub(crate) fn is_hexadecimal(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tenant;

    fn of(key: &str, step: &str) -> Result<String, MessageError> {
        let key = Key::new(key).unwrap();
        wire_key_of(RecordId::of(&Tenant::new("acme").unwrap(), &key), &key, step)
    }

    fn wire(tenant: &str, key: &str, step: &str) -> String {
        let (tenant, key) = (Tenant::new(tenant).unwrap(), Key::new(key).unwrap());
        wire_key_of(RecordId::of(&tenant, &key), &key, step).unwrap()
    }

    #[test]
    fn two_tenants_with_one_key_are_told_apart_at_the_destination() {
        // Part of what destinations store: it must never change.
        assert_eq!(wire("acme", "order-1", "charge"), "order-1:charge:ef56e51bcb051fa4");
        assert_ne!(wire("acme", "order-1", "charge"), wire("other", "order-1", "charge"));
    }

    #[test]
    fn a_long_key_is_sent_as_the_records_id() {
        let key = "k".repeat(255);
        let long = wire("acme", &key, "charge");
        assert!(long.len() <= WIRE_KEY_BYTES_MAX && long.ends_with(":charge"), "{long}");
        assert_ne!(long, wire("acme", &key, "refund"));
        assert_ne!(long, wire("other", &key, "charge"));
    }

    #[test]
    fn a_handler_gives_the_key_that_a_message_would() {
        assert_eq!(of("order-1", "charge").unwrap(), "order-1:charge:ef56e51bcb051fa4");
        assert!(of("order-1", "a:b").is_err());
    }

    #[test]
    fn a_wire_key_is_told_from_a_strangers() {
        for key in ["order-1", "a:b:c", &"k".repeat(255)] {
            assert!(is_wire_key(&of(key, "charge").unwrap()), "{key}");
        }
        for text in [
            "",
            "order-1",
            "order-1:charge",
            "order-1:ef56e51bcb051fa4",
            ":charge:ef56e51bcb051fa4",
            "order-1:charge:EF56E51BCB051FA4",
            "ef56e51bcb051fa4a8c4edd56ee44b45:",
        ] {
            assert!(!is_wire_key(text), "{text}");
        }
    }
}
