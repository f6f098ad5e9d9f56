//! Recognises credentials that are the same in a request and its retry.
//!
//! The digest of any other credential names a new tenant each time, so a retry would run again. A scheme that
//! signs requests cannot be known by its name alone, since anybody may invent one: only shapes that are known to
//! stay the same are taken. Opaque tokens that are renewed cannot be told apart from API keys here.

/// Schemes whose credential is one key of the caller's.
const KEYS: [&str; 5] = ["ApiKey", "Api-Key", "X-API-Key", "Key", "Token"];

/// Names under which a credential of [`KEYS`] may stand as its only parameter.
const KEY_NAMES: [&str; 4] = ["api_key", "apikey", "key", "token"];

/// Prefixes of tokens that are renewed and are not JWTs: PASETO, and Google's.
const RENEWED: [&[u8]; 9] = [
    b"v1.local.",
    b"v1.public.",
    b"v2.local.",
    b"v2.public.",
    b"v3.local.",
    b"v3.public.",
    b"v4.local.",
    b"v4.public.",
    b"ya29.",
];

/// Returns true if the value of an `Authorization` header is of a shape that stays the same at the retry.
pub(super) fn is_stable(value: &[u8]) -> bool {
    let mut words = value.splitn(2, |byte| matches!(byte, b' ' | b'\t'));
    let scheme = words.next().unwrap_or_default();
    // Some send a key without any scheme.
    let Some(credential) = words.next().map(<[u8]>::trim_ascii) else {
        return is_opaque(scheme) && !scheme.contains(&b':');
    };
    let is_one_of =
        |names: &[&str]| names.iter().any(|name| scheme.eq_ignore_ascii_case(name.as_bytes()));
    if is_one_of(&["Basic"]) {
        return true;
    }
    if is_one_of(&["Bearer"]) {
        return is_opaque(credential);
    }
    is_one_of(&KEYS) && is_opaque(named_key(credential).unwrap_or(credential))
}

/// Returns the key of a credential that is one parameter with a name for a key, such as `token="abc"`.
fn named_key(credential: &[u8]) -> Option<&[u8]> {
    let equals = credential.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&credential[..equals], &credential[equals + 1..]);
    let is_key = KEY_NAMES.iter().any(|key| name.eq_ignore_ascii_case(key.as_bytes()));
    let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    is_key.then(|| unquoted.unwrap_or(value))
}

/// Returns true if a credential is one word without parts that have names, and is not known to be renewed.
fn is_opaque(credential: &[u8]) -> bool {
    let is_of_word = |byte: &u8| byte.is_ascii_graphic() && !b"\"&,;=".contains(byte);
    let end = credential.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    credential[..end].iter().all(is_of_word) && !is_renewed(credential)
}

/// A signed or encrypted JSON token (RFC 7515, RFC 7516) expires, and so do those that are listed.
fn is_renewed(credential: &[u8]) -> bool {
    if RENEWED.iter().any(|start| credential.starts_with(start)) {
        return true;
    }
    let is_base64url = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let parts: Vec<&[u8]> = credential.splitn(6, |byte| *byte == b'.').collect();
    matches!(parts.len(), 3 | 5)
        && parts[0].starts_with(b"ey")
        && parts.iter().all(|part| part.iter().all(is_base64url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_change_at_the_retry_is_not_taken() {
        let changing = [
            "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.",
            "bearer  eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhIn0.c2ln",
            "Bearer eyAKImFsZyI6.e30.c2ln",
            "JWT eyJh.e30.c2ln",
            "eyJh.e30.c2ln",
            "Bearer eyJh.key.iv.text.tag",
            "Bearer v4.public.abc",
            "Bearer ya29.abc",
            "DPoP opaque",
            "dpop opaque",
            "Negotiate YII=",
            "SCRAM-SHA-256 data=abc",
            "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c",
            "Digest username=\"a\", nonce=\"b\", response=\"c\"",
            "OAuth oauth_nonce=\"b\"",
            "Signature keyId=\"a\"",
            "Acme id=\"a\", signature=\"b\"",
            "AWS AKIDEXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=",
            "SharedKey account:ctzMq410TV3wS7upTBcunJTDLEJwMAZuFPfr0mrrA08=",
            "SharedKeyLite account:c2ln",
            "HMAC-SHA256 Credential=a&SignedHeaders=b&Signature=c",
            "SharedAccessSignature sr=a&sig=b&se=1700000000",
            "GOOG1 GOOGTS7C7FUP3AIRVJTE:c2ln",
            "QBox access:c2ln",
            "acs key:c2ln",
            "hmac user:nonce:c2ln",
            "amx app:sig:nonce:time",
            "Bearer sr=a&sig=b&se=1700000000",
            "Bearer id=a, sig=b",
            "Bearer a b",
            "Bearer sig=abc",
            "sig=abc",
            "Token token=\"abc\", nonce=\"d\"",
            "Token signature=\"abc\"",
            "ApiKey id=a&sig=b",
            "sr=a&sig=b",
            "AKID:sig",
            "Unheard of",
            "GNAP abc",
        ];
        for value in changing {
            assert!(!is_stable(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn what_stays_the_same_is_taken() {
        let staying = [
            "Bearer sk_live_4eC39HqLyjWDarjtT1zdp7dc",
            "Bearer a.b.c",
            "Bearer ey.b",
            "Bearer eyJh.e30.si/g",
            "Basic c2tfMTo=",
            "Bearer 1|laravel",
            "bearer YWJj==",
            "Token token=\"abc\"",
            "Token token=abc",
            "Token abc",
            "ApiKey id:secret",
            "Api-Key abc",
            "X-API-Key abc",
            "Key abc",
            "sk_live_1",
            "YWJj==",
            "Bearer",
            "",
        ];
        for value in staying {
            assert!(is_stable(value.as_bytes()), "{value}");
        }
    }
}
