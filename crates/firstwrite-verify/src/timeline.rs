//! Times of requests, for the picture in the report.

use std::time::Duration;

/// One request; times since the run began.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exchange {
    /// Name of the scene.
    pub scene: &'static str,
    /// Connecting began.
    pub began: Duration,
    /// The last byte was sent.
    pub sent: Duration,
    /// The first byte came back, or nothing did by then.
    pub heard: Duration,
    /// The answer's status; nothing if there was none.
    pub status: Option<u16>,
}
