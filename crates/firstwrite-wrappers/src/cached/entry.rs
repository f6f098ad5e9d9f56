//! One completed record in Redis: its own format, with its own version. Entries of another version are
//! ignored, so the format may change.
//!
//! ```text
//! 1 byte    version
//! 32 bytes  SHA-256 of a label, the scope, the record's id and the rest
//! the rest  the record
//! ```

use firstwrite_core::codec::hex;
use firstwrite_core::encoding::{
    Reader, decode_fingerprint, decode_outcome, encode_fingerprint, encode_outcome, put_bytes,
    retention_numbers, retention_of,
};
use firstwrite_core::{
    BodyForm, Fence, Key, OnLostAnswer, Record, RecordId, State, Tenant, Timestamp,
};
use sha2::{Digest, Sha256};

/// Also in the key, so that builds of different versions use entries of their own.
const VERSION: u8 = 1;

/// Placeholder for an entry that may not be written for a while. It is no entry: it has no version.
pub(super) const BAR: &[u8] = b"-";

const LABEL: &[u8] = b"firstwrite cached record";

const DIGEST_BYTES: usize = 32;

/// Identity of an entry: its database and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) scope: [u8; 16],
    pub(super) id: RecordId,
}

impl Place {
    pub(super) fn key(&self) -> String {
        format!("firstwrite:c{VERSION}:{}:{}", hex::encode(&self.scope), self.id)
    }

    fn digest(&self, rest: &[u8]) -> [u8; DIGEST_BYTES] {
        let mut hash = Sha256::new();
        hash.update(LABEL);
        hash.update([VERSION]);
        hash.update(self.scope);
        hash.update(self.id.as_bytes());
        hash.update(rest);
        hash.finalize().into()
    }
}

/// A completed record; anything else has no form here and decodes to nothing.
pub(super) fn encode(place: &Place, record: &Record) -> Vec<u8> {
    let mut rest = Vec::with_capacity(512);
    for text in [record.tenant.as_str(), record.key.as_str(), &record.operation] {
        put_bytes(&mut rest, text.as_bytes());
    }
    rest.push(record.fingerprint.version());
    rest.push(match record.fingerprint.form() {
        BodyForm::Canonical => 0,
        BodyForm::Raw => 1,
    });
    put_bytes(&mut rest, &encode_fingerprint(&record.fingerprint));
    rest.extend_from_slice(&record.fence.as_u64().to_be_bytes());
    rest.extend_from_slice(&record.on_lost_answer.to_number().to_be_bytes());
    rest.extend_from_slice(&record.created_at.as_millis().to_be_bytes());
    for number in retention_numbers(record.retention) {
        rest.extend_from_slice(&number.to_be_bytes());
    }
    if let State::Completed { outcome, retained_until, kept_until } = &record.state {
        rest.extend_from_slice(&retained_until.as_millis().to_be_bytes());
        rest.extend_from_slice(&kept_until.as_millis().to_be_bytes());
        rest.extend_from_slice(&encode_outcome(outcome));
    }
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&place.digest(&rest));
    bytes.extend_from_slice(&rest);
    bytes
}

/// Decodes the record, if the bytes are intact and in their place.
pub(super) fn decode(place: &Place, bytes: &[u8]) -> Option<Record> {
    let (&[VERSION], bytes) = bytes.split_first_chunk()? else { return None };
    let (digest, rest) = bytes.split_first_chunk::<DIGEST_BYTES>()?;
    if *digest != place.digest(rest) {
        return None;
    }
    let mut rest = Reader(rest);
    let mut text = || std::str::from_utf8(rest.bytes().ok()?).ok();
    let (tenant, key, operation) = (Tenant::new(text()?).ok()?, Key::new(text()?).ok()?, text()?);
    let version = rest.byte().ok()?;
    let form = match rest.byte().ok()? {
        0 => BodyForm::Canonical,
        1 => BodyForm::Raw,
        _ => return None,
    };
    let fingerprint = decode_fingerprint(version, form, rest.bytes().ok()?).ok()?;
    let fence = Fence::from_u64(u64::from_be_bytes(rest.array().ok()?));
    let number = u32::from_be_bytes(rest.array().ok()?);
    let on_lost_answer = OnLostAnswer::from_number(number.into())?;
    let mut number = || Some(i64::from_be_bytes(rest.array().ok()?));
    let created_at = Timestamp::from_millis(number()?);
    let retention = retention_of([number()?, number()?, number()?]);
    let [retained_until, kept_until] = [number()?, number()?].map(Timestamp::from_millis);
    let outcome = decode_outcome(rest.0).ok()?;
    // The id covers tenant and key: even with other faults, a tenant does not get another's answer.
    let id = RecordId::of(&tenant, &key);
    (id == place.id).then(|| Record {
        id,
        tenant,
        key,
        operation: operation.into(),
        fingerprint,
        fence,
        on_lost_answer,
        retention,
        created_at,
        state: State::Completed { outcome, retained_until, kept_until },
    })
}

#[cfg(test)]
mod tests {
    use firstwrite_core::Policy;
    use firstwrite_testkit::sample;

    use super::*;

    fn record(key: &str) -> Record {
        let request = sample::request(&sample::tenant("acme"), &sample::key(key), 1);
        let outcome = sample::outcome(201, "made");
        let draft = sample::completed(&request, &Policy::default(), Fence::first(7), outcome);
        Record::from_draft(&draft, Timestamp::from_millis(1_700_000_000_000))
    }

    fn place(record: &Record) -> Place {
        Place { scope: [7; 16], id: record.id }
    }

    #[test]
    fn a_record_survives_and_stays_in_its_place() {
        let (one, other) = (record("one"), record("other"));
        let bytes = encode(&place(&one), &one);
        assert_eq!(decode(&place(&one), &bytes).as_ref(), Some(&one));
        assert_eq!(decode(&place(&other), &bytes), None, "another record's");
        let elsewhere = Place { scope: [8; 16], ..place(&one) };
        assert_eq!(decode(&elsewhere, &bytes), None, "another database's");
        assert_ne!(elsewhere.key(), place(&one).key());
        // Written on purpose under another's id: it is still not that one's record.
        let planted = encode(&place(&other), &one);
        assert_eq!(decode(&place(&other), &planted), None);
    }

    #[test]
    fn what_is_damaged_cut_or_of_another_version_is_nothing() {
        let one = record("one");
        let bytes = encode(&place(&one), &one);
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert_eq!(decode(&place(&one), &damaged), None, "bit {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(&place(&one), &bytes[..length]), None, "cut to {length}");
        }
    }
}
