//! Advisory locks of placement, held to the end of the transaction, in spaces of their
//! own: an application's advisory locks never meet them.

use crate::server::database;
use pgrx::pg_sys;
use xxhash_rust::xxh64::Xxh64;

/// The fourth field of a lock's tag, `objsubid` in `pg_locks`.
const LOGICAL_KEY: u16 = 0x534e;
const TENANT: u16 = 0x534f;
const SHARD: u16 = 0x5350;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// With others who reserve.
    Shared,
    /// Alone.
    Exclusive,
}

/// Two sessions that reserve one key come one after the other.
pub fn logical_key(kind: &str, key: &str) {
    lock(LOGICAL_KEY, hash(&[kind, key]), Mode::Exclusive);
}

/// Shared by who reserves for a tenant, alone for who sets its quota.
pub fn tenant(tenant: &str, kind: &str, mode: Mode) {
    lock(TENANT, hash(&[tenant, kind]), mode);
}

/// Shared by who reserves on a shard, alone for who changes its status or capacity.
pub fn shard(id: i64, mode: Mode) {
    lock(SHARD, id as u64, mode);
}

/// Lets one lock of a shard go before the end of the transaction. Who goes on to another
/// shard keeps none of this one: two sessions that try shards in different orders would
/// wait for each other.
pub fn release_shard(id: i64, mode: Mode) {
    let tag = database::advisory_lock(SHARD, id as u64);
    // SAFETY: a valid tag; the lock was taken by this transaction, as often as it is released.
    unsafe { pg_sys::LockRelease(&tag, level(mode), false) };
}

/// Two names with the same hash share a lock, which costs time and nothing else.
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
    // SAFETY: a valid tag of a lock method the server knows. Waits as every lock of the
    // server does: lock_timeout, deadlock detection and cancel end it.
    unsafe { pg_sys::LockAcquire(&tag, level(mode), false, false) };
}

fn level(mode: Mode) -> pg_sys::LOCKMODE {
    let mode = match mode {
        Mode::Shared => pg_sys::ShareLock,
        Mode::Exclusive => pg_sys::ExclusiveLock,
    };
    mode as pg_sys::LOCKMODE
}
