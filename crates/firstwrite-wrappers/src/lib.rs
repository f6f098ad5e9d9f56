//! Stores in front of other stores.
//!
//! `SealedStore` (feature `sealed`) encrypts outcomes, `CachedStore` (feature `redis-cache`) asks Redis first,
//! [`BreakerStore`] stops calling a store that is unavailable. If several are used, they are nested in this order,
//! the first outermost: so cached outcomes are sealed, and can be replayed while the store is unavailable.
//! [`MovingStore`] is innermost, over two stores of which one replaces the other.
//!
//! A wrapper decides how the store behind it is used, and never what a record means: that stays with the protocol
//! in `firstwrite-core`. Each passes the conformance suite in `firstwrite-testkit` like the store that it wraps.

mod breaker;
#[cfg(feature = "redis-cache")]
mod cached;
mod circuit;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod moving;
#[cfg(feature = "sealed")]
mod sealed;
mod seldom;

pub use breaker::{BreakerOptions, BreakerStore};
#[cfg(feature = "redis-cache")]
pub use cached::{CacheCounts, CacheError, CacheOptions, CacheScope, CachedStore};
pub use moving::MovingStore;
#[cfg(feature = "sealed")]
pub use sealed::{KeyRing, KeyRingError, SealedStore, SealingKey, UnopenedCounts};
#[doc(hidden)]
pub use seldom::Seldom;

/// The page's example, compiled.
#[cfg(all(doctest, feature = "sealed"))]
#[doc = include_str!("../../../docs/encryption.md")]
mod encryption_page {}
