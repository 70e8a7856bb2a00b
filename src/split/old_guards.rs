//! Keys that come back to a shard they had left: the guards of the splits that took them
//! away refuse them no longer, from the commit on that opens the target for them. What is
//! released twice is gone already.

use super::engine::Engine;
use super::error::Result;
use super::quote::{array_literal, literal};
use super::session::Side;
use crate::agent::scope::{Scope, range_rows};
use crate::agent::scope_table;
use crate::routing::interval::Interval;
use crate::routing::ordered::Ordered;
use crate::sql;
use crate::worker::txn::transaction;

/// The splits whose guards on the target may refuse the split's keys, in the order in
/// which all splits lock them.
pub fn find(engine: &mut Engine) -> Result<Vec<i64>> {
    let id = engine.plan.id.to_string();
    let guards = engine.target.query(
        "SELECT split_id FROM shardmaster_agent.side
          WHERE side = 'source' AND state = 'moved' AND split_id <> $1 AND shard = $2",
        &[Some(&id), Some(&engine.plan.target.shard_key)],
    )?;
    let guards: Vec<i64> =
        guards.rows.iter().filter_map(|row| row.first()?.as_deref()?.parse().ok()).collect();
    let keyspace = &engine.plan.keyspace;
    Ok(transaction(|| without_other_keyspaces(keyspace, guards)))
}

/// Takes the split's keys out of their scopes, in the target's open transaction.
pub fn release(engine: &mut Engine, guards: &[i64]) -> Result<()> {
    for split in guards {
        let there = format!("shardmaster_agent.{}", scope_table(*split, Side::Source));
        match &engine.plan.scope {
            Scope::Keys(_) | Scope::Buckets { .. } => {
                engine.target.run(&format!(
                    "DELETE FROM {there} WHERE key::text = ANY ({}::text[])",
                    array_literal(&engine.plan.entries)
                ))?;
            }
            Scope::Ranges { of, ranges } => {
                let (of, ranges) = (*of, ranges.clone());
                release_ranges(engine, &there, of, &ranges)?;
            }
        }
    }
    Ok(())
}

/// Of another keyspace a key of the same name is another key. A split that this master
/// does not know may be of this one.
fn without_other_keyspaces(keyspace: &str, splits: Vec<i64>) -> Vec<i64> {
    sql::read(
        "SELECT s.id FROM unnest($2) s (id)
          WHERE NOT EXISTS (SELECT 1 FROM shardmaster.split_plan p WHERE p.id = s.id AND p.keyspace <> $1)
          ORDER BY s.id",
        &[keyspace.into(), splits.into()],
        |row| row.value(1),
    )
}

/// A range that comes back in part is left with the rest. Two splits may each bring back
/// a part of it: the second one waits, and finds what the first has left.
fn release_ranges(engine: &mut Engine, table: &str, of: Ordered, back: &[Interval]) -> Result<()> {
    engine.target.run(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))?;
    let rows = engine.target.run(&format!("SELECT key FROM {table}"))?;
    let names: Vec<String> =
        rows.rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect();
    for name in names {
        let Some(range) = Interval::parse(&name, of) else { continue };
        let mut left = vec![range.clone()];
        for interval in back {
            left = left.iter().flat_map(|part| part.without(interval, of)).collect();
        }
        if left == [range] {
            continue;
        }
        let rest = if left.is_empty() {
            String::new()
        } else {
            format!("INSERT INTO {table} VALUES {} ON CONFLICT DO NOTHING;", range_rows(&left, of))
        };
        engine.target.run(&format!("DELETE FROM {table} WHERE key = {}; {rest}", literal(&name)))?;
    }
    Ok(())
}
