//! What a set of reference tables has on its shards, made and removed. The agent knows the set before a table has a
//! trigger of it, and until the last one is gone.

use super::points;
use super::table::Side;
use crate::agent::error::Result;
use crate::agent::state::{self, master, reference as rows};
use crate::agent::{reference, schema};
use crate::catalog::reference::{Member, Place, Set};
use crate::remote::Connection;
use crate::server::injection::reach;
use crate::split::install::triggers;

/// By its name, and that its function is the agent's.
const OURS: &str = "t.tgname IN ($1::text, $1::text || '_i', $1::text || '_u', $1::text || '_d')";

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
    session.run(&format!("BEGIN; {}; COMMIT", reference::capture(set.id, member.ordinal, &side.shape)))?;
    make(
        session,
        set,
        member,
        &side.shape.name,
        &reference::capture_triggers(set.id, member.ordinal, &side.shape),
    )
}

/// Refuses clients' writes to a copy.
pub fn guard(session: &mut Connection, set: &Set, member: &Member, table: &str) -> Result<()> {
    let origin = &set.origin.shard.shard_key;
    make(session, set, member, table, &reference::guard_trigger(set.id, member.ordinal, table, origin))
}

fn make(session: &mut Connection, set: &Set, member: &Member, table: &str, statements: &str) -> Result<()> {
    triggers::drop_called(session, OURS, &reference::trigger_prefix(set.id, member.ordinal), "")?;
    triggers::create(session, statements, table)?;
    Ok(reach(points::INSTALLED)?)
}

/// Tables that are in the keyspace no more, on the origin or one of the copies; with the last one all of the set.
pub fn remove(session: &mut Connection, set: &Set, place: &Place, end: End) -> Result<()> {
    if !state::has(session, "master")? {
        return Ok(());
    }
    for member in &set.dropped {
        triggers::drop_called(session, OURS, &reference::trigger_prefix(set.id, member.ordinal), "")?;
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
