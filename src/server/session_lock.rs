//! A lock of this session that outlives its transactions: while a session holds it, something is carried out.

use super::database;
use pgrx::pg_sys;

pub struct SessionLock {
    space: u16,
    id: i64,
}

impl SessionLock {
    /// Takes the lock without waiting. Returns None if another session has it. `space`: the fourth field of the lock's
    /// tag, `objsubid` in `pg_locks`.
    pub fn take(space: u16, id: i64) -> Option<SessionLock> {
        acquire(space, id).map(|_| SessionLock { space, id })
    }

    /// Whether the lock is still held: its own session may have released all its locks.
    pub fn is_kept(&self) -> bool {
        let again = acquire(self.space, self.id);
        if again.is_some() {
            release(self.space, self.id);
        }
        again == Some(pg_sys::LockAcquireResult::LOCKACQUIRE_ALREADY_HELD)
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        release(self.space, self.id);
    }
}

/// Returns None if another session has it.
pub fn acquire(space: u16, id: i64) -> Option<pg_sys::LockAcquireResult::Type> {
    let tag = database::advisory_lock(space, id as u64);
    // SAFETY: the tag is valid and of a lock method that the server knows; this does not wait. It is a session lock,
    // which outlives commits.
    let taken = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, true, true) };
    (taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL).then_some(taken)
}

pub fn release(space: u16, id: i64) {
    let tag = database::advisory_lock(space, id as u64);
    // SAFETY: this releases what `acquire` has taken in this session; it raises no error.
    unsafe { pg_sys::LockRelease(&tag, pg_sys::ExclusiveLock as i32, true) };
}
