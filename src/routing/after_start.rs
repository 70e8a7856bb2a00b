//! Right after the server's start it is unknown whether this master was restored to a time before its shards moved
//! keys: a write is routed, and a route is changed, only once each shard was asked for the decisions that it knows,
//! which takes as long as connecting to them. A shard that does not answer, or a worker that does not start, delays
//! this by a few seconds at most.

use super::error;
use super::owner::as_owner;
use crate::catalog::keyspace::{self, LockedKeyspace};
use crate::catalog::shard_decision;
use crate::error::Failure;
use crate::server::{preload, sql, wait};
use pgrx::{PgAtomic, pg_guard, pg_shmem_init, pg_sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The limit for each session, once. The worker that asks the shards gives each of them less than that.
const LONGEST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

thread_local! {
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// The installation whose shards were asked, for later sessions: its database, and a table of it. Without it each
/// session of a pooler that opens one for each request would check.
// SAFETY: the name is used once in this library.
static ASKED: PgAtomic<AtomicU64> = unsafe { PgAtomic::new(c"shardmaster asked") };

/// Registers the shared memory, at the server's start.
pub fn register() {
    pg_shmem_init!(ASKED);
}

/// Waits until the shards were asked. It is an error if waiting cannot help. `key`: what is to be written.
pub fn wait(key: &str) -> Result<(), Failure> {
    if IS_OVER.get() || !preload::preloaded() {
        return Ok(());
    }
    // SAFETY: this reads the state of the server.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return Ok(());
    }
    let Some(installation) = installation() else { return Ok(()) };
    let began = Instant::now();
    while ASKED.get().load(Ordering::Acquire) != installation && began.elapsed() < LONGEST {
        if as_owner(shard_decision::are_asked) {
            ASKED.get().store(installation, Ordering::Release);
            break;
        }
        // The transaction's snapshot would not see the answers.
        if sql::keeps_its_snapshot() {
            return Err(error::end_of_move_unseen(key));
        }
        wait::sleep(PAUSE);
    }
    IS_OVER.set(true);
    Ok(())
}

/// Returns the installation, or None if the catalog stores no decisions.
fn installation() -> Option<u64> {
    let relation = shard_decision::relation()?;
    // SAFETY: this is the session's database.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    Some(u64::from(database) << 32 | u64::from(relation))
}

/// Locks a keyspace whose routes are to change. The shards are waited for before that lock.
pub fn lock(keyspace: &str) -> Result<LockedKeyspace, Failure> {
    wait(keyspace)?;
    Ok(keyspace::lock(keyspace)?)
}
