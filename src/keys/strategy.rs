//! How keys find their entry of routing. What differs from one strategy to another is asked
//! here where it can be; the rest are matches that the compiler leads to.

use super::interval::Interval;
use super::ordered::Ordered;
use super::scope::Scope;
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

/// Where the entry of a key is to be looked for.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// By its name.
    Named(String),
    /// Among ranges in this order: the one that the key is in.
    Covering(Ordered),
}

impl Strategy {
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Directory => "directory",
            Strategy::Hash { .. } => "hash",
            Strategy::Range { .. } => "range",
        }
    }

    /// Of a key in its canonical form.
    pub fn entry(self, key: &str) -> Lookup {
        match self {
            Strategy::Directory => Lookup::Named(key.to_owned()),
            Strategy::Hash { buckets, of } => Lookup::Named(of.bucket(key, buckets).to_string()),
            Strategy::Range { of } => Lookup::Covering(of),
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

    /// What ranges are ordered by.
    pub fn order(self) -> Option<Ordered> {
        match self {
            Strategy::Range { of } => Some(of),
            Strategy::Directory | Strategy::Hash { .. } => None,
        }
    }

    /// What a split of these entries moves, as shards see it.
    pub fn scope(self, entries: &[String]) -> Scope {
        match self {
            Strategy::Directory => Scope::Keys(entries.to_vec()),
            Strategy::Hash { buckets: count, of } => Scope::Buckets { of, count, buckets: entries.to_vec() },
            Strategy::Range { of } => Scope::Ranges {
                of,
                ranges: entries.iter().filter_map(|name| Interval::parse(name, of)).collect(),
            },
        }
    }

    /// What the entries that a redirect refuses are, as the shard keeps it.
    pub fn entries(self) -> String {
        match self {
            Strategy::Directory => "keys".to_owned(),
            Strategy::Hash { of, buckets } => format!("{buckets} buckets of {}", of.name()),
            Strategy::Range { of } => format!("ranges of {}", of.name()),
        }
    }

    /// From what `entries` gives.
    pub fn of_entries(name: &str) -> Option<Strategy> {
        if name == "keys" {
            return Some(Strategy::Directory);
        }
        if let Some(of) = name.strip_prefix("ranges of ") {
            return Ordered::from_name(of).map(|of| Strategy::Range { of });
        }
        let (buckets, of) = name.split_once(" buckets of ")?;
        Some(Strategy::Hash { of: Ordered::from_name(of)?, buckets: buckets.parse().ok()? })
    }
}

impl Scope {
    /// Of the keyspace that it is of.
    pub fn strategy(&self) -> Strategy {
        match self {
            Scope::Keys(_) => Strategy::Directory,
            Scope::Buckets { of, count, .. } => Strategy::Hash { of: *of, buckets: *count },
            Scope::Ranges { of, .. } => Strategy::Range { of: *of },
        }
    }
}
