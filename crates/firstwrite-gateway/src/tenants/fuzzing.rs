//! Tokens and keys, for [`crate::fuzzing`].

pub(crate) use super::jwt::fuzzing::{claims, jwks, jws};
