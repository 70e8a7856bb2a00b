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

/// The triggers of a table on its origin, by their names.
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

/// Captures a table on its origin: what is there of it already is made anew. A queue of another key's types takes no
/// entry of this one; what was in it is of no use, since all rows come over once the triggers are others.
pub fn capture(session: &mut Connection, set: &Set, member: &Member, side: &Side) -> Result<()> {
    let (ordinal, shape) = (member.ordinal, &side.shape);
    // Also those of a table that had this name before: they call what goes after them.
    let prefix = reference::trigger_prefix(set.id, ordinal);
    triggers::drop_called(session, CAPTURES, &prefix, "")?;
    session.run("BEGIN")?;
    drop_capture(session, set, member)?;
    session.run(&format!("{}; COMMIT", reference::capture(set.id, ordinal, shape)))?;
    triggers::create(session, &reference::capture_triggers(set.id, ordinal, shape), &shape.name)?;
    Ok(reach(points::INSTALLED)?)
}

/// Refuses clients' writes to a copy.
pub fn guard(session: &mut Connection, set: &Set, member: &Member, table: &str) -> Result<()> {
    let statements = reference::guard_trigger(set.id, member.ordinal, table, &set.origin.shard.shard_key);
    // Several shards may be in one database, each with a copy.
    let there = format!("{GUARD} AND t.tgrelid = to_regclass({})", literal(table));
    triggers::drop_called(session, &there, &reference::trigger_prefix(set.id, member.ordinal), "")?;
    triggers::create(session, &statements, table)?;
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
