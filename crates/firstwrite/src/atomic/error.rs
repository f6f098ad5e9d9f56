//! A handler and a layer that do not fit together.

use std::fmt;

use http::Response;

use crate::body::ResponseBody;
use crate::respond;

/// A handler asked for something that the layer around it does not provide: a mistake in how the
/// application is put together. The client gets a bare 500; the text, which names the fix, goes to
/// the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtractorError {
    /// The route is not protected: no layer around it, or no policy for it, or the request needed
    /// no key.
    NoAttempt,
    /// The route's policy is not atomic.
    NotAtomic,
    /// The layer was built over another type of store, or for the other extractor.
    #[non_exhaustive]
    OtherStore {
        /// Type that handlers behind this layer take.
        layer: &'static str,
        /// Type that the handler takes.
        handler: &'static str,
    },
    /// The handler asked for its transaction twice.
    Taken,
}

impl ExtractorError {
    /// Writes the reason to the log and makes the answer for the client.
    pub fn response(&self) -> Response<ResponseBody> {
        tracing::error!(problem = %self, "the application is put together wrongly");
        respond::misconfigured()
    }
}

impl fmt::Display for ExtractorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAttempt => {
                "no operation protects this route; put IdempotencyLayer around it, with a policy for it"
            }
            Self::NotAtomic => {
                "the policy of this route is not atomic; give the route Policy::atomic()"
            }
            Self::OtherStore { layer, handler } => {
                let (layer, handler) = (public(layer), public(handler));
                return write!(f, "the handler takes {handler}; behind this layer, take {layer}");
            }
            Self::Taken => "the handler took its transaction twice; take it once and pass it on",
        })
    }
}

/// Returns the name of an extractor's type by the path at which it is public.
fn public(extractor: &str) -> String {
    let atomic = extractor.replace("firstwrite::atomic::closure::", "firstwrite::");
    atomic.replace("firstwrite::atomic::held::", "firstwrite::")
}

impl std::error::Error for ExtractorError {}
