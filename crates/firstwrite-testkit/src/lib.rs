//! The definition of a firstwrite store, and the proof that the rules hold.
//!
//! - [`conformance`]: the cases every store must pass, run from a store's own tests through a
//!   [`Subject`].
//! - [`history`] and [`linearizability`]: concurrent histories recorded on a real store and checked.
//! - [`sim`]: a seeded simulator of clients, crashes, lost acknowledgements and clock jumps over
//!   the production protocol.
//! - [`accounts`]: a provider's account, whole or wrong in each of the ways that were met.
//! - [`defects`]: planted defects, each of which one of the above must catch.
//! - `model` (feature `model`): the protocol explored exhaustively, and known-bad designs refuted.
//!
//! Nothing here is linked into a product: it is a dev-dependency.

pub mod accounts;
mod away;
mod clock;
pub mod conformance;
pub mod defects;
mod faulty;
pub mod fuzz;
pub mod history;
pub mod linearizability;
#[cfg(feature = "model")]
pub mod model;
mod network;
pub mod sample;
mod script;
mod seed;
pub mod sim;
mod subject;

pub use away::AwayStore;
pub use clock::ManualClock;
pub use faulty::{Fault, FaultyStore};
pub use network::{Network, Proxy};
pub use script::{Ending, Script, ScriptFailed, ScriptReport, play, play_held};
pub use seed::seed;
pub use subject::{MemorySubject, Subject, WrappedSubject};
