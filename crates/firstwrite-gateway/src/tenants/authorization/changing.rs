//! Recognises credentials that change between a request and its retry, as far as that can be seen.
//!
//! The digest of such a credential names a new tenant each time, so a retry would run again. Opaque tokens that
//! are renewed cannot be told apart from API keys here.

/// Schemes that sign or answer each request anew.
const SIGNING: [&str; 13] = [
    "AWS4-HMAC-SHA256",
    "AWS4-ECDSA-P256-SHA256",
    "Digest",
    "DPoP",
    "GNAP",
    "Hawk",
    "HOBA",
    "MAC",
    "Negotiate",
    "NTLM",
    "OAuth",
    "PrivateToken",
    "Signature",
];

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

/// Returns true if the value of an `Authorization` header is likely to be different at the retry.
pub(super) fn is_changing(value: &[u8]) -> bool {
    let mut words = value.splitn(2, |byte| matches!(byte, b' ' | b'\t'));
    let (Some(scheme), credential) = (words.next(), words.next()) else { return false };
    // Some send a token without any scheme.
    let Some(credential) = credential.map(<[u8]>::trim_ascii) else {
        return is_renewed(scheme);
    };
    let is_signing = SIGNING.iter().any(|name| scheme.eq_ignore_ascii_case(name.as_bytes()))
        || scheme.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"SCRAM-"));
    is_signing || is_list(credential) || is_renewed(credential)
}

/// Several parameters with names: a nonce or a signature is among them in every scheme that has such a list.
fn is_list(credential: &[u8]) -> bool {
    credential.contains(&b',') && credential.contains(&b'=')
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
    fn what_changes_at_the_retry_is_seen() {
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
        ];
        for value in changing {
            assert!(is_changing(value.as_bytes()), "{value}");
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
            "Token token=\"abc\"",
            "ApiKey id:secret",
            "sk_live_1",
            "Bearer",
            "",
        ];
        for value in staying {
            assert!(!is_changing(value.as_bytes()), "{value}");
        }
    }
}
