//! The scope of a split.

use super::interval::Interval;
use super::ordered::Ordered;
use super::strategy::Strategy;
use std::num::NonZeroU32;

#[derive(Clone, Debug)]
pub enum Scope {
    /// Keys in canonical form.
    Keys(Vec<String>),
    Buckets {
        of: Ordered,
        count: NonZeroU32,
        buckets: Vec<String>,
    },
    /// Ranges in their order.
    Ranges {
        of: Ordered,
        ranges: Vec<Interval>,
    },
}

/// The entries of a scope.
pub enum ScopeEntries<'a> {
    Named(&'a [String]),
    Ranges(Ordered, &'a [Interval]),
}

impl Scope {
    /// Returns the strategy of the scope's keyspace.
    pub fn strategy(&self) -> Strategy {
        match self {
            Scope::Keys(_) => Strategy::Directory,
            Scope::Buckets { of, count, .. } => Strategy::Hash { of: *of, buckets: *count },
            Scope::Ranges { of, .. } => Strategy::Range { of: *of },
        }
    }

    /// Returns the keys of a directory, which are entries themselves.
    pub fn keys(&self) -> Option<&[String]> {
        match self {
            Scope::Keys(keys) => Some(keys),
            Scope::Buckets { .. } | Scope::Ranges { .. } => None,
        }
    }

    /// Returns the names of the scope's entries, or its ranges.
    pub fn entries(&self) -> ScopeEntries<'_> {
        match self {
            Scope::Keys(names) | Scope::Buckets { buckets: names, .. } => ScopeEntries::Named(names),
            Scope::Ranges { of, ranges } => ScopeEntries::Ranges(*of, ranges),
        }
    }

    /// Whether the scope can consist of entries of a strategy, with any number of buckets.
    pub fn is_of(&self, strategy: Strategy) -> bool {
        let own = self.strategy();
        own.kind() == strategy.kind() && own.order() == strategy.order()
    }
}

impl Strategy {
    /// Returns the scope of a split of these entries, as shards see it.
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
}
