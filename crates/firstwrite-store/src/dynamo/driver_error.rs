//! Maps the service's and the SDK's errors to store errors.

use std::error::Error;
use std::fmt;

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use firstwrite_core::{Certainty, StoreError, StoreErrorKind};

pub(super) use crate::step_error::{corrupt, unavailable, unsupported};

/// An error between the store and the service.
#[derive(Debug)]
pub(super) struct DriverError {
    kind: StoreErrorKind,
    certainty: Certainty,
    /// The service's code, if the service answered.
    pub(super) code: Option<String>,
    text: String,
}

/// Code of a missing table.
pub(super) const NOT_FOUND: &str = "ResourceNotFoundException";

/// Code of a conflict with another transaction on the item; nothing was written.
pub(super) const CONFLICT: &str = "TransactionConflictException";

impl DriverError {
    /// Reads an error of any call.
    pub(super) fn of<E, R>(error: &SdkError<E, R>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
        R: fmt::Debug + 'static,
    {
        if let SdkError::ServiceError(said) = error {
            let (code, message) = (said.err().code(), said.err().message());
            let (kind, certainty) = meaning(code.unwrap_or_default());
            let text = match (code, message) {
                (Some(code), Some(message)) => format!("{message} ({code})"),
                (Some(code), None) => code.to_owned(),
                (None, _) => "the service answered with an error that has no name".to_owned(),
            };
            return Self { kind, certainty, code: code.map(str::to_owned), text };
        }
        let is_unsent = match error {
            SdkError::ConstructionFailure(_) => true,
            SdkError::DispatchFailure(failed) => failed.is_user() || is_before_sending(error),
            // Sent, or possibly sent; the same is assumed of any error that the SDK may add in future.
            SdkError::TimeoutError(_) | SdkError::ResponseError(_) | _ => false,
        };
        if is_unsent {
            let text = format!("it was not sent: {}", DisplayErrorContext(error));
            return Self::silent(Certainty::Definite, text);
        }
        Self::silent(Certainty::Indeterminate, format!("no answer: {}", DisplayErrorContext(error)))
    }

    fn silent(certainty: Certainty, text: String) -> Self {
        Self { kind: StoreErrorKind::Unavailable, certainty, code: None, text }
    }

    /// Adds the next step if the table is missing.
    pub(super) fn at(mut self, address: &impl fmt::Display) -> Self {
        if self.code.as_deref() == Some(NOT_FOUND) {
            self.text = format!(
                "the table is not there, or not ready; run `firstwrite migrate --store {address}` ({NOT_FOUND})"
            );
        }
        self
    }

    pub(super) fn is_indeterminate(&self) -> bool {
        self.certainty == Certainty::Indeterminate
    }

    /// Returns the error of a step that may have written something.
    pub(super) fn of_write(self, doing: &'static str) -> StoreError {
        let error = match self.certainty {
            Certainty::Definite => StoreError::definite(self.kind, doing),
            Certainty::Indeterminate => StoreError::indeterminate(self.kind, doing),
        };
        error.caused_by(self.text)
    }

    /// Returns the error of a step that only read.
    pub(super) fn of_read(self, doing: &'static str) -> StoreError {
        StoreError::definite(self.kind, doing).caused_by(self.text)
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Maps an error code of the service to a kind, and tells whether certainly nothing was written.
fn meaning(code: &str) -> (StoreErrorKind, Certainty) {
    use Certainty::{Definite, Indeterminate};
    match code {
        // Too much is asked of it, or of one of its partitions; another transaction is in the way; what the
        // credentials lack may be put right while the store is open.
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "ReplicatedWriteConflictException"
        | CONFLICT
        | "ExpiredTokenException"
        | "ExpiredToken"
        | "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignatureException"
        | "RequestExpired" => (StoreErrorKind::Unavailable, Definite),
        // The table or an index is missing, a right is missing, a request is malformed.
        NOT_FOUND
        | "AccessDeniedException"
        | "MissingAuthenticationTokenException"
        | "ValidationException"
        | "SerializationException"
        | "IdempotentParameterMismatchException"
        | "UnknownOperationException"
        | "ItemCollectionSizeLimitExceededException" => (StoreErrorKind::Unsupported, Definite),
        // 500 and 503: the service does not say how far it came. Unknown codes are treated alike.
        _ => (StoreErrorKind::Unavailable, Indeterminate),
    }
}

/// Returns true if the connection failed before a byte of the request was sent.
fn is_before_sending(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(this) = cause {
        if let Some(client) = this.downcast_ref::<hyper_util::client::legacy::Error>() {
            return client.is_connect();
        }
        cause = this.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_definite_and_an_error_of_the_service_is_not() {
        for code in ["ThrottlingException", "ProvisionedThroughputExceededException", CONFLICT] {
            assert_eq!(meaning(code), (StoreErrorKind::Unavailable, Certainty::Definite), "{code}");
        }
        for code in
            ["InternalServerError", "ServiceUnavailable", "TransactionInProgressException", ""]
        {
            let wanted = (StoreErrorKind::Unavailable, Certainty::Indeterminate);
            assert_eq!(meaning(code), wanted, "{code}");
        }
        for code in ["ResourceNotFoundException", "AccessDeniedException", "ValidationException"] {
            assert_eq!(meaning(code), (StoreErrorKind::Unsupported, Certainty::Definite), "{code}");
        }
    }
}
