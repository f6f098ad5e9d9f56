//! The signature algorithms that are understood (RFC 7518, RFC 8037).

use serde::Deserialize;

/// A signature algorithm, by its name in `alg`. There is no `none`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "RFC 7518 and RFC 8037 describe them under these names")]
pub enum Algorithm {
    HS256,
    HS384,
    HS512,
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 12] = [
        Self::HS256,
        Self::HS384,
        Self::HS512,
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDsa,
    ];

    /// Its name in `alg`.
    pub fn name(self) -> &'static str {
        match self {
            Self::HS256 => "HS256",
            Self::HS384 => "HS384",
            Self::HS512 => "HS512",
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm of this name, to the letter.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}
