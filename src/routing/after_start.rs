//! Right after the server's start nobody knows whether this master was restored to a time before its shards moved keys: a write
//! is routed, and a route changed, once each shard was asked for the decisions that it knows, which takes as long as to connect to them. A shard that
//! does not answer, or a worker that does not start, keeps nobody waiting for longer than a few seconds.

use super::RoutingError;
use super::owner::as_owner;
use crate::catalog::keyspace::{self, LockedKeyspace};
use crate::catalog::shard_decision;
use crate::server::{preload, sql, wait};
use pgrx::{PgAtomic, pg_guard, pg_shmem_init, pg_sys};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For each session, once. Whoever asks the shards gives each less than that.
const LONGEST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

thread_local! {
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// The installation whose shards were asked, for the sessions to come: its database, and a table of it. A pooler that opens a
/// session for each request would have each of them look.
// SAFETY: named once in this library.
static ASKED: PgAtomic<AtomicU64> = unsafe { PgAtomic::new(c"shardmaster asked") };

/// At the server's start.
pub fn register() {
    pg_shmem_init!(ASKED);
}

/// An error where waiting cannot help. `key`: what is to be written.
pub fn wait(key: &str) -> Result<(), RoutingError> {
    if IS_OVER.get() || !preload::preloaded() {
        return Ok(());
    }
    // SAFETY: reads the state of the server.
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
        // It would not see what they have said.
        if sql::keeps_its_snapshot() {
            return Err(RoutingError::Serialization(key.to_owned()));
        }
        wait::sleep(PAUSE);
    }
    IS_OVER.set(true);
    Ok(())
}

/// None: the catalog is one that keeps no decisions.
fn installation() -> Option<u64> {
    let relation = shard_decision::relation()?;
    // SAFETY: the session's database.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    Some(u64::from(database) << 32 | u64::from(relation))
}

/// Locks a keyspace whose routes are to change. Nobody waits for the shards behind that lock.
pub fn lock(keyspace: &str) -> Result<LockedKeyspace, RoutingError> {
    wait(keyspace)?;
    Ok(keyspace::lock(keyspace)?)
}
