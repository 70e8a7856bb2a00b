//! Advisory locks of placement, held to the end of the transaction, in lock spaces of their own: they never conflict
//! with an application's advisory locks.

use crate::server::database;
use pgrx::pg_sys;
use xxhash_rust::xxh64::Xxh64;

/// The fourth field of a lock's tag, `objsubid` in `pg_locks`.
const LOGICAL_KEY: u16 = 0x534e;
const TENANT: u16 = 0x534f;
const SHARD: u16 = 0x5350;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For transactions that reserve, which do not exclude each other.
    Shared,
    /// For one transaction alone.
    Exclusive,
}

/// Makes two sessions that reserve one key come one after the other.
pub fn logical_key(kind: &str, key: &str) {
    lock(LOGICAL_KEY, hash(&[kind, key]), Mode::Exclusive);
}

/// Transactions that reserve for a tenant share the lock; one that sets its quota takes it exclusively.
pub fn tenant(tenant: &str, kind: &str, mode: Mode) {
    lock(TENANT, hash(&[tenant, kind]), mode);
}

/// Transactions that reserve on a shard share the lock; one that changes its status or capacity takes it exclusively.
pub fn shard(id: i64, mode: Mode) {
    lock(SHARD, id as u64, mode);
}

/// Releases one lock of a shard before the end of the transaction. A session that continues with another shard keeps
/// no lock of this one: two sessions that try shards in different orders would wait for each other.
pub fn release_shard(id: i64, mode: Mode) {
    let tag = database::advisory_lock(SHARD, id as u64);
    // SAFETY: the tag is valid; this transaction has taken the lock as often as it releases it.
    unsafe { pg_sys::LockRelease(&tag, level(mode), false) };
}

/// Two names with the same hash share a lock, which only costs time.
fn hash(parts: &[&str]) -> u64 {
    let mut hash = Xxh64::new(0);
    for part in parts {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    hash.digest()
}

fn lock(space: u16, id: u64, mode: Mode) {
    let tag = database::advisory_lock(space, id);
    // SAFETY: the tag is valid for a lock method that the server knows. This waits like every lock of the server:
    // lock_timeout, deadlock detection and cancellation end it.
    unsafe { pg_sys::LockAcquire(&tag, level(mode), false, false) };
}

fn level(mode: Mode) -> pg_sys::LOCKMODE {
    let mode = match mode {
        Mode::Shared => pg_sys::ShareLock,
        Mode::Exclusive => pg_sys::ExclusiveLock,
    };
    mode as pg_sys::LOCKMODE
}
