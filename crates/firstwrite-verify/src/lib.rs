//! Asks any HTTP API, from outside, whether its retries are safe.
//!
//! A [`Plan`] names an operation, a body that it takes, and what the server may be put through. [`verify`]
//! sends a few hundred requests and says of every [`Check`] in [`CHECKS`] how it went; a [`Report`] holds
//! the findings and a [`Grade`].
//!
//! It speaks HTTP/1.1 and nothing else, and it shares no code with what it checks: they cannot share a
//! mistake. Requests go to the hosts that were named and nowhere else; redirects are not followed.
//!
//! The rules, all of them, are in `docs/verify.md`.

mod call;
mod catalogue;
mod checks;
mod effects;
mod error;
mod finding;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grade;
mod hook;
mod json;
pub mod openapi;
mod plan;
mod probe;
mod profile;
mod reply;
mod report;
mod run;
mod statistics;
mod target;
mod timeline;
mod webhook;
mod wire;

pub use catalogue::{CHECKS, Check, Severity};
pub use error::{Error, ErrorKind};
pub use finding::{Finding, Verdict};
pub use grade::{Grade, grade};
pub use hook::Hook;
pub use plan::{EffectsBy, Header, Hint, Hooks, Limits, Operations, Plan, Tenants};
pub use profile::Profile;
pub use report::Report;
pub use run::{Progress, verify};
pub use target::{Reach, Target};
pub use timeline::Exchange;
