//! Routes that this session has looked up before, until routing, keyspaces or shards change, see `signal.rs`. Only
//! good answers are kept: a key that a split holds back, or a disabled shard, is looked up each time.

use super::found::{FoundEntry, Intent};
use super::signal::{self, ROUTES};
use crate::keys::key_type::KeyType;
use crate::keys::strategy::{Slot, Strategy};
use crate::server::index_scan::Xid;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The routes of an entry, for reads and for writes.
#[derive(Default)]
struct CachedRoutes([Option<Rc<FoundEntry>>; 2]);

impl CachedRoutes {
    fn of(&self, intent: Intent) -> Option<&Rc<FoundEntry>> {
        self.0[intent as usize].as_ref()
    }

    fn set(&mut self, intent: Intent, found: Rc<FoundEntry>) {
        self.0[intent as usize] = Some(found);
    }
}

/// What was found of a shard, for any entry.
struct OfShard {
    found: Rc<FoundEntry>,
    /// The result includes all transactions that ended before this one.
    as_of: Xid,
}

struct CachedKeyspace {
    strategy: Strategy,
    key_type: KeyType,
    /// Routes by key, as it was given.
    keys: HashMap<Box<str>, CachedRoutes>,
    /// Routes by bucket.
    buckets: HashMap<u32, CachedRoutes>,
    /// Routes by the lower bound of a range, with the upper one.
    ranges: BTreeMap<Vec<u8>, (Vec<u8>, CachedRoutes)>,
    /// The distinct results for each shard's entries: there are few, since readers may be sent to another place than
    /// writers, and keys that a split moves to another one than others.
    shards: HashMap<Box<str>, Vec<Rc<FoundEntry>>>,
    /// The result by intent and shard, if it is the same for all entries except for the name.
    of_shards: [HashMap<Box<str>, OfShard>; 2],
}

thread_local! {
    static KEYSPACES: RefCell<HashMap<Box<str>, CachedKeyspace>> = RefCell::default();
}

fn refresh() {
    signal::refresh(&ROUTES, || KEYSPACES.with_borrow_mut(HashMap::clear));
}

/// Returns what was found for the key before.
pub fn get_whole(key: &str, intent: Intent, keyspace: &str) -> Option<Rc<FoundEntry>> {
    if !signal::is_usable() {
        return None;
    }
    refresh();
    KEYSPACES.with_borrow(|keyspaces| keyspaces.get(keyspace)?.routes(key, keyspace)?.of(intent).cloned())
}

/// Passes what was found for the key before to `answer`, without a copy. Returns None if it must be looked up.
pub fn get<R>(key: &str, intent: Intent, keyspace: &str, answer: impl FnOnce(&FoundEntry) -> R) -> Option<R> {
    if !signal::is_usable() {
        return None;
    }
    refresh();
    KEYSPACES.with_borrow(|keyspaces| {
        let known = keyspaces.get(keyspace)?;
        known.routes(key, keyspace)?.of(intent).map(|found| answer(found))
    })
}

/// Returns strategy and key type of a keyspace, as far as this session knows; `get` has checked for changes.
pub fn keyspace(name: &str) -> Option<(Strategy, KeyType)> {
    if !signal::is_usable() || signal::is_stale(&ROUTES) {
        return None;
    }
    KEYSPACES.with_borrow(|keyspaces| keyspaces.get(name).map(|known| (known.strategy, known.key_type)))
}

/// Returns what is known of an entry that leads to a shard and was written by a transaction. Returns None if the shard
/// is not known, or only from a time before that transaction ended.
pub fn of_shard(shard: &str, intent: Intent, keyspace: &str, written_by: Xid) -> Option<Rc<FoundEntry>> {
    if signal::is_stale(&ROUTES) {
        return None;
    }
    KEYSPACES.with_borrow(|keyspaces| {
        let of_shard = keyspaces.get(keyspace)?.of_shards[intent as usize].get(shard)?;
        written_by.precedes(of_shard.as_of).then(|| of_shard.found.clone())
    })
}

impl CachedKeyspace {
    fn new(strategy: Strategy, key_type: KeyType) -> CachedKeyspace {
        CachedKeyspace {
            strategy,
            key_type,
            keys: HashMap::new(),
            buckets: HashMap::new(),
            ranges: BTreeMap::new(),
            shards: HashMap::new(),
            of_shards: Default::default(),
        }
    }

    /// Forgets entries, but not what is known of shards.
    fn forget_entries(&mut self) {
        self.keys.clear();
        self.buckets.clear();
        self.ranges.clear();
    }

    fn routes(&self, key: &str, keyspace: &str) -> Option<&CachedRoutes> {
        match self.strategy.slot(key, keyspace)? {
            Slot::Key(key) => self.keys.get(key),
            Slot::Bucket(bucket) => self.buckets.get(&bucket),
            Slot::Position(position) => {
                let (_, (upper, places)) = self.ranges.range(..=position.clone()).next_back()?;
                (position < *upper).then_some(places)
            }
        }
    }

    /// Returns one shared copy of a result, whichever entry it is for.
    fn shared(&mut self, found: &Rc<FoundEntry>) -> Rc<FoundEntry> {
        let of_shard = self.shards.entry(found.shard_key.as_str().into()).or_default();
        if let Some(same) = of_shard.iter().find(|known| *known == found) {
            return same.clone();
        }
        of_shard.push(found.clone());
        found.clone()
    }

    fn share(&mut self, found: &Rc<FoundEntry>, intent: Intent, as_of: Xid) -> Rc<FoundEntry> {
        let shared = self.shared(found);
        let of_shard = OfShard { found: shared.clone(), as_of };
        self.of_shards[intent as usize].insert(found.shard_key.as_str().into(), of_shard);
        shared
    }

    /// Returns the place of an answer. The key is in its canonical form, except for a directory, which keeps it as it
    /// was given.
    fn routes_to_fill(&mut self, answer: CachedAnswer<'_>) -> Option<&mut CachedRoutes> {
        match self.strategy.slot(answer.key, answer.keyspace)? {
            Slot::Key(key) => Some(self.keys.entry(key.into()).or_default()),
            Slot::Bucket(bucket) => Some(self.buckets.entry(bucket).or_default()),
            Slot::Position(_) => {
                let (lower, upper) = answer.span?;
                Some(&mut self.ranges.entry(lower).or_insert_with(|| (upper, CachedRoutes::default())).1)
            }
        }
    }
}

/// A question and its answer.
pub struct CachedAnswer<'a> {
    pub keyspace: &'a str,
    pub strategy: Strategy,
    pub key_type: KeyType,
    pub key: &'a str,
    pub intent: Intent,
    /// The bounds of a range.
    pub span: Option<(Vec<u8>, Vec<u8>)>,
}

/// The number of bytes of a key for which an entry counts as one more.
const BYTES: usize = 128;

impl CachedAnswer<'_> {
    /// Returns the size of an entry. Only a directory keeps keys as they were given, and a number may be given with
    /// any number of zeros.
    fn size(&self) -> usize {
        match self.strategy {
            Strategy::Directory => 1 + self.key.len() / BYTES,
            Strategy::Hash { .. } | Strategy::Range { .. } => 1,
        }
    }
}

/// Keeps an answer that was read after the last `get`, unless routing has changed since. `as_of`: the answer is valid
/// for each entry of the shard, and includes all that ended before this transaction.
pub fn keep(answer: CachedAnswer<'_>, found: &Rc<FoundEntry>, as_of: Option<Xid>) {
    let forget = || {
        KEYSPACES.with_borrow_mut(|keyspaces| {
            keyspaces.values_mut().for_each(CachedKeyspace::forget_entries);
        });
    };
    if !signal::admits(&ROUTES, answer.size(), forget) {
        return;
    }
    KEYSPACES.with_borrow_mut(|keyspaces| {
        let known = match keyspaces.get_mut(answer.keyspace) {
            Some(known) => known,
            None => keyspaces
                .entry(answer.keyspace.into())
                .or_insert_with(|| CachedKeyspace::new(answer.strategy, answer.key_type)),
        };
        let intent = answer.intent;
        let shared = match as_of {
            Some(as_of) => known.share(found, intent, as_of),
            None => known.shared(found),
        };
        if let Some(places) = known.routes_to_fill(answer) {
            places.set(intent, shared);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_counts_as_many_entries() {
        let key = format!("{}7", "0".repeat(1_000_000));
        let answer = |key| CachedAnswer {
            keyspace: "k",
            strategy: Strategy::Directory,
            key_type: KeyType::Text,
            key,
            intent: Intent::Write,
            span: None,
        };
        assert_eq!(answer("7").size(), 1);
        assert!(answer(&key).size() > 7000);
    }
}
