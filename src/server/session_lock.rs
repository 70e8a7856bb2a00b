//! A lock of this session's own, which outlives its transactions: as long as somebody has it, something is carried out.

use super::database;
use pgrx::pg_sys;

pub struct SessionLock {
    space: u16,
    id: i64,
}

impl SessionLock {
    /// Does not wait. None: another session has it. `space`: the fourth field of the lock's tag, `objsubid` in `pg_locks`.
    pub fn take(space: u16, id: i64) -> Option<SessionLock> {
        acquire(space, id).map(|_| SessionLock { space, id })
    }

    /// Its own session may have given it away, with all that it has.
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

fn acquire(space: u16, id: i64) -> Option<pg_sys::LockAcquireResult::Type> {
    let tag = database::advisory_lock(space, id as u64);
    // SAFETY: a valid tag of a lock method the server knows; does not wait. The session's own: it outlives commits.
    let taken = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, true, true) };
    (taken != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL).then_some(taken)
}

fn release(space: u16, id: i64) {
    let tag = database::advisory_lock(space, id as u64);
    // SAFETY: releases what `acquire` has taken in this session; raises no error.
    unsafe { pg_sys::LockRelease(&tag, pg_sys::ExclusiveLock as i32, true) };
}
