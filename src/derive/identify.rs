//! A primary key for a table that has none: over the columns of a unique index, or over a column of its own, which the
//! same steps fill as a derived one. Each index is built beside writers, and becomes the key under a short lock.

use super::install::DerivedNames;
use super::shape::DerivedShape;
use crate::agent::error::Result;
use crate::agent::short_lock::{TableLock, with_short_lock_once};
use crate::catalog::derived_column::DerivedColumn;
use crate::remote::Connection;
use crate::remote::quote::ident;

/// The name of the column.
const COLUMN: &str = "row_id";

/// What a table needs for its rows to be told apart.
pub fn column(keyspace: &str, table: &str) -> DerivedColumn {
    DerivedColumn {
        id: 0,
        keyspace: keyspace.to_owned(),
        table_name: table.to_owned(),
        column: COLUMN.to_owned(),
        through: Vec::new(),
        value: None,
        was_there: false,
    }
}

/// Makes the primary key: of each leaf, then of the table, which takes the leaves' keys for its own.
pub fn add_key(
    session: &mut Connection,
    shape: &DerivedShape,
    names: &DerivedNames,
    leaves: &[String],
) -> Result<()> {
    let columns: Vec<&str> = match &shape.unique_key {
        Some(key) => key.columns.iter().map(String::as_str).collect(),
        None => shape.partition_columns().chain([shape.column()]).collect(),
    };
    let columns = columns.into_iter().map(ident).collect::<Vec<_>>().join(", ");
    let usable = shape.unique_key.as_ref().and_then(|key| key.index.as_deref());
    for (number, leaf) in leaves.iter().enumerate() {
        if has_key(session, leaf)? {
            continue;
        }
        let index = match usable {
            Some(index) => index.to_owned(),
            None => build(session, shape, &format!("{}_{number}", names.index()), leaf, &columns)?,
        };
        let statement = format!("ALTER TABLE {leaf} ADD PRIMARY KEY USING INDEX {}", ident(&index));
        with_short_lock_once(session, TableLock::AccessExclusive, &statement, leaf)?;
    }
    let table = shape.table();
    if has_key(session, &table)? {
        return Ok(());
    }
    let statement = format!("ALTER TABLE {table} ADD PRIMARY KEY ({columns})");
    with_short_lock_once(session, TableLock::AccessExclusive, &statement, &table)
}

/// Builds a unique index, unless it is there. Returns its name.
fn build(
    session: &mut Connection,
    shape: &DerivedShape,
    index: &str,
    leaf: &str,
    columns: &str,
) -> Result<String> {
    let query = "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                  WHERE i.indrelid = to_regclass($1) AND c.relname = $2";
    let found = session.query(query, &[Some(leaf), Some(index)])?;
    if found.is_true() {
        return Ok(index.to_owned());
    }
    if found.scalar().is_some() {
        // It was not built to its end.
        let schema = ident(shape.schema());
        session.run_unbounded(&format!("DROP INDEX CONCURRENTLY IF EXISTS {schema}.{index}"))?;
    }
    session.run_unbounded(&format!("CREATE UNIQUE INDEX CONCURRENTLY {index} ON {leaf} ({columns})"))?;
    Ok(index.to_owned())
}

fn has_key(session: &mut Connection, table: &str) -> Result<bool> {
    let query = "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = to_regclass($1) AND indisprimary)";
    Ok(session.query(query, &[Some(table)])?.is_true())
}
