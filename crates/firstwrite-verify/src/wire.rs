//! HTTP/1.1 as bytes on a connection, so that what no client library would send can be sent.

mod answer;
mod connection;
mod tls;

pub(crate) use answer::Answer;
pub(crate) use connection::{Connection, Silence};
pub(crate) use tls::Trust;
