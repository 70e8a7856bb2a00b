//! The keys of a walk: three keyspaces, one of each strategy, each with two tables.

use shardmaster_client::shard_for;
use std::num::NonZeroU32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    Directory,
    Hash,
    Range,
}

pub const BUCKETS: NonZeroU32 = NonZeroU32::new(8).unwrap();
/// The bucket whose keys have no rows.
const SPARE_BUCKET: u32 = 7;

impl Space {
    pub const ALL: [Space; 3] = [Space::Directory, Space::Hash, Space::Range];

    pub fn name(self) -> &'static str {
        match self {
            Space::Directory => "default",
            Space::Hash => "events",
            Space::Range => "docs",
        }
    }

    /// Returns the two tables. The second refers to the first.
    pub fn tables(self) -> [&'static str; 2] {
        match self {
            Space::Directory => ["account", "posting"],
            Space::Hash => ["device", "reading"],
            Space::Range => ["doc", "page"],
        }
    }

    pub fn column(self) -> &'static str {
        match self {
            Space::Directory => "tenant",
            Space::Hash => "device_id",
            Space::Range => "path",
        }
    }

    pub fn sql_type(self) -> &'static str {
        match self {
            Space::Directory => "text",
            Space::Hash => "bigint",
            Space::Range => "text COLLATE \"C\"",
        }
    }
}

/// Index into the list of keys.
pub type KeyIndex = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub space: Space,
    pub text: String,
    /// Whether clients write rows of it. The other keys have none, and are reassigned by hand.
    pub is_written: bool,
}

impl Key {
    /// Returns the number of its bucket, if it is a key of the hash keyspace.
    pub fn bucket(&self) -> Option<u32> {
        match self.space {
            Space::Hash => self.text.parse::<i64>().ok().map(|id| shard_for(id, BUCKETS)),
            Space::Directory | Space::Range => None,
        }
    }
}

/// Returns all keys: tenants, one or more devices for each bucket, and one path in each range that the bounds
/// of `bounds` can cut out.
pub fn all() -> Vec<Key> {
    let key = |space, text: String, is_written| Key { space, text, is_written };
    let mut keys: Vec<Key> = (0..12).map(|n| key(Space::Directory, format!("tenant-{n:02}"), true)).collect();
    keys.extend((0..4).map(|n| key(Space::Directory, format!("spare-{n}"), false)));
    let mut wanted = vec![2; BUCKETS.get() as usize];
    for id in 1..10_000_i64 {
        let device = key(Space::Hash, id.to_string(), true);
        let device = Key { is_written: device.bucket() != Some(SPARE_BUCKET), ..device };
        let left = device.bucket().and_then(|bucket| wanted.get_mut(bucket as usize));
        if let Some(left) = left.filter(|left| **left > 0) {
            *left -= 1;
            keys.push(device);
        }
    }
    keys.push(key(Space::Range, "0".into(), false));
    keys.extend(bounds().map(|bound| key(Space::Range, format!("{bound}-path"), true)));
    keys
}

/// Returns the bounds at which ranges are cut.
pub fn bounds() -> impl Iterator<Item = &'static str> {
    ["b", "d", "f", "h", "j", "l", "n", "p", "r", "t"].into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_has_keys() {
        let keys = all();
        for bucket in 0..BUCKETS.get() {
            assert!(keys.iter().any(|key| key.bucket() == Some(bucket)));
        }
    }
}
