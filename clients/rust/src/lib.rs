//! Keeps one key for one action through retries and crashes, and says of every action how it ended.
//!
//! A caller that loses an answer does not know whether the action was carried out. This client writes down what a
//! person meant, an *intent*, with its request and its `Idempotency-Key`, before anything is sent. It sends the intent
//! under that key until it has an end: [`Done`], [`Refused`](End::Refused), [`Unknown`](End::Unknown) or
//! [`Expired`](End::Expired). A process that dies goes on after its restart, under the same key.
//!
//! ```
//! # #[cfg(feature = "hyper")]
//! # async fn pay(url: &str, shown: impl Fn(&str)) -> Result<(), Box<dyn std::error::Error>> {
//! use firstwrite_client::{Client, End, FileStorage, transport::HyperTransport};
//!
//! let client = Client::builder(FileStorage::open("intents")?, HyperTransport::plain()).build();
//! let order = serde_json::json!({"amount": 4990, "currency": "EUR", "customer": "cus_1"});
//! let pay = client.intent("checkout/cart_42").post_json(url, &order).open().await?;
//! match pay.send().await? {
//!     End::Done(_) => shown("paid"),
//!     End::Refused(refused) if refused.safe_new_key => shown("not paid; pay in another way"),
//!     End::Refused(_) | End::Unknown(_) | End::Expired(_) => shown("we find out and write to you"),
//! }
//! pay.acknowledge().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! 1. The same name with the same request is the same intent, with the same key; with another request it is
//!    [`Error::IntentConflict`].
//! 2. No byte is sent before the mark of its attempt is durable.
//! 3. No end is returned before it is durable.
//! 4. An intent never ends by a guess. What may have happened is *in doubt* until an answer settles it.
//! 5. Nothing is sent before the time that the server named, nor after the life of the key.
//! 6. Only [`Intent::acknowledge`] forgets, and only [`Draft::supersede`] replaces, where a new key is safe.
//!
//! [`rules`] has the decisions as pure functions. The page `clients/README.md` of the repository says all of this for
//! the clients in every language.
//!
//! # Errors
//!
//! An [`Error`] is no end: the intent stands, and `send` goes on. [`Error::Pending`] is the one to expect: there was
//! no end within [`wait_for`](Builder::wait_for).
//!
//! # Features
//!
//! None is on by default. `reqwest` and `hyper` bring a [`transport`], `sqlite` a [`storage`] in one file,
//! `reqwest-middleware` a `OneKey` for those who want a key over retries and nothing written down. Nothing here needs
//! a runtime but the transports, which need Tokio.

mod client;
mod clock;
mod credentials;
mod draft;
mod end;
mod entry;
mod error;
mod event;
mod intent;
mod key;
#[cfg(feature = "reqwest-middleware")]
mod one_key;
mod origins;
mod queue;
pub mod rules;
mod seal;
mod sending;
mod snapshot;
pub mod storage;
pub mod transport;

use std::pin::Pin;

pub use client::{Builder, Client, StatusUse};
pub use clock::{Clock, SystemClock};
pub use credentials::{Ask, Bearer, Credentials};
pub use draft::Draft;
pub use end::{Answer, Cause, Done, End, EndKind, Refused, Unresolved};
pub use error::{Error, Pending};
pub use event::{Event, FailureKind, Next, Step};
pub use intent::Intent;
pub use key::{Key, Secret, SecretError};
#[cfg(feature = "reqwest-middleware")]
pub use one_key::OneKey;
pub use queue::{Queue, QueueHooks};
pub use rules::Dialect;
pub use seal::Seal;
pub use snapshot::{Snapshot, State};
#[cfg(feature = "sqlite")]
pub use storage::SqliteStorage;
pub use storage::{FileStorage, MemoryStorage, Storage};
pub use transport::Transport;

/// An error of somebody else.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A future in a box, so that storages, transports and clocks can be values.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[cfg(all(doctest, feature = "hyper"))]
#[doc = include_str!("../README.md")]
struct Readme;
