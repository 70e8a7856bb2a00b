//! How keys find their entry of routing. Differences between strategies are decided here if possible; the rest are
//! matches that the compiler finds: the SQL of shards (`agent/scope.rs`, `look_up.rs`, `filter.rs`, `state/left.rs`),
//! the bytes of rows (`split/table/matcher.rs`), the input of gateways, and what a plan accepts and refuses.

use super::interval;
use super::ordered::Ordered;
use crate::named_enum::named_enum;
use std::num::NonZeroU32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Each key has an entry.
    Directory,
    /// Each bucket has an entry; the hash of a key selects the bucket.
    Hash { buckets: NonZeroU32, of: Ordered },
    /// Each range has an entry.
    Range { of: Ordered },
}

named_enum! {
    /// The name of a strategy, without its arguments.
    pub enum StrategyKind {
        Directory = "directory",
        Hash = "hash",
        Range = "range",
    }
}

/// An argument that a kind needs to be a strategy and that was not given.
#[derive(Debug, PartialEq, Eq)]
pub enum MissingArgument {
    /// The keys of the type have no order.
    Order,
    Buckets,
}

impl StrategyKind {
    /// Returns the strategy with the order of the keys, if they have one, and the number of buckets, if it is given.
    pub fn with(self, of: Option<Ordered>, buckets: Option<NonZeroU32>) -> Result<Strategy, MissingArgument> {
        Ok(match self {
            StrategyKind::Directory => Strategy::Directory,
            StrategyKind::Hash => {
                let of = of.ok_or(MissingArgument::Order)?;
                Strategy::Hash { of, buckets: buckets.ok_or(MissingArgument::Buckets)? }
            }
            StrategyKind::Range => Strategy::Range { of: of.ok_or(MissingArgument::Order)? },
        })
    }
}

/// The place where a session keeps the route of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Slot<'a> {
    Key(&'a str),
    Bucket(u32),
    /// The entry whose start is the last one at or before these bytes.
    Position(Vec<u8>),
}

/// How the entry of a key is looked up.
#[derive(Debug, PartialEq, Eq)]
pub enum EntryLookup {
    /// By its name.
    Named(String),
    /// Among ranges in this order: the one that contains the key.
    Covering(Ordered),
}

/// The name for the entries of a directory.
const KEYS: &str = "keys";

impl Strategy {
    pub fn kind(self) -> StrategyKind {
        match self {
            Strategy::Directory => StrategyKind::Directory,
            Strategy::Hash { .. } => StrategyKind::Hash,
            Strategy::Range { .. } => StrategyKind::Range,
        }
    }

    pub fn name(self) -> &'static str {
        self.kind().as_str()
    }

    /// Returns what an entry is called, and the function that assigns one, for messages to people.
    pub fn entry_is(self) -> (&'static str, &'static str) {
        match self {
            Strategy::Directory => ("key", "shard_assign"),
            Strategy::Hash { .. } => ("bucket", "shard_assign_bucket"),
            Strategy::Range { .. } => ("range", "shard_assign_range"),
        }
    }

    /// Returns None if the key is not in canonical form, which a directory does not need here.
    pub fn slot<'a>(self, key: &'a str, keyspace: &str) -> Option<Slot<'a>> {
        match self {
            Strategy::Directory => Some(Slot::Key(key)),
            Strategy::Hash { of, .. } | Strategy::Range { of } if !of.is_canonical(key) => None,
            Strategy::Hash { buckets, of } => Some(Slot::Bucket(of.bucket(key, buckets))),
            Strategy::Range { of } => Some(Slot::Position(interval::position(keyspace, of, Some(key)))),
        }
    }

    /// Returns how to look up the entry of a key in canonical form.
    pub fn entry(self, key: &str) -> EntryLookup {
        match self {
            Strategy::Directory => EntryLookup::Named(key.to_owned()),
            Strategy::Hash { buckets, of } => EntryLookup::Named(of.bucket(key, buckets).to_string()),
            Strategy::Range { of } => EntryLookup::Covering(of),
        }
    }

    /// Whether each key is an entry itself, as only in a directory.
    pub fn is_directory(self) -> bool {
        self == Strategy::Directory
    }

    pub fn buckets(self) -> Option<NonZeroU32> {
        match self {
            Strategy::Hash { buckets, .. } => Some(buckets),
            Strategy::Directory | Strategy::Range { .. } => None,
        }
    }

    /// Returns how keys are hashed or ordered, or None if they are only compared.
    pub fn of(self) -> Option<Ordered> {
        match self {
            Strategy::Hash { of, .. } | Strategy::Range { of } => Some(of),
            Strategy::Directory => None,
        }
    }

    /// Returns the order of ranges.
    pub fn order(self) -> Option<Ordered> {
        match self {
            Strategy::Range { of } => Some(of),
            Strategy::Directory | Strategy::Hash { .. } => None,
        }
    }

    /// Returns the kind of the entries that a redirect refuses, as the shard stores it.
    pub fn entries(self) -> String {
        match self {
            Strategy::Directory => KEYS.to_owned(),
            Strategy::Hash { of, buckets } => format!("{buckets} buckets of {}", of.as_str()),
            Strategy::Range { of } => format!("ranges of {}", of.as_str()),
        }
    }

    /// Returns the type of a directory's keys if the stored text contains it.
    pub fn keys_of(entries: &str) -> Option<&str> {
        entries.strip_prefix(KEYS)?.strip_prefix(" of ")
    }

    /// Parses a text that `entries` has returned.
    pub fn of_entries(name: &str) -> Option<Strategy> {
        if name == KEYS || Strategy::keys_of(name).is_some() {
            return Some(Strategy::Directory);
        }
        if let Some(of) = name.strip_prefix("ranges of ") {
            return Ordered::from_name(of).map(|of| Strategy::Range { of });
        }
        let (buckets, of) = name.split_once(" buckets of ")?;
        Some(Strategy::Hash { of: Ordered::from_name(of)?, buckets: buckets.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_its_name_and_needs_what_its_strategy_has() {
        let (of, buckets) = (Some(Ordered::Text), NonZeroU32::new(4));
        for kind in StrategyKind::ALL.iter().copied() {
            assert_eq!(StrategyKind::from_name(kind.as_str()), Some(kind));
            assert_eq!(kind.with(of, buckets).map(Strategy::kind), Ok(kind));
        }
        assert_eq!(StrategyKind::Hash.with(None, None), Err(MissingArgument::Order));
        assert_eq!(StrategyKind::Hash.with(of, None), Err(MissingArgument::Buckets));
        assert_eq!(StrategyKind::Range.with(None, buckets), Err(MissingArgument::Order));
    }

    #[test]
    fn entries_are_known_by_what_they_are_called() {
        let of = Ordered::BigInt;
        let buckets = NonZeroU32::new(12).unwrap();
        for strategy in [Strategy::Directory, Strategy::Hash { buckets, of }, Strategy::Range { of }] {
            assert_eq!(Strategy::of_entries(&strategy.entries()), Some(strategy));
            assert_eq!(Strategy::keys_of(&strategy.entries()), None);
        }
        assert_eq!(Strategy::of_entries("keys of uuid"), Some(Strategy::Directory));
        assert_eq!(Strategy::keys_of("keys of character varying"), Some("character varying"));
    }

    #[test]
    fn only_canonical_keys_have_a_slot_by_hash_or_order() {
        let of = Ordered::BigInt;
        let hash = Strategy::Hash { of, buckets: NonZeroU32::MIN };
        assert_eq!(hash.slot("7", "k"), Some(Slot::Bucket(0)));
        assert_eq!(hash.slot("07", "k"), None);
        assert_eq!(Strategy::Range { of }.slot("07", "k"), None);
        assert_eq!(Strategy::Directory.slot("07", "k"), Some(Slot::Key("07")));
    }
}
