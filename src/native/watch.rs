//! What is found in the catalogs holds until the server says that something of it has changed.

use super::scope;
use pgrx::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

thread_local! {
    /// One more with each invalidation of a relation that something here was found of.
    static EPOCH: Cell<u64> = const { Cell::new(0) };
    static WATCHED: RefCell<HashSet<u32>> = RefCell::default();
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Called wherever the server reads invalidations, so it does nothing but remember.
#[pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    let is_watched = WATCHED.with(|watched| {
        // One that is being added to is looked through again.
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

/// From now on: what is found of it later is found as of an epoch.
pub fn watch(relations: &[pg_sys::Oid]) {
    if !IS_REGISTERED.replace(true) {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::null()) };
    }
    WATCHED.with_borrow_mut(|watched| watched.extend(relations.iter().map(|relation| relation.to_u32())));
}
