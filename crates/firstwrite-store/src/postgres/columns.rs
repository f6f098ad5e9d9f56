//! Encodes ids, instants and block positions in PostgreSQL's binary format, and collects parameters.

use std::error::Error;

use bytes::BytesMut;
use firstwrite_core::{RecordId, Timestamp};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A record id in a `uuid` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) RecordId);

/// Value of a `timestamptz` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// `-infinity`.
    Never,
    /// An instant; the last one that the column holds is the end of time.
    Instant(Timestamp),
    /// `infinity`.
    Always,
}

/// A `tid`: the beginning of a block of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(pub(super) u32);

/// The parameters of a statement, in order.
#[derive(Default)]
pub(super) struct Values<'a>(Vec<Box<dyn ToSql + Sync + Send + 'a>>);

/// Milliseconds from the Unix epoch to the server's, the beginning of 2000.
const EPOCH_MILLIS: i64 = 946_684_800_000;

/// The last whole millisecond that a `timestamptz` holds, from the server's epoch: see
/// [`super::sql::LATEST`].
const LATEST_MILLIS: i64 = 9_223_371_331_199_999;

/// The first one.
const EARLIEST_MILLIS: i64 = -211_813_488_000_000;

impl At {
    /// The instant, where there is one.
    pub(super) fn instant(self) -> Option<Timestamp> {
        match self {
            Self::Instant(at) => Some(at),
            Self::Never | Self::Always => None,
        }
    }
}

impl<'a> Values<'a> {
    pub(super) fn and(mut self, value: impl ToSql + Sync + Send + 'a) -> Self {
        self.0.push(Box::new(value));
        self
    }

    /// Adds an array with one value of each row.
    pub(super) fn and_each<R, T: ToSql + Sync + Send + 'a>(
        self,
        rows: &'a [R],
        value: impl Fn(&'a R) -> T,
    ) -> Self {
        self.and(rows.iter().map(value).collect::<Vec<T>>())
    }

    pub(super) fn parameters(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.0.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }
}

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(RecordId::from_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let micros = match self {
            Self::Never => i64::MIN,
            Self::Always => i64::MAX,
            Self::Instant(at) => {
                let millis = at.as_millis().saturating_sub(EPOCH_MILLIS);
                millis.clamp(EARLIEST_MILLIS, LATEST_MILLIS) * 1000
            }
        };
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match i64::from_be_bytes(raw.try_into()?) {
            i64::MIN => Self::Never,
            i64::MAX => Self::Always,
            micros if micros >= LATEST_MILLIS * 1000 => {
                Self::Instant(Timestamp::from_millis(i64::MAX))
            }
            micros => Self::Instant(Timestamp::from_millis(micros.div_euclid(1000) + EPOCH_MILLIS)),
        })
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for Block {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        out.extend_from_slice(&0_u16.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TID);
    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives(at: At) -> At {
        let mut bytes = BytesMut::new();
        at.to_sql(&Type::TIMESTAMPTZ, &mut bytes).unwrap();
        At::from_sql(&Type::TIMESTAMPTZ, &bytes).unwrap()
    }

    #[test]
    fn instants_survive_and_the_end_of_time_stays_the_end_of_time() {
        for millis in [-1, 0, 1, 946_684_799_999, 946_684_800_000, 4_102_444_800_001] {
            let at = At::Instant(Timestamp::from_millis(millis));
            assert_eq!(survives(at), at);
        }
        for at in [At::Never, At::Always, At::Instant(Timestamp::from_millis(i64::MAX))] {
            assert_eq!(survives(at), at);
        }
    }

    #[test]
    fn bytes_of_another_length_are_refused() {
        assert!(At::from_sql(&Type::TIMESTAMPTZ, &[0; 7]).is_err());
        assert!(Id::from_sql(&Type::UUID, &[0; 15]).is_err());
    }
}
