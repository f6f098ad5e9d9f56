//! Bodies at rest in a form that only the application reads.

use std::fmt;

use crate::BoxError;

/// Seals the bodies of requests and answers before they are written down, and opens them again.
///
/// Bind what is sealed to the name of the intent (as associated data of an AEAD), so that one entry's body cannot be
/// put into another's place. Names, URLs and headers are written down as they are.
pub trait Seal: Send + Sync + 'static {
    /// The body in its sealed form.
    fn seal(&self, intent: &str, body: &[u8]) -> Result<Vec<u8>, BoxError>;

    /// The body again. An error leaves the entry where it is.
    fn open(&self, intent: &str, sealed: &[u8]) -> Result<Vec<u8>, BoxError>;
}

impl fmt::Debug for dyn Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}
