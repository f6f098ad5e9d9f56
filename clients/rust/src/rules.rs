//! The rules of an intent as pure functions: what an answer means, how long to wait, how long to go on.
//!
//! [`Client`](crate::Client) follows them; they are here by themselves for those who send in another way. The page
//! `clients/README.md` of the repository says them in words, and the vectors beside it as data.

mod backoff;
mod decide;
mod life;
mod problem;
mod status;
mod time;

pub use backoff::{retry_after, wait, wait_left};
pub use decide::{Decision, Dialect, Ending, Situation, decide};
pub use life::{Life, Limits, Over, key_time, life};
pub use status::{AfterStatus, after_status};
pub use time::Timestamp;

pub(crate) use problem::Problem;
