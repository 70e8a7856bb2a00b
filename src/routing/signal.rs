//! What a session has read before, for as long as it is valid: each such cache has a table that is not read, whose
//! invalidation tells all sessions, on every server of the master, that they must forget it. The commit of a change
//! sends it before the client gets its answer, so what is cached is what the tables have.

use crate::guc;
use crate::server::{index_scan, sql};
use pgrx::prelude::*;
use std::cell::Cell;
use std::ffi::CStr;
use std::thread::LocalKey;

/// Whether a cache of this session is still valid, and how much is in it.
pub struct Signal {
    /// The name of the table in the schema `shardmaster`.
    name: &'static CStr,
    /// The table, as it was found when the cache was emptied last.
    table: Cell<pg_sys::Oid>,
    is_stale: Cell<bool>,
    /// The number of its entries; a long one counts as several.
    size: Cell<usize>,
}

thread_local! {
    /// The signal of cached routes.
    pub static ROUTES: Signal = const { Signal::new(c"routing_signal") };
    /// The signal of cached owners of lookup indexes' keys.
    pub static OWNERS: Signal = const { Signal::new(c"lookup_signal") };
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

/// Handles an invalidation. It is called wherever the server reads invalidations, so it only sets flags.
#[pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, table: pg_sys::Oid) {
    let told = |signal: &Signal| {
        if table == pg_sys::Oid::INVALID || table == signal.table.get() {
            signal.is_stale.set(true);
        }
    };
    ROUTES.with(told);
    OWNERS.with(told);
}

/// Whether answers may be kept: a transaction that keeps its snapshot may see an old state, which others must not get.
pub fn is_usable() -> bool {
    guc::route_cache_size() > 0 && !sql::keeps_its_snapshot()
}

/// Reads what other sessions have sent. If the cache is not valid any more, `forget` empties it.
pub fn refresh(of: &'static LocalKey<Signal>, forget: impl FnOnce()) {
    if !IS_REGISTERED.replace(true) {
        // SAFETY: this is a function of this library, which is never unloaded.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::null()) };
    }
    // SAFETY: this is called in a transaction, where the server does the same at every lock.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    if is_stale(of) {
        // This is done before anything is read: an invalidation that comes meanwhile makes it stale again.
        forget();
        of.with(Signal::begin);
    }
}

pub fn is_stale(of: &'static LocalKey<Signal>) -> bool {
    of.with(|signal| signal.is_stale.get())
}

/// Returns the oid of the table, or an invalid oid if there is none.
pub fn table(of: &'static LocalKey<Signal>) -> pg_sys::Oid {
    of.with(Signal::find_table)
}

/// Makes all sessions forget the cache once this transaction has committed.
pub fn send(of: &'static LocalKey<Signal>) {
    let table = table(of);
    if table != pg_sys::Oid::INVALID {
        // SAFETY: the table exists.
        unsafe { pg_sys::CacheInvalidateRelcacheByRelid(table) };
    }
}

/// Returns whether an entry of this size may be added, which was read after the last `refresh`. If the cache is full,
/// `forget` empties it first.
pub fn admits(of: &'static LocalKey<Signal>, size: usize, forget: impl FnOnce()) -> bool {
    if !is_usable() || is_stale(of) || size > guc::route_cache_size() {
        return false;
    }
    of.with(|signal| {
        if signal.size.get() + size > guc::route_cache_size() {
            forget();
            signal.size.set(0);
        }
        signal.size.set(signal.size.get() + size);
    });
    true
}

impl Signal {
    const fn new(name: &'static CStr) -> Signal {
        let table = Cell::new(pg_sys::Oid::INVALID);
        Signal { name, table, is_stale: Cell::new(true), size: Cell::new(0) }
    }

    /// Begins anew with an empty cache. Without its table nothing would make it stale, so nothing is kept.
    fn begin(&self) {
        self.size.set(0);
        self.table.set(self.find_table());
        self.is_stale.set(self.table.get() == pg_sys::Oid::INVALID);
    }

    fn find_table(&self) -> pg_sys::Oid {
        index_scan::relation_of_catalog(self.name).unwrap_or(pg_sys::Oid::INVALID)
    }
}
