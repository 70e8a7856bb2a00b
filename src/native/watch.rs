//! What was read from the catalogs is valid until the server reports a change.

use super::scope;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

thread_local! {
    /// It increases with each invalidation of a relation from which something was read here.
    static EPOCH: Cell<u64> = const { Cell::new(0) };
    static WATCHED: RefCell<HashSet<u32>> = RefCell::default();
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Is called whenever the server reads invalidations, so it only records them.
#[pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    let is_watched = WATCHED.with(|watched| {
        // While the set is being extended, every invalidation counts.
        watched.try_borrow().map_or(true, |watched| watched.contains(&relation.to_u32()))
    });
    if is_watched || relation == pg_sys::Oid::INVALID {
        EPOCH.set(EPOCH.get() + 1);
    }
    scope::invalidated(relation);
}

pub fn epoch() -> u64 {
    EPOCH.get()
}

/// Watches these relations: what is read of them later belongs to an epoch.
pub fn watch(relations: &[pg_sys::Oid]) {
    if !IS_REGISTERED.replace(true) {
        // SAFETY: this is a function of this library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::null()) };
    }
    WATCHED.with_borrow_mut(|watched| watched.extend(relations.iter().map(|relation| relation.to_u32())));
}
