//! How keys find their entry of routing. What differs from one strategy to another is asked
//! here where it can be; the rest are matches that the compiler leads to: the SQL of shards
//! (`agent/scope.rs`, `look_up.rs`, `filter.rs`, `state/left.rs`), the bytes of rows
//! (`split/table/mesh.rs`), what gateways are given, what a plan takes and what it refuses.

use super::interval;
use super::ordered::Ordered;
use std::num::NonZeroU32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Each key has an entry.
    Directory,
    /// Each bucket has one; the key's hash says which.
    Hash { buckets: NonZeroU32, of: Ordered },
    /// Each range has one.
    Range { of: Ordered },
}

/// A strategy by its name alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrategyKind {
    Directory,
    Hash,
    Range,
}

/// What a kind needs to be a strategy, and was not given.
#[derive(Debug, PartialEq, Eq)]
pub enum MissingArgument {
    /// Keys of the type have none.
    Order,
    Buckets,
}

impl StrategyKind {
    pub const ALL: [StrategyKind; 3] = [StrategyKind::Directory, StrategyKind::Hash, StrategyKind::Range];

    /// As SQL and the catalog call it.
    pub fn name(self) -> &'static str {
        match self {
            StrategyKind::Directory => "directory",
            StrategyKind::Hash => "hash",
            StrategyKind::Range => "range",
        }
    }

    pub fn from_name(name: &str) -> Option<StrategyKind> {
        StrategyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Of keys with an order, if they have one, and so many buckets, if that is said.
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

/// Where a session keeps what it has found of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Slot<'a> {
    Key(&'a str),
    Bucket(u32),
    /// With the entry that begins last at or before these bytes.
    Position(Vec<u8>),
}

/// Where the entry of a key is to be looked for.
#[derive(Debug, PartialEq, Eq)]
pub enum EntryLookup {
    /// By its name.
    Named(String),
    /// Among ranges in this order: the one that the key is in.
    Covering(Ordered),
}

/// What the entries of a directory are.
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
        self.kind().name()
    }

    /// What an entry is, and the function that assigns one, as people know them.
    pub fn entry_is(self) -> (&'static str, &'static str) {
        match self {
            Strategy::Directory => ("key", "shard_assign"),
            Strategy::Hash { .. } => ("bucket", "shard_assign_bucket"),
            Strategy::Range { .. } => ("range", "shard_assign_range"),
        }
    }

    /// None: the key is not in its canonical form, which a directory does not need here.
    pub fn slot<'a>(self, key: &'a str, keyspace: &str) -> Option<Slot<'a>> {
        match self {
            Strategy::Directory => Some(Slot::Key(key)),
            Strategy::Hash { of, .. } | Strategy::Range { of } if !of.is_canonical(key) => None,
            Strategy::Hash { buckets, of } => Some(Slot::Bucket(of.bucket(key, buckets))),
            Strategy::Range { of } => Some(Slot::Position(interval::position(keyspace, of, Some(key)))),
        }
    }

    /// Of a key in its canonical form.
    pub fn entry(self, key: &str) -> EntryLookup {
        match self {
            Strategy::Directory => EntryLookup::Named(key.to_owned()),
            Strategy::Hash { buckets, of } => EntryLookup::Named(of.bucket(key, buckets).to_string()),
            Strategy::Range { of } => EntryLookup::Covering(of),
        }
    }

    /// Keys stand alone in a directory only.
    pub fn is_directory(self) -> bool {
        self == Strategy::Directory
    }

    pub fn buckets(self) -> Option<NonZeroU32> {
        match self {
            Strategy::Hash { buckets, .. } => Some(buckets),
            Strategy::Directory | Strategy::Range { .. } => None,
        }
    }

    /// What keys are hashed or ordered as; None: they are only compared.
    pub fn of(self) -> Option<Ordered> {
        match self {
            Strategy::Hash { of, .. } | Strategy::Range { of } => Some(of),
            Strategy::Directory => None,
        }
    }

    /// What ranges are ordered by.
    pub fn order(self) -> Option<Ordered> {
        match self {
            Strategy::Range { of } => Some(of),
            Strategy::Directory | Strategy::Hash { .. } => None,
        }
    }

    /// What the entries that a redirect refuses are, as the shard keeps it.
    pub fn entries(self) -> String {
        match self {
            Strategy::Directory => KEYS.to_owned(),
            Strategy::Hash { of, buckets } => format!("{buckets} buckets of {}", of.name()),
            Strategy::Range { of } => format!("ranges of {}", of.name()),
        }
    }

    /// The type of a directory's keys, where entries are told with it.
    pub fn keys_of(entries: &str) -> Option<&str> {
        entries.strip_prefix(KEYS)?.strip_prefix(" of ")
    }

    /// From what `entries` gives.
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
        for kind in StrategyKind::ALL {
            assert_eq!(StrategyKind::from_name(kind.name()), Some(kind));
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
