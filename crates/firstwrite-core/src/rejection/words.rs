//! Titles and usual explanations of refusals, for people.

use super::RejectionKind;

impl RejectionKind {
    /// One line for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::KeyMissing => "This operation needs an Idempotency-Key",
            Self::KeyInvalid => "The Idempotency-Key cannot be understood",
            Self::KeyReused => "This key was used for a different request",
            Self::InProgress => "The first request with this key is still being worked on",
            Self::OutcomeUnknown => "It is not known how the first request with this key ended",
            Self::KeyExpired => "This key was used up and its answer is no longer kept",
            Self::RequestTooOld => "This request is too old to be carried out",
            Self::BodyTooLarge => "The request's body is too large",
            Self::TenantUnknown => "The caller could not be identified",
            Self::RateLimited => "Too many requests with new keys",
            Self::StoreUnavailable => "Keys cannot be reserved at the moment; nothing was run",
            Self::AnswerNotKept => "The request was carried out, but its answer was not kept",
            Self::RequestMalformed => "The request cannot be read in one way only",
            Self::RequestTimeout => "The request did not arrive in time",
            Self::TargetTooLong => "The target of the request is too long",
            Self::HeadTooLarge => "The head of the request is too large",
            Self::MethodNotAllowed => "This method is not allowed here",
            Self::NotFound => "There is no such page",
            Self::KeyUnknown => "Nothing stands under this key",
            Self::UpgradeRefused => "A protected operation cannot change to another protocol",
            Self::GrpcUnsupported => {
                "A gRPC call cannot be protected, and needs an upstream over HTTP/2"
            }
            Self::UpstreamUnreachable => "The API behind the gateway could not be reached",
            Self::AnswerLost => "The API's answer was lost",
            Self::Overloaded => "There is no room for the request at the moment",
            Self::AttemptFailed => "The attempt failed, and nothing of it counts",
            Self::Misconfigured => "The service is misconfigured",
        }
    }

    /// The usual explanation.
    pub(super) fn detail(self) -> &'static str {
        match self {
            Self::KeyMissing => {
                "Send an Idempotency-Key header with a value of your own choice, unique to this \
                 action, and send the same value when you retry it."
            }
            Self::KeyInvalid => {
                "Send one Idempotency-Key of 1 to 255 visible ASCII characters, quoted or bare. Mend the header \
                 and keep the key: an earlier attempt under it may have been carried out."
            }
            Self::KeyReused => {
                "Check first whether this is the same action as the first request, perhaps at another host or \
                 port or with another timestamp: a new key would carry it out twice. To retry it, send the \
                 first request unchanged; use a new key only for another action. The API's owner makes several \
                 names one service with `service_name`."
            }
            Self::OutcomeUnknown => {
                "The outcome is being settled. Retry later with the same key; a new key could carry \
                 the action out twice."
            }
            Self::KeyExpired => {
                "The action was carried out some time ago. Look its result up before you send it \
                 under a new key."
            }
            Self::RequestTooOld => {
                "Look up whether the action was carried out before sending it anew."
            }
            Self::BodyTooLarge => {
                "Nothing was looked up or run. Send a smaller body; if this one was accepted before, ask the \
                 API's owner about the limit."
            }
            Self::TenantUnknown => "Send valid credentials; nothing was looked up or run.",
            Self::InProgress | Self::RateLimited | Self::StoreUnavailable => {
                "Retry with the same key after the time in Retry-After."
            }
            Self::AnswerNotKept => {
                "Do not send the action again. Look its result up, at the Location if one is given."
            }
            Self::RequestMalformed => "Nothing was run. Correct the request.",
            Self::RequestTimeout => {
                "Nothing was run. Send the request again, with the same key if it had one."
            }
            Self::TargetTooLong => "The target is longer than 8 KiB. Nothing was run.",
            Self::HeadTooLarge => "Send fewer or shorter headers. Nothing was run.",
            Self::MethodNotAllowed => "This resource can only be read.",
            Self::NotFound => "Nothing is served at this path; nothing was passed on.",
            Self::KeyUnknown => {
                "Nothing stands under this key: it was not used, or it is free again."
            }
            Self::UpgradeRefused => "Leave Upgrade out. Nothing was run.",
            Self::GrpcUnsupported => {
                "gRPC reports its status in trailers, which a kept answer does not hold. Nothing was run. \
                 The API's owner names the method in [[gateway.operations]] with `unprotected`, or \
                 offers the action over plain HTTP."
            }
            Self::UpstreamUnreachable => {
                "The upstream could not be reached; nothing was sent. Retry with the same key."
            }
            Self::AnswerLost => {
                "The request was sent to the upstream, and no answer came. It may have been carried out."
            }
            Self::Overloaded => {
                "There is no room for the request at the moment; nothing was run. Retry with the same \
                 key."
            }
            Self::AttemptFailed => "The request was not carried out; retry it with the same key.",
            Self::Misconfigured => "Nothing was run. The service's log says what is missing.",
        }
    }
}
