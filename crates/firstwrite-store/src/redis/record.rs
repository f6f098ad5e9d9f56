//! A record as one value. A stored format: it may be extended under a new version and never changed.
//!
//! ```text
//! 1 byte      version, `1`
//! 1 byte      state: `r`eserved, `c`ompleted, `u`ncertain
//! 16 digits   fence, hexadecimal
//! 16 digits   created, in milliseconds
//! 16 digits   due: the lease's end, or until when a completed record is kept; all nines for never
//! 16 digits   until when an outcome is replayed, or since when the record is uncertain
//! 8 digits    length of what follows, hexadecimal
//! the request tenant, key, operation, what a lost answer means, fingerprint, retention
//! the rest    the outcome, as everywhere
//! ```
//!
//! The scripts read and write the head; the rest they pass on.

use std::time::Duration;

use firstwrite_core::encoding::{
    Reader, decode_fingerprint, decode_outcome, encode_fingerprint, encode_outcome, lost_answer_of,
    put_bytes, retention_numbers, retention_of, tenant_of,
};
use firstwrite_core::{
    AuditEntry, Audited, BodyForm, Draft, DraftState, Fence, Key, Lease, Outcome, Record, RecordId,
    Retention, State, StateKind, StoreError, Tenant, Timestamp, Usage,
};

use super::driver_error::corrupt;

const VERSION: u8 = b'1';
const HEAD_BYTES: usize = 74;
const NEVER: &str = "9999999999999999";
/// Exclusive upper bound of instants in milliseconds: those beyond have more digits than there is room for.
const MILLIS_MAX: u128 = 1_000_000_000_000_000;

/// The head, and a tenant of the greatest length: all that counting needs.
pub(super) const COUNTED_BYTES: usize = HEAD_BYTES + 2 + Tenant::BYTES_MAX;

/// Arguments of a script for a state that begins now.
#[derive(Debug)]
pub(super) struct NewState {
    pub(super) state: &'static str,
    pub(super) first: String,
    pub(super) second: String,
    pub(super) outcome: Vec<u8>,
}

/// The head of a record, as a script left it, and what follows.
struct Head<'a> {
    state: u8,
    fence: Fence,
    created_at: Timestamp,
    due: Timestamp,
    retained_until: Timestamp,
    /// Length of the request at the start of the rest.
    request_bytes: usize,
    rest: &'a [u8],
}

impl NewState {
    pub(super) fn of(draft: &DraftState, retention: Retention) -> Self {
        match draft {
            DraftState::Reserved { lease_for, asked_ago } => Self {
                state: "r",
                first: millis(*lease_for),
                second: asked_ago.as_millis().to_string(),
                outcome: Vec::new(),
            },
            DraftState::Completed { outcome } => Self::completed(outcome, retention),
        }
    }

    pub(super) fn completed(outcome: &Outcome, retention: Retention) -> Self {
        let (first, second) = if outcome.is_interim {
            // It stands until it is replaced.
            ("never".to_owned(), "never".to_owned())
        } else {
            (millis(retention.replay_for), millis(retention.linger_for))
        };
        Self { state: "c", first, second, outcome: encode_outcome(outcome) }
    }
}

/// The letter of a state.
pub(super) fn letter(state: StateKind) -> &'static str {
    match state {
        StateKind::Reserved => "r",
        StateKind::Completed => "c",
        StateKind::Uncertain => "u",
    }
}

pub(super) fn fence_digits(fence: Fence) -> String {
    format!("{:016x}", fence.as_u64())
}

pub(super) fn instant_digits(at: Timestamp) -> String {
    if at == Timestamp::NEVER { NEVER.to_owned() } else { format!("{:016}", at.as_millis()) }
}

pub(super) fn millis(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis >= MILLIS_MAX { "never".to_owned() } else { millis.to_string() }
}

/// Encodes what follows the deadlines in the value for `draft`.
pub(super) fn tail(draft: &Draft, outcome: &[u8]) -> Vec<u8> {
    let mut request = Vec::with_capacity(256);
    for text in [draft.tenant.as_str(), draft.key.as_str(), &draft.operation] {
        put_bytes(&mut request, text.as_bytes());
    }
    request.extend_from_slice(&draft.on_lost_answer.to_number().to_be_bytes());
    request.push(draft.fingerprint.version());
    request.push(match draft.fingerprint.form() {
        BodyForm::Canonical => 0,
        BodyForm::Raw => 1,
    });
    put_bytes(&mut request, &encode_fingerprint(&draft.fingerprint));
    for number in retention_numbers(draft.retention) {
        put_bytes(&mut request, number.to_string().as_bytes());
    }
    let mut tail = format!("{:08x}", request.len()).into_bytes();
    tail.extend_from_slice(&request);
    tail.extend_from_slice(outcome);
    tail
}

/// Decodes the record under `id`.
pub(super) fn decode(id: RecordId, value: &[u8]) -> Result<Record, StoreError> {
    let head = head(value)?;
    let (request, outcome) = head
        .rest
        .split_at_checked(head.request_bytes)
        .ok_or_else(|| corrupt("a record ends too early"))?;
    let mut rest = Reader(request);
    let (tenant, key, operation) = (text(&mut rest)?, text(&mut rest)?, text(&mut rest)?);
    let tenant = tenant_of(tenant)?;
    let key = Key::new(key).map_err(|_not_one| corrupt("a record's key cannot be one"))?;
    // Even with other faults, a caller must not get another's answer.
    if RecordId::of(&tenant, &key) != id {
        return Err(corrupt("a record stands under another's id"));
    }
    let number = u32::from_be_bytes(rest.array()?);
    let on_lost_answer = lost_answer_of(number.into())?;
    let version = byte(&mut rest)?;
    let form = match byte(&mut rest)? {
        0 => BodyForm::Canonical,
        1 => BodyForm::Raw,
        _ => return Err(corrupt("a fingerprint has an unknown form")),
    };
    let fingerprint = decode_fingerprint(version, form, rest.bytes()?)?;
    let retention = retention_of([decimal(&mut rest)?, decimal(&mut rest)?, decimal(&mut rest)?]);
    let state = match head.state {
        b'r' => State::Reserved(Lease { until: head.due }),
        b'c' => State::Completed {
            outcome: decode_outcome(outcome)?,
            retained_until: head.retained_until,
            kept_until: head.due,
        },
        b'u' => State::Uncertain { since: head.retained_until },
        _ => return Err(corrupt("a record is in an unknown state")),
    };
    let Head { fence, created_at, .. } = head;
    let operation = operation.into();
    Ok(Record {
        id,
        tenant,
        key,
        operation,
        fingerprint,
        fence,
        on_lost_answer,
        retention,
        created_at,
        state,
    })
}

/// Reads the tenant and the counted size of a record from its first bytes and its length.
pub(super) fn count(start: &[u8], value_bytes: u64) -> Result<(Tenant, Usage), StoreError> {
    let head = head(start)?;
    let tenant = tenant_of(text(&mut Reader(head.rest))?)?;
    let framed = u64::try_from(HEAD_BYTES + head.request_bytes).unwrap_or(u64::MAX);
    Ok((tenant, Usage::one(value_bytes.saturating_sub(framed))))
}

pub(super) fn encode_audit(entry: &AuditEntry) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in [&entry.actor, &entry.action, &entry.reason] {
        put_bytes(&mut bytes, text.as_bytes());
    }
    bytes
}

pub(super) fn decode_audit(value: &[u8]) -> Result<Audited, StoreError> {
    let (at, rest) =
        value.split_first_chunk::<16>().ok_or_else(|| corrupt("an audit entry is too short"))?;
    let at = instant(at)?;
    let mut rest = Reader(rest);
    let mut next = || text(&mut rest).map(str::to_owned);
    Ok(Audited { at, entry: AuditEntry { actor: next()?, action: next()?, reason: next()? } })
}

fn head(value: &[u8]) -> Result<Head<'_>, StoreError> {
    let (digits, rest) =
        value.split_first_chunk::<HEAD_BYTES>().ok_or_else(|| corrupt("a record is too short"))?;
    if digits[0] != VERSION {
        return Err(corrupt("a record was written by another version"));
    }
    let part = |from: usize| {
        digits[from..].first_chunk::<16>().ok_or_else(|| corrupt("a record is too short"))
    };
    let request_bytes = usize::try_from(hexadecimal(&digits[66..])?);
    Ok(Head {
        state: digits[1],
        fence: Fence::from_u64(hexadecimal(part(2)?)?),
        created_at: instant(part(18)?)?,
        due: instant(part(34)?)?,
        retained_until: instant(part(50)?)?,
        request_bytes: request_bytes
            .map_err(|_range| corrupt("a record has an impossible length"))?,
        rest,
    })
}

pub(super) fn instant(digits: &[u8; 16]) -> Result<Timestamp, StoreError> {
    if digits == NEVER.as_bytes() {
        return Ok(Timestamp::NEVER);
    }
    let wrong = || corrupt("an instant is no number");
    let digits = str::from_utf8(digits).map_err(|_not_text| wrong())?;
    digits.parse().map(Timestamp::from_millis).map_err(|_number| wrong())
}

fn hexadecimal(digits: &[u8]) -> Result<u64, StoreError> {
    let wrong = || corrupt("a number has a digit that is none");
    let digits = str::from_utf8(digits).map_err(|_not_text| wrong())?;
    u64::from_str_radix(digits, 16).map_err(|_digits| wrong())
}

fn text<'a>(rest: &mut Reader<'a>) -> Result<&'a str, StoreError> {
    let bytes = rest.bytes()?;
    str::from_utf8(bytes).map_err(|_not_text| corrupt("a text is not UTF-8"))
}

fn decimal(rest: &mut Reader<'_>) -> Result<i64, StoreError> {
    text(rest)?.parse().map_err(|_digits| corrupt("a number has a digit that is none"))
}

fn byte(rest: &mut Reader<'_>) -> Result<u8, StoreError> {
    Ok(rest.byte()?)
}

#[cfg(test)]
mod tests {
    use firstwrite_core::{Policy, StoreErrorKind};
    use firstwrite_testkit::sample;

    use super::*;

    fn sample_value() -> (RecordId, Vec<u8>) {
        let request = sample::request(&sample::tenant("acme"), &sample::key("k"), 1);
        let outcome = sample::outcome(201, "made");
        let draft = sample::completed(&request, &Policy::default(), Fence::first(7), outcome);
        let state = NewState::of(&draft.state, draft.retention);
        let mut value = format!("1{}{}", state.state, fence_digits(draft.fence)).into_bytes();
        for millis in [1_700_000_000_000_u64, 1_800_000_000_000, 1_750_000_000_000] {
            value.extend_from_slice(format!("{millis:016}").as_bytes());
        }
        value.extend_from_slice(&tail(&draft, &state.outcome));
        (draft.id, value)
    }

    #[test]
    fn a_value_is_read_as_it_was_written_and_never_panics() {
        let (id, value) = sample_value();
        let record = decode(id, &value).unwrap();
        assert_eq!((record.tenant.as_str(), record.key.as_str()), ("acme", "k"));
        assert_eq!(record.fence, Fence::first(7));
        let State::Completed { outcome, retained_until, kept_until } = &record.state else {
            panic!("completed")
        };
        assert_eq!(outcome, &sample::outcome(201, "made"));
        assert!(retained_until < kept_until);
        for length in 0..value.len() {
            if let Err(error) = decode(id, &value[..length]) {
                assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            }
        }
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 0xff;
            if let Err(error) = decode(id, &damaged) {
                assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            }
        }
        let other = RecordId::of(&sample::tenant("acme"), &sample::key("other"));
        assert_eq!(decode(other, &value).unwrap_err().kind(), StoreErrorKind::Corrupt);
    }

    #[test]
    fn the_form_of_a_value_does_not_change() {
        let (_, value) = sample_value();
        let head = String::from_utf8_lossy(&value[..HEAD_BYTES]).into_owned();
        assert_eq!(
            head,
            "1c0000010000000007000170000000000000018000000000000001750000000000\u{30}0000070"
        );
    }

    #[test]
    fn counting_needs_the_beginning_only() {
        let (id, value) = sample_value();
        let (tenant, usage) =
            count(&value[..value.len().min(COUNTED_BYTES)], value.len() as u64).unwrap();
        let record = decode(id, &value).unwrap();
        assert_eq!(tenant, record.tenant);
        let State::Completed { outcome, .. } = &record.state else { panic!("completed") };
        assert_eq!(usage.bytes, encode_outcome(outcome).len() as u64);
    }

    #[test]
    fn what_never_ends_is_never() {
        assert_eq!(millis(Duration::MAX), "never");
        assert_eq!(
            instant(instant_digits(Timestamp::NEVER).as_bytes().try_into().unwrap()).unwrap(),
            Timestamp::NEVER
        );
    }
}
