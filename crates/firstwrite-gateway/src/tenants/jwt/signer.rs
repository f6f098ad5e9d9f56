//! Signs tokens for tests, with a key of each kind, generated anew in each run.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::{Value, json};

use super::Algorithm;

/// Made for these tests and used nowhere else: `ring` draws no RSA keys.
const RSA_PRIVATE_KEY: &str = "\
    MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQDEksPNQ2vW5+ybnL7YUlJRLSlciU96EEYBcLRJ9W0y\
    YHlPboKmCr28Ndh4bDQUNx8ERj39k+ortBnBeHSRAMSKocOA5K9BNGfQGdPKgZNJNYsPPcptAheooC3Og4q71sudnKn2\
    Ow2KfAlYRuBoV93KV9Xtbm/jlRdvlG1A6vPu614fg/PE31tv11ytgvCjTNXbIS81BIZv1Qf77FZtdrVt7X82SRwWV2iK\
    D3eAwnZVUh8Dnx0zoNJIyDnDJJDcdvbEzhbqoaecDXpA59IJF+gRAAoyGJayUagvkxEMeEBSI86qcHdGkgPuW1vYu0tr\
    GJjH1/RIeA+oTfblcel+4oQxAgMBAAECggEAB5PXH/YvJyiWBjnOeELrwmtqTLZMU5qoiOoh+zexcGhiF6sANsAWP3vG\
    QGc42XFfD9nka2cKa4nddB80uDZqC7AIkzvO+pbl+tg9fB+GIKOmbg7u2wKcgJcRlD6GUprmOXe/yVNZ42nILYcc0nAn\
    kvpHu0HX/g1jeXo72kqOga6A6TaE3pqGJUOWeA8KOPjKJgdeAOr5bJlI8jks6k5rc9ho64RLLzWqsh6IFGXSbxRbeWx0\
    JlbvZFdRwwTl9tFm9Bj4+XgWOrWTCU8iXJQl2pcqCD0FNR4nr6s9xWd5yOOgOUw88nrCyMDWn6t5DXxka5q4agdvhQyw\
    B36TSR6TcwKBgQDk+bI03bfHWv4vlQTF+6WLTM0VwPvzx+5IaQiolEpxQae8pIKzbdYTdlXRHi6iWta0WQUwYShh/keS\
    CooMtA/K40vCit6iaK6IcIi85Hp+jba7jWs6S41x4LRsornW8yo/62k1zyolZGZgsHqUQ4ABS82CCOSiBxs4ty5nd5gc\
    pwKBgQDbxhEGSfvVHzwAzFcKuqgmSt8IgZ518rgoewD8uWrEbLwAuyJaWygut2pLiat4NUkmYXuZv/WW4CeqOYitvg7g\
    x3gm8PT3ehNHbxVb8uMO1j6EP8yazdmgi9MKgo38x0rqr6vHFHOAIItNkDhZ8QUWcjq+VpDtQ9cPgVZPIVe7ZwKBgEg1\
    AeCwBrOEW2Iv8ShqGiNandX9XLbc1qTZEpTu5qbemIHhsyHYQkky6Q8gIH6sfMa0x/EgwnZclL9WOYCWC+DkWtDHsDux\
    HVEDg+tldceQ8w4kI6tnhfxiayNTEZ3aYvlzSGNiqBzQk4RsQsucmbJO8EjQeyEpcokpIyYXzc1DAoGAHlXKh8myfwpe\
    p+WMpih5iT+QZYYury0fikbgLgIR4Kb5lEhAR6SJeVlLzL1l86O3Qxr1ipVaesbZ8r8aRJEVUKV3yjg8N+SbwKJumlB+\
    Us/ztSFxRnTfcy+Zo7u9iYSgrKAu373M64SSddRQUunXv+9oeFlOi9FvX+6EUUvS5kUCgYApc+/aqfE78AY8r0iVc4NN\
    OkEKbDFFyZ1KOxvuFm6WH+6IM5MThFFtAJBlTI865CyxcNRiKuSRCYh8tJKrY4V+2FvtKjpfg5CHAcWHqzd9uNRXB7xk\
    HRhpRDQzqPDkTQ0zG27QNtiuzWaeDlUgUJX3PEC2Lsz1Rrv2NkmmRStqAg==";

/// Has a key of each kind; their ids are `oct`, `rsa`, `p256`, `p384` and `ed`.
pub(in crate::tenants) struct Signer {
    random: SystemRandom,
    secret: [u8; 64],
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    p384: EcdsaKeyPair,
    ed: Ed25519KeyPair,
}

impl Signer {
    pub(in crate::tenants) fn new() -> Self {
        let random = SystemRandom::new();
        let mut secret = [0; 64];
        random.fill(&mut secret).unwrap();
        let ecdsa = |algorithm: &'static EcdsaSigningAlgorithm| {
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap()
        };
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self {
            secret,
            rsa: RsaKeyPair::from_pkcs8(&STANDARD.decode(RSA_PRIVATE_KEY).unwrap()).unwrap(),
            p256: ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            p384: ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(),
            random,
        }
    }

    /// The key that an algorithm is used with.
    pub(in crate::tenants) fn key_id(algorithm: Algorithm) -> &'static str {
        match algorithm {
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => "oct",
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512 => "rsa",
            Algorithm::ES256 => "p256",
            Algorithm::ES384 => "p384",
            Algorithm::EdDsa => "ed",
        }
    }

    /// All keys, as others get to see them.
    pub(in crate::tenants) fn keys(&self) -> Value {
        let rsa = self.rsa_public();
        let point = |key: &EcdsaKeyPair, length: usize| {
            let point = key.public_key().as_ref();
            (encode(&point[1..=length]), encode(&point[length + 1..]))
        };
        let ((x256, y256), (x384, y384)) = (point(&self.p256, 32), point(&self.p384, 48));
        json!({ "keys": [
            { "kid": "oct", "kty": "oct", "k": encode(&self.secret) },
            { "kid": "rsa", "kty": "RSA", "n": encode(&rsa.n), "e": encode(&rsa.e), "use": "sig" },
            { "kid": "p256", "kty": "EC", "crv": "P-256", "x": x256, "y": y256, "alg": "ES256" },
            { "kid": "p384", "kty": "EC", "crv": "P-384", "x": x384, "y": y384 },
            { "kid": "ed", "kty": "OKP", "crv": "Ed25519", "x": encode(self.ed.public_key().as_ref()),
              "key_ops": ["verify"] },
        ]})
    }

    pub(in crate::tenants) fn rsa_public(&self) -> RsaPublicKeyComponents<Vec<u8>> {
        RsaPublicKeyComponents::from(self.rsa.public())
    }

    /// A token as it should be.
    pub(in crate::tenants) fn token(&self, algorithm: Algorithm, claims: &Value) -> String {
        let header =
            json!({ "alg": algorithm.name(), "kid": Self::key_id(algorithm), "typ": "JWT" });
        self.sign(algorithm, &header.to_string(), &claims.to_string())
    }

    /// A token of any header and payload, signed with the algorithm's key whatever they say.
    pub(in crate::tenants) fn sign(
        &self,
        algorithm: Algorithm,
        header: &str,
        payload: &str,
    ) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(payload.as_bytes()));
        let signature = self.signature(algorithm, signed.as_bytes());
        format!("{signed}.{}", encode(&signature))
    }

    fn signature(&self, algorithm: Algorithm, signed: &[u8]) -> Vec<u8> {
        let hmac = |hash| hmac::sign(&hmac::Key::new(hash, &self.secret), signed).as_ref().to_vec();
        let ecdsa = |key: &EcdsaKeyPair| key.sign(&self.random, signed).unwrap().as_ref().to_vec();
        match algorithm {
            Algorithm::HS256 => hmac(hmac::HMAC_SHA256),
            Algorithm::HS384 => hmac(hmac::HMAC_SHA384),
            Algorithm::HS512 => hmac(hmac::HMAC_SHA512),
            Algorithm::RS256 => self.rsa(&RSA_PKCS1_SHA256, signed),
            Algorithm::RS384 => self.rsa(&RSA_PKCS1_SHA384, signed),
            Algorithm::RS512 => self.rsa(&RSA_PKCS1_SHA512, signed),
            Algorithm::PS256 => self.rsa(&RSA_PSS_SHA256, signed),
            Algorithm::PS384 => self.rsa(&RSA_PSS_SHA384, signed),
            Algorithm::PS512 => self.rsa(&RSA_PSS_SHA512, signed),
            Algorithm::ES256 => ecdsa(&self.p256),
            Algorithm::ES384 => ecdsa(&self.p384),
            Algorithm::EdDsa => self.ed.sign(signed).as_ref().to_vec(),
        }
    }

    fn rsa(&self, encoding: &'static dyn RsaEncoding, signed: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.rsa.public().modulus_len()];
        self.rsa.sign(encoding, &self.random, signed, &mut signature).unwrap();
        signature
    }
}

/// base64url without padding.
pub(in crate::tenants) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
