//! The objects of a set of reference tables on its shards, created and removed. The agent knows the set before a table
//! has a trigger of it, and until the last one is gone.

use super::points;
use super::table::ReferenceSide;
use crate::agent::error::Result;
use crate::agent::state::reference::{self as rows, Takes};
use crate::agent::state::{master, reference_ended};
use crate::agent::{reference, schema};
use crate::catalog::reference::{Member, ReferencePlace, ReferenceSet};
use crate::reference::probe::{SetEnd, qualified};
use crate::remote::Connection;
use crate::remote::quote::{literal, text_array};
use crate::server::injection::reach;
use crate::split::table::triggers;

/// Condition for the triggers of a table on its origin, by their names.
const CAPTURES: &str = "t.tgname IN ($1::text || '_i', $1::text || '_u', $1::text || '_d')";
/// Condition for the trigger of a copy.
const GUARD: &str = "t.tgname = $1::text";

/// Returns a condition: the trigger is on one of these tables.
fn is_on(tables: &[String]) -> String {
    let tables: Vec<String> = tables.iter().map(|table| format!("to_regclass({})", literal(table))).collect();
    format!("t.tgrelid = ANY (ARRAY[{}]::oid[])", tables.join(", "))
}

/// Creates the agent's schema with a row of the set, taken over by this worker. If nothing is to be followed, returns
/// whether there is one.
pub fn attach(
    session: &mut Connection,
    set: &ReferenceSet,
    place: &ReferencePlace,
    end: SetEnd,
    by: &ReferenceWorker<'_>,
    takes: Takes,
) -> Result<bool> {
    master::check(session, by.identity)?;
    session.run("BEGIN")?;
    schema::bootstrap(session)?;
    master::insert(session, by.identity)?;
    master::check(session, by.identity)?;
    let is_known = match end {
        SetEnd::Origin => rows::take_origin(session, set, by.generation, takes)?,
        SetEnd::Copy => rows::take_copy(session, set, &place.shard.shard_key, by.generation, takes)?,
    };
    schema::commit(session)?;
    reach(points::ATTACHED)?;
    if !is_known {
        return Ok(false);
    }
    let known: Vec<i32> = set.tables.iter().chain(&set.dropped).map(|member| member.ordinal).collect();
    remove_others(session, set.id, &known)?;
    Ok(true)
}

/// Removes objects of tables that the set does not know: a master was restored to a time before they were added, and
/// nothing else would remove them. The caller has checked that the set is this master's, or nobody's. Triggers come
/// first: what they call is dropped after them.
pub fn remove_others(session: &mut Connection, set: i64, known: &[i32]) -> Result<()> {
    let known = text_array(&known.iter().map(i32::to_string).collect::<Vec<_>>());
    let [prefix, capture, queue] = reference::prefixes(set);
    let called = format!(
        "starts_with(t.tgname, $1::text)
         AND split_part(substr(t.tgname, length($1::text) + 1), '_', 1) <> ALL ({}::text[])",
        literal(&known)
    );
    triggers::drop_called_once(session, &called, &prefix)?;
    let objects = session.query(
        "SELECT format('FUNCTION %s', p.oid::regprocedure) FROM pg_proc p
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace AND starts_with(p.proname, $1)
            AND substr(p.proname, length($1) + 1) <> ALL ($3::text[])
         UNION ALL
         SELECT format('TABLE %s', c.oid::regclass) FROM pg_class c
          WHERE c.relnamespace = 'shardmaster_agent'::regnamespace AND c.relkind = 'r' AND starts_with(c.relname, $2)
            AND substr(c.relname, length($2) + 1) <> ALL ($3::text[])",
        &[Some(&capture), Some(&queue), Some(&known)],
    )?;
    for row in objects.rows {
        if let [Some(object)] = row.as_slice() {
            session.run(&format!("DROP {object}"))?;
        }
    }
    Ok(())
}

/// The acting worker.
pub struct ReferenceWorker<'a> {
    pub identity: &'a str,
    pub generation: i64,
}

/// Captures a table on its origin: existing objects are made anew. A queue with another key's types takes no entry of
/// this key; its contents are useless, since all rows are copied once the triggers have changed.
pub fn capture(
    session: &mut Connection,
    set: &ReferenceSet,
    member: &Member,
    side: &ReferenceSide,
) -> Result<()> {
    let (ordinal, shape) = (member.ordinal, &side.shape);
    // This includes those of a table that had this name before: they call what is dropped after them.
    let prefix = reference::trigger_prefix(set.id, ordinal);
    // It also includes the guard of a table that was a copy, and is another server's now.
    let there = is_on(std::slice::from_ref(&shape.name));
    triggers::drop_called_once(session, &format!("({CAPTURES} OR {GUARD} AND {there})"), &prefix)?;
    session.run("BEGIN")?;
    drop_capture(session, set, member)?;
    session.run(&reference::capture(set.id, ordinal, shape))?;
    schema::commit(session)?;
    triggers::create(session, &reference::capture_triggers(set.id, ordinal, shape), &shape.name)?;
    Ok(reach(points::INSTALLED)?)
}

/// Refuses clients' writes to a copy.
pub fn guard(session: &mut Connection, set: &ReferenceSet, member: &Member, table: &str) -> Result<()> {
    let statements = reference::guard_trigger(set.id, member.ordinal, table, &set.origin.shard.shard_key);
    let prefix = reference::trigger_prefix(set.id, member.ordinal);
    // This drops what captured the table when it was its origin, before it came here, and what guards tables that have
    // another name by now. Several shards may be in one database, each with a copy.
    let there = is_on(&[table.to_owned()]);
    let copies: Vec<String> =
        set.copies.iter().flat_map(|place| qualified(std::slice::from_ref(member), &place.shard)).collect();
    let elsewhere = format!("NOT coalesce({}, false)", is_on(&copies));
    let all = format!("({GUARD} AND ({there} OR {elsewhere}) OR {CAPTURES} AND {there})");
    triggers::drop_called_once(session, &all, &prefix)?;
    triggers::create(session, &statements, table)?;
    Ok(reach(points::INSTALLED)?)
}

/// Removes tables that are no longer in the keyspace, on the origin or one of the copies; with the last one, all of
/// the set. If a shard does not know this set, its objects with the set's number belong to another one.
pub fn remove(
    session: &mut Connection,
    set: &ReferenceSet,
    place: &ReferencePlace,
    end: SetEnd,
    is_known: bool,
) -> Result<()> {
    // This is noted before clients may write to them: a master that is restored to an earlier time learns of it.
    let ended: Vec<String> = set.dropped.iter().filter_map(|member| member.token.clone()).collect();
    session.run("BEGIN")?;
    schema::bootstrap(session)?;
    session.run(&reference_ended::note(&place.shard.namespace, &ended))?;
    if !is_known {
        schema::drop_unused(session)?;
    }
    schema::commit(session)?;
    if !is_known {
        return Ok(());
    }
    let called = if end == SetEnd::Origin { CAPTURES } else { GUARD };
    for member in &set.dropped {
        triggers::drop_called_once(session, called, &reference::trigger_prefix(set.id, member.ordinal))?;
    }
    session.run("BEGIN")?;
    schema::bootstrap(session)?;
    if end == SetEnd::Origin {
        for member in &set.dropped {
            drop_capture(session, set, member)?;
        }
    }
    if set.tables.is_empty() {
        session.run(&match end {
            SetEnd::Origin => rows::forget_origin(set),
            SetEnd::Copy => rows::forget_copy(set, &place.shard.shard_key),
        })?;
        schema::drop_unused(session)?;
    }
    session.run("COMMIT")?;
    Ok(reach(points::DROPPED)?)
}

fn drop_capture(session: &mut Connection, set: &ReferenceSet, member: &Member) -> Result<()> {
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
