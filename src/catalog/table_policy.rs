//! Rows of `shardmaster.table_policy`: the tables of a keyspace, their names as SQL writes them, and their shard-by
//! column by its plain name.

use super::caller::Caller;
use super::keyspace::LockedKeyspace;
use crate::catalog::{database_location, declaration};
use crate::error::{Failure, SqlState};
use crate::named_enum::named_enum;
use crate::server::sql;
use pgrx::pg_sys;
use pgrx::prelude::*;
use pgrx::spi::quote_identifier;
use std::collections::BTreeSet;

/// A table of a keyspace. Without a schema it is in each shard's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    pub schema: Option<String>,
    pub name: String,
}

/// Longest identifier, in bytes.
const MAX_IDENTIFIER: usize = 63;

impl TableName {
    /// Reads `name` or `schema.name` as SQL does: folded to lower case unless quoted. Returns None if there are more
    /// than two parts. A text that is not a name at all is an error of the server.
    pub fn parse(text: &str) -> Option<TableName> {
        let mut parts = parse_identifiers(text).into_iter();
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, None) => Some(TableName { schema: None, name }),
            (Some(schema), Some(name), None) => Some(TableName { schema: Some(schema), name }),
            _ => None,
        }
    }

    /// Takes what is no name as a name without a schema.
    pub fn of(text: &str) -> TableName {
        TableName::parse(text).unwrap_or_else(|| TableName { schema: None, name: text.to_owned() })
    }

    /// Returns schema and name on a shard of this namespace.
    pub fn on(self, namespace: &str) -> (String, String) {
        (self.schema.unwrap_or_else(|| namespace.to_owned()), self.name)
    }

    /// Returns the name as SQL writes it, quoted where needed: the form that the catalog keeps.
    pub fn quoted(&self) -> String {
        let name = quote_identifier(&self.name);
        match &self.schema {
            Some(schema) => format!("{}.{name}", quote_identifier(schema)),
            None => name,
        }
    }
}

/// Returns a column's plain name; a name in double quotes is read as SQL does.
pub fn parse_column(text: &str) -> String {
    let quoted = text.len() > 2 && text.starts_with('"') && text.ends_with('"');
    let parts = if quoted { parse_identifiers(text) } else { Vec::new() };
    match <[String; 1]>::try_from(parts) {
        Ok([name]) => name,
        Err(_) => truncate(text.to_owned()),
    }
}

fn parse_identifiers(text: &str) -> Vec<String> {
    // SAFETY: parse_ident takes (text, boolean) and returns text[]; an error that it raises unwinds as any error of
    // the server does.
    let parts = unsafe {
        pgrx::direct_function_call::<Vec<String>>(
            pg_sys::parse_ident,
            &[text.into_datum(), true.into_datum()],
        )
    };
    parts.unwrap_or_default().into_iter().map(truncate).collect()
}

/// Truncates a name between two characters, as the server does with longer identifiers.
fn truncate(mut name: String) -> String {
    let end = (0..=name.len().min(MAX_IDENTIFIER)).rev().find(|end| name.is_char_boundary(*end));
    name.truncate(end.unwrap_or(0));
    name
}

named_enum! {
    /// How a table's rows are spread over the shards.
    pub enum Policy {
        /// Each row on the shard of its key.
        Sharded = "sharded",
        /// All rows on every shard.
        Reference = "reference",
        /// All rows on one server, which only the application knows.
        Global = "global",
    }
}

/// A table of a keyspace, whatever its policy.
#[derive(Debug, Clone)]
pub struct ListedTable {
    pub table_name: String,
    /// `None` if the table is not sharded.
    pub shard_by: Option<String>,
    pub policy: Policy,
    /// The shard that a reference table is copied from.
    pub origin: Option<String>,
}

impl ListedTable {
    /// Whether every shard has the table.
    pub fn is_everywhere(&self) -> bool {
        match self.policy {
            Policy::Sharded | Policy::Reference => true,
            Policy::Global => false,
        }
    }
}

/// A sharded table.
#[derive(Debug, Clone)]
pub struct TablePolicy {
    /// The name as the catalog keeps it, quoted where needed.
    pub table_name: String,
    /// The column's plain name, not quoted.
    pub shard_by: String,
    /// Whether a role that is a superuser now has added the table.
    pub by_superuser: bool,
}

/// Returns all tables of a keyspace, by name.
pub fn all(keyspace: &str) -> Vec<ListedTable> {
    sql::read(
        "SELECT p.table_name, p.shard_by, p.policy, p.origin
           FROM shardmaster.table_policy p WHERE p.keyspace = $1 ORDER BY p.table_name COLLATE \"C\"",
        &[keyspace.into()],
        |row| ListedTable {
            table_name: row.value(1),
            shard_by: row.get(2),
            // The table's CHECK constraint admits no other value.
            policy: Policy::from_name(&row.value::<String>(3)).unwrap_or(Policy::Global),
            origin: row.get(4),
        },
    )
}

/// Returns the names of the tables of all keyspaces.
pub fn names() -> BTreeSet<String> {
    let names = sql::read("SELECT table_name FROM shardmaster.table_policy", &[], |row| row.value(1));
    names.into_iter().collect()
}

/// Returns the sharded tables of a keyspace, by name: those whose rows have a key.
pub fn list(keyspace: &str) -> Vec<TablePolicy> {
    let query = format!(
        "SELECT p.table_name, p.shard_by, EXISTS (SELECT FROM pg_roles r WHERE {} AND r.rolsuper)
           FROM shardmaster.table_policy p WHERE p.keyspace = $1 AND p.policy = 'sharded'
          ORDER BY p.table_name COLLATE \"C\"",
        declaration::is("p.named_by")
    );
    sql::read(&query, &[keyspace.into()], |row| TablePolicy {
        table_name: row.value(1),
        shard_by: row.value(2),
        by_superuser: row.value(3),
    })
}

/// Returns the sharded tables of a keyspace, of which there must be some.
pub fn require(keyspace: &str) -> Result<Vec<TablePolicy>, Failure> {
    let policies = list(keyspace);
    if policies.is_empty() { Err(no_tables(keyspace)) } else { Ok(policies) }
}

pub fn no_tables(keyspace: &str) -> Failure {
    Failure::new(SqlState::NOT_IN_STATE, format!("keyspace \"{keyspace}\" has no tables"))
        .hint("shard_table_add() adds tables.")
}

/// A table of a keyspace whose rows have no key.
#[derive(Debug, Clone)]
pub struct Keyless {
    pub name: TableName,
    pub policy: Policy,
}

pub fn keyless(keyspace: &str) -> Vec<Keyless> {
    let tables = all(keyspace).into_iter().filter(|listed| listed.policy != Policy::Sharded);
    tables
        .filter_map(|listed| {
            let name = TableName::parse(&listed.table_name)?;
            Some(Keyless { name, policy: listed.policy })
        })
        .collect()
}

/// A table that a policy names, in a schema of a shard.
#[derive(Debug, Clone)]
pub struct OtherTable {
    pub keyspace: String,
    pub schema: String,
    pub name: String,
    pub policy: Policy,
}

/// Returns the tables of other keyspaces in the databases of two shards, as far as it is known which databases other
/// addresses lead to.
pub fn of_other_keyspaces(keyspace: &str, shards: [&str; 2]) -> Vec<OtherTable> {
    let itself = database_location::ITSELF;
    let query = format!(
        "SELECT DISTINCT p.keyspace, CASE WHEN cardinality(i.parts) = 1 THEN s.namespace ELSE i.parts[1] END,
                i.parts[cardinality(i.parts)], p.policy
           FROM shardmaster.table_policy p, parse_ident(p.table_name) AS i (parts), shardmaster.shard s
          WHERE p.keyspace <> $1 AND s.kind = 'postgres'
            AND EXISTS (SELECT 1 FROM shardmaster.shard o
                          LEFT JOIN shardmaster.database_identity here ON here.conninfo = s.conninfo
                          LEFT JOIN shardmaster.database_identity there ON there.conninfo = o.conninfo
                         WHERE o.shard_key IN ($2, $3)
                           AND (o.conninfo IS NOT DISTINCT FROM s.conninfo
                                OR CASE WHEN s.conninfo IS NULL THEN ({itself}) ELSE here.identity END
                                   = CASE WHEN o.conninfo IS NULL THEN ({itself}) ELSE there.identity END))
          ORDER BY 1, 2, 3"
    );
    sql::read(&query, &[keyspace.into(), shards[0].into(), shards[1].into()], |row| OtherTable {
        keyspace: row.value(1),
        schema: row.value(2),
        name: row.value(3),
        // The table's CHECK constraint admits no other value.
        policy: Policy::from_name(&row.value::<String>(4)).unwrap_or(Policy::Global),
    })
}

/// Returns keyspace and name of a policy that means the table by another name, or in another keyspace: without a
/// schema it is in the namespace of every shard. No session adds a table between this check and the end of the
/// transaction.
pub fn find_other(keyspace: &LockedKeyspace, table: &TableName) -> Option<(String, String)> {
    sql::write("LOCK TABLE shardmaster.table_policy IN SHARE ROW EXCLUSIVE MODE", &[]);
    sql::read_one(
        "SELECT p.keyspace, p.table_name
           FROM shardmaster.table_policy p, parse_ident(p.table_name) AS i (parts)
          CROSS JOIN LATERAL (SELECT CASE WHEN cardinality(i.parts) = 2 THEN i.parts[1] END AS nsp) q
          WHERE i.parts[cardinality(i.parts)] = $3 AND (p.keyspace, p.table_name) <> ($1, $4)
            AND (q.nsp IS NOT DISTINCT FROM $2
                 OR (q.nsp IS NULL OR $2 IS NULL)
                    AND coalesce(q.nsp, $2) IN (SELECT s.namespace FROM shardmaster.shard s WHERE s.kind = 'postgres'))
          ORDER BY 1, 2 LIMIT 1",
        &[
            keyspace.name.as_str().into(),
            table.schema.clone().into(),
            table.name.as_str().into(),
            table.quoted().into(),
        ],
        |row| (row.value(1), row.value(2)),
    )
}

/// Returns a table with this schema, and one without a schema that would be the same table on a shard with this
/// namespace.
pub fn find_same_in(namespace: &str) -> Option<(String, String)> {
    sql::write("LOCK TABLE shardmaster.table_policy IN SHARE ROW EXCLUSIVE MODE", &[]);
    sql::read_one(
        "SELECT p.table_name, q.table_name
           FROM shardmaster.table_policy p, parse_ident(p.table_name) AS i (parts),
                shardmaster.table_policy q, parse_ident(q.table_name) AS j (parts)
          WHERE i.parts[1] = $1 AND cardinality(i.parts) = 2
            AND cardinality(j.parts) = 1 AND j.parts[1] = i.parts[2]
          ORDER BY 1, 2 LIMIT 1",
        &[namespace.into()],
        |row| (row.value(1), row.value(2)),
    )
}

/// Inserts a table. Returns false if the keyspace has it already.
pub fn insert(keyspace: &LockedKeyspace, new: &ListedTable, caller: &Caller) -> bool {
    sql::write(
        "INSERT INTO shardmaster.table_policy (keyspace, table_name, shard_by, named_by, policy, origin)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (keyspace, table_name) DO NOTHING",
        &[
            keyspace.name.as_str().into(),
            new.table_name.as_str().into(),
            new.shard_by.clone().into(),
            declaration::by(caller).into(),
            new.policy.as_str().into(),
            new.origin.clone().into(),
        ],
    ) == 1
}

/// Deletes a table. Returns false if the keyspace does not have it.
pub fn delete(keyspace: &LockedKeyspace, table: &TableName) -> bool {
    sql::write(
        "DELETE FROM shardmaster.table_policy WHERE keyspace = $1 AND table_name = $2",
        &[keyspace.name.as_str().into(), table.quoted().into()],
    ) == 1
}

/// What this database knows of a table's shard-by column.
pub enum ShardByColumn {
    /// No local shard has the table here.
    TableUnknown,
    /// The table is here, without such a column.
    Missing,
    Type(pg_sys::Oid),
}

/// Reads the shard-by column of a table in the shards that are in this very database.
pub fn column_here(table: &TableName, column: &str) -> ShardByColumn {
    let found = sql::read_one(
        "SELECT a.atttypid
           FROM shardmaster.shard s
           JOIN pg_catalog.pg_namespace n ON n.nspname = coalesce($1, s.namespace)
           JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = $2 AND c.relkind IN ('r', 'p')
           LEFT JOIN pg_catalog.pg_attribute a
                  ON a.attrelid = c.oid AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped
          WHERE s.kind = 'postgres' AND s.conninfo IS NULL
          ORDER BY s.shard_index LIMIT 1",
        &[table.schema.clone().into(), table.name.as_str().into(), column.into()],
        |row| row.get::<pg_sys::Oid>(1),
    );
    match found {
        None => ShardByColumn::TableUnknown,
        Some(None) => ShardByColumn::Missing,
        Some(Some(oid)) => ShardByColumn::Type(oid),
    }
}
