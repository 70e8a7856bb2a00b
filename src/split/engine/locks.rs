//! The locks under which a step sees both sides: what its snapshot sees stays as it is until it has committed.

use crate::agent::error::Result;
use crate::guc;
use crate::remote::Connection;
use crate::split::references::WatchedReferences;
use crate::split::table::SplitTable;

/// 1. Takes locks before the snapshot: no TRUNCATE and no rewrite comes between the snapshot and the data. A snapshot
///    older than one sees an empty table.
pub fn lock_source(reader: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let locks = source_locks(tables);
    reader.run(&locks)?;
    Ok(())
}

/// Returns the statements for that.
pub fn source_locks(tables: &[SplitTable]) -> String {
    source_locks_within(&tables.iter().collect::<Vec<_>>(), "")
}

/// Returns the statements for some tables; `limit` is a statement before them that limits how long the locks are
/// waited for.
pub fn source_locks_within(tables: &[&SplitTable], limit: &str) -> String {
    let mut names: Vec<&str> = tables.iter().map(|t| t.source.name.as_str()).collect();
    names.extend(tables.iter().map(|t| t.queue.as_str()));
    format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {limit}; LOCK TABLE {} IN ACCESS SHARE MODE",
        names.join(", ")
    )
}

/// Returns the statements for the last window. They wait until no transaction is open that has disabled triggers: what
/// it writes is in no window. Until the source is moved nothing is attached to the partitioned tables or detached from
/// them: rows that were added so after S would be in no window. Such a lock waits for another split's cutover too, so
/// not for long.
pub fn source_for_cutover(tables: &[SplitTable], parents: &[String]) -> String {
    // If the worker vanishes, the lock is released soon after.
    let limit = guc::cutover_timeout().as_millis();
    let names: Vec<&str> = tables.iter().map(|t| t.source.name.as_str()).collect();
    let mut locks = format!(
        "{}; SET LOCAL idle_in_transaction_session_timeout = '{limit}ms'; SET LOCAL lock_timeout = '100ms';
         LOCK TABLE {} IN ROW EXCLUSIVE MODE",
        source_locks(tables),
        names.join(", ")
    );
    if !parents.is_empty() {
        let only: Vec<String> = parents.iter().map(|name| format!("ONLY {name}")).collect();
        locks.push_str(&format!("; LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE", only.join(", ")));
    }
    locks
}

/// Locks the target's tables: no column and no file of theirs changes until the transaction ends.
pub fn lock_target(target: &mut Connection, tables: &[SplitTable]) -> Result<()> {
    let locks = target_locks(tables);
    target.run(&locks)?;
    Ok(())
}

/// Returns the statements for that, which also lock what its foreign keys reference: both are read under these locks.
pub fn target_locks_with_referenced(tables: &[SplitTable], watched: &WatchedReferences) -> String {
    let referenced: Vec<String> = watched.referenced().into_iter().collect();
    if referenced.is_empty() {
        target_locks(tables)
    } else {
        format!("{}; LOCK TABLE {} IN ACCESS SHARE MODE", target_locks(tables), referenced.join(", "))
    }
}

/// Returns the statement that locks the target's tables.
fn target_locks(tables: &[SplitTable]) -> String {
    target_locks_of(&tables.iter().collect::<Vec<_>>())
}

/// Returns the statement that locks some tables of the target.
pub fn target_locks_of(tables: &[&SplitTable]) -> String {
    let tables: Vec<&str> = tables.iter().map(|t| t.target.name.as_str()).collect();
    format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", tables.join(", "))
}
