//! Key guards: the triggers that refuse writes by a list of keys, and the lookups that their conditions call with the
//! key of a row, one for each type of shard-by column. A redirect refuses clients with a stale route once the last row
//! of their keys has left. The key guard of an operator refuses keys that do not belong there. There is one list of each
//! kind for a namespace and keyspace, whatever the number of splits: the cost for a writer depends neither on how many
//! there were nor on what they moved.

use crate::agent::error::{Result, SplitError};
use crate::agent::key_filter::{self, ordered};
use crate::agent::schema;
use crate::agent::scope::bucket_for_writers;
use crate::agent::session_hash::AGENT;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::key_list::{self, KeyList, ListMode};
use crate::agent::state::{allowed_keys, is_gone};
use crate::agent::types::TypeFamily;
use crate::keys::key_type::KeyType;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::remote::template::{fill, number, sql, text, word};

const DENY: &str = include_str!("../../sql/agent/deny_lookup.sql");
const ALLOW: &str = include_str!("../../sql/agent/allow_lookup.sql");

/// The writes that are checked, with a trigger for each. Most updates do not change the key: for them only the new row
/// is checked by a redirect, since each check costs the tenants that stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckedWrite {
    Insert,
    Update,
    /// An update that gives a row another key.
    Rekey,
    Delete,
}

impl CheckedWrite {
    fn letter(self) -> char {
        match self {
            CheckedWrite::Insert => 'i',
            CheckedWrite::Update => 'u',
            CheckedWrite::Rekey => 'k',
            CheckedWrite::Delete => 'd',
        }
    }
}

impl KeyList {
    /// Returns the writes that have a trigger. Rows that stay as they are or go do not matter to a key guard.
    pub fn checked(&self) -> &'static [CheckedWrite] {
        match self.mode {
            ListMode::Deny => {
                &[CheckedWrite::Insert, CheckedWrite::Update, CheckedWrite::Rekey, CheckedWrite::Delete]
            }
            ListMode::Allow => &[CheckedWrite::Insert, CheckedWrite::Rekey],
        }
    }

    /// Returns a trigger's name with the table's number: a table that becomes a partition of another has its own
    /// trigger beside the clones of the other's.
    pub fn trigger_name(&self, write: CheckedWrite, shape: &TableShape) -> String {
        format!("{}{}_{}", self.trigger_prefix(), write.letter(), shape.oid.as_deref().unwrap_or_default())
    }

    /// Returns one of a table's triggers, set to fire always, which clones inherit. The column is given by its number,
    /// whatever name it gets.
    pub fn trigger(&self, column: &Column, shape: &TableShape, write: CheckedWrite) -> String {
        let (name, table) = (ident(&self.trigger_name(write, shape)), &shape.name);
        let by = ident(&column.name);
        let (event, when) = match write {
            CheckedWrite::Insert => ("INSERT".to_owned(), self.refused("NEW", &by)),
            CheckedWrite::Update => ("UPDATE".to_owned(), self.refused("NEW", &by)),
            CheckedWrite::Delete => ("DELETE".to_owned(), self.refused("OLD", &by)),
            CheckedWrite::Rekey => {
                // A domain over an enum has no equality of its own.
                let cast = if column.is_enum { format!("::{}", column.base) } else { String::new() };
                let changed = format!("OLD.{by}{cast} IS DISTINCT FROM NEW.{by}{cast}");
                match self.mode {
                    ListMode::Deny => {
                        (format!("UPDATE OF {by}"), format!("{changed} AND {}", self.refused("OLD", &by)))
                    }
                    // A trigger of others may give a row its key, whatever columns the UPDATE sets.
                    ListMode::Allow => {
                        ("UPDATE".to_owned(), format!("{changed} AND {}", self.refused("NEW", &by)))
                    }
                }
            }
        };
        format!(
            "CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW WHEN ({when})
                 EXECUTE FUNCTION shardmaster_agent.key_guard();
             ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};"
        )
    }

    /// Returns SQL that calls the lookup with the key of a row.
    fn refused(&self, row: &str, by: &str) -> String {
        let look_up = format!("shardmaster_agent.{}({row}.{by})", self.function());
        match self.mode {
            ListMode::Deny => {
                format!("shardmaster_agent.{}({row}.{by}) AND {look_up}", self.filter_function())
            }
            ListMode::Allow => look_up,
        }
    }

    /// Returns the lookup of a list with mode deny for one type of column, with a filter of what has left.
    fn look_up_of_denied(&self, column: &Column, version: i64, filter: &str) -> String {
        fill(
            DENY,
            &[
                ("function", word(self.function())),
                ("filter_function", word(self.filter_function())),
                ("security", sql(self.security_of_filter())),
                ("type", sql(column.base.as_str())),
                ("filter", sql(filter)),
                ("namespace", text(&self.namespace)),
                ("keyspace", text(&self.keyspace)),
                ("id", number(self.id)),
                ("version", number(version)),
                ("found", sql(self.found(column))),
            ],
        )
    }

    /// A writer may not call anything in the agent's schema by its name. The server's own functions need no rights, so
    /// without such a call the change of role is saved.
    fn security_of_filter(&self) -> &'static str {
        match self.entries {
            Strategy::Hash { .. } => "SECURITY DEFINER",
            Strategy::Directory | Strategy::Range { .. } => "SECURITY INVOKER",
        }
    }

    /// Returns the lookup of a list with mode allow for one type of column.
    fn look_up_of_allowed(&self, column: &Column) -> String {
        fill(
            ALLOW,
            &[
                ("function", word(self.function())),
                ("type", sql(column.base.as_str())),
                ("found", sql(self.found(column))),
                ("namespace", text(&self.namespace)),
                ("keyspace", text(&self.keyspace)),
                ("shard", text(&self.shard)),
                ("id", number(self.id)),
                ("assigned_by", word(self.entries.entry_is().1)),
            ],
        )
    }

    /// Returns a query for the rows of the list that stand for the value `wanted`: of what has left, its new shard and
    /// the routing version.
    fn found(&self, column: &Column) -> String {
        let table = self.table();
        let (facts, text_collation) = match self.mode {
            ListMode::Deny => ("l.shard, l.version", ""),
            ListMode::Allow => ("1", " COLLATE pg_catalog.\"C\""),
        };
        match self.entries {
            Strategy::Directory => {
                let collate = match column.family() {
                    Some(TypeFamily::Text | TypeFamily::Enum(_)) | None => text_collation,
                    Some(TypeFamily::Integer | TypeFamily::Numeric | TypeFamily::Uuid) => "",
                };
                let key = key_of(column);
                format!("SELECT {facts} FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) ({key}{collate})")
            }
            Strategy::Hash { of, buckets } => {
                // This is a query of its own; otherwise the value would be hashed anew for each row.
                let bucket = bucket_for_writers("wanted", of, buckets);
                format!("SELECT {facts} FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) (SELECT {bucket})")
            }
            // Ranges do not overlap, so the last one that begins below the value decides.
            Strategy::Range { of } => {
                let value = ordered("wanted", of);
                format!(
                    "SELECT {facts}
                       FROM (SELECT * FROM {table} b WHERE b.lower OPERATOR(pg_catalog.<=) {value} ORDER BY b.lower DESC LIMIT 1) l
                      WHERE l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper
                      UNION ALL
                     SELECT {facts} FROM {table} l
                      WHERE l.lower IS NULL AND (l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper)"
                )
            }
        }
    }
}

/// Writes the lookups of a redirect anew for each type of column, the existing ones and the given ones, in a
/// transaction. The number in their texts is that of the row from this commit on.
pub fn write_denied(connection: &mut Connection, redirect: &KeyList, columns: &[&Column]) -> Result<()> {
    let version = key_list::next_version(connection, redirect)?;
    let mut types = known_types(connection, redirect)?;
    for column in columns {
        if !types.iter().any(|known| known.base == column.base) {
            types.push(column_type(&column.base, column.is_enum));
        }
    }
    for column in &types {
        let filter = key_filter::write(connection, redirect, column)?;
        connection.run(&redirect.look_up_of_denied(column, version, &filter))?;
    }
    Ok(())
}

/// Writes the lookup of a key guard for a type of column, in a transaction. Its query is run first: a function's text
/// is only read when a writer calls it.
pub fn write_allowed(connection: &mut Connection, guard: &KeyList, column: &Column) -> Result<()> {
    if let Some(functions) = guard.entries.scope(&[]).functions(AGENT) {
        connection.run(&functions)?;
    }
    connection.run(&guard.look_up_of_allowed(column))?;
    connection.run(&format!(
        "SELECT 1 FROM (SELECT NULL::{} AS wanted) w WHERE EXISTS ({})",
        column.base,
        guard.found(column)
    ))?;
    Ok(())
}

/// Adds entries to the list of a key guard, in an open transaction.
pub fn add(
    connection: &mut Connection,
    guard: &KeyList,
    names: &[String],
    keys_are: Option<KeyType>,
) -> Result<()> {
    if guard.is_old {
        schema::bootstrap(connection)?;
    }
    allowed_keys::add(connection, guard, names, keys_are)
}

/// Tells a database, in a transaction of its own, what belongs to a namespace of it from now on. Returns false if the
/// namespace has no such guard. A master that may not own the database must check that before.
pub fn tell(
    connection: &mut Connection,
    [namespace, keyspace]: [&str; 2],
    entries: Strategy,
    names: &[String],
    keys_are: Option<KeyType>,
) -> Result<bool> {
    let Some(guard) = key_list::find_guard(connection, namespace, keyspace)? else { return Ok(false) };
    allowed_keys::require_same(&guard, entries)?;
    connection.run("BEGIN")?;
    match add(connection, &guard, names, keys_are) {
        // The guard was removed just now.
        Err(SplitError::Remote(error)) if is_gone(&error) => {
            connection.run("ROLLBACK")?;
            return Ok(false);
        }
        other => other?,
    }
    connection.run("COMMIT")?;
    Ok(true)
}

/// Drops a list without triggers, with its functions, in a transaction.
pub fn drop_objects(connection: &mut Connection, list: &KeyList) -> Result<()> {
    for column in known_types(connection, list)? {
        connection.run(&format!("DROP FUNCTION shardmaster_agent.{}({})", list.function(), column.base))?;
        if list.mode == ListMode::Deny {
            let filter = list.filter_function();
            connection.run(&format!("DROP FUNCTION shardmaster_agent.{filter}({})", column.base))?;
        }
    }
    key_list::drop(connection, list)
}

/// Returns the types of column for which the list has a lookup.
fn known_types(connection: &mut Connection, list: &KeyList) -> Result<Vec<Column>> {
    let rows = connection.query(
        "SELECT format_type(t.oid, -1), t.typtype = 'e'
           FROM pg_proc p JOIN pg_type t ON t.oid = p.proargtypes[0]
          WHERE p.pronamespace = 'shardmaster_agent'::regnamespace AND p.proname = $1 ORDER BY t.oid",
        &[Some(&list.function())],
    )?;
    let columns = rows.rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(base), Some(is_enum)] => Some(column_type(base, is_enum == "t")),
        _ => None,
    });
    Ok(columns.collect())
}

/// Returns a shard-by column with the properties that a lookup depends on.
fn column_type(base: &str, is_enum: bool) -> Column {
    Column { base: base.to_owned(), is_enum, ..Column::default() }
}

/// Returns SQL for the value `wanted` of a column in the form in which keys are compared.
fn key_of(column: &Column) -> String {
    match &column.family() {
        // This is not a cast, since the owner of an enum could have made one.
        Some(TypeFamily::Enum(_)) | None => "pg_catalog.format('%s', wanted)".to_owned(),
        Some(family) => format!("wanted::{}", family.compared_as()),
    }
}
