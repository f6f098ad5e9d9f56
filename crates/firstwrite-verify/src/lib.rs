//! Asks any HTTP API, from outside, whether its retries are safe.
