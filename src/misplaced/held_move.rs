//! The run that this session carries out, and its lock.

use crate::error::Failure;
use crate::misplaced::error;
use crate::misplaced::run::MoveWork;
use crate::server::held_run::{self, HeldRun};
use crate::server::session_lock::SessionLock;

/// The fourth field of the lock's tag. It differs from those of the worker's locks and of executions.
const SPACE: u16 = 0x5352;

/// Takes the lock of a run, which no other session may have: while it is held, the run is carried out.
pub fn lock(id: i64) -> Result<SessionLock, Failure> {
    SessionLock::take(SPACE, id).ok_or_else(|| error::held_elsewhere(id))
}

pub struct HeldMove {
    pub id: i64,
    pub work: MoveWork,
    /// The error that the next step raises, once its cause is known.
    pub failure: Option<Failure>,
    lock: SessionLock,
}

impl HeldMove {
    /// Begins a run for this session, before others see it.
    pub fn begin(id: i64, work: MoveWork) -> Result<(), Failure> {
        held_run::end::<HeldMove>();
        let lock = lock(id)?;
        held_run::keep(HeldMove { id, work, failure: None, lock });
        Ok(())
    }

    /// Returns the run that this session has kept.
    pub fn back(id: i64) -> Result<HeldMove, Failure> {
        held_run::back(id).ok_or_else(|| error::not_held(id))
    }
}

impl HeldRun for HeldMove {
    fn id(&self) -> i64 {
        self.id
    }

    fn is_locked(&self) -> bool {
        self.lock.is_kept()
    }
}
