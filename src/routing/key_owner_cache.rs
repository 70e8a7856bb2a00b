//! Owners of lookup indexes' keys: read from the tables, and cached by the session like routes. An owner that is
//! removed or changed invalidates the table `shardmaster.lookup_signal`; no session has cached a new one, so it sends
//! no invalidation.

use crate::catalog::{lookup, lookup_entry};
use crate::error::Failure;
use crate::guc;
use crate::keys::key_type::KeyType;
use crate::routing::{error, signal};
use crate::server::sql;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
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
    /// The number of all cached owners; a long key counts as several.
    static SIZE: Cell<usize> = const { Cell::new(0) };
    static IS_STALE: Cell<bool> = const { Cell::new(true) };
    static SIGNAL: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::Oid::INVALID) };
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

pub fn signal_table() -> pg_sys::Oid {
    signal::table(c"lookup_signal")
}

/// Handles an invalidation. It is called wherever the server reads invalidations, so it only sets a flag.
#[pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, table: pg_sys::Oid) {
    if table == pg_sys::Oid::INVALID || table == SIGNAL.get() {
        IS_STALE.set(true);
    }
}

/// Reads invalidations, as for routes.
fn refresh() {
    if !IS_REGISTERED.replace(true) {
        // SAFETY: this is a function of this library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::null()) };
    }
    // SAFETY: this is called in a transaction, where the server does the same at every lock.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    if IS_STALE.get() {
        LOOKUPS.with_borrow_mut(HashMap::clear);
        NAMES.with_borrow_mut(HashSet::clear);
        SIZE.set(0);
        SIGNAL.set(signal_table());
        IS_STALE.set(SIGNAL.get() == pg_sys::Oid::INVALID);
    }
}

fn is_usable() -> bool {
    guc::route_cache_size() > 0 && !sql::keeps_its_snapshot()
}

/// Passes the cached owner of a key, and its keyspace, to `answer`.
pub fn get<R>(key: &str, lookup: &str, answer: impl FnOnce(&str, &str) -> Option<R>) -> Option<R> {
    if !is_usable() {
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
    if !is_usable() || IS_STALE.get() {
        return;
    }
    let size = 1 + (key.len() + owner.key.len()) / BYTES;
    if size > guc::route_cache_size() {
        return;
    }
    LOOKUPS.with_borrow_mut(|lookups| {
        if SIZE.get() + size > guc::route_cache_size() {
            lookups.clear();
            SIZE.set(0);
        }
        SIZE.set(SIZE.get() + size);
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
    if !IS_STALE.get() && !sql::keeps_its_snapshot() {
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
