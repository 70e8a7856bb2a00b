//! What a split moves.

use super::interval::Interval;
use super::ordered::Ordered;
use super::strategy::Strategy;
use std::num::NonZeroU32;

#[derive(Clone, Debug)]
pub enum Scope {
    /// In canonical form.
    Keys(Vec<String>),
    Buckets {
        of: Ordered,
        count: NonZeroU32,
        buckets: Vec<String>,
    },
    /// In their order.
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
    /// Of the keyspace that it is of.
    pub fn strategy(&self) -> Strategy {
        match self {
            Scope::Keys(_) => Strategy::Directory,
            Scope::Buckets { of, count, .. } => Strategy::Hash { of: *of, buckets: *count },
            Scope::Ranges { of, .. } => Strategy::Range { of: *of },
        }
    }

    /// Keys that stand alone.
    pub fn keys(&self) -> Option<&[String]> {
        match self {
            Scope::Keys(keys) => Some(keys),
            Scope::Buckets { .. } | Scope::Ranges { .. } => None,
        }
    }

    /// What moves by its entries' names, or the ranges that do.
    pub fn entries(&self) -> ScopeEntries<'_> {
        match self {
            Scope::Keys(names) | Scope::Buckets { buckets: names, .. } => ScopeEntries::Named(names),
            Scope::Ranges { of, ranges } => ScopeEntries::Ranges(*of, ranges),
        }
    }

    /// Whether what moves can be entries of a strategy, whatever its number of buckets.
    pub fn is_of(&self, strategy: Strategy) -> bool {
        let own = self.strategy();
        own.kind() == strategy.kind() && own.order() == strategy.order()
    }
}

impl Strategy {
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
}
