//! The kinds of refusal: one for each problem code.

use http::StatusCode;

/// Reason why a request was refused. Each has a page in `docs/problems`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// A protected operation without the header.
    KeyMissing,
    /// Syntax, length, or more than one value.
    KeyInvalid,
    /// Same key, other fingerprint.
    KeyReused,
    /// Another attempt holds the lease.
    InProgress,
    /// An attempt ended with an unknown result.
    OutcomeUnknown,
    /// A spent key came back after its retention.
    KeyExpired,
    /// The request's own timestamp is past the allowed age.
    RequestTooOld,
    /// The request's body is over the cap.
    BodyTooLarge,
    /// No tenant could be derived from verified credentials.
    TenantUnknown,
    /// This tenant's rate, or number of active keys, is used up.
    RateLimited,
    /// The reservation is impossible; nothing was run.
    StoreUnavailable,
    /// The action was carried out, and its answer was too large to keep.
    AnswerNotKept,
    /// The request makes no sense as HTTP, or two servers could read it in two ways.
    RequestMalformed,
    /// The head or the body did not arrive in time.
    RequestTimeout,
    /// Path and query are over the limit.
    TargetTooLong,
    /// There are too many headers, or they are too long.
    HeadTooLarge,
    /// The method is not served here.
    MethodNotAllowed,
    /// There is no page of this name.
    NotFound,
    /// There is no record under the key whose status was asked for.
    KeyUnknown,
    /// A protected operation cannot leave HTTP.
    UpgradeRefused,
    /// A protected operation cannot be called over gRPC.
    GrpcUnsupported,
    /// No upstream could be reached, and nothing was sent.
    UpstreamUnreachable,
    /// A request without a record was sent to an upstream, and its answer was lost.
    AnswerLost,
    /// There is no room for another attempt or another body.
    Overloaded,
    /// The handler failed and what it did was rolled back.
    AttemptFailed,
    /// The service was built without something that the operation needs.
    Misconfigured,
}

impl RejectionKind {
    /// Every kind, for documentation and tests.
    pub const ALL: [Self; 26] = [
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::KeyReused,
        Self::InProgress,
        Self::OutcomeUnknown,
        Self::KeyExpired,
        Self::RequestTooOld,
        Self::BodyTooLarge,
        Self::TenantUnknown,
        Self::RateLimited,
        Self::StoreUnavailable,
        Self::AnswerNotKept,
        Self::RequestMalformed,
        Self::RequestTimeout,
        Self::TargetTooLong,
        Self::HeadTooLarge,
        Self::MethodNotAllowed,
        Self::NotFound,
        Self::KeyUnknown,
        Self::UpgradeRefused,
        Self::GrpcUnsupported,
        Self::UpstreamUnreachable,
        Self::AnswerLost,
        Self::Overloaded,
        Self::AttemptFailed,
        Self::Misconfigured,
    ];

    /// The stable code, also the name of the page in `docs/problems`.
    pub fn code(self) -> &'static str {
        match self {
            Self::KeyMissing => "key-missing",
            Self::KeyInvalid => "key-invalid",
            Self::KeyReused => "key-reused",
            Self::InProgress => "in-progress",
            Self::OutcomeUnknown => "outcome-unknown",
            Self::KeyExpired => "key-expired",
            Self::RequestTooOld => "request-too-old",
            Self::BodyTooLarge => "body-too-large",
            Self::TenantUnknown => "tenant-unknown",
            Self::RateLimited => "rate-limited",
            Self::StoreUnavailable => "store-unavailable",
            Self::AnswerNotKept => "answer-not-kept",
            Self::RequestMalformed => "request-malformed",
            Self::RequestTimeout => "request-timeout",
            Self::TargetTooLong => "target-too-long",
            Self::HeadTooLarge => "head-too-large",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::NotFound => "not-found",
            Self::KeyUnknown => "key-unknown",
            Self::UpgradeRefused => "upgrade-refused",
            Self::GrpcUnsupported => "grpc-unsupported",
            Self::UpstreamUnreachable => "upstream-unreachable",
            Self::AnswerLost => "answer-lost",
            Self::Overloaded => "overloaded",
            Self::AttemptFailed => "attempt-failed",
            Self::Misconfigured => "misconfigured",
        }
    }

    /// Returns true if the same request under the same key may succeed later.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::InProgress
            | Self::OutcomeUnknown
            | Self::RateLimited
            | Self::StoreUnavailable
            | Self::RequestTimeout
            | Self::UpstreamUnreachable
            | Self::Overloaded
            | Self::AttemptFailed => true,
            Self::KeyMissing
            | Self::KeyInvalid
            | Self::KeyReused
            | Self::KeyExpired
            | Self::RequestTooOld
            | Self::BodyTooLarge
            | Self::TenantUnknown
            | Self::AnswerNotKept
            | Self::RequestMalformed
            | Self::TargetTooLong
            | Self::HeadTooLarge
            | Self::MethodNotAllowed
            | Self::NotFound
            | Self::KeyUnknown
            | Self::UpgradeRefused
            | Self::GrpcUnsupported
            | Self::AnswerLost
            | Self::Misconfigured => false,
        }
    }

    /// Returns true if sending the action under a new key cannot carry it out twice.
    ///
    /// True only where no request for this action can have run before. A 401, 413, 414, 429 or 503 tells nothing
    /// about earlier attempts; without a key the action may have run while keys were optional; under a key that is
    /// sent amiss now it may have run before a proxy doubled the header, or while the operation was not protected;
    /// and the request that a reused key stands for may be the same action, sent with another timestamp.
    pub fn is_new_key_safe(self) -> bool {
        match self {
            Self::MethodNotAllowed => true,
            Self::KeyMissing
            | Self::KeyInvalid
            | Self::BodyTooLarge
            | Self::TargetTooLong
            | Self::KeyReused
            | Self::InProgress
            | Self::OutcomeUnknown
            | Self::KeyExpired
            | Self::RequestTooOld
            | Self::TenantUnknown
            | Self::RateLimited
            | Self::StoreUnavailable
            | Self::AnswerNotKept
            | Self::RequestMalformed
            | Self::RequestTimeout
            | Self::HeadTooLarge
            | Self::NotFound
            | Self::KeyUnknown
            | Self::UpgradeRefused
            | Self::GrpcUnsupported
            | Self::UpstreamUnreachable
            | Self::AnswerLost
            | Self::Overloaded
            | Self::AttemptFailed
            | Self::Misconfigured => false,
        }
    }

    /// The usual status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing
            | Self::KeyInvalid
            | Self::RequestTooOld
            | Self::RequestMalformed
            | Self::UpgradeRefused => StatusCode::BAD_REQUEST,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InProgress | Self::OutcomeUnknown | Self::AnswerNotKept => StatusCode::CONFLICT,
            Self::KeyExpired => StatusCode::GONE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TenantUnknown => StatusCode::UNAUTHORIZED,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::StoreUnavailable | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotFound | Self::KeyUnknown => StatusCode::NOT_FOUND,
            Self::GrpcUnsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::UpstreamUnreachable | Self::AnswerLost => StatusCode::BAD_GATEWAY,
            Self::AttemptFailed | Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The `type` of the member `error`, in words that clients of payment APIs know.
    pub(super) fn error_type(self) -> &'static str {
        match self {
            Self::KeyMissing
            | Self::KeyInvalid
            | Self::KeyReused
            | Self::InProgress
            | Self::OutcomeUnknown
            | Self::KeyExpired
            | Self::KeyUnknown
            | Self::AnswerNotKept => "idempotency_error",
            Self::TenantUnknown => "authentication_error",
            Self::RateLimited => "rate_limit_error",
            Self::RequestTooOld
            | Self::BodyTooLarge
            | Self::RequestMalformed
            | Self::RequestTimeout
            | Self::TargetTooLong
            | Self::HeadTooLarge
            | Self::MethodNotAllowed
            | Self::NotFound
            | Self::UpgradeRefused
            | Self::GrpcUnsupported => "invalid_request_error",
            Self::StoreUnavailable
            | Self::UpstreamUnreachable
            | Self::AnswerLost
            | Self::Overloaded
            | Self::AttemptFailed
            | Self::Misconfigured => "api_error",
        }
    }
}
