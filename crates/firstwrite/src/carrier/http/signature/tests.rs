//! Signatures that others would make, and forgeries.

use super::*;

/// The bytes 0 to 23.
const OLD: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
/// The bytes 100 to 163.
const NEW: &str = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTlJWWl5iZmpucnZ6foKGiow==";
const BODY: &[u8] = br#"{"amount":1200}"#;
/// Computed with Python's `hmac`.
const KNOWN: &str = "v1,OgY6xS4fHK+DBWj4c9muVUrcm2tYYJj86UTP0zMhE9A= \
                     v1,Z9aud+mdoibuqFWUiEb7360xXlJSnDMg+gciilmOH+4=";
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const TOLERANCE: Duration = Duration::from_mins(5);

fn secret(text: &str) -> SigningSecret {
    text.parse().unwrap()
}

fn headers(id: &str, timestamp: &str, signature: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [(ID, id), (TIMESTAMP, timestamp), (SIGNATURE, signature)] {
        headers.insert(name, value.parse().unwrap());
    }
    headers
}

fn known() -> HeaderMap {
    headers("order-1:charge:ef56e51bcb051fa4", "1700000000", KNOWN)
}

#[test]
fn the_signature_is_what_others_compute() {
    let secrets = [secret(OLD), secret(NEW)];
    let id = "order-1:charge:ef56e51bcb051fa4";
    assert_eq!(sign(&secrets, id, "1700000000", BODY), KNOWN);
}

#[test]
fn either_secret_verifies_and_no_other() {
    for known_secret in [OLD, NEW] {
        let verified = verify(&known(), BODY, &[secret(known_secret)], TOLERANCE, NOW).unwrap();
        assert_eq!(verified.id, "order-1:charge:ef56e51bcb051fa4");
        assert_eq!(verified.signed_at, NOW);
    }
    let other = secret("whsec_BBECAwQFBgcICQoLDA0ODxAREhMUFRYX");
    assert_eq!(verify(&known(), BODY, &[other], TOLERANCE, NOW), Err(SignatureError::NoMatch));
    assert_eq!(verify(&known(), BODY, &[], TOLERANCE, NOW), Err(SignatureError::NoMatch));
}

#[test]
fn what_was_changed_does_not_verify() {
    let check = |headers: &HeaderMap, body: &[u8]| {
        let verified = verify(headers, body, &[secret(OLD)], TOLERANCE, NOW);
        assert_eq!(verified, Err(SignatureError::NoMatch));
    };
    check(&known(), br#"{"amount":9200}"#);
    check(&headers("order-2:charge:ef56e51bcb051fa4", "1700000000", KNOWN), BODY);
    check(&headers("order-1:charge:ef56e51bcb051fa4", "1700000001", KNOWN), BODY);
    let signature = KNOWN.replace("v1,", "v1a,");
    check(&headers("order-1:charge:ef56e51bcb051fa4", "1700000000", &signature), BODY);
    check(&headers("order-1:charge:ef56e51bcb051fa4", "1700000000", "v1,OgY6 v1,??"), BODY);
}

#[test]
fn what_cannot_be_read_is_refused() {
    let check = |headers: &HeaderMap| {
        let verified = verify(headers, BODY, &[secret(OLD)], TOLERANCE, NOW);
        assert_eq!(verified, Err(SignatureError::Malformed));
    };
    for name in [ID, TIMESTAMP, SIGNATURE] {
        let mut without = known();
        without.remove(&name);
        check(&without);
        let mut twice = known();
        twice.append(&name, known()[&name].clone());
        check(&twice);
    }
    for timestamp in ["", "+1700000000", "1700000000.0", "9223372036854775807", "now"] {
        check(&headers("id", timestamp, KNOWN));
    }
    check(&headers("", "1700000000", KNOWN));
}

#[test]
fn recordings_and_the_future_are_refused() {
    for (now, is_inside) in [
        (NOW.plus(TOLERANCE), true),
        (NOW.plus(TOLERANCE).plus(Duration::from_millis(1)), false),
        (Timestamp::from_millis(NOW.as_millis() - 300_000), true),
        (Timestamp::from_millis(NOW.as_millis() - 300_001), false),
    ] {
        let verified = verify(&known(), BODY, &[secret(OLD)], TOLERANCE, now);
        assert_eq!(verified.is_ok(), is_inside, "{now}");
    }
}

#[test]
fn a_key_cannot_pass_for_a_body() {
    // Signed as it stands, this key would verify as id `a`, another time and a body of its choice.
    let wire_key = "a.1700000000.{\"amount\":1}:charge:ef56e51bcb051fa4";
    let id = id(wire_key);
    assert!(!id.contains('.'), "{id}");
    let signature = sign(&[secret(OLD)], &id, "1700000100", BODY);
    let forged = [wire_key.split_at(13).1.as_bytes(), b".1700000100.", BODY].concat();
    let headers = headers("a", "1700000000", &signature);
    let verified = verify(&headers, &forged, &[secret(OLD)], TOLERANCE, NOW);
    assert_eq!(verified, Err(SignatureError::NoMatch));
}

#[test]
fn ids_differ_where_keys_differ() {
    assert_eq!(id("order-1:charge:ef56e51bcb051fa4"), "order-1:charge:ef56e51bcb051fa4");
    assert_eq!(id("a.b"), "a%2Eb");
    assert_eq!(id("a%2Eb"), "a%252Eb");
}

#[test]
fn secrets_are_checked_and_never_shown() {
    for (text, error) in [
        ("AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", SigningSecretError::NoPrefix),
        ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY", SigningSecretError::NotBase64),
        ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY=", SigningSecretError::Length),
        ("whsec_", SigningSecretError::Length),
    ] {
        assert_eq!(text.parse::<SigningSecret>().unwrap_err(), error, "{text}");
    }
    let long = format!("whsec_{}", STANDARD.encode([0; 65]));
    assert_eq!(long.parse::<SigningSecret>().unwrap_err(), SigningSecretError::Length);
    assert_eq!(format!("{:?}", secret(OLD)), "SigningSecret(…)");
}
