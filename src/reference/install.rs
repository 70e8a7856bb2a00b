//! What a set of reference tables has on its shards, made and removed. The agent knows the set before a table has a
//! trigger of it, and until the last one is gone.

use super::points;
use super::table::Side;
use crate::agent::error::Result;
use crate::agent::state::{self, master, reference as rows};
use crate::agent::{reference, schema};
use crate::catalog::reference::{Member, Place, Set};
use crate::remote::Connection;
use crate::remote::quote::literal;
use crate::server::injection::reach;
use crate::split::install::triggers;

/// The triggers of a table on its origin, by their names. Several shards may be in one database.
const CAPTURES: &str = "t.tgname IN ($1::text || '_i', $1::text || '_u', $1::text || '_d')";
/// That of a copy.
const GUARD: &str = "t.tgname = $1::text";

/// Which end of a set a shard is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Origin,
    Copy,
}

/// The agent's schema with a row of the set, taken over by this worker.
pub fn attach(session: &mut Connection, set: &Set, place: &Place, end: End, by: &By<'_>) -> Result<()> {
    master::check(session, by.identity)?;
    session.run("BEGIN")?;
    schema::bootstrap(session)?;
    master::insert(session, by.identity)?;
    master::check(session, by.identity)?;
    match end {
        End::Origin => rows::take_origin(session, set, by.generation)?,
        End::Copy => rows::take_copy(session, set, &place.shard.shard_key, by.generation)?,
    }
    session.run("COMMIT")?;
    Ok(reach(points::ATTACHED)?)
}

/// The worker that acts.
pub struct By<'a> {
    pub identity: &'a str,
    pub generation: i64,
}

/// Captures a table on its origin: what is there of it already is made anew.
pub fn capture(session: &mut Connection, set: &Set, member: &Member, side: &Side) -> Result<()> {
    let (ordinal, shape) = (member.ordinal, &side.shape);
    session.run(&format!("BEGIN; {}; COMMIT", reference::capture(set.id, ordinal, shape)))?;
    let statements = reference::capture_triggers(set.id, ordinal, shape);
    make(session, &reference::trigger_prefix(set.id, ordinal), (CAPTURES, &shape.name), &statements)
}

/// Refuses clients' writes to a copy.
pub fn guard(session: &mut Connection, set: &Set, member: &Member, table: &str) -> Result<()> {
    let statements = reference::guard_trigger(set.id, member.ordinal, table, &set.origin.shard.shard_key);
    make(session, &reference::trigger_prefix(set.id, member.ordinal), (GUARD, table), &statements)
}

fn make(session: &mut Connection, prefix: &str, (of, table): (&str, &str), statements: &str) -> Result<()> {
    let there = format!("{of} AND t.tgrelid = to_regclass({})", literal(table));
    triggers::drop_called(session, &there, prefix, "")?;
    triggers::create(session, statements, table)?;
    Ok(reach(points::INSTALLED)?)
}

/// Tables that are in the keyspace no more, on the origin or one of the copies; with the last one all of the set.
pub fn remove(session: &mut Connection, set: &Set, place: &Place, end: End) -> Result<()> {
    if !state::has(session, "master")? {
        return Ok(());
    }
    let called = if end == End::Origin { CAPTURES } else { GUARD };
    for member in &set.dropped {
        triggers::drop_called(session, called, &reference::trigger_prefix(set.id, member.ordinal), "")?;
    }
    session.run("BEGIN")?;
    schema::bootstrap(session)?;
    if end == End::Origin {
        for member in &set.dropped {
            drop_capture(session, set, member)?;
        }
    }
    if set.tables.is_empty() {
        session.run(&match end {
            End::Origin => rows::forget_origin(set),
            End::Copy => rows::forget_copy(set, &place.shard.shard_key),
        })?;
        schema::drop_unused(session)?;
    }
    session.run("COMMIT")?;
    Ok(reach(points::DROPPED)?)
}

fn drop_capture(session: &mut Connection, set: &Set, member: &Member) -> Result<()> {
    let function = reference::capture_function(set.id, member.ordinal);
    let found = session.query(
        "SELECT p.oid::regprocedure::text FROM pg_proc p
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace AND p.proname = $1",
        &[Some(&function)],
    )?;
    for row in found.rows {
        if let [Some(function)] = row.as_slice() {
            session.run(&format!("DROP FUNCTION {function}"))?;
        }
    }
    session.run(&format!("DROP TABLE IF EXISTS {}", reference::queue_table(set.id, member.ordinal)))?;
    Ok(())
}
