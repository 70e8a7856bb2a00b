//! The execution that this session carries out, and its lock.

use crate::catalog::caller::Caller;
use crate::catalog::execution;
use crate::error::Failure;
use crate::execution::error;
use crate::execution::run::Wave;
use crate::server::held_run::{self, HeldRun};
use crate::server::process::{self, WorkerKind};
use crate::server::session_lock::SessionLock;
use crate::server::{database, wait, wake};
use std::time::{Duration, Instant};

/// The fourth field of the lock's tag, `objsubid` in `pg_locks`; see the worker's locks.
pub const SPACE: u16 = 0x5345;

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The lock of an execution: one session or worker has it at a time.
pub struct Lock(Option<SessionLock>);

impl Lock {
    /// Returns None if another session or worker has it.
    pub fn take(id: i64) -> Option<Lock> {
        SessionLock::take(SPACE, id).map(|lock| Lock(Some(lock)))
    }

    /// Takes the lock for a session. The worker that settles executions releases it shortly, unless a shard is silent,
    /// so this waits for the worker. Any other holder carries the execution out, and is not waited for.
    fn take_behind_worker(id: i64, longest: Duration) -> Option<Lock> {
        let began = Instant::now();
        loop {
            let taken = Lock::take(id);
            if taken.is_some() || began.elapsed() > longest || !is_free_or_settled(id) {
                return taken;
            }
            wait::sleep(LOOK_AGAIN);
        }
    }
}

/// Whether nobody has the lock, or the settling worker has it. The lock may have been released since it was requested.
fn is_free_or_settled(id: i64) -> bool {
    let Some(holder) = Caller::as_owner(|_| execution::holder(id, SPACE)) else { return true };
    let workers = process::of_database(database::id());
    workers.iter().any(|worker| worker.kind == WorkerKind::TwoPhaseRecovery && worker.pid == holder)
}

impl Drop for Lock {
    /// Releases the lock and then wakes the worker, which may have something to settle, also if an error unwinds
    /// through here: it finds the lock free.
    fn drop(&mut self) {
        drop(self.0.take());
        wake::coordinator();
    }
}

pub struct HeldExecution {
    pub id: i64,
    pub stage: ExecutionStage,
    /// The error that the next step raises.
    pub failure: Option<Failure>,
    /// The error that is raised once nothing more can be done.
    pub later: Option<Failure>,
    lock: Lock,
}

pub enum ExecutionStage {
    Between,
    /// The shards are recorded as running, and nothing was sent to them.
    Open(Wave),
    /// The statement has run; the failure is the first of the shards that are not to commit.
    Ran(Wave, Option<Failure>),
    /// All shards have prepared it.
    Prepared(Wave),
    /// It is decided that all shards commit.
    Decided(Wave),
}

impl HeldExecution {
    /// Takes the execution for this session; it fails if another session has it.
    pub fn take(id: i64, longest: Duration) -> Result<HeldExecution, Failure> {
        held_run::end::<HeldExecution>();
        let lock = Lock::take_behind_worker(id, longest).ok_or_else(|| error::busy(id))?;
        Ok(HeldExecution { id, stage: ExecutionStage::Between, failure: None, later: None, lock })
    }

    /// Returns the execution that this session has kept.
    pub fn back(id: i64) -> Result<HeldExecution, Failure> {
        held_run::back(id).ok_or_else(|| error::not_held(id))
    }
}

impl HeldRun for HeldExecution {
    fn id(&self) -> i64 {
        self.id
    }

    fn is_locked(&self) -> bool {
        self.lock.0.as_ref().is_some_and(SessionLock::is_kept)
    }
}
