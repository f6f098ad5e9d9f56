//! HTTP/1.1 as bytes on a connection, so that what no client library would send can be sent.

mod answer;
mod connection;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod tls;

pub(crate) use answer::Answer;
pub(crate) use connection::{Connection, Silence};
pub(crate) use tls::Trust;
