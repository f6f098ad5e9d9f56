//! A payment provider that misbehaves on request.
//!
//! It plays a stranger's system, so it shares no code with the rest of this workspace: what it got
//! wrong and what we got wrong cannot be the same mistake. It runs inside a test ([`Provider::start`])
//! or behind a command, always on loopback, and keeps every payment in a ledger of its own, a file of
//! JSON lines that is synced before a payment counts.
//!
//! ```text
//! POST /v1/payments                       {"amount": 1250, "currency": "EUR", "reference": "order-1"}
//! GET  /v1/payments/{id}
//! GET  /v1/payments?idempotency_key=K
//! GET  /v1/payments?from=…&until=…&limit=…&after=…    oldest first; `next` is the cursor
//! GET  /v1/payments.csv?from=…&until=…
//!
//! GET  /control            the behaviour in force
//! PUT  /control            another behaviour
//! GET  /control/requests   how often it was called
//! POST /control/plant      a discrepancy, for reconciliation to find
//! ```
//!
//! An `amount` of [`DECLINED_AMOUNT`] is always declined with 402. What else goes wrong is said by a
//! [`Behaviour`]; the control routes work in the worst of them.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstwrite_provider::{Behaviour, Chance, Keys, Options, Provider};
//!
//! # let folder = tempfile::tempdir()?;
//! # let ledger = folder.path().join("ledger.jsonl");
//! let provider = Provider::start(Options::new(ledger)).await?;
//! // It takes every call for a new payment, and every third answer is lost on its way.
//! provider.behave(Behaviour {
//!     keys: Keys::Ignore,
//!     lose_answers: Chance::Every(3),
//!     ..Behaviour::default()
//! })?;
//! // ... calls to provider.url() ...
//! assert!(provider.payments().is_empty());
//! provider.stop().await;
//! # Ok(())
//! # }
//! ```

mod api;
mod behaviour;
mod book;
mod chance;
mod clock;
mod conduct;
mod error;
mod ledger;
mod payment;
mod plant;
mod problem;
mod provider;
mod requests;
mod serving;
mod shared;
mod webhook;
mod writer;

pub use behaviour::{Behaviour, Delay, Keys, Outage, Webhooks};
pub use chance::Chance;
pub use clock::{Clock, ManualClock, Moment};
pub use error::{ErrorKind, ProviderError};
pub use ledger::Ledger;
pub use payment::{DECLINED_AMOUNT, Payment};
pub use plant::{Foreign, Plant};
pub use provider::{Options, Provider};
pub use requests::Requests;
pub use webhook::{Secret, WebhookCounts};
