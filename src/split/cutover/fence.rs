//! The fence: an exclusive lock on the barrier, which every capturing transaction holds
//! shared. Whoever holds it alone knows that no writer of the scope is open.
//!
//! The lock lives in one open transaction of a session that does nothing else. Whatever
//! becomes of its worker or of the way there, the server ends that transaction within the
//! cutover's deadline, and with it the lock; so what is done under the fence is done in
//! other sessions, and counts only if the fence was still there afterwards.

use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::agent::state::side::{SideChange, Version};
use crate::agent::state::{queue, tenure};
use crate::agent::who::{OPEN_FOR, SESSION};
use crate::catalog::split::Plan;
use crate::remote::Connection;
use crate::remote::result::Rows;
use crate::server::wait;
use crate::split::engine::Engine;
use crate::split::engine::holders::holders;
use std::time::{Duration, Instant};

/// Who holds or wants a lock on a moving table that keeps even readers out, or one that
/// keeps its partitions as they are.
pub fn table_holders(engine: &mut Engine) -> Result<String> {
    let tables: Vec<String> = engine
        .tables
        .iter()
        .flat_map(|t| t.source.leaves().iter().map(|leaf| leaf.oid.clone()).chain(t.source.oid.clone()))
        .collect();
    let rows = engine.control.run(&format!(
        "SELECT string_agg(DISTINCT format('%s by %s', l.relation::regclass, {SESSION} || {OPEN_FOR}), '; ')
           FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
          WHERE l.relation IN ({}) AND l.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock',
                                                     'ShareUpdateExclusiveLock')
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        tables.join(", ")
    ))?;
    let holders = rows.scalar().unwrap_or("a transaction that has ended meanwhile").to_owned();
    Ok(format!("a lock on shard \"{}\": {holders}", engine.plan.source.shard_key))
}

/// A session that can hold the fence.
pub fn open(engine: &mut Engine) -> Result<Connection> {
    let mut fence = session::open_mover(&engine.plan, Side::Source, "fence")?;
    fence.end_by_itself();
    session::require_one_server(&fence, &engine.reader)?;
    session::require_one_server(&fence, &engine.control)?;
    tenure::register(&mut fence, &engine.plan, Side::Source)?;
    Ok(fence)
}

/// Takes the lock: short attempts, ever further apart, because new writers queue
/// behind each of them. `tables` locks what the reading session is to have, beside it: S comes behind
/// both, and neither of them waits for the other. Returns whom it has waited for.
pub fn take(
    engine: &mut Engine,
    fence: &mut Connection,
    deadline: Instant,
    tables: Option<&str>,
) -> Result<Option<String>> {
    let mut pause = Duration::from_millis(100);
    let mut waited_for = None;
    let _said = wait::said();
    while let Some(reason) = try_once(engine, fence, deadline, tables)? {
        if Instant::now() + pause > deadline {
            return Err(SplitError::Retry(reason));
        }
        wait::report(&reason);
        wait::sleep(pause);
        // Who has gone by the time that one asks is not named any more: the account has the name from before.
        if !waited_for.as_deref().is_some_and(|before: &str| before.starts_with(&reason)) {
            waited_for = Some(reason);
        }
        pause *= 2;
    }
    Ok(waited_for)
}

/// Who is in the way; None: the locks are there. Else none of them is.
fn try_once(
    engine: &mut Engine,
    fence: &mut Connection,
    deadline: Instant,
    tables: Option<&str>,
) -> Result<Option<String>> {
    if let Some(tables) = tables {
        engine.reader.send(tables)?;
    }
    let barrier = fence.run(&attempt(engine.plan.id, deadline));
    let tables = match tables {
        Some(_) => engine.reader.finish(),
        None => Ok(Rows::default()),
    };
    let (in_the_way, failed) = match (tables, barrier) {
        (Ok(_), Ok(_)) => return Ok(None),
        (Err(error), _) => (FenceObstacle::Tables, error),
        (Ok(_), Err(error)) => (FenceObstacle::Writers, error),
    };
    if !failed.is_lock_timeout() {
        return Err(failed.into());
    }
    // Writers first. Close to the deadline the server may have ended the fence while the tables were waited for.
    let is_there_still = fence.run("ROLLBACK").is_ok();
    let reason = match in_the_way {
        FenceObstacle::Writers => holders_text(engine)?,
        FenceObstacle::Tables => table_holders(engine)?,
    };
    if !is_there_still {
        return Err(SplitError::Retry(reason));
    }
    engine.reader.run("ROLLBACK")?;
    Ok(Some(reason))
}

enum FenceObstacle {
    Writers,
    Tables,
}

/// Begins the transaction that holds the lock. It ends at the deadline, whoever is left to
/// end it: no statement of it takes longer, and no pause between two of them.
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

/// Whether the fence has held since it was taken: a transaction that was ended meanwhile
/// has let writers through.
pub fn require_held(fence: &mut Connection, deadline: Instant) -> Result<()> {
    ask_whether_held(fence, deadline)?;
    take_whether_held(fence)
}

/// The question, and its answer: others may be asked meanwhile.
pub fn ask_whether_held(fence: &mut Connection, deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis().max(100);
    fence.send(&format!(
        "SET LOCAL idle_in_transaction_session_timeout = '{left}ms';
         SELECT count(*) FROM pg_locks
          WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode = 'ExclusiveLock'"
    ))?;
    Ok(())
}

pub fn take_whether_held(fence: &mut Connection) -> Result<()> {
    match fence.finish() {
        Ok(rows) if rows.scalar() == Some("1") => Ok(()),
        Ok(_) => Err(SplitError::Retry("the fence, which was lost".into())),
        Err(error) => Err(error.into()),
    }
}

/// Lets waiting writers read the state that is there now.
pub fn release(fence: &mut Connection) -> Result<()> {
    fence.run("ROLLBACK")?;
    Ok(())
}

/// The same, with a change of the source's state that they read: one commit makes it and lets them go. The reading
/// session's transaction ends beside it. False: the fence's transaction had ended before, and the state is as it was.
pub fn release_with(
    fence: &mut Connection,
    reader: &mut Connection,
    plan: &Plan,
    generation: i64,
    (change, version): (&SideChange, Version<'_>),
) -> bool {
    let mine = tenure::is_mine(plan.id, change.side, generation);
    // Without its transaction nothing of it is done.
    let statements = format!("SAVEPOINT held; {mine}; {}; COMMIT", change.statement(plan.id, version));
    let sent = fence.send(&statements);
    let ended = reader.send("ROLLBACK");
    let changed = sent.and_then(|()| fence.finish_for_each());
    // It has done its work; lost by now, it would not have to do it any more.
    let _ = ended.and_then(|()| reader.finish());
    changed.is_ok_and(|answers| answers.last().is_some_and(|changed| changed.rows.len() == 1))
}

/// For `waiting_for`: who keeps the fence from being taken.
pub fn holders_text(engine: &mut Engine) -> Result<String> {
    let holders: Vec<String> = holders(engine)?.into_iter().map(|h| h.text).collect();
    let shard = engine.plan.source.shard_key.clone();
    Ok(if holders.is_empty() {
        format!("open transactions of writers on shard \"{shard}\"")
    } else {
        format!("open transactions of writers on shard \"{shard}\": {}", holders.join("; "))
    })
}
