//! The objects of a lookup index on a shard: a row with its master, a queue, and three triggers on its table, which
//! put pairs of key and owner that may have changed into the queue.

use super::error::{Result, SplitError};
use super::short_lock::{TableLock, with_short_lock_once};
use super::state::{ask, is_gone, master};
use super::{SAMPLE, schema};
use crate::error::{Failure, SqlState};
use crate::guc;
use crate::remote::quote::{ident, qualified};
use crate::remote::template::{fill, number, sql, text, word};
use crate::remote::{Connection, RemoteError};

const CAPTURE: &str = include_str!("../../sql/agent/lookup_capture.sql");
const SHAPE: &str = include_str!("../../sql/lookup/shape.sql");
const SHARD: &str = include_str!("../../sql/lookup/shard.sql");

/// The names of one lookup index's objects, by its number on the shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capture(pub i32);

impl Capture {
    pub fn queue(self) -> String {
        format!("lookup_queue_{}", self.0)
    }

    fn function(self) -> String {
        format!("lookup_{}", self.0)
    }

    /// The prefix makes the triggers fire before those of foreign keys, like those of splits.
    fn trigger_prefix(self) -> String {
        format!("00_shardmaster_lookup_{}_", self.0)
    }
}

/// The watched columns and their table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchedColumn {
    pub schema: String,
    pub table: String,
    pub column: String,
    pub shard_by: String,
}

impl WatchedColumn {
    pub fn qualified(&self) -> String {
        qualified(&self.schema, &self.table)
    }
}

/// The current shape of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookupShape {
    pub key_type: String,
    pub owner_type: String,
    /// All triggers exist and fire always.
    pub is_captured: bool,
    /// Changes when rows may have been added or removed without a trigger.
    pub facts: String,
}

/// Returns the table's shape, or None if there is no such table. It is an error if a lookup index cannot use the
/// table.
pub fn shape(
    connection: &mut Connection,
    watched: &WatchedColumn,
    capture: Capture,
) -> Result<Option<LookupShape>> {
    let prefix = capture.trigger_prefix();
    let parameters = [&watched.schema, &watched.table, &watched.column, &watched.shard_by, &prefix];
    let answer = connection.query(SHAPE, &parameters.map(|text| Some(text.as_str())))?;
    let Some(row) = answer.rows.into_iter().next() else { return Ok(None) };
    match row.as_slice() {
        [None, Some(key_type), Some(owner_type), Some(whole), Some(facts)] => Ok(Some(LookupShape {
            key_type: key_type.clone(),
            owner_type: owner_type.clone(),
            is_captured: whole == "t",
            facts: facts.clone(),
        })),
        [Some(problem), ..] => Err(SplitError::Failed(
            Failure::new(
                SqlState::UNSUPPORTED,
                format!(
                    "no lookup index goes by table {} of shard \"{}\": {problem}",
                    watched.qualified(),
                    connection.shard()
                ),
            )
            .hint("Change the table, or remove it from the lookup index with shard_table_drop()."),
        )),
        _ => Err(RemoteError::unreadable(connection.shard(), "what a table is").into()),
    }
}

/// The state of a lookup index on its shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenLookup {
    /// The running server: its system identifier and timeline.
    pub place: String,
    pub announced: i64,
    pub consumed: i64,
    /// The queue takes no more entries.
    pub is_full: bool,
    /// The age of the oldest entry, in seconds.
    pub oldest: String,
    pub waiting: i64,
}

/// Returns the state of a lookup index. Returns None if the shard does not know it any more, or it is another
/// master's.
pub fn seen(connection: &mut Connection, capture: Capture, identity: &str) -> Result<Option<SeenLookup>> {
    let query = fill(
        SHARD,
        &[("queue", word(capture.queue())), ("id", number(capture.0)), ("identity", text(identity))],
    );
    let answer = match connection.run(&query) {
        Err(error) if is_gone(&error) => return Ok(None),
        answer => answer?,
    };
    let Some(row) = answer.rows.into_iter().next() else { return Ok(None) };
    let number = |cell: &Option<String>| cell.as_deref().and_then(|text| text.parse::<i64>().ok());
    let [Some(place), announced, consumed, is_full, oldest, waiting] = row.as_slice() else {
        return Err(RemoteError::unreadable(connection.shard(), "a lookup index's steps").into());
    };
    let (Some(announced), Some(consumed), Some(waiting)) =
        (number(announced), number(consumed), number(waiting))
    else {
        return Err(RemoteError::unreadable(connection.shard(), "a lookup index's steps").into());
    };
    let (place, oldest) = (place.clone(), oldest.clone().unwrap_or_else(|| "0".to_owned()));
    Ok(Some(SeenLookup {
        place,
        announced,
        consumed,
        is_full: is_full.as_deref() == Some("t"),
        oldest,
        waiting,
    }))
}

/// Returns the lookup index's number on the shard.
pub fn find(connection: &mut Connection, token: &str, namespace: &str) -> Result<Option<Capture>> {
    let query = "SELECT id FROM shardmaster_agent.lookup WHERE token = $1 AND namespace = $2";
    let answer = ask(connection, "lookup", query, &[Some(token), Some(namespace)])?;
    Ok(answer.scalar().and_then(|id| id.parse().ok()).map(Capture))
}

/// What a shard is told of a lookup index.
pub struct LookupTold<'a> {
    pub identity: &'a str,
    pub token: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The keyspace of the owners.
    pub of: &'a str,
}

/// Returns the number of the lookup index, and whether it was assigned just now.
pub fn enter(connection: &mut Connection, told: &LookupTold<'_>) -> Result<(Capture, bool)> {
    master::check(connection, told.identity)?;
    if let Some(capture) = find(connection, told.token, told.namespace)? {
        return Ok((capture, false));
    }
    connection.run("BEGIN")?;
    schema::bootstrap(connection)?;
    master::insert(connection, told.identity)?;
    connection.query(
        "INSERT INTO shardmaster_agent.lookup (token, namespace, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        &[Some(told.token), Some(told.namespace), Some(told.name)],
    )?;
    schema::commit(connection)?;
    master::check(connection, told.identity)?;
    match find(connection, told.token, told.namespace)? {
        Some(capture) => Ok((capture, true)),
        None => Err(SplitError::Retry(format!("the agent of shard \"{}\"", connection.shard()))),
    }
}

/// Creates what is missing of the capture and returns it with the table's shape.
pub fn install(
    connection: &mut Connection,
    told: &LookupTold<'_>,
    watched: &WatchedColumn,
    capture: Capture,
) -> Result<Option<LookupShape>> {
    let Some(shape) = shape(connection, watched, capture)? else { return Ok(None) };
    connection.run("BEGIN")?;
    schema::bootstrap(connection)?;
    if !has_types(connection, capture, &shape)? {
        drop_queue(connection, capture)?;
    }
    let values = [
        ("queue", word(capture.queue())),
        ("function", word(capture.function())),
        ("key_type", sql(shape.key_type.as_str())),
        ("owner_type", sql(shape.owner_type.as_str())),
        ("namespace", text(told.namespace)),
        ("keyspace", text(told.of)),
        ("sample", number(SAMPLE)),
        ("max_bytes", number(guc::queue_max_bytes())),
    ];
    connection.run(&fill(CAPTURE, &values))?;
    schema::commit(connection)?;
    if shape.is_captured {
        return Ok(Some(shape));
    }
    create_triggers(connection, watched, capture)?;
    self::shape(connection, watched, capture)
}

/// Whether the queue has the column types of this shape. If not, the table is another one by now.
fn has_types(connection: &mut Connection, capture: Capture, shape: &LookupShape) -> Result<bool> {
    let answer = connection.query(
        "SELECT count(*) = 0 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
          WHERE a.attrelid = to_regclass($1)
            AND (a.attname = 'key' AND 'pg_catalog.' || t.typname::text <> $2
                 OR a.attname = 'owner' AND 'pg_catalog.' || t.typname::text <> $3)",
        &[
            Some(&format!("shardmaster_agent.{}", capture.queue())),
            Some(&shape.key_type),
            Some(&shape.owner_type),
        ],
    )?;
    Ok(answer.is_true())
}

fn create_triggers(connection: &mut Connection, watched: &WatchedColumn, capture: Capture) -> Result<()> {
    let table = watched.qualified();
    let (key, owner) = (ident(&watched.column), ident(&watched.shard_by));
    let queued = |row: &str| format!("shardmaster_agent.{}({row}.{key}, {row}.{owner})", capture.function());
    // Each call returns false, so that both calls are made.
    let changed = format!(
        "(OLD.{key} IS DISTINCT FROM NEW.{key} OR OLD.{owner} IS DISTINCT FROM NEW.{owner}) AND ({} OR {})",
        queued("OLD"),
        queued("NEW")
    );
    let events = [("i", "INSERT", queued("NEW")), ("u", "UPDATE", changed), ("d", "DELETE", queued("OLD"))];
    let prefix = capture.trigger_prefix();
    let there = connection.query(
        "SELECT t.tgname FROM pg_trigger t WHERE t.tgrelid = to_regclass($1) AND starts_with(t.tgname, $2)",
        &[Some(&table), Some(&prefix)],
    )?;
    let lock = if there.rows.is_empty() { TableLock::ShareRowExclusive } else { TableLock::AccessExclusive };
    let mut statements: Vec<String> = there
        .rows
        .iter()
        .flatten()
        .flatten()
        .map(|name| format!("DROP TRIGGER {} ON {table}", ident(name)))
        .collect();
    for (letter, event, when) in events {
        let name = ident(&format!("{prefix}{letter}"));
        statements.push(format!(
            "CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION shardmaster_agent.lookup();
             ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"
        ));
    }
    with_short_lock_once(connection, lock, &statements.join(";\n"), &table)
}

/// A lookup index that the shard knows.
pub struct KnownLookup {
    pub capture: Capture,
    pub token: String,
    pub name: String,
}

pub fn all(connection: &mut Connection) -> Result<Vec<KnownLookup>> {
    let query = "SELECT id, token, left(name, 200) FROM shardmaster_agent.lookup ORDER BY id LIMIT 10000";
    let answer = ask(connection, "lookup", query, &[])?;
    let known = |row: &Vec<Option<String>>| match row.as_slice() {
        [Some(id), Some(token), Some(name)] => {
            Some(KnownLookup { capture: Capture(id.parse().ok()?), token: token.clone(), name: name.clone() })
        }
        _ => None,
    };
    Ok(answer.rows.iter().filter_map(known).collect())
}

/// Removes all of a lookup index, and the schema with the last one.
pub fn remove(connection: &mut Connection, capture: Capture) -> Result<()> {
    drop_triggers(connection, capture)?;
    schema::remove(connection, |connection| {
        drop_queue(connection, capture)?;
        connection.run(&format!("DELETE FROM shardmaster_agent.lookup WHERE id = {}", capture.0))?;
        Ok(())
    })
}

fn drop_queue(connection: &mut Connection, capture: Capture) -> Result<()> {
    let functions = connection.query(
        "SELECT p.oid::regprocedure::text FROM pg_proc p
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace AND p.proname = $1",
        &[Some(&capture.function())],
    )?;
    for function in functions.rows.iter().flatten().flatten() {
        connection.run(&format!("DROP FUNCTION {function}"))?;
    }
    let queue = capture.queue();
    connection.run(&format!(
        "DROP TABLE IF EXISTS shardmaster_agent.{queue}; DROP SEQUENCE IF EXISTS shardmaster_agent.{queue}_seq"
    ))?;
    Ok(())
}

/// Drops triggers, found by the function that their conditions call, whatever their names and those of their tables
/// are by now.
fn drop_triggers(connection: &mut Connection, capture: Capture) -> Result<()> {
    let found = connection.query(
        "SELECT n.nspname, c.relname, t.tgname
           FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE t.tgparentid = 0
            AND EXISTS (SELECT 1 FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid
                         WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid AND d.refclassid = 'pg_proc'::regclass
                           AND p.proname = $1 AND p.pronamespace = to_regnamespace('shardmaster_agent'))
          ORDER BY 1, 2, 3",
        &[Some(&capture.function())],
    )?;
    for row in found.rows {
        let [Some(schema), Some(table), Some(trigger)] = row.as_slice() else { continue };
        let table = qualified(schema, table);
        let drop = format!("DROP TRIGGER IF EXISTS {} ON {table}", ident(trigger));
        match with_short_lock_once(connection, TableLock::AccessExclusive, &drop, &table) {
            // The trigger was dropped meanwhile, with its table.
            Err(SplitError::Remote(error)) if error.is("42P01") => {}
            other => other?,
        }
    }
    Ok(())
}
