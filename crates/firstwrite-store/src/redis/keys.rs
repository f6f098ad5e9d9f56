//! Names of the Redis keys, and the hash tags that keep related keys together.
//!
//! Records are kept in 256 shards by the first byte of their id. All keys of a shard have one hash tag, so one
//! script can change a record and the shard's indexes together, also in a cluster; and since ids are
//! digests, shards are alike, and their order is the order of ids.

use firstwrite_core::RecordId;

use super::scripts::CommandArgs;

/// A part of the store that lives on one server: all ids that begin with this byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shard(pub(super) u8);

/// Builds the names of a store's keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

const SLOTS: u16 = 16_384;

impl Shard {
    /// In the order of the ids they hold.
    pub(super) fn all() -> impl ExactSizeIterator<Item = Self> + Clone {
        (0..=u8::MAX).collect::<Vec<_>>().into_iter().map(Self)
    }

    pub(super) fn of(id: RecordId) -> Self {
        Self(id.as_bytes()[0])
    }

    pub(super) fn place(self) -> usize {
        usize::from(self.0)
    }
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn record(&self, id: RecordId) -> Vec<u8> {
        self.key(Shard::of(id), &format!("r:{id}"))
    }

    /// Returns the key of the operators' actions on a record.
    pub(super) fn audits(&self, id: RecordId) -> Vec<u8> {
        self.key(Shard::of(id), &format!("a:{id}"))
    }

    /// All ids of the shard, in their order.
    pub(super) fn ids(&self, shard: Shard) -> Vec<u8> {
        self.key(shard, "ids")
    }

    /// Reserved records by the end of their lease.
    pub(super) fn leases(&self, shard: Shard) -> Vec<u8> {
        self.key(shard, "leases")
    }

    /// Completed records by when they may be reaped.
    pub(super) fn kept(&self, shard: Shard) -> Vec<u8> {
        self.key(shard, "kept")
    }

    /// Returns the key of the index updates of a shard that have not been applied yet.
    pub(super) fn journal(&self, shard: Shard) -> Vec<u8> {
        self.key(shard, "journal")
    }

    /// Returns the keys that a move on a record may touch, in the order in which the scripts expect them.
    pub(super) fn moved(&self, id: RecordId) -> CommandArgs {
        let shard = Shard::of(id);
        let mut keys = CommandArgs::with_capacity(5, 256);
        keys.push(self.record(id));
        keys.push(self.journal(shard));
        keys.push(self.ids(shard));
        keys.push(self.leases(shard));
        keys.push(self.kept(shard));
        keys
    }

    /// The mark of a shard, or of the server that has all of them: see `mark.lua`.
    pub(super) fn mark(&self, shard: Shard) -> Vec<u8> {
        self.key(shard, "mark")
    }

    /// Returns the key of the raised and cleared history losses of the whole store, in its first shard.
    pub(super) fn history_losses(&self) -> Vec<u8> {
        self.key(Shard(0), "history_losses")
    }

    /// Returns the key that marks a created store, in its first shard.
    pub(super) fn store(&self) -> Vec<u8> {
        self.key(Shard(0), "store")
    }

    /// Returns the hash slot of the shard in a cluster.
    pub(super) fn slot(&self, shard: Shard) -> u16 {
        crc16(self.tag(shard).as_bytes()) % SLOTS
    }

    fn key(&self, shard: Shard, rest: &str) -> Vec<u8> {
        format!("{{{}}}{rest}", self.tag(shard)).into_bytes()
    }

    fn tag(&self, shard: Shard) -> String {
        format!("{}:{:02x}", self.prefix, shard.0)
    }
}

/// The checksum that cluster slots are made of: CRC-16 with the polynomial 0x1021, beginning at zero.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use firstwrite_testkit::sample;

    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_clusters() {
        // The check value that the cluster specification gives.
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn the_keys_of_a_record_share_a_tag_and_shards_spread() {
        let keys = Keys::new("firstwrite");
        let id = RecordId::of(&sample::tenant("acme"), &sample::key("k"));
        let tag = format!("{{firstwrite:{:02x}}}", id.as_bytes()[0]).into_bytes();
        let shard = Shard::of(id);
        for key in [
            keys.record(id),
            keys.audits(id),
            keys.ids(shard),
            keys.leases(shard),
            keys.kept(shard),
            keys.mark(shard),
            keys.journal(shard),
        ] {
            assert!(key.starts_with(&tag));
        }
        // A third of the slots each, as in a cluster of three.
        for third in 0..3 {
            let mine =
                Shard::all().filter(|shard| u32::from(keys.slot(*shard)) * 3 / 16_384 == third);
            assert!(mine.count() > 60);
        }
    }
}
