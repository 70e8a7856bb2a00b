//! Installing a split on its shards. Invariant: the ledger knows of a side before
//! anything is created there; a side's state row is committed before its first
//! trigger; the target is guarded before the source captures. Every statement can
//! be repeated.

pub mod triggers;

use super::copy::leaves;
use super::copy::progress::{Progress, TableProgress};
use super::engine::{self, Table};
use super::owners;
use super::points::{self, reach};
use crate::agent::error::{Result, SplitError};
use crate::agent::filter::Filter;
use crate::agent::redirect::Entries;
use crate::agent::session::{self, Side};
use crate::agent::shape::{Column, TableShape};
use crate::catalog::split::Plan;
use crate::error::SqlState;
use crate::keys::scope::Scope;
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::server::sql;
use crate::server::txn::transaction;
use crate::{agent, guc};

/// Installs the guard on the target and capture on the source.
pub fn install(plan: &Plan, generation: i64, identity: &str) -> Result<()> {
    reach(points::INSTALL_BEGIN)?;
    let mut source = session::open_mover(plan, Side::Source, "install")?;
    let mut target = session::open_mover(plan, Side::Target, "install")?;
    session::check_identity(&mut source, identity)?;
    session::check_identity(&mut target, identity)?;
    owners::require_none(&mut source, plan, Side::Source)?;
    owners::require_none(&mut target, plan, Side::Target)?;
    let tables = engine::describe(plan, &mut source, &mut target)?;
    transaction(|| write_ledger(plan));
    reach(points::INSTALL_LEDGER)?;

    create_side(&mut target, plan, &tables, Side::Target, generation, identity)?;
    reach(points::INSTALL_TARGET)?;
    for table in &tables {
        triggers::install(&mut target, plan, table, Side::Target)?;
    }
    reach(points::INSTALL_GUARDED)?;
    find_strangers(&mut target, plan, &tables)?;

    create_side(&mut source, plan, &tables, Side::Source, generation, identity)?;
    reach(points::INSTALL_SOURCE)?;
    if guc::capture() {
        for table in &tables {
            triggers::install(&mut source, plan, table, Side::Source)?;
            reach(points::INSTALL_TRIGGER)?;
        }
    }
    reach(points::INSTALL_DONE)?;
    Ok(())
}

/// Rows of the scope that were written to the target before its guard was there: CREATE
/// TRIGGER has waited for their writers. Nothing has been copied, so they are nobody's of
/// ours, and no rollback touches them. What is found here is where rows may go.
fn find_strangers(target: &mut Connection, plan: &Plan, tables: &[Table]) -> Result<()> {
    // Its triggers may have waited long for writers.
    owners::require_none(target, plan, Side::Target)?;
    let now = engine::observe(target, plan, Side::Target)?;
    for (policy, shape) in plan.tables.iter().zip(&now.tables) {
        let Some(column) = shape.column(&policy.shard_by) else { continue };
        if let Some(stranger) = leaves::find_row(target, plan, column, &shape.name, false)? {
            return Err(SplitError::failed(
                SqlState::NOT_IN_STATE,
                format!(
                    "table {} on shard \"{}\" holds rows of key \"{}\", written while the split was installed",
                    stranger.table,
                    target.shard(),
                    stranger.key
                ),
                format!(
                    "SELECT shard_split_rollback({}) leaves them alone; then delete them, or assign the key to this shard if they are its rows, and start the split again.",
                    plan.id
                ),
            ));
        }
    }
    let empty = Progress {
        target_system: Some(now.system().to_owned()),
        tables: now
            .tables
            .iter()
            .zip(tables)
            .map(|(shape, table)| TableProgress {
                structure: table.source.structure(),
                target_structure: table.target.structure(),
                target_leaves: Some(leaves::of(shape)),
                ..TableProgress::default()
            })
            .collect(),
        ..Progress::default()
    };
    target.query(
        "UPDATE shardmaster_agent.progress SET state = $2 WHERE split_id = $1 AND state->>'snapshot' IS NULL",
        &[Some(&plan.id.to_string()), Some(&crate::split::copy::progress::to_json(&empty))],
    )?;
    Ok(())
}

fn write_ledger(plan: &Plan) {
    sql::write(
        "INSERT INTO shardmaster.split_ledger (split_id, side, shard_key)
         VALUES ($1, 'source', $2), ($1, 'target', $3)
         ON CONFLICT (split_id, side) DO UPDATE SET created_at = clock_timestamp(), removed_at = NULL",
        &[plan.id.into(), plan.source.shard_key.as_str().into(), plan.target.shard_key.as_str().into()],
    );
}

/// State row, generation, scope, queues and functions of one side, in one
/// transaction, which ends before the first trigger is created.
fn create_side(
    connection: &mut Connection,
    plan: &Plan,
    tables: &[Table],
    side: Side,
    generation: i64,
    identity: &str,
) -> Result<()> {
    connection.run("BEGIN")?;
    bootstrap(connection)?;
    session::require_own(connection, plan, side)?;
    connection.query(
        "INSERT INTO shardmaster_agent.master (identity, agent_version) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[Some(identity), Some(&agent::VERSION.to_string())],
    )?;
    session::check_identity(connection, identity)?;
    create_rows(connection, plan, side, generation)?;
    create_scope(connection, plan, tables, side)?;
    match side {
        Side::Source => create_capture(connection, plan, tables)?,
        Side::Target => create_guard(connection, plan, tables)?,
    }
    connection.run("COMMIT")?;
    // The state row exists now: from here on the generation decides who may act.
    session::take_over(connection, plan, side, generation)?;
    session::register(connection, plan, side)
}

fn create_rows(connection: &mut Connection, plan: &Plan, side: Side, generation: i64) -> Result<()> {
    let (state, own, other) = match side {
        Side::Source => ("capture", &plan.source, &plan.target),
        Side::Target => ("closed", &plan.target, &plan.source),
    };
    let id = plan.id.to_string();
    connection.query(
        "INSERT INTO shardmaster_agent.side
                (split_id, side, state, token, shard, other_shard, namespace, keyspace, entries)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING",
        &[
            Some(&id),
            Some(side.as_str()),
            Some(state),
            Some(&plan.token),
            Some(&own.shard_key),
            Some(&other.shard_key),
            Some(&own.namespace),
            Some(&plan.keyspace),
            Some(&Entries::of(&plan.scope).name()),
        ],
    )?;
    connection.query(
        "INSERT INTO shardmaster_agent.generation (split_id, side, generation) VALUES ($1, $2, $3)
         ON CONFLICT DO NOTHING",
        &[Some(&id), Some(side.as_str()), Some(&(generation - 1).to_string())],
    )?;
    match side {
        Side::Source => {
            connection.query(
                "INSERT INTO shardmaster_agent.consumed (split_id) VALUES ($1) ON CONFLICT DO NOTHING",
                &[Some(&id)],
            )?;
            connection.run(&renew_lease(plan.id))?;
        }
        Side::Target => {
            let empty = Progress {
                tables: plan.tables.iter().map(|_| TableProgress::default()).collect(),
                ..Progress::default()
            };
            let state = crate::split::copy::progress::to_json(&empty);
            connection.query(
                "INSERT INTO shardmaster_agent.progress (split_id, state) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                &[Some(&id), Some(&state)],
            )?;
        }
    }
    Ok(())
}

/// The statement that lets capture go on, in a row of its own: in the state row it
/// would give every REPEATABLE READ writer a serialization failure.
pub fn renew_lease(split: i64) -> String {
    format!(
        "INSERT INTO shardmaster_agent.lease (split_id, open_until, max_bytes)
         VALUES ({split}, clock_timestamp() + interval '{} s', {})
         ON CONFLICT (split_id) DO UPDATE SET open_until = EXCLUDED.open_until, max_bytes = EXCLUDED.max_bytes",
        guc::capture_lease_seconds(),
        guc::queue_max_bytes()
    )
}

/// The same by a session of its own, for a split that rests.
pub fn keep_lease(plan: &Plan) -> Result<()> {
    let mut source = session::open_mover(plan, Side::Source, "lease")?;
    if session::installed(&mut source, plan, Side::Source)? == session::Installed::Ours {
        source.run(&renew_lease(plan.id))?;
    }
    Ok(())
}

fn create_scope(connection: &mut Connection, plan: &Plan, tables: &[Table], side: Side) -> Result<()> {
    let scope = agent::scope_table(plan.id, side);
    let mut columns: Vec<&Column> = Vec::new();
    for table in tables {
        let column = match side {
            Side::Source => &table.source_by,
            Side::Target => &table.target_by,
        };
        match columns.iter_mut().find(|known| known.base == column.base) {
            // One function for both: what holds for its collations.
            Some(known) if column.collation.is_some() => *known = column,
            Some(_) => {}
            None => columns.push(column),
        }
    }
    let Some(key_type) = columns.first().map(|column| column.base.as_str()) else { return Ok(()) };
    connection.run(&plan.scope.table(&scope, key_type))?;
    if let Some(functions) = plan.scope.functions() {
        connection.run(functions)?;
    }
    for column in columns {
        let filter = match &plan.scope {
            Scope::Keys(keys) => filter(connection, keys, column)?,
            Scope::Buckets { of, count, buckets } => Some(Filter::of_buckets(*of, *count, buckets)),
            Scope::Ranges { .. } => None,
        };
        connection.run(&agent::in_scope(plan, side, &column.base, filter.as_ref()))?;
    }
    Ok(())
}

/// The filter of the scope's keys, made of the hashes that this server gives them.
fn filter(connection: &mut Connection, keys: &[String], column: &Column) -> Result<Option<Filter>> {
    let Some(mut filter) = Filter::new(column, keys.len()) else { return Ok(None) };
    let positions = connection.run(&format!(
        "SELECT {} FROM unnest({}::{}[]) key",
        filter.position("key"),
        crate::remote::quote::array_literal(keys),
        column.base
    ))?;
    for row in positions.rows {
        if let [Some(position)] = row.as_slice() {
            filter.set(position.parse().unwrap_or(0));
        }
    }
    Ok(Some(filter))
}

fn create_capture(connection: &mut Connection, plan: &Plan, tables: &[Table]) -> Result<()> {
    connection.run(&agent::create_barrier(plan.id))?;
    for table in tables {
        let ordinal = table.policy.ordinal;
        create_queue(connection, plan, ordinal, &table.source)?;
        connection.run(&agent::capture(plan, ordinal, &table.source, &table.source_by))?;
    }
    Ok(())
}

/// One that is there is not touched: its index would be looked for under a lock that its
/// writers, who hold other queues already, would deadlock with.
fn create_queue(connection: &mut Connection, plan: &Plan, ordinal: i32, shape: &TableShape) -> Result<()> {
    let name = format!("shardmaster_agent.{}", agent::queue_table(plan.id, ordinal));
    if connection.query("SELECT to_regclass($1)", &[Some(&name)])?.scalar().is_none() {
        connection.run(&agent::queue(plan.id, ordinal, shape))?;
    }
    Ok(())
}

fn create_guard(connection: &mut Connection, plan: &Plan, tables: &[Table]) -> Result<()> {
    for table in tables {
        connection.run(&agent::guard(plan, table.policy.ordinal, &table.target, &table.target_by))?;
    }
    Ok(())
}

/// Creates what the agent's schema always has, within a transaction, to whose end nobody
/// else creates, replaces or drops any of it.
pub fn bootstrap(connection: &mut Connection) -> Result<()> {
    match connection.run(agent::BOOTSTRAP) {
        Ok(_) => Ok(()),
        // Another split was the first one to come, or the last one to leave.
        Err(error) if ["23505", "3F000", "42P01"].iter().any(|state| error.is(state)) => {
            Err(SplitError::Retry(format!("another split on shard \"{}\"", error.shard)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Drops everything of a side, and the agent's schema with the last one. The state row goes
/// last: until then a trigger that is left refuses nothing wrongly.
pub fn drop_side(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    triggers::drop_all(connection, split, side)?;
    if connection.run("SELECT to_regclass('shardmaster_agent.side')")?.scalar().is_none() {
        return Ok(());
    }
    connection.run("BEGIN")?;
    bootstrap(connection)?;
    drop_objects(connection, split, side)?;
    let side_name = literal(side.as_str());
    connection.run(&format!(
        "DELETE FROM shardmaster_agent.session WHERE split_id = {split} AND side = {side_name};
         DELETE FROM shardmaster_agent.generation WHERE split_id = {split} AND side = {side_name};
         DELETE FROM shardmaster_agent.side WHERE split_id = {split} AND side = {side_name}"
    ))?;
    drop_unused_schema(connection)?;
    connection.run("COMMIT")?;
    Ok(())
}

/// Drops everything of a target but its state row, which says that finish has left it: without
/// it a restored master could not tell a target that is done with from one that was set back.
pub fn leave_target(connection: &mut Connection, split: i64) -> Result<()> {
    triggers::drop_all(connection, split, Side::Target)?;
    connection.run("BEGIN")?;
    bootstrap(connection)?;
    drop_objects(connection, split, Side::Target)?;
    connection.run(&format!(
        "UPDATE shardmaster_agent.side SET state = 'left' WHERE split_id = {split} AND side = 'target'"
    ))?;
    connection.run("COMMIT")?;
    Ok(())
}

/// The functions and tables of a side.
fn drop_objects(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    drop_functions(connection, split, side)?;
    let scope = agent::scope_table(split, side);
    connection.run(&format!("DROP TABLE IF EXISTS shardmaster_agent.{scope}"))?;
    match side {
        Side::Source => {
            drop_queues(connection, split)?;
            let sequence = agent::queue_sequence(split);
            connection.run(&format!(
                "DROP SEQUENCE IF EXISTS shardmaster_agent.{sequence}; DROP TABLE IF EXISTS {}",
                agent::barrier(split)
            ))?;
        }
        Side::Target => {
            drop_tables(connection, &format!("gone_{split}_"))?;
            connection.run(&format!("DELETE FROM shardmaster_agent.progress WHERE split_id = {split}"))?;
        }
    }
    Ok(())
}

/// The agent's schema goes with the last side and the last redirect. The caller holds the
/// bootstrap's lock.
pub fn drop_unused_schema(connection: &mut Connection) -> Result<()> {
    let left = connection.run(
        "SELECT EXISTS (SELECT 1 FROM shardmaster_agent.side) OR EXISTS (SELECT 1 FROM shardmaster_agent.redirect)",
    )?;
    if left.scalar() == Some("f") {
        connection.run("DROP SCHEMA shardmaster_agent CASCADE")?;
    }
    Ok(())
}

fn drop_functions(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    let (trigger, refuse) = match side {
        Side::Source => (format!("capture_{split}_"), format!("refuse_{split}_")),
        Side::Target => (format!("guard_{split}_"), String::new()),
    };
    let lookup = agent::in_scope_function(split, side);
    let rows = connection.query(
        "SELECT p.oid::regprocedure::text FROM pg_proc p
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace
            AND (starts_with(p.proname, $1) OR $2 <> '' AND starts_with(p.proname, $2) OR p.proname = $3)",
        &[Some(&trigger), Some(&refuse), Some(&lookup)],
    )?;
    for row in rows.rows {
        if let [Some(function)] = row.as_slice() {
            connection.run(&format!("DROP FUNCTION {function}"))?;
        }
    }
    Ok(())
}

/// The queues and what counts them, once no trigger is left that would write to them.
fn drop_queues(connection: &mut Connection, split: i64) -> Result<()> {
    drop_tables(connection, &format!("queue_{split}_"))?;
    connection.run(&format!(
        "DELETE FROM shardmaster_agent.consumed WHERE split_id = {split};
         DELETE FROM shardmaster_agent.lease WHERE split_id = {split};
         DELETE FROM shardmaster_agent.overflow WHERE split_id = {split}"
    ))?;
    Ok(())
}

/// The agent's tables of one kind and split.
fn drop_tables(connection: &mut Connection, prefix: &str) -> Result<()> {
    let rows = connection.query(
        "SELECT relname FROM pg_class
          WHERE relnamespace = 'shardmaster_agent'::regnamespace AND relkind = 'r' AND starts_with(relname, $1)",
        &[Some(prefix)],
    )?;
    for row in rows.rows {
        if let [Some(table)] = row.as_slice() {
            connection.run(&format!("DROP TABLE shardmaster_agent.{table}"))?;
        }
    }
    Ok(())
}
