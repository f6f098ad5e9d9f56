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

/// Returns the name of an extractor's type by the paths at which applications find its parts: the root of this
/// crate, and `store`.
fn public(extractor: &str) -> String {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut name = String::new();
    let mut rest = extractor;
    while !rest.is_empty() {
        let (path, after) = rest.split_at(rest.find(|c| !is_path(c)).unwrap_or(rest.len()));
        let last = path.rsplit("::").next().unwrap_or(path);
        match path.split("::").next() {
            Some("firstwrite" | "firstwrite_core") => name.extend(["firstwrite::", last]),
            Some("firstwrite_store") => name.extend(["firstwrite::store::", last]),
            _ => name.push_str(path),
        }
        let (between, next) = after.split_at(after.find(is_path).unwrap_or(after.len()));
        name.push_str(between);
        rest = next;
    }
    name
}

impl std::error::Error for ExtractorError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_is_named_by_paths_that_can_be_written() {
        let problem = ExtractorError::OtherStore {
            layer: "firstwrite::atomic::held::Transaction<firstwrite_store::postgres::PostgresStore>",
            handler: "firstwrite::atomic::closure::Atomic<firstwrite_store::sqlite::SqliteStore>",
        };
        assert_eq!(
            problem.to_string(),
            "the handler takes firstwrite::Atomic<firstwrite::store::SqliteStore>; behind this layer, take \
             firstwrite::Transaction<firstwrite::store::PostgresStore>"
        );
        for (named, path) in [
            ("firstwrite_core::memory::MemoryStore", "firstwrite::MemoryStore"),
            (
                "app::stores::Own<(u8, firstwrite_core::memory::MemoryStore)>",
                "app::stores::Own<(u8, firstwrite::MemoryStore)>",
            ),
            ("", ""),
        ] {
            assert_eq!(public(named), path);
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_store_is_named_as_this_crate_exports_it() {
        let path = public(std::any::type_name::<crate::Atomic<crate::store::SqliteStore>>());
        assert_eq!(path, "firstwrite::Atomic<firstwrite::store::SqliteStore>");
    }
}
