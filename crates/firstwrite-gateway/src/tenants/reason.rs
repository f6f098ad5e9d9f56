//! Reasons why a caller was not identified, in fixed words for the log.

/// Reason why a caller was not identified. Contains nothing that was read from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Nothing that a source could verify.
    NoCredential,
    /// A credential that no source takes for its own.
    Unclaimed,
    /// A header that may stand there once stands there more often.
    SeveralValues,
    /// The header is not what its scheme asks for.
    Malformed,
    /// It will be another one at the retry.
    Changing,
    /// Over the limit for its kind.
    TooLong,
    /// No such key in the table.
    KeyUnknown,
    /// The name is empty, too long, or has characters that no tenant has.
    NameInvalid,
    /// The name is one of those that are made here.
    NameReserved,
    /// A token's header or claims are no JSON object, or name something twice.
    NotStrictJson,
    /// A token that carries or points to the key that would verify it.
    KeyInToken,
    /// A token that asks for an extension to be understood.
    CriticalExtension,
    /// `alg` is missing, unknown, or not allowed for the issuer.
    Algorithm,
    /// `typ` is not one of the allowed.
    TokenType,
    /// No configured key of the issuer fits `kid` and `alg`.
    NoSuchKey,
    /// The signature does not hold.
    Signature,
    /// `iss` is missing or names an unknown issuer.
    Issuer,
    /// `aud` is missing or names another audience.
    Audience,
    /// `exp` is missing, or a time is not a number.
    TimeInvalid,
    /// `exp` is past.
    Expired,
    /// `nbf` is to come.
    NotYet,
    /// The claim that names the tenant is missing, or a claim that names a tenant or principal is not text.
    ClaimInvalid,
    /// The clock that was handed in cannot be right.
    Clock,
    /// The certificate cannot be read.
    Certificate,
    /// The certificate has none, or several, of the names that are asked for.
    CertificateName,
}

impl Reason {
    /// For the log.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NoCredential => "no credential",
            Self::Unclaimed => "a credential that no source takes",
            Self::SeveralValues => "a header stands there more than once",
            Self::Malformed => "malformed credential",
            Self::Changing => "the credential is not of a kind that stays the same",
            Self::TooLong => "credential over the limit",
            Self::KeyUnknown => "unknown API key",
            Self::NameInvalid => "the name cannot be a tenant",
            Self::NameReserved => "the name is reserved",
            Self::NotStrictJson => "token: not JSON without duplicates",
            Self::KeyInToken => "token: carries a key or its address",
            Self::CriticalExtension => "token: critical extension",
            Self::Algorithm => "token: algorithm not allowed",
            Self::TokenType => "token: type not allowed",
            Self::NoSuchKey => "token: no such key",
            Self::Signature => "token: signature does not hold",
            Self::Issuer => "token: unknown issuer",
            Self::Audience => "token: for another audience",
            Self::TimeInvalid => "token: exp is missing, or a time is no number",
            Self::Expired => "token: expired",
            Self::NotYet => "token: not valid yet",
            Self::ClaimInvalid => "token: claim is missing or no text",
            Self::Clock => "the clock is wrong",
            Self::Certificate => "certificate cannot be read",
            Self::CertificateName => "certificate: not exactly one name of this kind",
        }
    }
}
