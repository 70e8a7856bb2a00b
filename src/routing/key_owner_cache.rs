//! Owners of lookup indexes' keys: read from the tables, and cached by the session like routes, until an owner is
//! removed or changed, see `signal.rs`. No session has cached a new one, so it sends no invalidation.

use crate::catalog::{lookup, lookup_entry};
use crate::error::Failure;
use crate::keys::key_type::KeyType;
use crate::routing::error;
use crate::routing::signal::{self, OWNERS};
use crate::server::sql;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// What is cached of a lookup index.
struct KeptOwners {
    of: Box<str>,
    /// Owners by key, as it was given.
    owners: HashMap<Box<str>, Box<str>>,
}

thread_local! {
    /// Names of lookup indexes, so that none is looked up as another keyspace first.
    static NAMES: RefCell<HashSet<Box<str>>> = RefCell::default();
    static LOOKUPS: RefCell<HashMap<Box<str>, KeptOwners>> = RefCell::default();
}

fn refresh() {
    signal::refresh(&OWNERS, || {
        LOOKUPS.with_borrow_mut(HashMap::clear);
        NAMES.with_borrow_mut(HashSet::clear);
    });
}

/// Passes the cached owner of a key, and its keyspace, to `answer`.
pub fn get<R>(key: &str, lookup: &str, answer: impl FnOnce(&str, &str) -> Option<R>) -> Option<R> {
    if !signal::is_usable() {
        return None;
    }
    refresh();
    LOOKUPS.with_borrow(|lookups| {
        let kept = lookups.get(lookup)?;
        answer(kept.owners.get(key)?, &kept.of)
    })
}

/// Whether a keyspace is a lookup index, as far as this session knows.
pub fn is_lookup(name: &str) -> bool {
    refresh();
    NAMES.with_borrow(|names| names.contains(name))
}

/// The number of bytes of a key for which it counts as one more.
const BYTES: usize = 128;

fn keep(key: &str, lookup: &str, owner: &Owner) {
    let size = 1 + (key.len() + owner.key.len()) / BYTES;
    if !signal::admits(&OWNERS, size, || LOOKUPS.with_borrow_mut(HashMap::clear)) {
        return;
    }
    LOOKUPS.with_borrow_mut(|lookups| {
        let kept = lookups
            .entry(lookup.into())
            .or_insert_with(|| KeptOwners { of: owner.of.as_str().into(), owners: HashMap::new() });
        kept.owners.insert(key.into(), owner.key.as_str().into());
    });
}

/// The owner that a key leads to.
pub struct Owner {
    pub key: String,
    /// The keyspace that it is a key of.
    pub of: String,
}

/// Reads the tables; the current user is their owner by now. Returns None if there is no lookup index of this name.
pub fn find(key: &str, lookup_name: &str) -> Result<Option<Owner>, Failure> {
    let Some(first) = lookup_entry::owner(lookup_name, key) else { return Ok(None) };
    if !signal::is_stale(&OWNERS) && !sql::keeps_its_snapshot() {
        NAMES.with_borrow_mut(|names| names.insert(lookup_name.into()));
    }
    let canonical = KeyType::from_catalog(&first.key_type).canonical(key);
    let known = if canonical == key { Some(first) } else { lookup_entry::owner(lookup_name, &canonical) };
    let Some(known) = known else { return Ok(None) };
    let Some(owner) = known.owner else {
        return Err(match lookup::not_filled(lookup_name) {
            Some(shard) => error::not_filled(lookup_name, &shard, &canonical),
            None => error::unknown_in_lookup(lookup_name, &canonical),
        });
    };
    let owner = Owner { key: owner, of: known.of };
    // A claim ends without an invalidation, so it is not cached.
    if known.has_row {
        keep(key, lookup_name, &owner);
    }
    Ok(Some(owner))
}
