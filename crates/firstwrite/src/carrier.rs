//! Carriers: how messages of the outbox get to their destinations.
//!
//! A carrier hands one message over, once, and says how that ended; it decides nothing about the
//! message. Each is behind a feature of its own, off by default.

#[cfg(feature = "_brokers")]
pub mod broker;
#[cfg(feature = "http-destination")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis-streams")]
pub mod redis_streams;
