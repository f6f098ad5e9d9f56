//! A real axum application behind the layer, over sockets.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be had ends the test")]

mod app;
mod connections;
#[cfg(feature = "axum")]
mod cors;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod handler_transaction;
mod hyper_plain;
mod one_effect;
#[cfg(feature = "postgres")]
mod postgres;
mod quickstarts;
mod requests;
