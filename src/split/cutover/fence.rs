//! The fence: an exclusive lock on the barrier, on which every capturing transaction holds a shared lock. While it is
//! held, no writer of the scope is open.
//!
//! The lock is held by one open transaction of a session that does nothing else. Whatever happens to its worker or to
//! the connection, the server ends that transaction within the cutover's deadline, and with it the lock; so what is
//! done under the fence is done in other sessions, and is valid only if the fence was still held afterwards.

use crate::agent::blocking_session::{OPEN_FOR, SESSION};
use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::agent::state::side::{SideChange, Version};
use crate::agent::state::{epoch, queue};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::server::retry::{self, Attempt, Backoff};
use crate::split::engine::holders::holders;
use crate::split::engine::sessions::EngineSessions;
use crate::split::table::SplitTable;
use std::time::{Duration, Instant};

/// Describes the sessions that hold or want a lock on a moving table that blocks even readers, or one that keeps its
/// partitions as they are.
pub fn table_holders(plan: &Plan, control: &mut Connection, tables: &[SplitTable]) -> Result<String> {
    let tables: Vec<String> = tables
        .iter()
        .flat_map(|t| t.source.leaves().iter().map(|leaf| leaf.oid.clone()).chain(t.source.oid.clone()))
        .collect();
    let rows = control.run(&format!(
        "SELECT string_agg(DISTINCT format('%s by %s', l.relation::regclass, {SESSION} || {OPEN_FOR}), '; ')
           FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
          WHERE l.relation IN ({}) AND l.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock',
                                                     'ShareUpdateExclusiveLock')
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        tables.join(", ")
    ))?;
    let holders = rows.scalar().unwrap_or("a transaction that has ended meanwhile").to_owned();
    Ok(format!("a lock on shard \"{}\": {holders}", plan.source.shard_key))
}

/// Opens a session that can hold the fence.
pub fn open(plan: &Plan, sessions: &EngineSessions) -> Result<Connection> {
    let mut fence = session::open_mover(plan, Side::Source, "fence")?;
    fence.end_by_itself();
    session::require_one_server(&fence, &sessions.reader)?;
    session::require_one_server(&fence, &sessions.control)?;
    epoch::register(&mut fence, plan, Side::Source)?;
    Ok(fence)
}

/// The session of a fence, and the time at which its server ends the fence.
pub struct Fence<'a> {
    pub session: &'a mut Connection,
    pub deadline: Instant,
}

/// Takes the lock in short attempts, with growing pauses, because new writers queue behind each of them. `locks` are
/// the statements by which the reading session locks the tables at the same time: S comes after both, and neither lock
/// waits for the other. Returns whom it has waited for.
pub fn take(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    fence: &mut Fence<'_>,
    locks: Option<&str>,
) -> Result<Option<String>> {
    const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::MAX);
    let mut waited_for = None;
    let taken = retry::until(fence.deadline, PAUSES, || {
        let Some(reason) = try_once(plan, sessions, tables, fence, locks)? else {
            return Ok::<_, SplitError>(Attempt::Done(()));
        };
        // A session that is gone when it is asked for is no longer named: the earlier text keeps the name.
        if !waited_for.as_deref().is_some_and(|before: &str| before.starts_with(&reason)) {
            waited_for = Some(reason.clone());
        }
        Ok(Attempt::Waits(reason))
    });
    taken?.map_err(SplitError::Retry)?;
    Ok(waited_for)
}

/// Tries once. Returns the sessions in the way, in which case no lock is held, or None if the locks are held.
fn try_once(
    plan: &Plan,
    sessions: &mut EngineSessions,
    tables: &[SplitTable],
    fence: &mut Fence<'_>,
    locks: Option<&str>,
) -> Result<Option<String>> {
    if let Some(locks) = locks {
        sessions.reader.send(locks)?;
    }
    let barrier = fence.session.run(&attempt(plan.id, fence.deadline));
    let locked = match locks {
        Some(_) => sessions.reader.finish(),
        None => Ok(Rows::default()),
    };
    let (in_the_way, failed) = match (locked, barrier) {
        (Ok(_), Ok(_)) => return Ok(None),
        (Err(error), _) => (FenceObstacle::Tables, error),
        (Ok(_), Err(error)) => (FenceObstacle::Writers, error),
    };
    if !failed.is_lock_timeout() {
        return Err(failed.into());
    }
    // The fence is released first, so that writers continue. Close to the deadline the server may have ended it while
    // the tables were waited for.
    let is_there_still = fence.session.run("ROLLBACK").is_ok();
    let reason = match in_the_way {
        FenceObstacle::Writers => holders_text(plan, &mut sessions.control)?,
        FenceObstacle::Tables => table_holders(plan, &mut sessions.control, tables)?,
    };
    if !is_there_still {
        return Err(SplitError::Retry(reason));
    }
    sessions.reader.run("ROLLBACK")?;
    Ok(Some(reason))
}

enum FenceObstacle {
    Writers,
    Tables,
}

/// Returns statements that begin the transaction that holds the lock. It ends at the deadline, even if nobody ends it:
/// no statement of it takes longer, and no pause between two of them.
fn attempt(split: i64, deadline: Instant) -> String {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    // New writers wait behind an attempt, too.
    let (left, attempt) = (left.max(100), left.clamp(1, 100));
    format!(
        "BEGIN; SET LOCAL statement_timeout = '{left}ms'; SET LOCAL idle_in_transaction_session_timeout = '{left}ms';
         SET LOCAL lock_timeout = '{attempt}ms'; LOCK TABLE {} IN EXCLUSIVE MODE",
        queue::barrier(split)
    )
}

/// Checks that the fence was held all the time since it was taken: a transaction that was ended meanwhile has admitted
/// writers.
pub fn require_held(fence: &mut Fence<'_>) -> Result<()> {
    ask_whether_held(fence)?;
    take_whether_held(fence)
}

/// Sends that check; the answer is received separately, so that other sessions can be asked meanwhile.
pub fn ask_whether_held(fence: &mut Fence<'_>) -> Result<()> {
    let left = fence.deadline.saturating_duration_since(Instant::now()).as_millis().max(100);
    fence.session.send(&format!(
        "SET LOCAL idle_in_transaction_session_timeout = '{left}ms';
         SELECT count(*) FROM pg_locks
          WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode = 'ExclusiveLock'"
    ))?;
    Ok(())
}

/// Receives the answer to that check.
pub fn take_whether_held(fence: &mut Fence<'_>) -> Result<()> {
    match fence.session.finish() {
        Ok(rows) if rows.scalar() == Some("1") => Ok(()),
        Ok(_) => Err(SplitError::Retry("the fence, which was lost".into())),
        Err(error) => Err(error.into()),
    }
}

/// Releases the fence, so that waiting writers read the current state.
pub fn release(fence: &mut Fence<'_>) -> Result<()> {
    fence.session.run("ROLLBACK")?;
    Ok(())
}

/// Releases the fence with a change of the source's state, which waiting writers then read: one commit makes the change
/// and admits them. The reading session's transaction ends at the same time. Returns false if the fence's transaction
/// had ended before, so that the state is unchanged.
pub fn release_with(
    fence: &mut Fence<'_>,
    reader: &mut Connection,
    plan: &Plan,
    generation: i64,
    change: &SideChange,
    version: Version<'_>,
) -> bool {
    let mine = epoch::is_mine(plan.id, change.side, generation);
    // Without its transaction nothing of this is done.
    let statements = format!("SAVEPOINT held; {mine}; {}; COMMIT", change.statement(plan.id, version));
    let sent = fence.session.send(&statements);
    let ended = reader.send("ROLLBACK");
    let changed = sent.and_then(|()| fence.session.finish_for_each());
    // The reading session has done its work; if its connection is lost by now, nothing is missed.
    let _ = ended.and_then(|()| reader.finish());
    changed.is_ok_and(|answers| answers.last().is_some_and(|changed| changed.rows.len() == 1))
}

/// Returns the text of `waiting_for`: the sessions that keep the fence from being taken.
pub fn holders_text(plan: &Plan, control: &mut Connection) -> Result<String> {
    let holders: Vec<String> = holders(control, plan.id)?.into_iter().map(|h| h.text).collect();
    let shard = plan.source.shard_key.clone();
    Ok(if holders.is_empty() {
        format!("open transactions of writers on shard \"{shard}\"")
    } else {
        format!("open transactions of writers on shard \"{shard}\": {}", holders.join("; "))
    })
}
