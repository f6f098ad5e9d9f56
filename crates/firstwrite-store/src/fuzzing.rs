//! Entry points for fuzzing (see `fuzz/`): each decodes foreign bytes and panics if a rule does not hold.

/// A function of bytes, by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] =
    &[("redis_record", crate::redis::decode_value), ("address", address)];

/// The address of a store, of whatever kind. Reading it touches nothing.
fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(crate::redis::show_address(text));
    #[cfg(feature = "postgres")]
    drop(crate::postgres::show_address(text));
    #[cfg(feature = "mysql")]
    drop(crate::mysql::show_address(text));
    #[cfg(feature = "dynamodb")]
    crate::dynamo::parse_address(text);
}
