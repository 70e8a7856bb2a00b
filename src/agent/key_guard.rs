//! A key guard's triggers, and the look-ups that these call with the key of a row: one for each type of shard-by
//! column. A writer of a key that belongs there pays for one read of the list.

use crate::agent::error::Result;
use crate::agent::key_probe::{key_of, known_types, ordered};
use crate::agent::scope::bucket_for_writers;
use crate::agent::session_hash::AGENT;
use crate::agent::shape::{Column, TableShape};
use crate::agent::state::key_guard as state;
use crate::agent::state::key_guard::KeyGuard;
use crate::agent::types::TypeFamily;
use crate::keys::strategy::Strategy;
use crate::remote::Connection;
use crate::remote::quote::ident;
use crate::remote::template::{fill, number, sql, text, word};

const LOOK_UP: &str = include_str!("../../sql/agent/standing_lookup.sql");

/// The writes that the guard checks, with a trigger for each. Deleted rows do not matter to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    Insert,
    /// A row that gets another key.
    Rekey,
}

impl Arrival {
    pub const ALL: [Arrival; 2] = [Arrival::Insert, Arrival::Rekey];

    fn letter(self) -> char {
        match self {
            Arrival::Insert => 'i',
            Arrival::Rekey => 'k',
        }
    }
}

impl KeyGuard {
    /// Returns a trigger's name with the table's number: a table that becomes a partition of another has its own
    /// trigger beside the clones of the other's.
    pub fn trigger_name(&self, arrival: Arrival, shape: &TableShape) -> String {
        format!("{}{}_{}", self.trigger_prefix(), arrival.letter(), shape.oid.as_deref().unwrap_or_default())
    }

    /// Returns one of a table's triggers, set to fire always, which clones inherit. It does not depend on the columns
    /// that an UPDATE sets: a trigger of others may give a row its key.
    pub fn trigger(&self, column: &Column, shape: &TableShape, arrival: Arrival) -> String {
        let (name, table) = (ident(&self.trigger_name(arrival, shape)), &shape.name);
        let (by, function) = (ident(&column.name), self.function());
        let refused = format!("shardmaster_agent.{function}(NEW.{by})");
        let (event, when) = match arrival {
            Arrival::Insert => ("INSERT", refused),
            Arrival::Rekey => {
                // A domain over an enum has no equality of its own.
                let cast = if column.is_enum { format!("::{}", column.base) } else { String::new() };
                ("UPDATE", format!("OLD.{by}{cast} IS DISTINCT FROM NEW.{by}{cast} AND {refused}"))
            }
        };
        format!(
            "CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW WHEN ({when})
                 EXECUTE FUNCTION shardmaster_agent.standing();
             ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name};"
        )
    }

    fn look_up(&self, column: &Column) -> String {
        fill(
            LOOK_UP,
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

    /// Returns a query, without its first word, for the rows of the list that stand for the value `wanted`.
    fn found(&self, column: &Column) -> String {
        let table = self.table();
        match self.entries {
            Strategy::Directory => {
                let collate = match column.family() {
                    Some(TypeFamily::Text | TypeFamily::Enum(_)) | None => " COLLATE pg_catalog.\"C\"",
                    Some(TypeFamily::Integer | TypeFamily::Numeric | TypeFamily::Uuid) => "",
                };
                format!("1 FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) ({}{collate})", key_of(column))
            }
            Strategy::Hash { of, buckets } => {
                let bucket = bucket_for_writers("wanted", of, buckets);
                format!("1 FROM {table} l WHERE l.key OPERATOR(pg_catalog.=) (SELECT {bucket})")
            }
            // Ranges do not overlap, so the last one that begins below the value decides.
            Strategy::Range { of } => {
                let value = ordered("wanted", of);
                format!(
                    "1 FROM (SELECT b.upper FROM {table} b WHERE b.lower OPERATOR(pg_catalog.<=) {value} ORDER BY b.lower DESC LIMIT 1) l
                      WHERE l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper
                      UNION ALL
                     SELECT 1 FROM {table} l
                      WHERE l.lower IS NULL AND (l.upper IS NULL OR {value} OPERATOR(pg_catalog.<) l.upper)"
                )
            }
        }
    }
}

/// Writes the look-up for a type of column, in a transaction. Its query is run first: a function's text is only read
/// when a writer calls it.
pub fn write_look_up(connection: &mut Connection, guard: &KeyGuard, column: &Column) -> Result<()> {
    if let Some(functions) = guard.entries.scope(&[]).functions(AGENT) {
        connection.run(&functions)?;
    }
    connection.run(&guard.look_up(column))?;
    connection.run(&format!(
        "SELECT 1 FROM (SELECT NULL::{} AS wanted) w WHERE EXISTS (SELECT {})",
        column.base,
        guard.found(column)
    ))?;
    Ok(())
}

/// Drops what a guard without triggers has left, in a transaction.
pub fn drop_objects(connection: &mut Connection, guard: &KeyGuard) -> Result<()> {
    let function = guard.function();
    for column in known_types(connection, &function)? {
        connection.run(&format!("DROP FUNCTION shardmaster_agent.{function}({})", column.base))?;
    }
    state::drop(connection, guard)
}
