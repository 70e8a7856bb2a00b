//! The schema of the agent: what it always has, what one side of a split has in it, and how all of that is removed.

use super::error::{Result, SplitError};
use super::session::Side;
use super::state::{changed, consumed, decision, is_gone, lease, overflow, progress, queue, scope};
use crate::agent;
use crate::agent::foreign_objects;
use crate::remote::Connection;
use crate::remote::template::{fill, sql, text, texts};
use std::sync::LazyLock;
use xxhash_rust::xxh64::xxh64;

static BOOTSTRAP: LazyLock<String> = LazyLock::new(|| bootstrap_in("SHARE ROW EXCLUSIVE"));
static SHARE: LazyLock<String> = LazyLock::new(|| bootstrap_in("ROW EXCLUSIVE"));

/// Returns statements that create the schema if it does not exist, and lock it in a mode otherwise.
fn bootstrap_in(mode: &str) -> String {
    let made = [
        include_str!("../../sql/agent/bootstrap.sql"),
        decision::TABLE,
        include_str!("../../sql/agent/key_list.sql"),
        include_str!("../../sql/agent/lookup.sql"),
    ]
    .concat();
    let created =
        ["CREATE TABLE IF NOT EXISTS shardmaster_agent.", "CREATE OR REPLACE FUNCTION shardmaster_agent."];
    let name = |line: &str| {
        let rest = created.iter().find_map(|start| line.strip_prefix(start))?;
        Some(rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
    };
    fill(
        include_str!("../../sql/agent/made.sql"),
        &[
            ("names", texts(made.lines().filter_map(name))),
            ("objects", sql(include_str!("../../sql/agent/made_objects.sql"))),
            ("digest", text(format!("{:016x}", xxh64(made.as_bytes(), 0)))),
            ("mode", sql(mode)),
            ("statements", text(format!("{}{made}", *foreign_objects::REFUSE))),
        ],
    )
}

/// Creates what the agent's schema always has, within a transaction. Until its end no other session creates, replaces
/// or drops any of it.
pub fn bootstrap(connection: &mut Connection) -> Result<()> {
    make(connection, &BOOTSTRAP)
}

/// Creates what the agent's schema always has, for a session that creates and drops only objects of its own split:
/// several such sessions may run at the same time.
pub fn share(connection: &mut Connection) -> Result<()> {
    make(connection, &SHARE)
}

fn make(connection: &mut Connection, statements: &str) -> Result<()> {
    // Another split has created the schema first, or has dropped it as the last one.
    let states = ["23505", "3F000", "42P01"];
    connection.run(statements).map(drop).map_err(|error| SplitError::of_another_split(error, states))
}

/// Commits a transaction that has created something there. It first revokes what default privileges have granted to
/// others, before they can see the objects.
pub fn commit(connection: &mut Connection) -> Result<()> {
    connection.run(concat!(include_str!("../../sql/agent/own.sql"), "COMMIT")).map(drop)?;
    Ok(())
}

/// Removes something of the agent in one transaction, and the schema with the last of it.
pub fn remove(connection: &mut Connection, what: impl FnOnce(&mut Connection) -> Result<()>) -> Result<()> {
    connection.run("BEGIN")?;
    bootstrap(connection)?;
    what(connection)?;
    drop_unused(connection)?;
    connection.run("COMMIT")?;
    Ok(())
}

/// Drops the schema with the last side, redirect, key guard and look-up, except for what stays until the shard is
/// dropped: the master's identity, and the last decisions. The caller holds the bootstrap's lock.
pub fn drop_unused(connection: &mut Connection) -> Result<()> {
    if !is_used(connection, None)? {
        connection.run(include_str!("../../sql/agent/drop_unused.sql"))?;
    }
    Ok(())
}

/// Whether anything is left that needs the schema, apart from the side `beside`.
pub fn is_used(connection: &mut Connection, beside: Option<(i64, Side)>) -> Result<bool> {
    let other = beside.map_or("true".to_owned(), |(split, side)| {
        format!("(split_id, side) <> ({split}, '{}')", side.as_str())
    });
    let used = connection.run(&format!(
        "SELECT EXISTS (SELECT 1 FROM shardmaster_agent.side WHERE {other})
             OR EXISTS (SELECT 1 FROM shardmaster_agent.key_list) OR EXISTS (SELECT 1 FROM shardmaster_agent.lookup)
             OR EXISTS (SELECT 1 FROM shardmaster_agent.reference_origin)
             OR EXISTS (SELECT 1 FROM shardmaster_agent.reference_copy)",
    ));
    match used {
        // Another session has dropped the schema as the last one.
        Err(error) if is_gone(&error) => Ok(true),
        used => Ok(used?.scalar() != Some("f")),
    }
}

/// Drops the functions and tables of a side.
pub fn drop_objects(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    drop_functions(connection, split, side)?;
    scope::drop(connection, split, side)?;
    match side {
        Side::Source => {
            queue::drop(connection, split)?;
            let rows = [consumed::delete(split), lease::delete(split), overflow::delete(split)];
            connection.run(&rows.join("; "))?;
        }
        Side::Target => {
            changed::drop(connection, split)?;
            connection.run(&progress::delete(split))?;
        }
    }
    Ok(())
}

fn drop_functions(connection: &mut Connection, split: i64, side: Side) -> Result<()> {
    let trigger = agent::trigger_functions(split, side);
    let refuse = side.of([format!("refuse_{split}_"), String::new()]);
    let lookup = agent::in_scope_function(split, side);
    let rows = connection.query(
        "SELECT p.oid::regprocedure::text FROM pg_proc p
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace
            AND (starts_with(p.proname, $1) OR $2 <> '' AND starts_with(p.proname, $2) OR p.proname = $3)",
        &[Some(&trigger), Some(&refuse), Some(&lookup)],
    )?;
    Ok(connection.run_all(rows.column().map(|function| format!("DROP FUNCTION {function}")))?)
}
