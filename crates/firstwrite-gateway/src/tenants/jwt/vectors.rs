//! Checks signatures made elsewhere: the vectors of Project Wycheproof, where a folder of them is named. `cargo
//! xtask vectors` fetches them.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::Algorithm;
use super::key::{Key, Parsed};

/// Each algorithm, with the sets that it is held against.
const SETS: [(Algorithm, &[&str]); 12] = [
    (Algorithm::HS256, &["hmac_sha256"]),
    (Algorithm::HS384, &["hmac_sha384"]),
    (Algorithm::HS512, &["hmac_sha512"]),
    (
        Algorithm::RS256,
        &["rsa_signature_2048_sha256", "rsa_signature_3072_sha256", "rsa_signature_4096_sha256"],
    ),
    (
        Algorithm::RS384,
        &["rsa_signature_2048_sha384", "rsa_signature_3072_sha384", "rsa_signature_4096_sha384"],
    ),
    (
        Algorithm::RS512,
        &["rsa_signature_2048_sha512", "rsa_signature_3072_sha512", "rsa_signature_4096_sha512"],
    ),
    (
        Algorithm::PS256,
        &[
            "rsa_pss_2048_sha256_mgf1_32",
            "rsa_pss_3072_sha256_mgf1_32",
            "rsa_pss_4096_sha256_mgf1_32",
        ],
    ),
    (Algorithm::PS384, &["rsa_pss_2048_sha384_mgf1_48", "rsa_pss_4096_sha384_mgf1_48"]),
    (Algorithm::PS512, &["rsa_pss_4096_sha512_mgf1_64"]),
    (Algorithm::ES256, &["ecdsa_secp256r1_sha256_p1363"]),
    (Algorithm::ES384, &["ecdsa_secp384r1_sha384_p1363"]),
    (Algorithm::EdDsa, &["ed25519"]),
];

#[test]
fn wycheproof_is_agreed_with() {
    let Some(folder) = std::env::var_os("FIRSTWRITE_TEST_WYCHEPROOF") else {
        println!("not held against Wycheproof: FIRSTWRITE_TEST_WYCHEPROOF names no folder");
        return;
    };
    let (mut accepted, mut refused) = (0, 0);
    for (algorithm, sets) in SETS {
        for set in sets {
            let path = Path::new(&folder).join(format!("{set}_test.json"));
            let set_text = std::fs::read_to_string(&path).unwrap();
            let vectors: Value = serde_json::from_str(&set_text).unwrap();
            for group in vectors["testGroups"].as_array().unwrap() {
                for test in group["tests"].as_array().unwrap() {
                    let Some(expected) = expected(algorithm, group, test) else { continue };
                    let found = verifies(algorithm, group, test);
                    assert_eq!(found, expected, "{set} {} {}", test["tcId"], test["comment"]);
                    *(if found { &mut accepted } else { &mut refused }) += 1;
                }
            }
        }
    }
    println!("Wycheproof: {accepted} signatures accepted, {refused} refused, as they should be");
    assert!(accepted > 400 && refused > 2000, "{accepted} {refused}");
}

/// Returns whether the signature must be accepted, or `None` if either would do.
fn expected(algorithm: Algorithm, group: &Value, test: &Value) -> Option<bool> {
    let is_hmac = matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512);
    // A tag that was cut, or a secret shorter than the hash, is not for tokens (RFC 7518, section 3.2).
    if is_hmac {
        let bits: u64 = algorithm.name()[2..].parse().unwrap();
        if group["tagSize"] != bits || group["keySize"].as_u64().unwrap() < bits {
            return Some(false);
        }
    }
    match test["result"].as_str().unwrap() {
        "valid" => Some(true),
        "invalid" => Some(false),
        _acceptable => None,
    }
}

fn verifies(algorithm: Algorithm, group: &Value, test: &Value) -> bool {
    let public = &group["publicKey"];
    let jwk = match algorithm {
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => {
            json!({ "kty": "oct", "k": text(&hex(&test["key"])) })
        }
        Algorithm::ES256 => point(public, "P-256", 32),
        Algorithm::ES384 => point(public, "P-384", 48),
        Algorithm::EdDsa => {
            json!({ "kty": "OKP", "crv": "Ed25519", "x": text(&hex(&public["pk"])) })
        }
        Algorithm::RS256
        | Algorithm::RS384
        | Algorithm::RS512
        | Algorithm::PS256
        | Algorithm::PS384
        | Algorithm::PS512 => {
            let (n, e) = (hex(&public["modulus"]), hex(&public["publicExponent"]));
            json!({ "kty": "RSA", "n": text(&n), "e": text(&e) })
        }
    };
    let jwk: Map<String, Value> = jwk.as_object().unwrap().clone();
    let signature = if test["tag"].is_string() { &test["tag"] } else { &test["sig"] };
    match Key::parse(&jwk) {
        Ok(Parsed::Key(key)) => key.verifies(algorithm, &hex(&test["msg"]), &hex(signature)),
        Ok(Parsed::PassedOver) | Err(_) => false,
    }
}

fn point(public: &Value, curve: &str, length: usize) -> Value {
    let number = |name: &str| {
        let bytes = hex(&public[name]);
        let start = bytes.iter().take_while(|byte| **byte == 0).count();
        let padding = vec![0; length - (bytes.len() - start)];
        text(&[&padding[..], &bytes[start..]].concat())
    };
    json!({ "kty": "EC", "crv": curve, "x": number("wx"), "y": number("wy") })
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn hex(value: &Value) -> Vec<u8> {
    firstwrite_core::codec::hex::decode(value.as_str().unwrap().as_bytes()).unwrap()
}
