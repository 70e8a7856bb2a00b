//! The tables `queue_<split>_<table>`, on a source: keys of changed rows. Beside them are the objects that every
//! writer of the split reads: the barrier, and whether the queues are open.

use super::drop_tables;
use crate::agent::error::Result;
use crate::agent::shape::TableShape;
use crate::catalog::split::Plan;
use crate::remote::quote::{literal, text_array};
use crate::remote::template::{fill, number, sql, texts, word};
use crate::remote::{Connection, number};
use std::time::Duration;

const QUEUE: &str = include_str!("../../../sql/agent/queue.sql");
const BEHIND: &str = include_str!("../../../sql/agent/behind.sql");

pub fn table(split: i64, ordinal: i32) -> String {
    format!("queue_{split}_{ordinal}")
}

pub fn qualified(split: i64, ordinal: i32) -> String {
    format!("shardmaster_agent.{}", table(split, ordinal))
}

/// Returns the name of a sequence that is never drawn from: its value shows all sessions at once whether the queues of
/// a split take entries (1) or not (2), whether or not the transaction that has set it commits.
pub fn sequence(split: i64) -> String {
    format!("queue_{split}_seq")
}

/// Returns the table that separates writers from the cutover: each capturing transaction holds a shared lock on it,
/// the fence an exclusive one.
pub fn barrier(split: i64) -> String {
    format!("shardmaster_agent.{}", barrier_name(split))
}

pub fn barrier_name(split: i64) -> String {
    format!("barrier_{split}")
}

/// Returns the columns of a queue that hold the key.
pub fn keys(table: &TableShape) -> Vec<String> {
    (1..=table.key().len()).map(|n| format!("k{n}")).collect()
}

/// Returns the key's columns as an agent's table has them.
pub fn key_definitions(table: &TableShape) -> String {
    let definitions: Vec<String> = keys(table)
        .iter()
        .zip(table.key())
        .map(|(name, key)| {
            let column = table.column(key);
            // Domains are left out: one that is NOT NULL would refuse the entry of a TRUNCATE.
            let type_name = column.map_or("text", |c| c.stored.as_str());
            let collation = column.and_then(|c| c.collation.as_deref());
            let collate = collation.map(|c| format!(" COLLATE {c}")).unwrap_or_default();
            format!("{name} {type_name}{collate}")
        })
        .collect();
    definitions.join(",\n    ")
}

/// Returns the definition of a queue with any name; it can be run again before the queue has writers.
pub fn definition(name: &str, shape: &TableShape) -> String {
    fill(QUEUE, &[("queue", word(name)), ("key_definitions", sql(key_definitions(shape)))])
}

/// Creates the queues of captured tables, by their ordinals. An existing queue is not touched: checking its index
/// would take a lock that could deadlock with its writers, who hold other queues already.
pub fn create<'a>(
    connection: &mut Connection,
    split: i64,
    tables: impl Iterator<Item = (i32, &'a TableShape)> + Clone,
) -> Result<()> {
    let names: Vec<String> = tables.clone().map(|(ordinal, _)| qualified(split, ordinal)).collect();
    let there = connection.query(
        "SELECT n.name FROM unnest($1::text[]) n (name) WHERE to_regclass(n.name) IS NOT NULL",
        &[Some(&text_array(&names))],
    )?;
    let is_there =
        |ordinal| there.rows.iter().flatten().flatten().any(|name| *name == qualified(split, ordinal));
    let missing = tables.filter(|(ordinal, _)| !is_there(*ordinal));
    Ok(connection.run_all(missing.map(|(ordinal, shape)| definition(&table(split, ordinal), shape)))?)
}

/// Returns SQL for the bytes of all queues of a split: a check can be made at an entry of any of them.
pub fn sizes(plan: &Plan) -> String {
    let sizes: Vec<String> = plan
        .tables
        .iter()
        .map(|of| {
            let queue = qualified(plan.id, of.ordinal);
            format!("pg_catalog.pg_relation_size('{queue}'::pg_catalog.regclass, 'main')")
        })
        .collect();
    sizes.join(" OPERATOR(pg_catalog.+) ")
}

/// Returns the bytes of all queues of a split. Returns None if they take no more entries, so that some are missing.
pub fn bytes(connection: &mut Connection, plan: &Plan) -> Result<Option<i64>> {
    let is_full = format!(
        "coalesce(pg_catalog.pg_sequence_last_value('shardmaster_agent.{}'::pg_catalog.regclass), 1) > 1",
        sequence(plan.id)
    );
    let query = format!("SELECT {is_full}, {}", sizes(plan));
    let answer = connection.query(&query, &[])?;
    let cells: Vec<Option<&str>> = answer.rows.iter().flatten().map(Option::as_deref).collect();
    let size = cells.get(1).copied().flatten();
    let bytes = number::count(connection.shard(), "the size of a queue", size)?;
    Ok((cells.first() != Some(&Some("t"))).then_some(bytes))
}

/// Creates what every writer of a split reads: the barrier, and whether the queues are open.
pub fn create_barrier(connection: &mut Connection, split: i64) -> Result<()> {
    let sequence = sequence(split);
    connection.run(&format!(
        "CREATE TABLE IF NOT EXISTS {} (); CREATE SEQUENCE IF NOT EXISTS shardmaster_agent.{sequence};
         SELECT setval('shardmaster_agent.{sequence}', 1) FROM shardmaster_agent.{sequence} WHERE NOT is_called",
        barrier(split)
    ))?;
    Ok(())
}

/// Returns the statement that lets the queues take entries again.
pub fn reopen(split: i64) -> String {
    format!("SELECT setval('shardmaster_agent.{}', 1)", sequence(split))
}

/// Returns the condition on entries that a snapshot has not seen. `None` means that nothing has been applied.
pub fn is_new(snapshot: Option<&str>) -> String {
    snapshot.map_or_else(|| "true".to_owned(), |snapshot| is_new_since(&literal(snapshot)))
}

/// Returns that condition for a snapshot that is a literal, or a parameter.
pub fn is_new_since(snapshot: &str) -> String {
    format!(
        "xid >= pg_snapshot_xmin({snapshot}::pg_snapshot) AND NOT pg_visible_in_snapshot(xid, {snapshot}::pg_snapshot)"
    )
}

/// Returns a query: the given number of the queue, for how many of its entries a condition holds, when the newest of
/// them was made, in microseconds since 1970, and whether one is a TRUNCATE.
pub fn window(queue: &str, number: i32, condition: &str) -> String {
    format!(
        "SELECT {number}, count(*), (extract(epoch FROM max(at)) * 1000000)::bigint, coalesce(bool_or(op = 'T'), false)::int FROM {queue} WHERE {condition}"
    )
}

/// Returns a query: for how many entries a condition holds.
pub fn count(queue: &str, condition: &str) -> String {
    format!("SELECT count(*) FROM {queue} WHERE {condition}")
}

/// Returns an expression: the bytes of a queue.
pub fn size(queue: &str) -> String {
    format!("pg_relation_size('{queue}'::regclass)")
}

/// Returns the statement that updates the statistics of a queue, unless another session is doing so.
pub fn analyze(queue: &str) -> String {
    format!("ANALYZE (SKIP_LOCKED) {queue}")
}

/// Returns the statement that removes what a snapshot has seen: never by sequence number, and never by TRUNCATE, which
/// would remove entries that it has not seen.
pub fn consume(queue: &str, snapshot: &str) -> String {
    format!("DELETE FROM {queue} WHERE pg_visible_in_snapshot(xid, {}::pg_snapshot)", literal(snapshot))
}

/// Returns the statement that removes everything.
pub fn clear(queue: &str) -> String {
    format!("DELETE FROM {queue}")
}

/// Returns statements for a fresh session, of which the last gives a row: how many changes the target does not have
/// yet, the age of the oldest in seconds, the bytes of the queues, whether they take no more entries, and the bytes
/// that they may have.
pub fn behind(split: i64, ordinals: &[i32], most_rows: i64, within: Duration) -> String {
    let queues: Vec<String> = ordinals.iter().map(|ordinal| qualified(split, *ordinal)).collect();
    fill(
        BEHIND,
        &[
            ("split", number(split)),
            ("queues", texts(queues)),
            ("most_rows", number(most_rows)),
            ("within", number(within.as_millis() as u64)),
            ("sequence", word(sequence(split))),
        ],
    )
}

/// Drops the queues of a split with the objects beside them, once no trigger is left that would write to them.
pub fn drop(connection: &mut Connection, split: i64) -> Result<()> {
    drop_tables(connection, &format!("queue_{split}_"))?;
    connection.run(&format!(
        "DROP SEQUENCE IF EXISTS shardmaster_agent.{}; DROP TABLE IF EXISTS {}",
        sequence(split),
        barrier(split)
    ))?;
    Ok(())
}
