//! What an orphan still protects: a table that a lost master had followed from another shard than this one would.
//! Without it clients could write to that table.

use crate::agent::error::Result;
use crate::agent::reference::prefixes;
use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::catalog::reference::{self, FollowedTable};
use crate::catalog::shard::{self, Shard};
use crate::catalog::table_policy::TableName;
use crate::remote::Connection;
use crate::remote::quote::literal;

/// Returns why a set that this master does not know stays on a shard: one of its tables follows another origin here.
pub fn another_origin(session: &mut Connection, at: &Shard, set: i64) -> Result<Option<String>> {
    let [prefix, ..] = prefixes(set);
    let found = session.query(include_str!("../../sql/reference/of_set.sql"), &[Some(&prefix)])?;
    let tables = reference::all_tables();
    for row in found.rows {
        let [Some(schema), Some(name), origin] = row.as_slice() else { continue };
        let is_it = |table: &&FollowedTable| {
            table.name.name == *name
                && is_schema(&table.name, schema)
                && !is_origin(&table.origin, at, schema, origin.as_deref())
        };
        let Some(table) = tables.iter().find(is_it) else { continue };
        let first = if table.is_dropped {
            "wait until shard_status() no longer shows it".to_owned()
        } else {
            let (name, keyspace) = (literal(&table.name.quoted()), literal(&table.keyspace));
            format!("SELECT shard_table_drop({name}, {keyspace})")
        };
        return Ok(Some(format!(
            "kept: table {schema}.{name} follows \"{}\" by it, and \"{}\" by this master: {first}, then call shard_cleanup() again",
            origin.as_deref().unwrap_or(&at.shard_key),
            table.origin
        )));
    }
    Ok(None)
}

/// Whether a shard may have the table in this schema.
fn is_schema(table: &TableName, schema: &str) -> bool {
    match &table.schema {
        Some(own) => own == schema,
        None => shard::all().iter().any(|shard| shard.holds_rows() && shard.namespace == schema),
    }
}

/// Whether it is the same origin; for the origin's own set, the shard itself, or another one in the same place.
fn is_origin(here: &str, at: &Shard, schema: &str, there: Option<&str>) -> bool {
    match there {
        Some(there) => there == here,
        None if here == at.shard_key => true,
        None => shard::by_key(here).is_ok_and(|origin| {
            origin.namespace == schema && database_location::database(&origin, at) != Sameness::Different
        }),
    }
}
