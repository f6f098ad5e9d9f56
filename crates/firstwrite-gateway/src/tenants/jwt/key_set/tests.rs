//! Published examples, and key sets that are refused.

use serde_json::json;

use super::super::jws::Jws;
use super::super::signer::{Signer, encode};
use super::*;

/// Payload of the examples in RFC 7515, appendix A.
const PAYLOAD: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS\
                       9pc19yb290Ijp0cnVlfQ";

/// Returns true if the only key in the set verifies the token.
fn is_verified(jwk: &Value, token: &str) -> bool {
    let jws = Jws::parse(token.as_bytes()).unwrap();
    let keys = KeySet::parse(&json!({ "keys": [jwk] }).to_string(), &[jws.algorithm]).unwrap();
    let key = keys.find(jws.key_id.as_deref(), jws.algorithm).unwrap();
    key.verifies(jws.algorithm, jws.signed, &jws.signature)
}

/// A published token holds, and with a letter changed it does not.
fn check(jwk: &Value, header: &str, payload: &str, signature: &str) {
    let token = format!("{header}.{payload}.{signature}");
    assert!(is_verified(jwk, &token), "{token}");
    for at in [0, signature.len() / 2] {
        let mut changed = signature.as_bytes().to_vec();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(!is_verified(jwk, &format!("{header}.{payload}.{changed}")), "{changed}");
    }
    let other = payload.replacen('R', "S", 1).replacen('J', "K", 1);
    assert_ne!(other, payload);
    assert!(!is_verified(jwk, &format!("{header}.{other}.{signature}")), "{other}");
}

#[test]
fn rfc_7515_a_1_hmac() {
    let jwk = json!({ "kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aK\
        tMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow" });
    let header = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9";
    check(&jwk, header, PAYLOAD, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
}

#[test]
fn rfc_7515_a_2_rsa() {
    let jwk = json!({ "kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTb\
        ji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b3\
        2690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg\
        665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkML\
        s91kzk2PAcDTW9gb54h4FRWyuXpoQ" });
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc\
        _lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBAr\
        LIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvh\
        J1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    check(&jwk, "eyJhbGciOiJSUzI1NiJ9", PAYLOAD, signature);
}

#[test]
fn rfc_7515_a_3_ecdsa() {
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" });
    let signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP\
        3-Kg6NU1Q";
    check(&jwk, "eyJhbGciOiJFUzI1NiJ9", PAYLOAD, signature);
}

#[test]
fn rfc_8037_a_4_ed25519() {
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpA\
        r_MuM0KAg";
    let payload = "RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    check(&jwk, "eyJhbGciOiJFZERTQSJ9", payload, signature);
}

#[test]
fn a_key_is_chosen_by_id_and_algorithm() {
    let keys = json!({ "keys": [
        { "kid": "a", "kty": "oct", "k": encode(&[1; 64]) },
        { "kid": "b", "kty": "oct", "k": encode(&[2; 32]) },
        { "kid": "c", "kty": "OKP", "crv": "Ed25519", "x": encode(&[3; 32]) },
        // Passed over: for another purpose, or of a kind that is not understood.
        { "kid": "d", "kty": "oct", "k": encode(&[4; 64]), "use": "enc" },
        { "kid": "e", "kty": "oct", "k": encode(&[5; 64]), "key_ops": ["sign"] },
        { "kid": "f", "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" },
        { "kid": "g", "kty": "oct", "k": encode(&[6; 64]), "alg": "A256KW" },
        { "kid": "h", "kty": "AKP", "alg": "ML-DSA-44" },
    ]});
    let algorithms = [Algorithm::HS256, Algorithm::HS384, Algorithm::EdDsa];
    let keys = KeySet::parse(&keys.to_string(), &algorithms).unwrap();
    let check = |id: Option<&str>, algorithm, expected: Option<&str>| {
        let found = keys.find(id, algorithm).and_then(|key| key.id.as_deref());
        assert_eq!(found, expected, "{id:?} {algorithm:?}");
    };
    check(Some("a"), Algorithm::HS256, Some("a"));
    check(Some("a"), Algorithm::HS384, Some("a"));
    check(Some("b"), Algorithm::HS256, Some("b"));
    check(Some("b"), Algorithm::HS384, None);
    check(Some("c"), Algorithm::EdDsa, Some("c"));
    check(Some("c"), Algorithm::HS256, None);
    check(Some("A"), Algorithm::HS256, None);
    check(Some(""), Algorithm::HS256, None);
    check(None, Algorithm::HS256, None);
    check(None, Algorithm::HS384, Some("a"));
    check(None, Algorithm::EdDsa, Some("c"));
    for id in ["d", "e", "f", "g", "h"] {
        check(Some(id), Algorithm::HS256, None);
    }
}

#[test]
fn a_key_set_that_cannot_be_right_is_refused() {
    let check = |keys: Value, expected: &str| {
        let problem = KeySet::parse(&keys.to_string(), &[Algorithm::RS256]).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    };
    let one = |key: Value| json!({ "keys": [key] });
    let rsa = Signer::new().keys()["keys"][1].clone();
    let with = |name: &str, value: Value| {
        let mut key = rsa.clone();
        key[name] = value;
        one(key)
    };
    check(json!([]), "not a JSON object");
    check(json!({}), "a JWK set is needed");
    check(json!({ "keys": {} }), "a JWK set is needed");
    check(json!({ "keys": [] }), "no key in it can be used with RS256");
    check(json!({ "keys": vec![&rsa; 65] }), "more than 64 keys");
    check(json!({ "keys": [1] }), "keys[0]: it is not an object");
    check(json!({ "keys": [rsa, rsa] }), "keys[1]: another key has the same `kid`");
    check(json!({ "keys": "x".repeat(600_000) }), "over");
    check(one(json!({})), "keys[0]: `kty` is missing");
    check(one(json!({ "kty": "RSA", "n": "AQAB" })), "missing");
    check(with("n", json!(encode(&[0xff; 255]))), "2048 to 8192 bits");
    check(with("n", json!(encode(&[0xff; 1025]))), "2048 to 8192 bits");
    check(with("n", json!(encode(&[&[0_u8; 9][..], &[0xff; 255]].concat()))), "2048 to 8192 bits");
    check(with("n", json!("a+b/")), "base64url");
    check(with("e", json!("AQ")), "`e` cannot be right");
    check(with("e", json!("AQAA")), "`e` cannot be right");
    check(with("e", json!("")), "`e` cannot be right");
    check(with("kid", json!(1)), "texts");
    check(with("d", json!("AQAB")), "private key");
    check(with("alg", json!("ES256")), "do not belong together");
    check(with("use", json!("enc")), "no key in it can be used with RS256");
    check(one(json!({ "kty": "oct", "k": encode(&[1; 31]) })), "shorter than its algorithm's hash");
    check(one(json!({ "kty": "oct", "k": encode(&[1; 63]), "alg": "HS512" })), "shorter");
    check(one(json!({ "kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB" })), "length");
    check(one(json!({ "kty": "OKP", "crv": "Ed25519", "x": "AQAB" })), "32 bytes");
    let twice = r#"{"keys":[],"keys":[]}"#;
    assert!(KeySet::parse(twice, &[Algorithm::RS256]).unwrap_err().contains("repeated names"));
}

#[test]
fn a_key_does_not_show_what_it_is_made_of() {
    let secret = [0x41; 64];
    let keys = json!({ "keys": [{ "kid": "a", "kty": "oct", "k": encode(&secret) }] });
    let keys = KeySet::parse(&keys.to_string(), &[Algorithm::HS256]).unwrap();
    let shown = format!("{keys:?}");
    assert!(shown.contains("oct") && !shown.contains("65") && !shown.contains("QUFB"), "{shown}");
}
