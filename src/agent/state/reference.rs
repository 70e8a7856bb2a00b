//! The tables `reference_origin` and `reference_copy`: the progress that the origin of reference tables and each of
//! their copies have stored.

use crate::agent::error::{Result, SplitError};
use crate::agent::reference::sequence;
use crate::catalog::reference::ReferenceSet;
use crate::error::SqlState;
use crate::guc;
use crate::remote::quote::{array_literal, literal};
use crate::remote::{Connection, RemoteError};
use std::collections::BTreeMap;

/// What a copy stands for.
#[derive(Clone, Debug, Default)]
pub struct ReferenceProgress {
    pub steps: i64,
    /// `None` if nothing has been copied yet.
    pub snapshot: Option<String>,
    /// System identifier and timeline of its origin.
    pub server: Option<String>,
    /// The structure of each table on the origin, by the table's number.
    pub tables: BTreeMap<String, String>,
}

/// Whether a worker takes a set over to follow it, so that a shard that is new to it records it from now on, or to end
/// what the shard records of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    ToFollow,
    ToEnd,
}

/// Refuses what another set of the same number, or another master, has left: what is installed has that set's name.
fn require_own(connection: &mut Connection, set: &ReferenceSet) -> Result<()> {
    let others = connection.run(&format!(
        "SELECT EXISTS (SELECT 1 FROM shardmaster_agent.reference_origin WHERE set_id = {id} AND token <> {token})
             OR EXISTS (SELECT 1 FROM shardmaster_agent.reference_copy WHERE set_id = {id} AND token <> {token})",
        id = set.id,
        token = literal(&set.token)
    ))?;
    if others.scalar() == Some("f") {
        return Ok(());
    }
    Err(SplitError::failed(
        SqlState::NOT_IN_STATE,
        format!("shard \"{}\" has reference tables of a master that was lost", connection.shard()),
        format!("SELECT * FROM shard_cleanup({}) removes them.", literal(connection.shard())),
    ))
}

/// System identifier and timeline.
pub use crate::agent::observe::SERVER;

/// Takes the origin over, in the transaction that has bootstrapped, and returns whether it knows the set now. If it
/// was restored on another server from a dump, its transaction ids are those of the earlier server, so its queues
/// begin anew.
pub fn take_origin(
    connection: &mut Connection,
    set: &ReferenceSet,
    generation: i64,
    takes: Takes,
) -> Result<bool> {
    let (id, token) = (set.id, literal(&set.token));
    let sequence = sequence(id);
    if takes == Takes::ToFollow {
        require_own(connection, set)?;
        connection.run(&format!(
            "CREATE SEQUENCE IF NOT EXISTS shardmaster_agent.{sequence};
             SELECT setval('shardmaster_agent.{sequence}', 1) FROM shardmaster_agent.{sequence} WHERE NOT is_called;
             INSERT INTO shardmaster_agent.reference_origin (set_id, token, generation, server, max_bytes)
             VALUES ({id}, {token}, 0, {SERVER}, {}) ON CONFLICT DO NOTHING",
            guc::queue_max_bytes()
        ))?;
    }
    let row = connection.run(&format!(
        "SELECT 1 FROM shardmaster_agent.reference_origin WHERE set_id = {id} AND token = {token} FOR UPDATE"
    ))?;
    if row.scalar().is_none() {
        return Ok(false);
    }
    raise(connection, "reference_origin", &format!("set_id = {id}"), generation)?;
    connection.run(&format!(
        "UPDATE shardmaster_agent.reference_origin SET server = {SERVER}, consumed = NULL, is_full = true
          WHERE set_id = {id} AND server IS DISTINCT FROM {SERVER}"
    ))?;
    Ok(true)
}

/// Takes a copy over, in the transaction that has bootstrapped, and returns whether it knows the set now. A session
/// that was about to commit there has done so, or will not.
pub fn take_copy(
    connection: &mut Connection,
    set: &ReferenceSet,
    shard: &str,
    generation: i64,
    takes: Takes,
) -> Result<bool> {
    let (id, token, shard) = (set.id, literal(&set.token), literal(shard));
    if takes == Takes::ToFollow {
        require_own(connection, set)?;
        connection.run(&format!(
            "INSERT INTO shardmaster_agent.reference_copy (set_id, shard, token, generation)
             VALUES ({id}, {shard}, {token}, 0) ON CONFLICT DO NOTHING"
        ))?;
    }
    let row = connection.run(&format!(
        "SELECT 1 FROM shardmaster_agent.reference_copy
          WHERE set_id = {id} AND shard = {shard} AND token = {token} FOR UPDATE"
    ))?;
    if row.scalar().is_none() {
        return Ok(false);
    }
    raise(connection, "reference_copy", &format!("set_id = {id} AND shard = {shard}"), generation)?;
    Ok(true)
}

fn raise(connection: &mut Connection, table: &str, condition: &str, generation: i64) -> Result<()> {
    let raised = connection.run(&format!(
        "UPDATE shardmaster_agent.{table} SET generation = {generation} WHERE {condition} AND generation <= {generation}"
    ))?;
    if raised.affected == 1 {
        return Ok(());
    }
    let known =
        connection.run(&format!("SELECT generation FROM shardmaster_agent.{table} WHERE {condition}"))?;
    let generation = known.scalar().and_then(|text| text.parse().ok()).ok_or(SplitError::Superseded)?;
    Err(SplitError::Behind { shard: connection.shard().to_owned(), generation })
}

/// Returns the statement by which a step begins on a copy: until its end no other session makes a step there.
pub fn locked(set: &ReferenceSet, shard: &str, generation: i64) -> String {
    format!(
        "SELECT steps, snapshot::text, server, tables::text FROM shardmaster_agent.reference_copy
          WHERE set_id = {} AND shard = {} AND generation = {generation} FOR UPDATE",
        set.id,
        literal(shard)
    )
}

/// Reads the answer to that statement. It is an error if a newer worker has taken over.
pub fn read(connection: &Connection, rows: &[Vec<Option<String>>]) -> Result<ReferenceProgress> {
    let Some([Some(steps), snapshot, server, Some(tables)]) = rows.first().map(Vec::as_slice) else {
        return Err(SplitError::Superseded);
    };
    let unreadable =
        |error: &dyn std::fmt::Display| RemoteError::unreadable(connection.shard(), error.to_string());
    if snapshot.as_deref().is_some_and(|text| !is_snapshot(text)) {
        return Err(unreadable(&"the snapshot it has reached").into());
    }
    Ok(ReferenceProgress {
        steps: steps.parse().map_err(|error: std::num::ParseIntError| unreadable(&error))?,
        snapshot: snapshot.clone(),
        server: server.clone(),
        tables: serde_json::from_str(tables).map_err(|error| unreadable(&error))?,
    })
}

/// Whether the server accepts a text as a snapshot: the origin is queried with what a copy has stored, and a text that
/// it refuses would block all other copies.
fn is_snapshot(text: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
    let parts: Vec<&str> = text.split(':').collect();
    let [min, max, running] = parts.as_slice() else { return false };
    let (Some(min), Some(max)) = (number(min), number(max)) else { return false };
    let running: Vec<Option<u64>> = match *running {
        "" => Vec::new(),
        list => list.split(',').map(number).collect(),
    };
    min <= max
        && running.iter().all(|xid| xid.is_some_and(|xid| min <= xid && xid < max))
        && running.is_sorted()
}

/// Returns the statement that stores a step, beside its rows.
pub fn store(set: &ReferenceSet, shard: &str, progress: &ReferenceProgress) -> String {
    let text = |value: &Option<String>| value.as_deref().map_or("NULL".to_owned(), literal);
    let tables = serde_json::to_string(&progress.tables).unwrap_or_default();
    format!(
        "UPDATE shardmaster_agent.reference_copy SET steps = {}, snapshot = {}, server = {}, tables = {}
          WHERE set_id = {} AND shard = {}",
        progress.steps,
        text(&progress.snapshot),
        text(&progress.server),
        literal(&tables),
        set.id,
        literal(shard)
    )
}

/// Announces a step that is about to be committed on a copy. This commit makes all durable that the step has seen.
pub fn announce(
    connection: &mut Connection,
    set: &ReferenceSet,
    shard: &str,
    generation: i64,
    step: i64,
) -> Result<()> {
    let shard = literal(shard);
    let change = format!("steps = steps || jsonb_build_object({shard}, {step})");
    act(connection, set, generation, &change)
}

/// Stores the permitted size of a queue, which writers read.
pub fn limit(connection: &mut Connection, set: &ReferenceSet, generation: i64) -> Result<()> {
    act(connection, set, generation, &format!("max_bytes = {}", guc::queue_max_bytes()))
}

fn act(connection: &mut Connection, set: &ReferenceSet, generation: i64, change: &str) -> Result<()> {
    let done = connection.run(&format!(
        "UPDATE shardmaster_agent.reference_origin SET {change} WHERE set_id = {} AND generation = {generation}",
        set.id
    ))?;
    if done.affected == 1 { Ok(()) } else { Err(SplitError::Superseded) }
}

/// Returns an expression: snapshot `a` has seen all that snapshot `b` has seen.
pub fn covers(a: &str, b: &str) -> String {
    format!(
        "(pg_snapshot_xmax({a}) >= pg_snapshot_xmax({b})
          AND NOT EXISTS (SELECT 1 FROM pg_snapshot_xip({a}) x (xid) WHERE pg_visible_in_snapshot(x.xid, {b})))"
    )
}

/// Removes from the queues what all of these snapshots have seen.
pub fn consume(
    connection: &mut Connection,
    set: &ReferenceSet,
    generation: i64,
    snapshots: &[String],
    queues: &[String],
) -> Result<()> {
    if snapshots.is_empty() {
        return Ok(());
    }
    let list = array_literal(snapshots);
    let oldest = format!(
        "SELECT p.s FROM unnest({list}::pg_snapshot[]) AS p (s)
          WHERE NOT EXISTS (SELECT 1 FROM unnest({list}::pg_snapshot[]) AS q (s) WHERE NOT {})
          LIMIT 1",
        covers("q.s", "p.s")
    );
    let deletes: Vec<String> = queues
        .iter()
        .map(|queue| {
            format!(
                "DELETE FROM {queue} q USING shardmaster_agent.reference_origin o
                  WHERE o.set_id = {} AND q.xid < pg_snapshot_xmax(o.consumed) AND pg_visible_in_snapshot(q.xid, o.consumed)",
                set.id
            )
        })
        .collect();
    connection.run("BEGIN")?;
    let change = format!(
        "consumed = coalesce((SELECT n.s FROM ({oldest}) AS n WHERE consumed IS NULL OR {}), consumed)",
        covers("n.s", "consumed")
    );
    act(connection, set, generation, &change)?;
    connection.run(&format!("{}; COMMIT", deletes.join("; ")))?;
    Ok(())
}

/// Empties the queues and lets them take entries again. Changes that no queue has are older than the transaction id
/// that is stored here.
pub fn reopen(
    connection: &mut Connection,
    set: &ReferenceSet,
    generation: i64,
    queues: &[String],
) -> Result<()> {
    // This is done before the queues are open again, so that a worker that fails here repeats it.
    act(connection, set, generation, "is_full = true")?;
    // Entries that are lost here belong to older transactions, too.
    if !queues.is_empty() {
        let truncate = format!("TRUNCATE {}", queues.join(", "));
        connection.run(&format!("BEGIN; SET LOCAL lock_timeout = '100ms'; {truncate}; COMMIT"))?;
    }
    connection.run(&format!("SELECT setval('shardmaster_agent.{}', 1)", sequence(set.id)))?;
    act(
        connection,
        set,
        generation,
        "is_full = false, complete_from = pg_snapshot_xmax(pg_current_snapshot())",
    )
}

pub fn forget_copy(set: &ReferenceSet, shard: &str) -> String {
    format!(
        "DELETE FROM shardmaster_agent.reference_copy WHERE set_id = {} AND shard = {}",
        set.id,
        literal(shard)
    )
}

pub fn forget_origin(set: &ReferenceSet) -> String {
    format!(
        "DELETE FROM shardmaster_agent.reference_origin WHERE set_id = {}; DROP SEQUENCE IF EXISTS shardmaster_agent.{}",
        set.id,
        sequence(set.id)
    )
}

#[cfg(test)]
mod tests {
    use super::is_snapshot;

    #[test]
    fn a_snapshot_is_one_as_the_server_writes_it() {
        for text in ["1:1:", "10:20:10,14,19", "18446744073709551614:18446744073709551615:"] {
            assert!(is_snapshot(text), "{text}");
        }
        let odd = [
            "",
            "1",
            "1:2",
            "2:1:",
            "0:1:",
            "10:20:9",
            "10:20:20",
            "10:20:14,12",
            "10:20:a",
            "1:2:1:",
            "-1:2:",
        ];
        for text in odd {
            assert!(!is_snapshot(text), "{text}");
        }
    }
}
