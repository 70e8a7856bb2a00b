//! Identifiers that are unique across machines. The last one is in shared memory; the limit up to which they may
//! advance is written to disk first, so that neither a crash nor a clock that is set back produces one twice.

mod epoch;
mod error;
mod high_water_mark;
mod machine;

use crate::error::Failure;
use crate::server::preload::preloaded;
use crate::server::wait;
use pgrx::prelude::*;
use pgrx::{PgAtomic, PgLwLock, pg_shmem_init};
use shardmaster_client::snowflake::{Clock, Next, SystemClock, Tick};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use epoch::unix_epoch;

/// The last tick; 0 until the first call after a start of the server.
// SAFETY: this name is used once in this library.
static LAST: PgAtomic<AtomicU64> = unsafe { PgAtomic::new(c"shardmaster snowflake") };
/// The millisecond up to which ticks may be used according to the disk; 0 until it is read.
// SAFETY: this name is used once in this library.
static HIGH_WATER_MARK: PgAtomic<AtomicU64> = unsafe { PgAtomic::new(c"shardmaster snowflake mark") };
/// The session that moves the mark holds it; it counts the moves.
// SAFETY: this name is used once in this library.
static MOVING: PgLwLock<u64> = unsafe { PgLwLock::new(c"shardmaster snowflake moving") };

/// The milliseconds by which the mark runs ahead: the first call after a crash may have to wait this long.
const AHEAD: u64 = 1_000;
/// A clock that was set back by more milliseconds than this is not waited for.
const LONGEST_WAIT: u64 = 2 * AHEAD;

/// Is called at the server's start.
pub fn register() {
    pg_shmem_init!(LAST);
    pg_shmem_init!(HIGH_WATER_MARK);
    pg_shmem_init!(MOVING);
}

/// Returns the next identifier.
pub fn generate() -> Result<i64, Failure> {
    if !preloaded() {
        return Err(error::not_preloaded());
    }
    let machine = machine::id()?;
    let epoch = unix_epoch()?;
    loop {
        let now = SystemClock.now().checked_sub(epoch).ok_or_else(error::before_epoch)?;
        // The mark is read first: it shows whether the last tick is known.
        let mark = HIGH_WATER_MARK.get().load(Ordering::Acquire);
        if mark == 0 {
            remember(epoch)?;
            continue;
        }
        let last = LAST.get().load(Ordering::Relaxed);
        match Tick(last).next(now) {
            Next::Take(tick) if tick.millisecond() > mark => move_mark(epoch, tick.millisecond())?,
            Next::Take(tick) => {
                let taken =
                    LAST.get().compare_exchange_weak(last, tick.0, Ordering::Relaxed, Ordering::Relaxed);
                if taken.is_ok() {
                    return tick.id(machine).ok_or_else(error::used_up);
                }
            }
            Next::WaitFor(millisecond) => wait_for(millisecond - now)?,
        }
    }
}

/// Waits: it spins for the next millisecond, and sleeps for a clock that was set back.
fn wait_for(milliseconds: u64) -> Result<(), Failure> {
    if milliseconds > LONGEST_WAIT {
        return Err(error::clock_set_back(milliseconds));
    }
    if milliseconds > 1 {
        wait::sleep(Duration::from_millis(milliseconds));
    } else {
        check_for_interrupts!();
        std::hint::spin_loop();
    }
    Ok(())
}

/// Reads the mark in the first call after a start: everything up to the mark on disk may have been used.
fn remember(epoch: u64) -> Result<(), Failure> {
    let _moving = MOVING.exclusive();
    if HIGH_WATER_MARK.get().load(Ordering::Acquire) == 0 {
        let mark = high_water_mark::read(epoch)?.max(1);
        LAST.get().store(Tick::last_of(mark).0, Ordering::Relaxed);
        HIGH_WATER_MARK.get().store(mark, Ordering::Release);
    }
    Ok(())
}

/// Moves the mark, on disk first, then for all sessions.
fn move_mark(epoch: u64, millisecond: u64) -> Result<(), Failure> {
    let mut moving = MOVING.exclusive();
    if HIGH_WATER_MARK.get().load(Ordering::Acquire) < millisecond {
        let mark = millisecond + AHEAD;
        high_water_mark::write(epoch, mark)?;
        HIGH_WATER_MARK.get().store(mark, Ordering::Release);
        *moving += 1;
    }
    Ok(())
}
