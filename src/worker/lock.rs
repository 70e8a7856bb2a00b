//! One worker for each split: a session's advisory lock, held from the worker's first read of the plan to its last.
//! The server releases it when the process ends, however that happens.

use crate::server::process::WorkerKind;
use crate::server::{database, session_lock, sql};

/// The fourth field of the lock's tag, `objsubid` in `pg_locks`. Applications' own advisory locks have 1 or 2 there,
/// so the two never collide.
const SPACE: u16 = 0x534d;

/// Returns the number that a worker locks: that of its split, which begin with 1, or one below.
pub fn of(kind: WorkerKind) -> i64 {
    match kind {
        WorkerKind::Split(id) => id,
        WorkerKind::Coordinator => 0,
        WorkerKind::LeaseExpirer => -1,
        WorkerKind::TwoPhaseRecovery => -2,
        WorkerKind::LookupWorker => -3,
        WorkerKind::References => -4,
        WorkerKind::Inquirer => -5,
        WorkerKind::Launcher => -6,
        WorkerKind::Jobs => -7,
    }
}

/// Takes the lock unless another process has it.
pub fn try_lock(id: i64) -> bool {
    session_lock::acquire(SPACE, id).is_some()
}

/// Releases the lock.
pub fn unlock(id: i64) {
    session_lock::release(SPACE, id);
}

/// Returns the splits that a worker has locked in this database, and its pid.
pub fn holders() -> Vec<(i64, i32)> {
    sql::read_again(
        "SELECT (l.classid::bigint << 32) | l.objid::bigint, l.pid
           FROM pg_catalog.pg_locks l
          WHERE l.locktype = 'advisory' AND l.objsubid = $1 AND l.granted AND l.pid IS NOT NULL
            AND l.database = $2 AND ((l.classid::bigint << 32) | l.objid::bigint) > 0
          ORDER BY 1",
        &[i32::from(SPACE).into(), database::id().into()],
        |row| (row.value(1), row.value(2)),
    )
}
